"""Adapters of a layer: adapted matrices, parameters, operators."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from planner.base.arrays import FloatArray, Numeric, add
from planner.base.enums import AdapterKind, AdapterTargets
from planner.base.records import record
from planner.base.training_aliases import ExpertAdapters
from planner.estimators.training.micro_batch_share import MicroBatchShare, TrainingInputs
from planner.estimators.training.operators import Operator, expert_pairs
from planner.formulas.memory import dequantize_bytes, lora_parameters, quantized_bytes
from planner.layers.model import Layer, layer_of, layer_parameters
from planner.layers.operators import MatrixProduct, MatrixSplit
from planner.specs.model import LayerGroup, ModelSpec

_CHOSEN = {
    target: tuple(AdapterTargets)[: index + 1] for index, target in enumerate(AdapterTargets)
}
"""Targets and all that are narrower."""
_MODULE = "adapter"


@record(kw_only=True)
class AdaptedMatrix:
    """An unsharded matrix with an adapter; tensor parallelism splits one of its sides.

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


def adapted_matrices(inputs: TrainingInputs, group: LayerGroup) -> tuple[AdaptedMatrix, ...]:
    """Return the matrices of a layer that have a LoRA adapter, fused as in the framework."""
    if inputs.workload.has_virtual_tokens:
        return ()
    matrices = _adapted_parts(layer_of(inputs.model, group), inputs.workload.lora_targets)
    if inputs.framework.execution.fused_projections:
        return tuple(_fuse_matrices(matrices))
    return tuple(matrices)


def layer_adapter_parameters(
    inputs: TrainingInputs, group: LayerGroup, tensor_parallel: Numeric
) -> FloatArray:
    """Count adapter (LoRA) parameters of one layer on one tensor-parallel rank.

    Those of prefix tuning are keys and values of its virtual tokens.
    """
    if inputs.workload.adapter is AdapterKind.PREFIX:
        return np.asarray(
            inputs.workload.virtual_tokens * prefix_width(inputs.model, group) / tensor_parallel
        )
    parameters = []
    for matrix in adapted_matrices(inputs, group):
        depth, columns = matrix.local(tensor_parallel)
        rank = inputs.workload.lora_rank
        parameters.append(lora_parameters(depth=depth, columns=columns, lora_rank=rank))
    return add(parameters)


def expert_matrices(inputs: TrainingInputs, group: LayerGroup) -> tuple[AdaptedMatrix, ...]:
    """Return the matrices of one routed expert that have a LoRA adapter.

    Ranks that split experts split them as tensor parallelism splits other feed-forwards.
    """
    op = layer_of(inputs.model, group).experts
    if op is None or inputs.workload.expert_adapters is ExpertAdapters.NONE:
        return ()
    inside = [
        AdaptedMatrix(name=f"expert_{index}_adapter", reads="", depth=op.depth, columns=op.width)
        for index in range(op.matrices - 1)
    ]
    if inputs.framework.execution.fused_projections:
        inside = [*_fuse_matrices(inside)]
    last = AdaptedMatrix(
        name="expert_down_adapter", reads="", depth=op.width, columns=op.depth, split_depth=True
    )
    return (*inside, last)


def layer_expert_parameters(
    inputs: TrainingInputs,
    group: LayerGroup,
    expert_parallel: Numeric,
    expert_tensor_parallel: Numeric,
) -> FloatArray:
    """Count LoRA parameters of one layer's routed experts on one rank."""
    parameters = []
    for matrix in expert_matrices(inputs, group):
        depth, columns = matrix.local(expert_tensor_parallel)
        rank = inputs.workload.lora_rank
        parameters.append(lora_parameters(depth=depth, columns=columns, lora_rank=rank))
    if not parameters:
        return np.zeros(())
    return _expert_sets(inputs, group, expert_parallel) * add(parameters)


def _expert_sets(inputs: TrainingInputs, group: LayerGroup, expert_parallel: Numeric) -> FloatArray:
    """Count the LoRA sets for routed experts on one rank: one per expert, or a shared one."""
    op = layer_of(inputs.model, group).experts
    if op is None or inputs.workload.expert_adapters is ExpertAdapters.SHARED:
        return np.ones(())
    return np.asarray(op.num_experts / np.asarray(expert_parallel))


