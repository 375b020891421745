"""Peak memory of the fullest GPU of a replica, and its KV-cache capacity."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields, replace

import numpy as np

from planner.base.arrays import BoolArray, FloatArray, Numeric, add
from planner.base.enums import LinkKind, Quantization
from planner.base.records import record
from planner.configurations.configuration_tables import FFN_WEIGHTS, ServingConfigurations
from planner.estimators.adapters import adapter_bytes
from planner.estimators.attention_core import (
    cached_bytes,
    index_bytes,
    state_bytes,
    window,
)
from planner.estimators.inference.batch_share import Batch, BatchShare, ServingInputs
from planner.estimators.inference.speculative_decoding import draft_weights, drafter
from planner.estimators.inference.weights import stage_layers, weight_bytes
from planner.estimators.towers import encoder_memory, tower_weights
from planner.formulas.memory import (
    kv_cache_overflow_share,
    paged_kv_cache_tokens,
    typical_kv_cache_bytes,
)
from planner.formulas.queueing import mean_residual
from planner.layers.model import layer_of
from planner.layers.operators import AttentionCore, Scan
from planner.specs.engine import MemoryShare
from planner.specs.quantization import SIXTEEN_BIT_BYTES

# ``cudagraph_capture_sizes`` of vllm/config/vllm.py, and the default sequences of the start logs
# that the memory of graphs is taken from.
_GRAPH_SIZES = np.array([1, 2, 4, *range(8, 256, 8), *range(256, 513, 16)])
_USUAL_GRAPH_SEQS = 256
_MANY_RANKS = 4


@record(kw_only=True)
class KvCacheCapacity:
    """KV cache bytes of one GPU, or of the host memory per GPU.

    ``shared``: bytes of the prefix of all prompts, held once. ``sequence``: further bytes of one
    sequence at its mean length. ``longest``: bytes of one at its full length with the prefix, on
    the rank that holds it; ``longest_on_average_rank``: without the prefix, on an average rank.
    """

    size: FloatArray
    shared: FloatArray
    sequence: FloatArray
    longest: FloatArray
    longest_on_average_rank: FloatArray

    def mapped(self, change: Callable[[FloatArray], FloatArray]) -> KvCacheCapacity:
        """The room with every array changed."""
        return KvCacheCapacity(**{name: change(value) for name, value in vars(self).items()})

    def holds(self, sequence: FloatArray) -> FloatArray:
        """Return how many sequences of ``sequence`` bytes fit; 0 if the longest does not.

        A device without memory for the cache sets no limit if it holds no part of a sequence.
        """
        count = np.floor((self.size - self.shared) / np.maximum(sequence, 1.0))
        count = np.where((self.size <= 0) & (self.longest <= 0), np.inf, count)
        return np.where(self.size >= self.longest, np.maximum(count, 1.0), 0.0)

    def holds_at_once(self, sequences: Numeric, ranks: FloatArray) -> BoolArray:
        """Whether so many sequences of full length fit, spread over so many ranks."""
        return np.asarray(self.held(sequences / ranks) <= self.size)

    def held(self, sequences: Numeric) -> FloatArray:
        """Bytes of so many full sequences on the rank that holds them."""
        return np.asarray(self.shared + (self.longest - self.shared) * sequences)


@record(kw_only=True)
class ServingMemory:
    """Bytes on one GPU; the parts add up to ``total``.

    ``kv_cache`` holds the sequences of the configuration's ``concurrency``; ``room`` is the
    KV-cache capacity of the GPU, ``host_room`` that of its host. ``host``: bytes of host memory
    that offloaded weights and cache take for this GPU. ``usable``: bytes that the engine may use of
    the GPU. ``adapters``: adapter slots that the engine allocates at the start.
    """

    weights: FloatArray
    adapters: FloatArray
    kv_cache: FloatArray
    activations: FloatArray
    reserved: FloatArray
    room: KvCacheCapacity
    host_room: KvCacheCapacity
    host: FloatArray
    usable: FloatArray

    def mapped(self, change: Callable[[FloatArray], FloatArray]) -> ServingMemory:
        """Return a copy with every array replaced by ``change(array)``."""
        rooms = ("room", "host_room")
        arrays = {name: change(array) for name, array in vars(self).items() if name not in rooms}
        room, host_room = self.room.mapped(change), self.host_room.mapped(change)
        return ServingMemory(room=room, host_room=host_room, **arrays)

    @property
    def total(self) -> FloatArray:
        """Peak bytes."""
        return add(getattr(self, name) for name in SERVING_MEMORY_PARTS)

    def needed_for(self, sequences: Numeric) -> FloatArray:
        """Return bytes that the fullest GPU needs for ``sequences`` full-length sequences."""
        return self.non_cache_bytes + self.room.held(sequences)

    @property
    def non_cache_bytes(self) -> FloatArray:
        """Bytes of all but the KV cache."""
        return self.weights + self.adapters + self.activations + self.reserved

    @property
    def most_sequences(self) -> FloatArray:
        """Sequences of mean length that fit on a replica and its hosts."""
        on_host = self.host_room.holds(self.host_room.sequence)
        return np.minimum(self.room.holds(self.room.sequence), on_host)

    @property
    def most_whole_sequences(self) -> FloatArray:
        """Sequences of full length that fit on a replica and its hosts."""
        on_host = self.host_room.holds(self.host_room.longest_on_average_rank)
        return np.minimum(self.room.holds(self.room.longest_on_average_rank), on_host)


SERVING_MEMORY_PARTS = tuple(
    field.name
    for field in fields(ServingMemory)
    if field.name not in ("room", "host_room", "host", "usable")
)


def serving_memory(inputs: ServingInputs, configurations: ServingConfigurations) -> ServingMemory:
    """Predict the serving memory of every configuration, in bytes per GPU by part."""
    c = configurations
    total_weights = weight_bytes(inputs, c).of(c.weight_parts)
    weights = total_weights * (1 - c.weight_offload)
    if c.weight_parts != FFN_WEIGHTS:
        weights = weights + draft_weights(inputs, c) + tower_weights(inputs, c)
    adapters = adapter_bytes(inputs, c)
    reserved = np.asarray(reserved_bytes(inputs, c))
    lengths = inputs.workload
    longest = _cache_bytes(inputs, c, lengths.input_tokens + lengths.output_tokens)
    half_way = mean_residual(mean=lengths.output_tokens, variation=lengths.output_variation)
    mean = _cache_bytes(inputs, c, lengths.input_tokens + half_way)
    shared = _cache_bytes(inputs, c, lengths.shared_prefix_tokens, has_states=False)
    typical = typical_kv_cache_bytes(mean=mean, longest=longest, sequences=c.concurrency)
    if not inputs.engine.scheduler.continuous:
        typical = longest
    elif inputs.engine.scheduler.whole_requests:
        # An answer that runs is half way in the mean, and all of it is reserved.
        typical = _cache_bytes(inputs, c, lengths.input_tokens + 2 * half_way)
    caches = (longest, typical, shared)
    activations, usable, capacity = _memory_and_cache(
        inputs, c, weights + adapters, reserved, caches
    )
    size, held_caches = capacity.size, capacity.shared + capacity.sequence * c.concurrency
    kv_cache = np.minimum(held_caches, np.maximum(size, capacity.longest))
    if inputs.engine.scheduler.slots and lengths.max_model_len is not None:
        # ggml-org/llama.cpp, src/llama-kv-cache.cpp: the cells of the context, at the start.
        slots = c.concurrency / c.attention_data_parallel
        kv_cache = np.maximum(kv_cache, _checked_bytes(inputs, c, lengths.max_model_len) * slots)
    offloaded = total_weights * c.weight_offload
    on_host = _capacity_of_device(inputs.machine.host_memory - offloaded, caches, c, c.kv_offload)
    return ServingMemory(
        weights=weights,
        adapters=adapters,
        kv_cache=kv_cache,
        activations=activations,
        reserved=reserved,
        room=capacity,
        host_room=on_host,
        host=offloaded + on_host.shared + on_host.sequence * c.concurrency,
        usable=usable,
    )


def preempted_share(
    inputs: ServingInputs, c: ServingConfigurations, memory: ServingMemory, running: Numeric
) -> FloatArray:
    """Return the share of ``running`` requests that the KV cache has no room for at a time.

    Engines recompute them or make them wait, unless the engine reserves memory for full requests.
    """
    work, scheduler = inputs.workload, inputs.engine.scheduler
    keeps_cache = np.any(memory.room.longest)
    if scheduler.whole_requests or not scheduler.continuous or not keeps_cache:
        return np.zeros(())
    longer = 1 + work.output_variation**2
    mean = work.input_tokens + work.output_tokens * longer / 2
    answers = work.output_tokens**2 * (longer**3 / 3 - longer**2 / 4)
    variance = (work.input_tokens * work.input_variation) ** 2 + answers
    token = memory.room.longest / (work.input_tokens + work.output_tokens)
    held = np.minimum(running, memory.most_sequences) / c.attention_data_parallel
    return kv_cache_overflow_share(
        mean=mean,
        variation=np.sqrt(variance) / mean,
        sequences=held,
        capacity=(memory.room.size - memory.room.shared) / token,
    )


def reserved_bytes(inputs: ServingInputs, c: ServingConfigurations) -> FloatArray:
    """Return bytes of context, CUDA graphs and all-reduce buffers on one GPU."""
    memory, is_slow = inputs.engine.memory, inputs.machine.gpu.scale_up.kind is LinkKind.PCIE
    peers = 0.0 if is_slow else memory.communication
    shared = np.where(c.tensor_parallel > 1, peers, 0.0)
    return np.asarray(memory.reserved + _graph_bytes(inputs, c) + shared)


def _graph_bytes(inputs: ServingInputs, c: ServingConfigurations) -> Numeric:
    """Return bytes of CUDA graphs: fewer are captured if the option of sequences is lower."""
    memory = inputs.engine.memory
    if not memory.fixed_profiled_seqs:
        return memory.graphs
    captured = _captured_graphs(_profiled_seqs(inputs, c))
    return memory.graphs * np.minimum(captured / _captured_graphs(_USUAL_GRAPH_SEQS), 1.0)


def _profiled_seqs(inputs: ServingInputs, c: ServingConfigurations) -> FloatArray:
    """Return the sequences that a rank samples at its start: the default, or its limit."""
    limit = c.concurrency / c.attention_data_parallel
    seqs = np.maximum(inputs.engine.memory.profiled_seqs, limit)
    if inputs.engine_max_num_seqs is None:
        return seqs
    return np.where(c.concurrency == inputs.engine_max_num_seqs, seqs, limit)


def _captured_graphs(seqs: Numeric) -> FloatArray:
    """Return vLLM's graphs: of pieces up to twice the sequences, of whole steps up to these."""
    pieces = np.searchsorted(_GRAPH_SIZES, np.minimum(2 * np.ceil(seqs), 512), side="right")
    steps = np.searchsorted(_GRAPH_SIZES, np.ceil(seqs), side="right")
    return np.asarray(pieces + steps, dtype=float)


