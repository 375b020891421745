"""Adapters of a layer: which matrices have one, their parameters, their operators."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from planner.arrays import FloatArray, Numeric, add
from planner.enums import AdapterKind, AdapterTargets, AttentionKind
from planner.estimators.operators import Operator
from planner.estimators.parameters import layer_parameters
from planner.estimators.share import Setting, Share
from planner.formulas.adapters import adapter_parameters, dequantize_bytes
from planner.specs.model import AttentionSpec, FeedForwardSpec, LayerGroup


@dataclass(frozen=True, kw_only=True)
class Adapted:
    """A matrix with an adapter, whole; tensor parallelism splits one of its sides.

    ``reads`` names what it is multiplied with.
    """

    name: str
    reads: str
    depth: float
    columns: float
    split_depth: bool = False

    def local(self, tensor_parallel: Numeric) -> tuple[Numeric, Numeric]:
        """Depth and columns on one tensor-parallel rank."""
        if self.split_depth:
            return self.depth / tensor_parallel, self.columns
        return self.depth, self.columns / tensor_parallel


def adapted_matrices(setting: Setting, group: LayerGroup) -> tuple[Adapted, ...]:
    """The matrices of one layer that have an adapter, as the framework joins them."""
    if setting.workload.has_virtual_tokens:
        return ()
    hidden_size, targets = setting.model.hidden_size, setting.workload.lora_targets
    found: tuple[Adapted, ...] = ()
    if group.attention:
        found += tuple(_attention(hidden_size, group.attention, targets))
    if group.feed_forward and targets is AdapterTargets.ALL_LINEAR:
        found += tuple(_feed_forward(hidden_size, group.feed_forward))
    if setting.framework.execution.fused_projections:
        return tuple(_fused(found))
    return found


def layer_adapter_parameters(
    setting: Setting, group: LayerGroup, tensor_parallel: Numeric
) -> FloatArray:
    """Trained parameters of one layer on one tensor-parallel rank.

    Those of prefix tuning are keys and values of its virtual tokens.
    """
    if setting.workload.adapter is AdapterKind.PREFIX:
        return np.asarray(setting.workload.virtual_tokens * prefix_width(group) / tensor_parallel)
    found = []
    for matrix in adapted_matrices(setting, group):
        depth, columns = matrix.local(tensor_parallel)
        rank = setting.workload.lora_rank
        found.append(adapter_parameters(depth=depth, columns=columns, lora_rank=rank))
    return add(found)


def prefix_width(group: LayerGroup) -> float:
    """Keys and values of a virtual token in a layer; 0 in one without a cache of them."""
    attention = group.attention
    if attention is None or attention.has_state:
        return 0.0
    width = attention.head_dim + (attention.v_head_dim or attention.head_dim)
    return float(attention.num_key_value_heads * width)


def adapter_block(share: Share, group: LayerGroup) -> Iterator[Operator]:
    """Adapters of a layer, and the dequantization of its frozen matrices."""
    workload = share.setting.workload
    if not workload.is_frozen:
        return
    if workload.adapter is AdapterKind.PREFIX and prefix_width(group):
        yield _prefix(share, group)
    for matrix in adapted_matrices(share.setting, group):
        yield _adapter(share, matrix)
    if workload.adapter is AdapterKind.QLORA:
        yield from _dequantizations(share, group)


def adapter_launches(share: Share, group: LayerGroup) -> float:
    """Seconds of the host for the forward kernels of ``adapter_block``."""
    workload, execution = share.setting.workload, share.setting.framework.execution
    if not workload.is_frozen:
        return 0.0
    count = len(adapted_matrices(share.setting, group))
    time = count * execution.adapter_launch_time
    if workload.adapter is AdapterKind.QLORA:
        time += sum(group.num_matrices) * execution.dequantize_launch_time
    return time


def _fused(matrices: tuple[Adapted, ...]) -> Iterator[Adapted]:
    """One adapter for matrices of the same input: queries with keys, gate with up."""
    inputs: dict[str, list[Adapted]] = {}
    for matrix in matrices:
        inputs.setdefault(matrix.reads, []).append(matrix)
    for joined in inputs.values():
        yield replace(joined[0], columns=sum(matrix.columns for matrix in joined))


def _attention(h: int, attention: AttentionSpec, targets: AdapterTargets) -> Iterator[Adapted]:
    if attention.has_state:
        yield from _linear_attention(h, attention, targets)
        return
    a, d = attention.num_attention_heads, attention.head_dim
    dv = attention.v_head_dim or d
    if attention.kind is AttentionKind.LATENT:
        rank_q, rank_kv = attention.q_lora_rank or h, attention.kv_lora_rank
        yield Adapted(name="q_adapter", reads="query_latent", depth=rank_q, columns=a * d)
        up = a * (d - attention.qk_rope_head_dim + dv)
        yield Adapted(name="kv_adapter", reads="key_latent", depth=rank_kv, columns=up)
    else:
        g = attention.num_key_value_heads
        yield Adapted(name="q_adapter", reads="residual", depth=h, columns=a * d)
        yield Adapted(name="v_adapter", reads="residual", depth=h, columns=g * dv)
        if targets is not AdapterTargets.QUERY_VALUE:
            yield Adapted(name="k_adapter", reads="residual", depth=h, columns=g * d)
    if targets is not AdapterTargets.QUERY_VALUE:
        yield Adapted(
            name="output_adapter", reads="values", depth=a * dv, columns=h, split_depth=True
        )


def _linear_attention(
    h: int, attention: AttentionSpec, targets: AdapterTargets
) -> Iterator[Adapted]:
    """One input projection holds queries, keys and values: none of them has its own adapter."""
    if targets is AdapterTargets.QUERY_VALUE:
        return
    columns, values = attention.linear_projected, attention.linear_values
    yield Adapted(name="qkvz_adapter", reads="residual", depth=h, columns=columns)
    yield Adapted(name="output_adapter", reads="values", depth=values, columns=h, split_depth=True)


def _feed_forward(h: int, feed_forward: FeedForwardSpec) -> Iterator[Adapted]:
    if not (width := feed_forward.shared_width):
        return
    for name in ("gate", "up") if feed_forward.gated else ("up",):
        yield Adapted(name=f"{name}_adapter", reads="feed_forward", depth=h, columns=width)
    yield Adapted(name="down_adapter", reads="activation", depth=width, columns=h, split_depth=True)


def _adapter(share: Share, matrix: Adapted) -> Operator:
    """Down and up products; their four gradients; the sums with the frozen matrix's."""
    machine, rank = share.setting.machine, share.setting.workload.lora_rank
    rows, precision = share.tokens, machine.sixteen_bit
    depth, columns = matrix.local(share.tensor_parallel)
    down = machine.gemm_time(rows, rank, depth, precision)
    up = machine.gemm_time(rows, columns, rank, precision)
    gradients = (
        machine.gemm_time(rank, columns, rows, precision),
        machine.gemm_time(rows, rank, columns, precision),
        machine.gemm_time(rank, depth, rows, precision),
        machine.gemm_time(rows, depth, rank, precision),
    )
    outputs, inputs = rows * np.asarray(columns), rows * np.asarray(depth)
    # Scaled (a read and a write), then added (two reads and a write); backward the same.
    summed = machine.memory_time(10.0 * outputs, kernels=2)
    summed_gradient = machine.memory_time(4.0 * outputs + 6.0 * inputs, kernels=2)
    return Operator(
        name=matrix.name,
        module="adapter",
        forward=add((down, up, summed)),
        backward=add((*gradients, summed_gradient)),
        flops=np.asarray(2.0 * rank * rows * (np.asarray(depth) + columns)),
        selective=share.setting.framework.execution.selective_share,
    )


