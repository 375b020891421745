"""Adapters of the naive twin: arXiv:2106.09685, and 4-bit weights: arXiv:2305.14314."""

from __future__ import annotations

from dataclasses import dataclass

from remembered import remembered
from scalar_machine import COMPUTE_BYTES, Layout, World, elementwise, gemm, tokens, value_dim
from scalar_parameters import (
    Counts,
    attention_parameters,
    end_parameters,
    feed_forward_parameters,
    layer_parameters,
    stage_parameters,
    stages,
)
from scalar_state import State

from planner.specs.attention import AttentionSpec
from planner.specs.model import FeedForwardSpec, LayerGroup

# Blocks of 64 share an 8-bit scale, 256 of those an fp32 one.
NF4 = (64 * 256 * 4 + 256 * 8 + 32) / (64 * 256 * 8)


@dataclass(frozen=True)
class Thin:
    """Inputs and outputs of an adapted matrix on one GPU."""

    depth: float
    columns: float


def frozen(world: World) -> bool:
    return world.workload.adapter != "none"


def virtual(world: World) -> bool:
    """Whether virtual tokens are trained: no matrix has an adapter."""
    return world.workload.adapter in ("prompt", "prefix")


def trains_part(world: World) -> bool:
    """Whether the last layers are trained in full, all else is as it was."""
    return world.workload.trained_layers > 0 and not frozen(world)


def reached(world: World, layout: Layout, stage: int) -> list[bool]:
    """Which layers of a stage gradients reach: without a pipeline, the last ones."""
    count = len(stages(world.model, layout)[stage])
    trained = world.workload.trained_layers or count
    return [place >= count - trained for place in range(count)]


def saves(world: World) -> bool:
    return frozen(world) and world.workload.modules_to_save == "embeddings"


def quantized(world: World) -> float:
    """8 bits; or 4, without double quantization with an fp32 scale per block of 64."""
    if world.workload.quantization_bits == 8:
        return 1.0
    return NF4 if world.workload.double_quantization else (64 * 4 + 32) / (64 * 8)


def virtual_width(group: LayerGroup) -> int:
    """A key and a value of each head that has some."""
    core = group.attention
    if not core or core.kind in ("linear", "mamba2"):
        return 0
    return core.num_key_value_heads * (core.head_dim + value_dim(core))


def thin_matrices(world: World, layout: Layout, group: LayerGroup) -> dict[str, Thin]:
    """Tensor parallelism splits outputs, and the inputs of what ends a block."""
    found: dict[str, Thin] = {}
    if virtual(world):
        return found
    if group.attention:
        found |= _thin_attention(world, layout, group.attention)
    if group.feed_forward and world.workload.lora_targets == "all_linear":
        found |= _thin_feed_forward(world, layout, group.feed_forward)
    if world.framework.execution.fused_projections:
        _join(found, "q", "k", "v")
        _join(found, "up", "gate")
    return found


def _thin_attention(world: World, layout: Layout, attention: AttentionSpec) -> dict[str, Thin]:
    h, t = world.model.hidden_size, layout.tensor_parallel
    a, d, dv = attention.num_attention_heads, attention.head_dim, value_dim(attention)
    targets = world.workload.lora_targets
    if attention.kind in ("linear", "mamba2"):
        state = State.of(attention)
        whole = {"in": Thin(h, state.projected / t), "output": Thin(state.inner / t, h)}
        return {} if targets == "query_value" else whole
    if attention.kind == "latent":
        rope = attention.qk_rope_head_dim
        found = {
            "q": Thin(attention.q_lora_rank or h, a * d / t),
            "kv": Thin(attention.kv_lora_rank, a * (d - rope + dv) / t),
        }
    else:
        g = attention.num_key_value_heads
        found = {"q": Thin(h, a * d / t), "v": Thin(h, g * dv / t)}
        if targets != "query_value":
            found["k"] = Thin(h, g * d / t)
    if targets != "query_value":
        found["output"] = Thin(a * dv / t, h)
    return found


def _thin_feed_forward(world: World, layout: Layout, mlp: FeedForwardSpec) -> dict[str, Thin]:
    h, t = world.model.hidden_size, layout.tensor_parallel
    width = mlp.shared_intermediate_size if mlp.num_experts else mlp.intermediate_size
    if not width:
        return {}
    names = ("up", "gate") if mlp.gated else ("up",)
    return {name: Thin(h, width / t) for name in names} | {"down": Thin(width / t, h)}


def _join(found: dict[str, Thin], first: str, *others: str) -> None:
    """Megatron-LM multiplies matrices of the same input as one, with one adapter."""
    if first in found:
        columns = [found.pop(name).columns for name in others if name in found]
        found[first] = Thin(found[first].depth, found[first].columns + sum(columns))