def prefix_width(model: ModelSpec, group: LayerGroup) -> float:
    """Keys and values of a virtual token in a layer; 0 in one without a cache of them."""
    core = layer_of(model, group).core
    return float(core.key_value_heads * (core.qk_dim + core.v_dim)) if core else 0.0


def adapter_block(share: MicroBatchShare, group: LayerGroup) -> Iterator[Operator]:
    """Yield the LoRA operators of a layer, and the dequantization of its frozen matrices."""
    workload = share.inputs.workload
    if not workload.is_frozen:
        return
    if workload.adapter is AdapterKind.PREFIX:
        yield from _prefix(share, group)
    for matrix in adapted_matrices(share.inputs, group):
        yield _adapter(share, matrix)
    for matrix in expert_matrices(share.inputs, group):
        yield _expert_adapter(share, group, matrix)
    if workload.adapter is AdapterKind.QLORA:
        yield from _dequantizations(share, group)


def without_adapters(operators: Iterable[Operator]) -> Iterator[Operator]:
    """Operators of a layer whose adapters are switched off."""
    return (operator for operator in operators if operator.module != _MODULE)


def adapter_launches(
    share: MicroBatchShare, group: LayerGroup, *, switched_off: bool = False
) -> float:
    """Return forward host seconds to launch `adapter_block`; ``switched_off``: without LoRA."""
    workload, execution = share.inputs.workload, share.inputs.framework.execution
    if not workload.is_frozen:
        return 0.0
    inputs = share.inputs
    matrices = (*adapted_matrices(inputs, group), *expert_matrices(inputs, group))
    count = 0 if switched_off else len(matrices)
    time = count * execution.adapter_launch_time
    if workload.adapter is AdapterKind.QLORA:
        time += (
            sum(layer_of(share.inputs.model, group).num_matrices) * execution.dequantize_launch_time
        )
    return time


def _adapted_parts(layer: Layer, targets: AdapterTargets) -> Iterator[AdaptedMatrix]:
    """Yield the parts of a layer's matrices that LoRA ``targets`` select."""
    wanted = _CHOSEN[targets]
    for product in layer.of(MatrixProduct):
        for part in product.columns.parts:
            if part.adapter in wanted:
                yield AdaptedMatrix(
                    name=f"{part.name}_adapter",
                    reads=product.reads,
                    depth=product.depth,
                    columns=part.columns,
                    split_depth=product.split is MatrixSplit.ROWS,
                )


def _fuse_matrices(matrices: Iterable[AdaptedMatrix]) -> Iterator[AdaptedMatrix]:
    """Join matrices with the same input into one adapter: queries with keys, gate with up."""
    inputs: dict[str, list[AdaptedMatrix]] = {}
    for matrix in matrices:
        inputs.setdefault(matrix.reads, []).append(matrix)
    for joined in inputs.values():
        yield replace(joined[0], columns=sum(matrix.columns for matrix in joined))


def _adapter(share: MicroBatchShare, matrix: AdaptedMatrix) -> Operator:
    """Return the LoRA down and up products of a matrix, with gradients and the sum of outputs."""
    machine, rank = share.inputs.machine, share.inputs.workload.lora_rank
    rows, precision = share.tokens, share.unquantized
    depth, columns = matrix.local(share.tensor_parallel)
    down = machine.gemm_time(rows, rank, depth, precision)
    up = machine.gemm_time(rows, columns, rank, precision)
    gradients = (
        machine.gemm_time(rank, columns, rows, precision),
        machine.gemm_time(rows, rank, columns, precision),
        machine.gemm_time(rank, depth, rows, precision),
        machine.gemm_time(rows, depth, rank, precision),
    )
    return _adapter_sum(share, matrix, rows, (depth, columns), (down, up), gradients)