def usable_bytes(
    inputs: ServingInputs,
    c: ServingConfigurations,
    *,
    weights: FloatArray,
    reserved: FloatArray,
    activations: Numeric = 0.0,
) -> FloatArray:
    """Return bytes of a GPU that the engine may use, by its memory-share option or default.

    ``reserved``: bytes that are neither weights, activations nor cache. Where the cache gets its
    share before any step, only what it leaves is usable if the ``activations`` need more.
    """
    kind, size = inputs.engine.memory.memory_share, inputs.machine.gpu.allocatable_memory
    memory_share = c.gpu_memory_utilization
    loaded = weights + reserved
    reserved = reserved + activations
    if kind in (MemoryShare.FREE, MemoryShare.LOADED):
        memory_share = np.where(
            memory_share > 0, memory_share, inputs.engine.memory.gpu_memory_utilization
        )
    if kind is MemoryShare.STATIC:
        memory_share = np.where(memory_share > 0, memory_share, _static_share(inputs, c))
        usable = np.minimum(memory_share * size + reserved, size)
    elif kind is MemoryShare.FREE:
        usable = weights + reserved + memory_share * np.maximum(size - weights - reserved, 0.0)
    elif kind is MemoryShare.LOADED:
        free = np.maximum(size - loaded, 0.0)
        left = (1 - memory_share) * free
        usable = loaded + np.where(activations <= left, memory_share * free + activations, left)
    else:
        usable = np.asarray(size * memory_share)
    usable = np.where(memory_share > 0, usable, inputs.usable_memory)
    unused = (1 - inputs.engine.memory.cache_share) * (usable - weights - reserved)
    return np.asarray(usable - np.maximum(unused, 0.0))