def adapter_times(
    world: World, layout: Layout, group: LayerGroup
) -> dict[str, tuple[float, float]]:
    """Forward and backward seconds of each adapter and dequantization."""
    if not frozen(world):
        return {}
    n, r, bits = tokens(world, layout), world.workload.lora_rank, world.sixteen_bit
    latency = world.gpu.efficiency.memory_bound.latency
    times = {}
    if world.workload.adapter == "prefix" and virtual_width(group):
        core, v = group.attention, world.workload.virtual_tokens
        rows = n * core.num_attention_heads / layout.tensor_parallel
        both = gemm(world, rows, v, core.head_dim + value_dim(core), bits)
        times["prefix"] = both, 2 * both
    for name, matrix in thin_matrices(world, layout, group).items():
        k, m = matrix.depth, matrix.columns
        forward = gemm(world, n, r, k, bits) + gemm(world, n, m, r, bits)
        is_wide = world.workload.adapter == "lora"
        cast = world.framework.execution.adapter_cast_bytes * n * k if is_wide else 0
        forward += elementwise(world, 4 * n * m + cast) + elementwise(world, 6 * n * m)
        backward = gemm(world, r, m, n, bits) + gemm(world, n, r, m, bits)
        backward += gemm(world, r, k, n, bits) + gemm(world, n, k, r, bits)
        backward += elementwise(world, 4 * n * m + cast) + elementwise(world, 6 * n * k)
        times[name] = forward, backward
    if world.workload.adapter == "qlora":
        passes = world.framework.execution.dequantize_passes
        parts = (
            (
                attention_parameters(world.model, group) / layout.tensor_parallel,
                attention_matrices(group),
            ),
            feed_forward_parameters(world.model, group, layout),
        )
        for name, (count, kernels) in zip(("attention", "feed_forward"), parts, strict=True):
            traffic = (quantized(world) + 2) * passes * count
            time = elementwise(world, traffic) + (kernels - 1) * latency
            times[f"{name}_dequantize"] = (time, time) if kernels else (0.0, 0.0)
    return times


def attention_matrices(group: LayerGroup) -> int:
    """Matrices: queries, keys, values and output; layers with a state join the first three.

    Latents: keys and values down and up, the output; queries at once, or down and up; an indexer.
    """
    if not (attention := group.attention):
        return 0
    if attention.kind == "latent":
        return 4 + (attention.q_lora_rank > 0) + (attention.index_topk > 0)
    return 2 if attention.kind in ("linear", "mamba2") else 4


@remembered
def launches(world: World, layout: Layout, group: LayerGroup, adapted: bool = True) -> float:
    """Seconds of the host for the forward kernels of one layer's adapters."""
    if not frozen(world):
        return 0.0
    execution = world.framework.execution
    count = len(thin_matrices(world, layout, group)) if adapted else 0
    seconds = count * execution.adapter_launch_time
    if world.workload.adapter == "qlora":
        kernels = attention_matrices(group) + feed_forward_parameters(world.model, group, layout)[1]
        seconds += kernels * execution.dequantize_launch_time
    return seconds


@remembered
def trained_in_layer(world: World, layout: Layout, group: LayerGroup) -> Counts:
    """What gets a gradient in one layer: everything, or its adapters."""
    if not frozen(world):
        return layer_parameters(world.model, group, layout)
    rank = world.workload.lora_rank
    if world.workload.adapter == "prefix":
        return world.workload.virtual_tokens * virtual_width(group) / layout.tensor_parallel, 0.0
    matrices = thin_matrices(world, layout, group).values()
    return sum(rank * (matrix.depth + matrix.columns) for matrix in matrices), 0.0


@remembered
def trained_in_end(world: World, layout: Layout) -> Counts:
    model = world.model
    matrix = model.vocab_size * model.hidden_size / layout.tensor_parallel
    if saves(world):  # in 16 bits, where adapters may be in 32
        width = world.framework.states.weight
        return matrix * (min(2 / width, 1) if width else 1), 0.0
    return 0.0 if frozen(world) or trains_part(world) else matrix, 0.0


@remembered
def trained_in_stages(world: World, layout: Layout) -> list[Counts]:
    if not frozen(world) and not trains_part(world):
        return stage_parameters(world, layout)
    found = []
    held, last = stages(world.model, layout), layout.pipeline_parallel - 1
    for stage, layers in enumerate(held):
        groups = [world.model.layer_groups[i] for i in layers]
        has = zip(groups, reached(world, layout, stage), strict=True)
        each = [trained_in_layer(world, layout, group) for group, is_reached in has if is_reached]
        count = sum(dense for dense, _ in each)
        tied = world.model.tie_word_embeddings and last == 0
        ends = (stage == 0) + (stage == last) - tied
        count += ends * trained_in_end(world, layout)[0]
        if world.workload.adapter == "prompt" and stage == 0:
            count += world.workload.virtual_tokens * world.model.hidden_size
        found.append((count, sum(experts for _, experts in each)))
    return found


def weight_bytes(world: World, layout: Layout) -> tuple[float, float]:
    """Bytes per gathered parameter of a layer, and of embedding or logits."""
    if not frozen(world):
        return (world.framework.states.weight_on_wire,) * 2
    experts = world.model.num_experts > 0
    return frozen_bytes(world, layout, experts=experts), 2.0


def frozen_bytes(world: World, layout: Layout, *, experts: bool) -> float:
    """Experts in one tensor are not quantized (bitsandbytes issue 1849), those in a loop are."""
    kept = experts and not world.framework.quantized_experts and layout.expert_compute != "loop"
    is_quantized = world.workload.adapter == "qlora" and not kept
    return quantized(world) if is_quantized else COMPUTE_BYTES[layout.precision]


def frozen_counts(world: World, layout: Layout, stage: int) -> list[tuple[float, float, int]]:
    """Frozen parameters on a stage, their bytes, and the group that shards them."""
    if trains_part(world):
        whole, trained = stage_parameters(world, layout)[stage], trained_in_stages(world, layout)
        rest = [count - of_it for count, of_it in zip(whole, trained[stage], strict=True)]
        return [(rest[0], 2.0, 0), (rest[1], 2.0, 1)]
    if not frozen(world):
        return []
    of_dense, of_experts = (frozen_bytes(world, layout, experts=kind) for kind in (False, True))
    dense, experts = stage_parameters(world, layout)[stage]
    ends = end_parameters(world.model, layout, stage)
    return [(dense - ends, of_dense, 0), (ends, 2.0, 0), (experts, of_experts, 1)]
