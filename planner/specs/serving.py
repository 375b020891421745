"""What is to be served: lengths, traffic, and what shortens or adds work."""

from __future__ import annotations

from typing import Annotated

import numpy as np

from planner.base.arrays import FloatArray
from planner.base.enums import AdapterTargets
from planner.specs.checked import Interval, checked
from planner.specs.drafting import DraftMethod

Tokens = Annotated[int, Interval(ge=1, le=100_000_000)]
MOST_DRAFTED = 64
Variation = Annotated[float, Interval(ge=0, le=10)]
Share = Annotated[float, Interval(ge=0, lt=1)]


@checked
class ServingWorkload:
    """Requests of ``input_tokens`` that are answered with ``output_tokens``.

    ``request_rate`` [1/s] is that of the whole deployment; without it, clients hold a fixed
    number of requests in flight. ``prefix_cache_hit_rate``: share of the prompt found in the
    cache, ``shared_prefix_tokens``: tokens that begin all prompts alike, found there and kept once.
    ``input_variation`` and ``output_variation``: coefficients of variation of the lengths, whose
    means the tokens are; 0 where all are equal. ``draft_tokens`` are proposed per step and
    each is accepted with ``acceptance_rate``; making them takes ``draft_cost`` of a step's time.
    ``draft_method``: what makes them; ``draft_steps``: how many come one after the other, all of
    them where not given, fewer of a tree of which one branch is accepted.
    ``lora_rank``: the greatest of adapters served beside the model, for which an engine keeps room;
    ``max_loras``: of how many in one step, those that it keeps room for where not given;
    ``lora_targets``: the matrices that may have one. ``expert_dispersion``: variance of the
    experts' popularity over its squared mean; 0 is balanced routing. ``num_requests``: that clients
    send in all, who all start at once, as those of a benchmark do, or that come at the
    ``request_rate``; without end where not given.
    ``equal_lengths``: all requests have the very same lengths, so that those which start
    together end together. ``equal_prompts``: they have the very same tokens, so that those of a
    step choose the experts of one request. ``redundant_experts``: copies of routed experts in a
    layer beside them; as few as give all ranks equal numbers where not given. ``max_model_len``:
    tokens of the longest request that the engine takes, for which its cache must have room before
    it starts; where not given it is told a length that finds room. ``images_per_sample``: of each
    prompt, part of whose tokens are their ``tokens_per_image``; 0: as many as is usual.
    ``embedding_bits``: of a weight of embedding and logits; as the engine has them where not given.
    """

    input_tokens: Tokens
    output_tokens: Tokens
    request_rate: Annotated[float, Interval(gt=0, lt=1e9)] | None = None
    prefix_cache_hit_rate: Share = 0.0
    shared_prefix_tokens: Annotated[int, Interval(ge=0, le=10**9)] = 0
    input_variation: Variation = 0.0
    output_variation: Variation = 0.0
    draft_tokens: Annotated[int, Interval(ge=0, le=MOST_DRAFTED)] = 0
    acceptance_rate: Share = 0.0
    draft_cost: Annotated[float, Interval(ge=0, le=10)] = 0.0
    draft_method: DraftMethod = DraftMethod.UNSAID
    draft_steps: Annotated[int, Interval(ge=1, le=MOST_DRAFTED)] | None = None
    lora_rank: Annotated[int, Interval(ge=0, le=4096)] = 0
    max_loras: Annotated[int, Interval(ge=1, le=100_000)] | None = None
    lora_targets: AdapterTargets = AdapterTargets.ALL_LINEAR
    expert_dispersion: Annotated[float, Interval(ge=0, le=100)] = 2.0
    num_requests: Annotated[int, Interval(ge=1, lt=10**12)] | None = None
    equal_lengths: bool = False
    equal_prompts: bool = False
    redundant_experts: Annotated[int, Interval(ge=0, le=10_000)] | None = None
    max_model_len: Tokens | None = None
    embedding_bits: Annotated[int, Interval(ge=4, le=32)] | None = None
    images_per_sample: Annotated[float, Interval(ge=0, le=1_000_000)] = 0.0
    tokens_per_image: Annotated[int, Interval(ge=0, le=100_000_000)] = 0

    @property
    def drafted_in_a_row(self) -> int:
        """Drafted tokens of a step that may all be accepted."""
        return min(self.draft_steps or self.draft_tokens, self.draft_tokens)

    @property
    def drafts_trees(self) -> bool:
        """Whether more tokens are drafted than one branch has."""
        return self.drafted_in_a_row < self.draft_tokens


def redundant_experts(
    workload: ServingWorkload, num_experts: int, expert_parallel: FloatArray
) -> FloatArray:
    """Copies of a layer's experts: those that were asked for, or the fewest that fill all ranks."""
    if workload.redundant_experts is not None:
        return np.asarray(float(workload.redundant_experts))
    return np.asarray(np.ceil(num_experts / expert_parallel) * expert_parallel - num_experts)
