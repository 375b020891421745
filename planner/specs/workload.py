"""What is to be computed: a training run."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from planner.enums import AdapterKind, AdapterTargets
from planner.specs.checked import checked


@checked
class TrainingWorkload:
    """A training run: sequences, batch, tokens, and what of the model is trained.

    ``pipeline_layout``: layers of each chunk of a pipeline as Megatron-Core writes them, or their
    numbers; as the framework deals them where empty. ``global_batch_size`` is the default in
    sequences; a search space may list others.
    """

    sequence_length: Annotated[int, Field(ge=1, le=100_000_000)]
    global_batch_size: Annotated[int, Field(ge=1, le=100_000_000)]
    total_tokens: Annotated[float, Field(gt=0, lt=1e18)]
    dropout: bool = False
    pipeline_layout: str = ""
    adapter: AdapterKind = AdapterKind.NONE
    lora_rank: Annotated[int, Field(ge=1, le=100_000)] = 16
    lora_targets: AdapterTargets = AdapterTargets.ATTENTION

    @property
    def is_frozen(self) -> bool:
        """Whether the model's own weights stay as they are."""
        return self.adapter is not AdapterKind.NONE