def _static_share(inputs: ServingInputs, c: ServingConfigurations) -> Numeric:
    """Return the default share of a GPU's memory for weights and KV cache; 0 without a rule."""
    rule, size = inputs.engine.memory.static_reserve, inputs.machine.gpu.allocatable_memory
    if rule is None:
        return 0.0
    ranks, of_few, of_many = c.attention_data_parallel, *inputs.engine.scheduler.captured_seqs
    sequences = np.where(c.tensor_parallel * ranks < _MANY_RANKS, of_few, of_many)
    left = (
        rule.constant
        + rule.token * np.maximum(c.replica_step_tokens, rule.least_tokens)
        + rule.captured_sequence * sequences
        + rule.rank * c.replica_gpus
        + np.where(ranks > 1, rule.attention_sequence * sequences * ranks, 0.0)
    )
    left = np.maximum(left, rule.least if size > rule.least_from else 0.0)
    return np.asarray(1 - (left + rule.draft * (inputs.workload.draft_tokens > 0)) / size)


def _memory_and_cache(
    inputs: ServingInputs,
    c: ServingConfigurations,
    weights: FloatArray,
    reserved: FloatArray,
    caches: tuple[FloatArray, FloatArray, FloatArray],
) -> tuple[FloatArray, FloatArray, KvCacheCapacity]:
    """Return activation bytes, bytes that the engine may use, and the KV-cache capacity.

    The engine samples a default number of sequences to size the cache. If that leaves too little
    for the sequences of the plan, or the longest request has not the required margin, its limit is
    set to these, unless a limit is specified.
    """
    memory, sampled = inputs.engine.memory, c.concurrency / c.attention_data_parallel
    profiled = memory.profiled_seqs
    tokens = c.max_num_batched_tokens if profiled else step_tokens(inputs, c)
    tokens = tokens / c.context_parallel

    def cache_capacity(activations: FloatArray) -> tuple[FloatArray, KvCacheCapacity]:
        usable = usable_bytes(
            inputs, c, weights=weights, reserved=reserved, activations=activations
        )
        left = usable - weights - reserved
        return usable, _capacity_of_device(left - activations, caches, c, 1 - c.kv_offload)

    sampled_bytes = _activation_bytes(inputs, c, sampled, tokens)
    usable, capacity = cache_capacity(sampled_bytes)
    if not profiled:
        return sampled_bytes, usable, capacity
    profiled_bytes = _activation_bytes(inputs, c, _profiled_seqs(inputs, c), tokens)
    profiled_usable, profiled_capacity = cache_capacity(profiled_bytes)
    if memory.fixed_profiled_seqs:
        return profiled_bytes, profiled_usable, profiled_capacity
    enough = profiled_capacity.holds(profiled_capacity.sequence) >= c.concurrency
    margin = (1 - min(inputs.sure_share, 1.0)) * profiled_usable
    enough &= profiled_capacity.longest <= profiled_capacity.size - margin
    size = np.where(enough, profiled_capacity.size, capacity.size)
    usable = np.where(enough, profiled_usable, usable)
    return np.where(enough, profiled_bytes, sampled_bytes), usable, replace(capacity, size=size)