def _prefix(share: Share, group: LayerGroup) -> Operator:
    """Scores and values of every token with the virtual ones, which all of them attend to.

    Two products forward, four backward, at the rate of a matrix product.
    """
    attention, machine = group.attention, share.setting.machine
    heads = attention.num_attention_heads / share.tensor_parallel if attention else 0.0
    width = attention.head_dim + (attention.v_head_dim or attention.head_dim) if attention else 0
    rows, v = share.tokens * heads, share.setting.workload.virtual_tokens
    both = machine.gemm_time(rows, v, width, machine.sixteen_bit)
    return Operator(
        name="prefix",
        module="adapter",
        forward=both,
        backward=2.0 * both,
        flops=np.asarray(2.0 * rows * v * width),
        selective=share.setting.framework.execution.selective_share,
    )


def _dequantizations(share: Share, group: LayerGroup) -> Iterator[Operator]:
    """Every frozen matrix becomes 16-bit before each product that reads it."""
    layer = layer_parameters(share.hidden_size, group)
    attention, feed_forward = group.num_matrices
    local = layer.feed_forward / share.tensor_parallel + layer.experts / share.expert_parallel
    sizes = (
        ("attention_dequantize", layer.attention / share.tensor_parallel, attention),
        ("feed_forward_dequantize", local, feed_forward),
    )
    execution, machine = share.setting.framework.execution, share.setting.machine
    passes = execution.dequantize_passes
    for name, parameters, kernels in sizes:
        if not kernels:
            continue
        traffic = dequantize_bytes(
            parameters=parameters,
            passes=passes,
            double_quantization=share.setting.workload.double_quantization,
        )
        time = machine.memory_time(traffic, kernels=kernels)
        yield Operator(
            name=name,
            module="dequantize",
            forward=time,
            backward=time,
            flops=np.zeros(()),
            selective=execution.selective_share,
        )
