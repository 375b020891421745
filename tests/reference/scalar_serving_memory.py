"""Memory of the fullest GPU of a replica in plain floats, and its room for sequences.

Part of the naive twin of serving.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil, floor, sqrt
from typing import Any

import scalar_parameters
import scalar_served_adapters
from scalar_machine import value_dim
from scalar_serving_kernels import (
    CACHE_BYTES,
    EMBEDDINGS,
    FORMATS,
    Replica,
    ServingWorld,
    expert_slots,
)


@dataclass(frozen=True, kw_only=True)
class Room:
    """Bytes for a cache on one device: of a mean, a long and a longest_on_average_rank sequence,
    and how many.
    """

    size: float
    shared: float
    sequence: float
    longest: float
    longest_on_average_rank: float

    def holds(self, each: float) -> float:
        """At least one where one fits."""
        fit = floor((self.size - self.shared) / max(each, 1.0))
        return max(fit, 1.0) if self.size >= self.longest else 0.0


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Bytes on a GPU by part, and on its host."""

    parts: dict[str, float]
    room: Room
    host_room: Room
    host: float
    usable: float

    @property
    def most_sequences(self) -> float:
        return min(room.holds(room.sequence) for room in (self.room, self.host_room))

    @property
    def most_whole_sequences(self) -> float:
        return min(room.holds(room.longest_on_average_rank) for room in (self.room, self.host_room))


def key_heads(c: Replica, attention: Any) -> float:
    """Key-value heads of a rank: a head is copied, not split."""
    return max(attention.num_key_value_heads / c.tensor_parallel, 1.0)


def cached_bytes(world: ServingWorld, c: Replica, attention: Any) -> float:
    """Of one token in one layer."""
    element = CACHE_BYTES[c.kv_cache]
    padded = world.engine.memory.expanded_latent_width
    if attention.kind == "latent" and padded:
        return key_heads(c, attention) * 2 * padded * element
    if attention.kind == "latent":
        return (attention.kv_lora_rank + attention.qk_rope_head_dim) * element
    return key_heads(c, attention) * (attention.head_dim + value_dim(attention)) * element


def part_bytes(world: ServingWorld, word: str, part: str) -> float:
    """Of a weight of a part of a layer, as the first checkpoint of the format stores it."""
    own = FORMATS[word][0]
    for one in world.model.checkpoints:
        engines = {name.lower() for name in one.engines} or {world.engine.name.lower()}
        vendors = {name.lower() for name in one.vendors} or {world.gpu.vendor.lower()}
        fits = world.engine.name.lower() in engines and world.gpu.vendor.lower() in vendors
        if one.quantization != word or not fits:
            continue
        bits = 0.5 if own < 1 else floor(own)
        scales = own - bits
        if one.group_size:
            scales = (one.scale_bytes + one.zero_point_bytes) / one.group_size
        own = (one.weight_bits / 8 if one.weight_bits else bits) + scales
        own = 1.0 if part in one.eight_bit else own
        own = 2.0 if part in one.sixteen_bit else own
        left = min(one.sixteen_bit_layers / world.model.num_hidden_layers, 1)
        return left * 2.0 + (1 - left) * own
    return own


def stored_form(world: ServingWorld, word: str, part: str) -> str:
    """The format of a part of every layer: 16 bit where the served checkpoint leaves it so."""
    plain = replace(world, model=replace(world.model, checkpoints=tuple(
        replace(one, sixteen_bit_layers=0) for one in world.model.checkpoints
    )))  # fmt: skip
    if part_bytes(plain, word, part) == 2.0:
        return "w16a16"
    served = [one for one in plain.model.checkpoints if one.quantization == word]
    return "fp8" if any(part in one.eight_bit for one in served[:1]) else word


