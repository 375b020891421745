"""What is to be computed: a training run."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

_STRICT = ConfigDict(extra="forbid")


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class TrainingWorkload:
    """A pre-training run: sequences, batch, tokens.

    ``global_batch_size`` is the default in sequences; a search space may list others.
    """

    sequence_length: Annotated[int, Field(ge=1, le=100_000_000)]
    global_batch_size: Annotated[int, Field(ge=1, le=100_000_000)]
    total_tokens: Annotated[float, Field(gt=0, lt=1e18)]
    dropout: bool = False