def needed_to_start(
    inputs: ServingInputs, memory: ServingMemory, configurations: ServingConfigurations
) -> FloatArray:
    """Return bytes that the fullest GPU needs for the engine to start.

    With continuous batching requests wait for space in the cache; other engines need space for all
    requests. An engine with a specified maximum length needs space for one such request, unless it
    shortens the maximum.
    """
    c, max_length = configurations, inputs.workload.max_model_len
    waits = inputs.engine.scheduler.continuous
    sequences = 1.0 if waits else c.concurrency / c.attention_data_parallel
    needed = memory.needed_for(sequences)
    if max_length is None or inputs.engine.memory.shortens_longest:
        return needed
    cache_bytes = _checked_bytes(inputs, c, max_length) * sequences
    return np.maximum(needed, memory.non_cache_bytes + cache_bytes)


def _checked_bytes(inputs: ServingInputs, c: ServingConfigurations, tokens: float) -> FloatArray:
    """Return cache bytes that an engine asks of a GPU for a request of so many tokens."""
    held = sequence_bytes(inputs, c, tokens)
    if not inputs.engine.memory.whole_cache_per_stage:
        return held
    return np.asarray(held * inputs.model.num_hidden_layers / stage_layers(inputs, c))


def longest_request(inputs: ServingInputs) -> int:
    """Return the maximum request length [tokens]: as specified, else the model's."""
    work = inputs.workload
    max_length = work.max_model_len or inputs.model.max_position_embeddings
    return max_length or work.input_tokens + work.output_tokens


