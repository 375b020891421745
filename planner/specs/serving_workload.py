"""Serving workloads: lengths, traffic, prefix cache and speculative decoding.

Parameters
----------
method : draft method
model : model
tokens : size of each cache [tokens]
rate : request rate of all caches together [1/s]
caches : number of caches
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from enum import StrEnum
from functools import cached_property
from typing import Annotated

import numpy as np

from planner.base.arrays import FloatArray, Numeric
from planner.base.enums import AdapterTargets
from planner.base.records import record
from planner.specs.arrivals import Arrivals
from planner.specs.model import FeedForwardSpec, LayerGroup, ModelSpec
from planner.specs.validated import Interval, validated

CACHES = tuple(2.0**power for power in range(13))
"""Numbers of caches with known hits under random routing."""
_COLUMNS = 129
_FINE = 513


@record(kw_only=True)
class HitRateCurve:
    """Prefix-cache hits by the time since last use, and the cache size that keeps tokens that long.

    Parameters
    ----------
    times : times since last use, ascending [s], or [requests] if not ``per_second``
    hits : share of the prompt tokens that were used at most ``times`` ago
    filled : tokens of one cache that keeps all tokens for ``times``, at 1 request/s if
        ``per_second``
    prompt : mean tokens of a prompt
    written : mean tokens that a request adds to the cache
    per_second : times are in seconds (sessions), not in requests (a trace)
    scatter : share of the ``hits`` left when requests go to random caches, by number of caches
        (`CACHES`); empty: requests return to their cache
    """

    times: tuple[float, ...]
    hits: tuple[float, ...]
    filled: tuple[float, ...]
    prompt: float
    written: float
    per_second: bool
    scatter: tuple[tuple[float, ...], ...] = ()

    @property
    def endless(self) -> float:
        """Hit rate of an unlimited cache, a share of the prompt tokens."""
        return self.hits[-1]

    def hit_rate(self, tokens: Numeric, rate: Numeric, caches: Numeric) -> FloatArray:
        """Return the share of prompt tokens that the prefix caches contain."""
        return _interpolate(self._tables[0], *self._table_position(tokens, rate, caches))

    def residence(self, tokens: Numeric, rate: Numeric, caches: Numeric) -> FloatArray:
        """Return the time that the caches keep unused tokens [s]."""
        seconds = np.exp(_interpolate(self._tables[1], *self._table_position(tokens, rate, caches)))
        seconds = np.where(np.asarray(tokens) > 0, seconds, 0.0)
        return np.asarray(seconds if self.per_second else seconds / rate)

    def _table_position(
        self, tokens: Numeric, rate: Numeric, caches: Numeric
    ) -> tuple[FloatArray, FloatArray]:
        """Return (row, column) of a cache size and number in the tables."""
        cache_size = np.maximum(tokens, 0.0) * caches / (rate if self.per_second else 1.0)
        low, high = self._log_sizes[0], self._log_sizes[-1]
        column = (np.log(np.maximum(cache_size, 1e-300)) - low) / (high - low) * (_COLUMNS - 1)
        row = np.log2(np.maximum(caches, 1.0)) if self.scatter else np.zeros(())
        return np.asarray(row), np.asarray(column)

    @cached_property
    def _log_sizes(self) -> FloatArray:
        """Logarithms of the sizes of all caches together, at which hits are tabled."""
        largest = self.written * self.times[-1] if self.scatter else self.filled[-1]
        return np.linspace(np.log(self.filled[0]), np.log(largest), _COLUMNS)

    @cached_property
    def _tables(self) -> tuple[FloatArray, FloatArray]:
        r"""Return hit shares and log times by number of caches and total cache size.

        Under random routing, one of R caches had the last use in :math:`1 / R` of the cases; its
        earlier uses are R times as old.
        """
        time = np.geomspace(self.times[0], self.times[-1], _FINE)
        ages, rows = np.log(self.times), list[FloatArray]()
        hits = np.interp(np.log(time), ages, self.hits)
        if not self.scatter:
            log_size = np.log(np.asarray(self.filled))
            hit_shares = np.interp(self._log_sizes, log_size, self.hits)
            return hit_shares[None], np.interp(self._log_sizes, log_size, np.log(self.times))[None]
        log_times = list[FloatArray]()
        for caches, scattered in zip(CACHES, self.scatter, strict=True):
            older = np.asarray(scattered) - np.asarray(self.hits) / caches
            of_all = hits / caches + np.interp(np.log(time / caches), ages, older)
            unused_tokens = self.written - self.prompt * of_all
            steps = np.diff(time) * (unused_tokens[1:] + unused_tokens[:-1]) / 2
            log_size = np.log(np.cumsum(np.concatenate([[time[0] * unused_tokens[0]], steps])))
            rows.append(np.interp(self._log_sizes, log_size, of_all))
            log_times.append(np.interp(self._log_sizes, log_size, np.log(time)))
        return np.stack(rows), np.stack(log_times)


def _interpolate(table: FloatArray, row: FloatArray, column: FloatArray) -> FloatArray:
    """Interpolate a table at (row, column); edge values apply beyond the table."""
    row = np.clip(row, 0, table.shape[0] - 1)
    column = np.clip(column, 0, table.shape[1] - 1)
    i = np.minimum(row.astype(np.intp), max(table.shape[0] - 2, 0))
    j = np.minimum(column.astype(np.intp), table.shape[1] - 2)
    y, x, below = row - i, column - j, np.minimum(i + 1, table.shape[0] - 1)
    upper = table[i, j] * (1 - x) + table[i, j + 1] * x
    lower = table[below, j] * (1 - x) + table[below, j + 1] * x
    return np.asarray(upper * (1 - y) + lower * y)


class DraftMethod(StrEnum):
    """Method of speculative decoding: unspecified, a smaller model, the model's modules of
    multi-token prediction, heads trained for the model, or a search in the text so far."""

    UNSPECIFIED = ""
    DRAFT_MODEL = "draft_model"
    MTP = "mtp"
    EAGLE = "eagle"
    EAGLE3 = "eagle3"
    NGRAM = "ngram"

    @property
    def states(self) -> int:
        """Vectors of the residual stream that a module or a head projects to one; 0: no module."""
        return {"mtp": 2, "eagle": 2, "eagle3": 3}.get(self.value, 0)


@record(kw_only=True)
class Acceptance:
    """Probability that a drafted token is accepted if all before it were, of published runs.

    Parameters
    ----------
    assumed : value that planner assumes if none is specified
    low : lowest of published runs
    high : highest of published runs
    """

    assumed: float
    low: float
    high: float


_UNSPECIFIED = Acceptance(assumed=0.65, low=0.57, high=0.72)
_CHAINS: Mapping[DraftMethod, Acceptance] = {
    # Y. Leviathan et al., arXiv:2211.17192, tables 2 and 3.
    DraftMethod.DRAFT_MODEL: Acceptance(assumed=0.7, low=0.55, high=0.8),
    # DeepSeek-V3, arXiv:2412.19437, section 5.4.3: 0.85 to 0.9 of the first; 1.9 tokens of two
    # (github.com/sgl-project/sglang/pull/3582). Chat templates lower it.
    DraftMethod.MTP: Acceptance(assumed=0.8, low=0.6, high=0.9),
    # 1.89 tokens with 2 drafted, 2.08 with 4 (github.com/vllm-project/vllm/pull/16035).
    DraftMethod.EAGLE: Acceptance(assumed=0.57, low=0.5, high=0.65),
    # 2.46 with 3 (vLLM pull request 24344), 2.47 with 6 (24243), 3.53 with 7 (issue 26191).
    DraftMethod.EAGLE3: Acceptance(assumed=0.68, low=0.6, high=0.75),
    # 2.96 with 5 where texts are edited (vLLM pull request 24344); in chats little repeats.
    DraftMethod.NGRAM: Acceptance(assumed=0.45, low=0.2, high=0.75),
}
_TREES: Mapping[DraftMethod, Acceptance] = {
    # 2.5 to 3 tokens of 3 at most (github.com/sgl-project/sglang/pull/3582).
    DraftMethod.MTP: Acceptance(assumed=0.87, low=0.75, high=0.95),
    # 3.75 tokens of 9 at most (github.com/sgl-project/sglang/pull/4247).
    DraftMethod.EAGLE: Acceptance(assumed=0.75, low=0.65, high=0.8),
    # 4.68 of 6 at most, 5.39 of 9 (the same).
    DraftMethod.EAGLE3: Acceptance(assumed=0.87, low=0.8, high=0.9),
}
_TREE_UNSPECIFIED = Acceptance(assumed=0.8, low=0.74, high=0.88)


def acceptance(method: DraftMethod, *, is_tree: bool) -> Acceptance:
    """Return the default acceptance of a draft method; ``is_tree``: drafts branch.

    Parameters
    ----------
    is_tree : several drafted tokens may follow each token
    """
    if is_tree:
        return _TREES.get(method, _TREE_UNSPECIFIED)
    return _CHAINS.get(method, _UNSPECIFIED)


_VOCABULARY = 32_000  # draft_vocab_size of the heads that the authors of EAGLE-3 publish
_WIDE = 4  # of a dense layer over the residual stream, where the model has only experts


def head_of(model: ModelSpec, method: DraftMethod) -> ModelSpec | None:
    """Return the draft model of a method; None if the method has no module or trained head.

    A head is a dense layer like those of the model in 16 bit, over the state of the model and the
    embedding of the token [1]_. EAGLE-3 has separate logits for a part of the vocabulary [2]_.
    Embedding and other logits are shared with the model.
    """
    if method is DraftMethod.MTP:
        return module_of(model)
    if method not in (DraftMethod.EAGLE, DraftMethod.EAGLE3):
        return None
    groups = module_of(model).layer_groups
    attention = next(group.attention for group in groups if group.attention)
    width = max((each.intermediate_size for each in model.feed_forwards), default=0)
    dense = FeedForwardSpec(intermediate_size=width or _WIDE * model.hidden_size)
    layer = replace(
        groups[-1], attention=attention, state=None, feed_forward=dense, norms_per_layer=2
    )
    has_separate_logits = method is DraftMethod.EAGLE3
    return replace(
        model,
        name=f"{model.name} {method} head",
        layer_groups=(layer,),
        vocab_size=min(_VOCABULARY, model.vocab_size) if has_separate_logits else model.vocab_size,
        tie_word_embeddings=False,
        quantization=None,
        expert_quantization=None,
        checkpoints=(),
    )


def with_mtp(model: ModelSpec, count: int) -> ModelSpec:
    """Return the model with ``count`` multi-token-prediction modules [1]_ as layers.

    A module projects the last hidden state and the embedding of the next token to one state,
    has a layer with attention over all tokens and a feed-forward, and shares embedding and logits.
    If attention and feed-forward are separate layers, it has one of each.

    Parameters
    ----------
    count : number of modules

    References
    ----------
    .. [1] DeepSeek-AI, "DeepSeek-V3," 2024, arXiv:2412.19437, section 2.2.
    """
    if count == 0:
        return model
    chosen = _of_module(model.layer_groups)
    groups = tuple(
        replace(group, num_hidden_layers=group.num_hidden_layers + count)
        if index in chosen
        else group
        for index, group in enumerate(model.layer_groups)
    )
    return replace(model, layer_groups=groups, mtp_num_layers=model.mtp_num_layers + count)


def module_of(model: ModelSpec) -> ModelSpec:
    """Return a model of the layers of one prediction module; other parts are shared.

    Parameters
    ----------
    model : model with modules of multi-token prediction
    """
    groups = tuple(
        replace(model.layer_groups[index], num_hidden_layers=1)
        for index in sorted(_of_module(model.layer_groups))
    )
    return replace(model, name=f"{model.name} module", layer_groups=groups, checkpoints=())


def _of_module(groups: tuple[LayerGroup, ...]) -> set[int]:
    """Return the indices of the layer groups that a prediction module uses."""
    attention = max(range(len(groups)), key=lambda index: (_attends(groups[index]), index))
    feed_forward = max(
        range(len(groups)), key=lambda index: (groups[index].feed_forward is not None, index)
    )
    has_feed_forward = groups[attention].feed_forward is not None
    return {attention} if has_feed_forward else {attention, feed_forward}


def _attends(group: LayerGroup) -> int:
    """Return the attention rank of a group: 3 full, 2 window, 1 state, 0 no attention."""
    if group.attention is None:
        return 0
    if group.attention.has_state:
        return 1
    return 2 if group.attention.sliding_window else 3


Tokens = Annotated[int, Interval(ge=1, le=100_000_000)]
MOST_DRAFTED = 64
Variation = Annotated[float, Interval(ge=0, le=10)]
Share = Annotated[float, Interval(ge=0, lt=1)]


@validated
class ServingWorkload:
    """Requests to serve.

    Parameters
    ----------
    input_tokens : mean tokens of a prompt
    output_tokens : mean tokens of an answer; 0: the prompt is embedded or scored
    request_rate : requests of the whole deployment [1/s]; None: clients hold a fixed number in
        flight
    prefix_cache_hit_rate : share of the prompt tokens in the prefix cache
    shared_prefix_tokens : tokens at the start of all prompts, computed and cached once
    input_variation : standard deviation over mean of the prompts' tokens; 0: equal
    output_variation : standard deviation over mean of the answers' tokens; 0: equal
    arrivals : burstiness of the arrivals
    reuse : prefix-cache hits by cache size; None: ``prefix_cache_hit_rate``
    host_cache : host memory per GPU for prefixes [bytes]
    disk_cache : disk space per GPU for prefixes [bytes]
    draft_tokens : tokens drafted per step; 0: no speculative decoding
    acceptance_rate : probability that a drafted token is accepted if all before it were
    draft_cost : drafting time over the time of a step
    draft_method : draft method
    draft_steps : tokens drafted one after the other; None: all; fewer than ``draft_tokens``: a tree
    lora_rank : greatest rank of served adapters, for which the engine reserves memory; 0: none
    max_loras : adapters in one step; None: as many as memory is reserved for
    num_adapters : adapters that requests name; None: one
    adapter_skew : popularity of the k-th adapter is proportional to 1 / k^``adapter_skew``
    lora_targets : matrices that may have adapters
    expert_dispersion : variance of the experts' popularity over its squared mean; 0: balanced
    num_requests : requests in all, as in a benchmark; None: no end. Without ``request_rate`` all
        clients start at once
    equal_lengths : all requests have the same lengths, so that those of a step end together
    equal_prompts : all prompts have the same tokens, so that a step visits the experts of one
        request
    stage_layers : layers of the pipeline stage that has most; None: as even as possible
    decode_context_parallel : ranks of tensor parallelism that hold parts of a sequence's cache in
        decoding, where they would hold copies of key-value heads
    redundant_experts : copies of routed experts in a layer; None: the fewest that fill all ranks
    max_model_len : longest request that the engine accepts [tokens]; None: the longest that fits
    embedding_bits : bits of a weight of embedding and logits; None: as the engine stores them
    images_per_sample : images of a prompt
    tokens_per_image : tokens of an image, part of the prompt; 0: as usual for the model
    audio_seconds : duration of the sound in a prompt [s]; its tokens are part of the prompt
    """

    input_tokens: Tokens
    output_tokens: Annotated[int, Interval(ge=0, le=100_000_000)]
    request_rate: Annotated[float, Interval(gt=0, lt=1e9)] | None = None
    prefix_cache_hit_rate: Share = 0.0
    shared_prefix_tokens: Annotated[int, Interval(ge=0, le=10**9)] = 0
    input_variation: Variation = 0.0
    output_variation: Variation = 0.0
    arrivals: Arrivals = Arrivals()
    reuse: HitRateCurve | None = None
    host_cache: Annotated[float, Interval(ge=0, le=1e15)] = 0.0
    disk_cache: Annotated[float, Interval(ge=0, le=1e17)] = 0.0
    draft_tokens: Annotated[int, Interval(ge=0, le=MOST_DRAFTED)] = 0
    acceptance_rate: Share = 0.0
    draft_cost: Annotated[float, Interval(ge=0, le=10)] = 0.0
    draft_method: DraftMethod = DraftMethod.UNSPECIFIED
    draft_steps: Annotated[int, Interval(ge=1, le=MOST_DRAFTED)] | None = None
    lora_rank: Annotated[int, Interval(ge=0, le=4096)] = 0
    max_loras: Annotated[int, Interval(ge=1, le=100_000)] | None = None
    num_adapters: Annotated[int, Interval(ge=1, le=1_000_000)] | None = None
    adapter_skew: Annotated[float, Interval(ge=0, le=10)] = 0.0
    lora_targets: AdapterTargets = AdapterTargets.ALL_LINEAR
    expert_dispersion: Annotated[float, Interval(ge=0, le=100)] = 2.0
    num_requests: Annotated[int, Interval(ge=1, lt=10**12)] | None = None
    equal_lengths: bool = False
    equal_prompts: bool = False
    stage_layers: Annotated[int, Interval(ge=1, le=100_000)] | None = None
    decode_context_parallel: Annotated[int, Interval(ge=1, le=10_000)] = 1
    redundant_experts: Annotated[int, Interval(ge=0, le=10_000)] | None = None
    max_model_len: Tokens | None = None
    embedding_bits: Annotated[int, Interval(ge=4, le=32)] | None = None
    images_per_sample: Annotated[float, Interval(ge=0, le=1_000_000)] = 0.0
    tokens_per_image: Annotated[int, Interval(ge=0, le=100_000_000)] = 0
    audio_seconds: Annotated[float, Interval(ge=0, le=10**7)] = 0.0

    @property
    def embeds(self) -> bool:
        """Whether prompts are embedded or scored, and nothing is generated."""
        # Measured runs are predicted together, with an array of lengths.
        return bool(np.all(np.asarray(self.output_tokens) == 0))

    @property
    def drafted_in_a_row(self) -> int:
        """Drafted tokens of a step that may all be accepted."""
        return min(self.draft_steps or self.draft_tokens, self.draft_tokens)

    @property
    def drafts_trees(self) -> bool:
        """Whether more tokens are drafted than one branch has."""
        return self.drafted_in_a_row < self.draft_tokens


def embedder_of(model: ModelSpec) -> ModelSpec:
    """Return the model without logits, for embeddings or scores.

    Parameters
    ----------
    model : model with logits
    """
    return replace(model, num_labels=model.num_labels or 1)


def redundant_experts(
    workload: ServingWorkload, num_experts: int, expert_parallel: FloatArray
) -> FloatArray:
    """Return redundant experts per layer: as requested, or the fewest that fill all ranks.

    Parameters
    ----------
    workload : workload
    num_experts : routed experts of a layer
    expert_parallel : expert-parallel ranks
    """
    if workload.redundant_experts is not None:
        return np.asarray(float(workload.redundant_experts))
    return np.asarray(np.ceil(num_experts / expert_parallel) * expert_parallel - num_experts)