def weights(world: ServingWorld, c: Replica) -> float:
    """Of the fullest stage: layers rounded up; with several stages half of each end."""
    model = world.model
    narrow = FORMATS[c.quantization][0]
    total = 0.0
    share = ceil(model.num_hidden_layers / c.pipeline_parallel) / model.num_hidden_layers
    for group in model.layer_groups:
        of_attention = scalar_parameters.attention_parameters(model, group)
        one = of_attention * part_bytes(world, c.quantization, "attention") / c.tensor_parallel
        mlp, h = group.feed_forward, model.hidden_size
        one += _of_latent(world, c, group.attention)
        width = mlp.shared_intermediate_size if mlp.num_experts else mlp.intermediate_size
        part = "shared_experts" if mlp.num_experts else "feed_forward"
        dense = part_bytes(world, c.quantization, part)
        one += _mlp(h, width, mlp) * dense / c.tensor_parallel
        routed = mlp.num_experts * _mlp(h, mlp.moe_intermediate_size, mlp)
        routed *= padded(world, c, mlp)
        if mlp.num_experts:
            routed *= expert_slots(world, c, mlp) / mlp.num_experts
        one += routed * part_bytes(world, c.expert_quantization, "experts") / c.stage_gpus
        small = group.norms_per_layer * h + mlp.num_experts * (h + (1 if mlp.router_bias else 0))
        total += group.num_hidden_layers * (one + 2 * small) * share
    embedding = logits = narrow if world.engine.quantized_ends else 2.0
    if world.engine.quantized_ends and c.quantization in EMBEDDINGS:
        embedding, logits = EMBEDDINGS[c.quantization], 6.5625 / 8
    if world.workload.embedding_bits:
        embedding = logits = world.workload.embedding_bits / 8
    bytes_each = logits + (0 if model.tie_word_embeddings else embedding)
    both = model.vocab_size * model.hidden_size * bytes_each / c.tensor_parallel
    return total + (both / 2 if c.pipeline_parallel > 1 else both)


def padded(world: ServingWorld, c: Replica, mlp: Any) -> float:
    """Kernels of MXFP4 experts take multiples of the inner and of the hidden width alone."""
    tiles = world.engine.mxfp4_padding_by_architecture.get(world.gpu.architecture)
    if not mlp.num_experts or not tiles or c.expert_quantization != "mxfp4":
        return 1.0
    inner, hidden = (
        mlp.moe_intermediate_size * c.expert_parallel / c.stage_gpus,
        world.model.hidden_size,
    )
    return ceil(inner / tiles[0]) * tiles[0] / inner * ceil(hidden / tiles[1]) * tiles[1] / hidden


def _of_latent(world: ServingWorld, c: Replica, a: Any) -> float:
    """Whole projections into the latent space, and copies of those out of it."""
    if a.kind != "latent":
        return 0.0
    down = world.model.hidden_size * (a.q_lora_rank + a.kv_lora_rank + a.qk_rope_head_dim)
    copied = down * part_bytes(world, c.quantization, "attention")
    longest_on_average_rank = copied - copied / c.tensor_parallel
    heads = a.num_attention_heads / c.tensor_parallel
    return longest_on_average_rank + 2.0 * a.kv_lora_rank * heads * (
        a.head_dim - a.qk_rope_head_dim + value_dim(a)
    )


def _mlp(h: int, width: int, mlp: Any) -> int:
    """Two or three matrices, with a bias each where the model has them."""
    inputs = 2 if mlp.gated else 1
    if not width:
        return 0
    return (inputs + 1) * h * width + (inputs * width + h if mlp.bias else 0)


def cache(world: ServingWorld, c: Replica, tokens: float) -> float:
    """Of one sequence on the fullest stage, half a block lost; a window bounds it."""
    model = world.model
    found = 0.0
    for group in model.layer_groups:
        window = group.attention.sliding_window if world.engine.sliding_windows else None
        kept = min(tokens, window or tokens) + (world.engine.memory.block_size - 1) / 2
        found += group.num_hidden_layers * kept * cached_bytes(world, c, group.attention)
    more = drafter(world, c)
    drafted = cache(*more, tokens) if more else 0.0
    return (
        drafted
        + found * ceil(model.num_hidden_layers / c.pipeline_parallel) / model.num_hidden_layers
    )