def longest_that_fits(
    inputs: ServingInputs,
    memory: ServingMemory,
    configurations: ServingConfigurations,
    share: float = 1.0,
) -> int:
    """Tokens of the longest request for which one configuration has room in a ``share`` of what
    the engine may use; at most those that it takes."""
    sequences = 1.0
    if not inputs.engine.scheduler.continuous:
        sequences = float(np.ravel(configurations.concurrency)[0])
        sequences /= float(np.ravel(configurations.attention_data_parallel)[0])
    non_cache = memory.non_cache_bytes
    fits, too_long = 0, longest_request(inputs) + 1
    while too_long - fits > 1:
        middle = (fits + too_long) // 2
        cache_bytes = _checked_bytes(inputs, configurations, middle) * sequences
        has_room = bool(np.all(non_cache + cache_bytes <= share * memory.usable))
        fits, too_long = (middle, too_long) if has_room else (fits, middle)
    return fits


def has_memory_to_start(
    inputs: ServingInputs, memory: ServingMemory, configurations: ServingConfigurations
) -> BoolArray:
    """Return a mask: True if the engine's start memory fits, with the required margin."""
    needed = needed_to_start(inputs, memory, configurations)
    return np.asarray(needed <= min(inputs.sure_share, 1.0) * memory.usable)


def _capacity_of_device(
    size: FloatArray,
    caches: tuple[FloatArray, FloatArray, FloatArray],
    c: ServingConfigurations,
    share: FloatArray,
) -> KvCacheCapacity:
    """Return the KV-cache capacity of GPU or host; ``share``: part of each cache stored there.

    ``caches``: of a sequence at its full length, at its mean one, and of what all have in common.
    """
    longest, typical, shared = caches
    ranks = c.attention_data_parallel
    return KvCacheCapacity(
        size=size,
        shared=share * shared,
        sequence=share * (typical - shared) / ranks,
        longest=share * longest,
        longest_on_average_rank=share * (longest - shared) / ranks,
    )


def sequence_bytes(
    inputs: ServingInputs, configurations: ServingConfigurations, tokens: float
) -> FloatArray:
    """Return KV-cache bytes that an engine counts for one sequence, host part excluded.

    They are those of one GPU of the fullest stage. vLLM's SlidingWindowSpec adds the new tokens
    of a step to the window (vllm/v1/kv_cache_interface.py, max_memory_usage_bytes).
    """
    c, holds_step = configurations, inputs.engine.memory.windows_hold_step
    step = c.max_num_batched_tokens - 1.0 if holds_step else np.zeros(())
    return _cache_bytes(inputs, c, tokens, step) * (1 - c.kv_offload)