def _adapter_sum(
    share: MicroBatchShare,
    matrix: AdaptedMatrix,
    rows: FloatArray,
    sides: tuple[Numeric, Numeric],
    products: Sequence[FloatArray],
    gradients: Sequence[FloatArray],
) -> Operator:
    """Return a LoRA operator of known products, with the sums with the frozen matrix's output.

    ``sides``: the numbers that it reads and writes for each of the ``rows``.
    """
    machine, (depth, columns) = share.inputs.machine, sides
    outputs, inputs = rows * np.asarray(columns), rows * np.asarray(depth)
    # Scaled (a read and a write), then added (two reads and a write); backward the same.
    summed = machine.memory_time(5.0 * share.number_bytes * outputs, kernels=2)
    summed_gradient = machine.memory_time(
        share.number_bytes * (2.0 * outputs + 3.0 * inputs), kernels=2
    )
    rank = share.inputs.workload.lora_rank
    return Operator(
        name=matrix.name,
        module=_MODULE,
        forward=add((*products, summed)),
        backward=add((*gradients, summed_gradient)),
        flops=np.asarray(2.0 * rank * rows * (np.asarray(depth) + columns)),
        selective=share.inputs.framework.execution.selective_share,
    )


def _expert_adapter(share: MicroBatchShare, group: LayerGroup, matrix: AdaptedMatrix) -> Operator:
    """Return the grouped LoRA products of the routed experts of a rank.

    The four of the backward pass take twice as long as the two of the forward pass.
    """
    inputs, machine = share.inputs, share.inputs.machine
    op = layer_of(inputs.model, group).experts
    rank, split = inputs.workload.lora_rank, share.expert_tensor_parallel
    rows = expert_pairs(share, op.per_token if op else 0) * split
    sets = _expert_sets(inputs, group, share.expert_parallel)
    depth, columns = matrix.local(split)
    down, up = (
        machine.grouped_gemm_time(rows, sets, rank, width, 1, share.unquantized)
        for width in (depth, columns)
    )
    return _adapter_sum(share, matrix, rows, (depth, columns), (down, up), (2.0 * (down + up),))


def _prefix(share: MicroBatchShare, group: LayerGroup) -> Iterator[Operator]:
    """Yield attention to the virtual tokens of prefix tuning."""
    core, machine = layer_of(share.inputs.model, group).core, share.inputs.machine
    if core is None:
        return
    rows = share.tokens * core.heads / share.tensor_parallel
    v = share.inputs.workload.virtual_tokens
    both = machine.gemm_time(rows, v, core.qk_dim + core.v_dim, share.unquantized)
    yield Operator(
        name="prefix",
        module=_MODULE,
        forward=both,
        backward=2.0 * both,
        flops=np.asarray(2.0 * rows * v * (core.qk_dim + core.v_dim)),
        selective=share.inputs.framework.execution.selective_share,
    )


def _dequantizations(share: MicroBatchShare, group: LayerGroup) -> Iterator[Operator]:
    """Yield the dequantization to 16 bits of each frozen matrix before its product (QLoRA)."""
    layer = layer_parameters(share.hidden_size, group)
    attention, feed_forward = layer_of(share.inputs.model, group).num_matrices
    ranks = share.expert_parallel * share.expert_tensor_parallel
    local = layer.feed_forward / share.tensor_parallel + layer.experts / ranks
    sizes = (
        ("attention_dequantize", layer.attention / share.tensor_parallel, attention),
        ("feed_forward_dequantize", local, feed_forward),
    )
    execution, machine = share.inputs.framework.execution, share.inputs.machine
    passes, workload = execution.dequantize_passes, share.inputs.workload
    width = quantized_bytes(
        bits=workload.quantization_bits, double_quantization=workload.double_quantization
    )
    for name, parameters, kernels in sizes:
        if not kernels:
            continue
        traffic = dequantize_bytes(parameters=parameters, passes=passes, width=width)
        time = machine.memory_time(traffic, kernels=kernels)
        yield Operator(
            name=name,
            module="dequantize",
            forward=time,
            backward=time,
            flops=np.zeros(()),
            selective=execution.selective_share,
        )