def activations(world: ServingWorld, c: Replica, sampled: float) -> float:
    """The widest layer of the largest step, or what lives beside the logits."""
    model, scheduler, most = world.model, world.engine.scheduler, c.max_num_batched_tokens
    prompts, memory = c.concurrency * world.workload.input_tokens, world.engine.memory
    t = c.tensor_parallel
    if memory.profiled_seqs:
        tokens = most
    elif scheduler.continuous:
        tokens = min(most, max(prompts, c.concurrency))
    else:
        tokens = min(prompts / c.attention_data_parallel, max(most, c.concurrency))
    widths, buffers = [], [0.0]
    for group in model.layer_groups:
        attention, mlp = group.attention, group.feed_forward
        heads = attention.num_attention_heads + 2 * attention.num_key_value_heads
        dense = mlp.shared_intermediate_size if mlp.num_experts else mlp.intermediate_size
        widths.append(heads * attention.head_dim)
        widths.append((2 if mlp.gated else 1) * dense)
        widths.append(2 * mlp.moe_intermediate_size * mlp.num_experts_per_tok)
        if mlp.num_experts and memory.expert_workspace and c.expert_quantization != "mxfp4":
            inner = mlp.moe_intermediate_size * c.expert_parallel / c.stage_gpus
            shared = max((2 if mlp.gated else 1) * inner, model.hidden_size)
            buffers.append(2 * tokens * mlp.num_experts_per_tok * (shared + inner))
    vectors = 2 * tokens * model.hidden_size
    layer = 4 * vectors + 2 * tokens * max(widths) / t
    logits = memory.logit_bytes * min(sampled, tokens) * model.vocab_size
    if not memory.gathered_logits:
        logits /= t
    sampling = (2 if memory.profiled_seqs else 4) * vectors + logits + max(buffers)
    queued = 0.0
    if memory.queued_all_reduces and t > 1:
        queued = 2 * model.num_hidden_layers / c.pipeline_parallel * vectors
    at_start = 0.0
    if memory.warm_up_logit_bytes:
        each = (memory.warm_up_logit_bytes + (2 / t if t > 1 else 0)) * model.vocab_size
        each += 4 * model.hidden_size
        of_layer = (8 * model.hidden_size + 2 * max(widths) / t) * memory.activation_copies
        at_start = max(most, world.workload.input_tokens) * (each + of_layer)
    return max(layer * memory.activation_copies, sampling, at_start) + queued


def drafter(world: ServingWorld, c: Replica) -> tuple[ServingWorld, Replica] | None:
    """The model that drafts, longest_on_average_rank where its heads do not split."""
    if world.draft is None:
        return None
    t, word = c.tensor_parallel, world.draft.quantization or "w16a16"
    for group in world.draft.layer_groups:
        for heads in (group.attention.num_attention_heads, group.attention.num_key_value_heads):
            if heads % t and t % heads:
                t = 1
    own = replace(c, tensor_parallel=t, pipeline_parallel=1, expert_parallel=1, quantization=word,
                  num_gpus=t * c.attention_data_parallel, weight_offload=0.0, kv_offload=0.0,
                  expert_quantization=world.draft.expert_quantization or word)  # fmt: skip
    return replace(world, model=world.draft, draft=None), own


def usable(world: ServingWorld, c: Replica, held: float, beside: float) -> float:
    """Of what the engine's share leaves, the part of the cache, and all else."""
    whole = of_share(world, c, held, beside)
    left = whole - held - beside
    return whole if left <= 0 else held + beside + world.engine.memory.cache_share * left


def of_share(world: ServingWorld, c: Replica, held: float, beside: float) -> float:
    """Of a GPU, by the engine's own meaning of its share: of all, of weights and cache, of what
    is left."""
    size, memory = world.gpu.allocatable_memory, world.engine.memory
    share = c.gpu_memory_utilization
    if memory.memory_share == "free":
        share = share or memory.gpu_memory_utilization
        return held + beside + share * max(size - held - beside, 0.0)
    if memory.memory_share == "static":
        return min((share or static_share(world, c)) * size + beside, size)
    if not share:
        return size * memory.gpu_memory_utilization
    return size * share