def _cache_bytes(
    inputs: ServingInputs,
    c: ServingConfigurations,
    tokens: Numeric,
    step: Numeric = 0.0,
    *,
    has_states: bool = True,
) -> FloatArray:
    """Return KV-cache bytes of one sequence on one GPU of the fullest stage, host part included.

    ``step``: new tokens in addition to each sliding window. ``has_states``: states of recurrent
    layers are counted.
    """
    zero = np.zeros(())
    rank = BatchShare(inputs=inputs, configurations=c, batch=Batch.of_decode(zero, zero))
    uneven = stage_layers(inputs, c) / inputs.model.num_hidden_layers
    pool = _state_pool(rank) if has_states else None
    if pool is not None:
        return pool.bytes_of(tokens) * uneven
    parts, pool_share = [], _window_pool_share(inputs)
    for group in inputs.model.layer_groups:
        layer = layer_of(inputs.model, group)
        window_size = window(inputs, layer.core) if layer.core else None
        window_tokens = np.minimum(tokens, window_size + step if window_size else tokens)
        if window_size and pool_share:
            window_tokens = pool_share * np.asarray(tokens)
        block_size = inputs.engine.memory.block_size
        paged = paged_kv_cache_tokens(tokens=window_tokens, block_size=block_size)
        cached = layer.core if layer.core and not layer.core.shares_cache else None
        per_layer = paged * cached_bytes(rank, cached)
        if has_states:
            per_layer = per_layer + state_bytes(rank, layer.scan)
        if layer.core and (ratio := layer.core.compress_ratio):
            entries = paged_kv_cache_tokens(tokens=np.ceil(tokens / ratio), block_size=block_size)
            per_layer = per_layer + entries * (
                cached_bytes(rank, layer.core) + index_bytes(layer.core)
            )
        parts.append(group.num_hidden_layers * per_layer)
    total = add(parts) * uneven
    drafting = drafter(inputs, c)
    if drafting is None:
        return total
    return total + _cache_bytes(*drafting, tokens, step, has_states=has_states)


@record(kw_only=True)
class StatePool:
    """Pages that attention layers and states of recurrent layers share.

    Layers of a kind form groups of ``layers``; the last one is padded. A page of a layer has
    ``page_tokens`` tokens, in which a state fits. A sequence has ``states`` pages in each of
    ``state_groups`` (vllm/v1/core/kv_cache_utils.py, _get_kv_cache_groups_uniform_page_size;
    vllm/v1/kv_cache_interface.py, MambaSpec).
    """

    layers: int
    attention_groups: int
    state_groups: int
    states: int
    page_tokens: FloatArray
    page_bytes: FloatArray

    def bytes_of(self, tokens: Numeric) -> FloatArray:
        """Return bytes of one sequence of so many tokens."""
        pages = self.attention_groups * np.ceil(tokens / self.page_tokens)
        return np.asarray(self.layers * self.page_bytes * (pages + self.state_groups * self.states))


# Groups are as long as the kind with more layers, if it has at most so many times those of the
# other kind; else as the kind with fewer.
_GROUP_RATIO = 1.25


def _state_pool(rank: BatchShare) -> StatePool | None:
    """Return the pool of a model with recurrent and equal attention layers; None for others."""
    inputs, c = rank.inputs, rank.configurations
    if not inputs.engine.memory.pooled_states:
        return None
    attention: dict[AttentionCore, int] = {}
    scans: dict[Scan, int] = {}
    for group in inputs.model.layer_groups:
        layer, number = layer_of(inputs.model, group), group.num_hidden_layers
        if layer.scan is not None:
            scans[layer.scan] = scans.get(layer.scan, 0) + number
        if layer.core is not None and not layer.core.shares_cache:
            attention[layer.core] = attention.get(layer.core, 0) + number
    if len(attention) != 1 or len(scans) != 1:
        return None
    ((core, num_attention),) = attention.items()
    ((scan, num_states),) = scans.items()
    if core.most_keys or core.compress_ratio:
        return None
    drafting = drafter(inputs, c)
    num_attention += drafting[0].model.num_hidden_layers if drafting is not None else 0
    fewer, more = sorted((num_attention, num_states))
    layers = more if more < _GROUP_RATIO * fewer else fewer
    of_token = np.maximum(cached_bytes(rank, core), 1.0)
    block_size = inputs.engine.memory.block_size
    drafts = int(inputs.workload.draft_tokens)
    # The convolution keeps an input less than it has taps, and those of drafted tokens.
    more_inputs = SIXTEEN_BIT_BYTES * scan.mixed * (drafts - 1) / c.tensor_parallel
    state = state_bytes(rank, scan) + more_inputs
    page_tokens = block_size * np.ceil(state / (of_token * block_size))
    return StatePool(
        layers=layers,
        attention_groups=math.ceil(num_attention / layers),
        state_groups=math.ceil(num_states / layers),
        states=1 + drafts,
        page_tokens=page_tokens,
        page_bytes=page_tokens * of_token,
    )


def _window_pool_share(inputs: ServingInputs) -> float:
    """Return tokens of the window pool over tokens of the full pool; 0: one pool for both."""
    cores = [layer_of(inputs.model, group).core for group in inputs.model.layer_groups]
    held = [core for core in cores if core is not None]
    is_divided = any(core.compress_ratio or not window(inputs, core) for core in held)
    return inputs.engine.memory.window_pool_share if is_divided else 0.0


def _activation_bytes(
    inputs: ServingInputs, c: ServingConfigurations, sampled: FloatArray, tokens: FloatArray
) -> FloatArray:
    """Return activation bytes of a step on one GPU: largest layer, or sampling of tokens."""
    model, memory, t = inputs.model, inputs.engine.memory, c.tensor_parallel
    described = [layer_of(model, group) for group in model.layer_groups]
    widest = max(each.widest for each in described)
    of_token = 2.0 * (3 * model.hidden_size + model.stream_width + widest / t)
    of_token = of_token * memory.activation_copies
    split = 1.0 if memory.gathered_logits else t
    logits = memory.logit_bytes * np.minimum(sampled, tokens) * model.head_columns / split
    expert_workspace: FloatArray = np.zeros(())
    if memory.expert_workspace:
        # Inputs, outputs and inner activations of the experts; MXFP4 kernels keep no buffers.
        keeps_buffers = c.expert_quantization != Quantization.MXFP4
        for experts in (layer.experts for layer in described if layer.experts):
            inner = experts.width / c.expert_tensor_parallel
            shared = np.maximum((experts.matrices - 1) * inner, model.hidden_size)
            workspace = 2.0 * (tokens * experts.per_token) * (shared + inner)
            expert_workspace = np.maximum(expert_workspace, keeps_buffers * workspace)
    queued: FloatArray = np.zeros(())
    if memory.queued_all_reduces:
        outputs = 2.0 * model.num_hidden_layers / c.pipeline_parallel
        queued = np.where(t > 1, outputs * 2.0 * tokens * model.hidden_size, 0.0)
    copies = 2 if memory.profiled_seqs else 4
    sampling = 2.0 * tokens * copies * model.hidden_size + logits
    working = np.maximum(tokens * of_token, sampling + expert_workspace)
    if memory.warm_up_logit_bytes:
        # The largest step of prompts (the first is never split). The blocks of its layers are too
        # small for its logits. With several ranks, each also has its shard of them.
        tokens = np.maximum(c.max_num_batched_tokens, inputs.workload.input_tokens)
        of_logit = memory.warm_up_logit_bytes + np.where(t > 1, SIXTEEN_BIT_BYTES / t, 0.0)
        of_logits = of_logit * model.vocab_size + 4.0 * model.hidden_size
        working = np.maximum(working, np.asarray(tokens * (of_token + of_logits)))
    seen, tower = encoder_memory(inputs, c, tokens)
    return np.maximum(working + queued + seen, tower)


def step_tokens(inputs: ServingInputs, c: ServingConfigurations) -> FloatArray:
    """Return tokens of the largest step: the step limit, or all prompts of a static batch."""
    if inputs.engine.scheduler.continuous:
        prompts = c.concurrency * inputs.workload.input_tokens
        return np.minimum(c.max_num_batched_tokens, np.maximum(prompts, c.concurrency))
    prompt_tokens = c.concurrency * inputs.workload.input_tokens / c.attention_data_parallel
    return np.minimum(prompt_tokens, np.maximum(c.max_num_batched_tokens, c.concurrency))