def static_share(world: ServingWorld, c: Replica) -> float:
    """SGLang's default: what it leaves to prompts, graphs and communication."""
    size, rule = world.gpu.allocatable_memory, world.engine.memory.static_reserve
    assert rule is not None
    ranks = c.attention_data_parallel
    seqs = world.engine.scheduler.captured_seqs[c.tensor_parallel * ranks >= 4]
    left = rule.constant + rule.token * max(c.step_tokens, rule.least_tokens)
    left += rule.captured_sequence * seqs
    left += rule.rank * c.stage_gpus * c.pipeline_parallel
    left += rule.attention_sequence * seqs * ranks * (ranks > 1)
    if size > rule.least_from:
        left = max(left, rule.least)
    return 1 - (left + rule.draft * (world.workload.draft_tokens > 0)) / size


def memory(world: ServingWorld, c: Replica) -> Memory:
    """Weights and cache by their shares on GPU and host."""
    w, engine = world.workload, world.engine
    held, drafting = weights(world, c), drafter(world, c)
    beside = weights(*drafting) if drafting else 0.0
    longest = cache(world, c, w.input_tokens + w.output_tokens)
    mean = cache(world, c, w.input_tokens + w.output_tokens / 2 * (1 + w.output_variation**2))
    typical = mean + (longest - mean) / sqrt(max(c.concurrency, 1.0))
    if not engine.scheduler.continuous:
        typical = longest
    elif engine.scheduler.whole_requests:
        answers = w.output_tokens * (1 + w.output_variation**2)
        typical = cache(world, c, w.input_tokens + answers)
    ranks = c.attention_data_parallel
    reserved = engine.memory.reserved + engine.memory.graphs
    if c.tensor_parallel > 1 and world.gpu.scale_up.kind != "pcie":
        reserved += engine.memory.communication
    working = activations(world, c, c.concurrency / ranks)
    on_gpu, on_host = 1 - c.kv_offload, c.kv_offload
    of_host = world.cluster.host_memory_per_gpu or world.gpu.host.memory_per_gpu or float("inf")
    once = cache(world, c, w.shared_prefix_tokens)

    def room_of(size: float, share: float) -> Room:
        return Room(
            size=size,
            shared=share * once,
            sequence=share * (typical - once) / ranks,
            longest=share * longest,
            longest_on_average_rank=share * (longest - once) / ranks,
        )

    adapters = scalar_served_adapters.kept(world, c) if w.lora_rank else 0.0
    of_weights = held * (1 - c.weight_offload) + beside
    on_device = of_weights + adapters
    may_use = usable(world, c, on_device, reserved + working)
    room = room_of(may_use - on_device - reserved - working, on_gpu)
    if profiled := world.engine.memory.profiled_seqs:
        usual = activations(world, c, max(profiled, c.concurrency / ranks))
        more = usable(world, c, on_device, reserved + usual)
        longest_on_average_rank = room_of(more - on_device - reserved - usual, on_gpu)
        if (
            engine.memory.fixed_profiled_seqs
            or longest_on_average_rank.holds(longest_on_average_rank.sequence) >= c.concurrency
        ):
            working, room, may_use = usual, longest_on_average_rank, more
    host_room = room_of(of_host - held * c.weight_offload, on_host)
    parts = {
        "weights": of_weights,
        "adapters": adapters,
        "kv_cache": min(room.shared + room.sequence * c.concurrency, max(room.size, room.longest)),
        "activations": working,
        "reserved": reserved,
    }
    host = held * c.weight_offload + host_room.shared + host_room.sequence * c.concurrency
    return Memory(parts=parts, room=room, host_room=host_room, host=host, usable=may_use)
