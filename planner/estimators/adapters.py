"""Adapters in training and serving: adapted matrices, their parameters and memory, their times.

In training every rank computes the adapters of its frozen matrices, with gradients. An engine
allocates its adapter slots at the start: for every adapted matrix a pair of thin matrices of the
greatest rank, for as many adapters as a step may use. Where tensor parallelism splits the columns
of a matrix, every rank holds the first of the pair unsharded; where it splits the rows, every rank
holds the second unsharded [1]_ [2]_. Adapters of embedding and logits are not counted.

References
----------
.. [1] ``create_lora_weights`` of vllm/lora/layers/base_linear.py, column_parallel_linear.py and
   fused_moe.py, vLLM 0.33.
.. [2] ``get_lora_A_shape`` and ``get_lora_B_shape`` of python/sglang/srt/lora/mem_pool.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from planner.base.arrays import FloatArray, Numeric, add
from planner.base.enums import AdapterKind, AdapterTargets
from planner.base.records import record
from planner.base.training_aliases import ExpertAdapters
from planner.configurations.configuration_tables import ServingConfigurations
from planner.estimators.inference.batch_share import BatchShare, ServingInputs
from planner.estimators.inference.weights import held_experts
from planner.estimators.operators import Operator
from planner.estimators.training.micro_batch_share import MicroBatchShare, TrainingInputs
from planner.formulas.memory import (
    dequantize_bytes,
    lora_parameters,
    lora_serving_bytes,
    quantized_bytes,
)
from planner.formulas.routing import experts_touched
from planner.layers.model import Layer, layer_of, layer_parameters
from planner.layers.operators import (
    Experts,
    LayerOperator,
    MatrixProduct,
    MatrixSplit,
    ParameterPart,
)
from planner.specs.model import LayerGroup, ModelSpec
from planner.specs.quantization import SIXTEEN_BIT_BYTES

_CHOSEN = {
    target: tuple(AdapterTargets)[: index + 1] for index, target in enumerate(AdapterTargets)
}
"""Targets and all that are narrower."""
_MODULE = "adapter"
_ADAPTED = (ParameterPart.ATTENTION, ParameterPart.FEED_FORWARD)
_OF_EXPERTS = 2  # one set of kernels before the activation, one after it


@record(kw_only=True)
class AdaptedMatrix:
    """An unsharded matrix with an adapter; tensor parallelism splits one of its sides.

    ``reads`` names what it is multiplied with; ``repeated_by``: modules whose recomputation repeats
    its matrix.
    """

    name: str
    reads: str
    depth: float
    columns: float
    split_depth: bool = False
    repeated_by: tuple[str, ...] = ()

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
    return add(_parameters(inputs, adapted_matrices(inputs, group), tensor_parallel))


def _parameters(
    inputs: TrainingInputs, matrices: Iterable[AdaptedMatrix], tensor_parallel: Numeric
) -> list[FloatArray]:
    """Return the LoRA parameters of each matrix on one rank of those that split it."""
    sides = (matrix.local(tensor_parallel) for matrix in matrices)
    rank = inputs.workload.lora_rank
    return [lora_parameters(depth=depth, columns=width, lora_rank=rank) for depth, width in sides]


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
    parameters = _parameters(inputs, expert_matrices(inputs, group), expert_tensor_parallel)
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


def training_adapters(share: MicroBatchShare, group: LayerGroup) -> Iterator[Operator]:
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


def training_adapter_launches(
    share: MicroBatchShare, group: LayerGroup, *, switched_off: bool = False
) -> float:
    """Return forward host seconds to launch `training_adapters`; ``switched_off``: without LoRA."""
    workload, execution = share.inputs.workload, share.execution
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
                    repeated_by=product.repeated_by,
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
    machine, rank = share.machine, share.inputs.workload.lora_rank
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
    machine, (depth, columns) = share.machine, sides
    outputs, inputs = rows * np.asarray(columns), rows * np.asarray(depth)
    # Scaled (a read and a write), then added (two reads and a write); backward the same.
    is_wide = share.inputs.workload.adapter is AdapterKind.LORA
    cast = share.execution.adapter_cast_bytes * inputs if is_wide else 0.0
    summed = machine.memory_time(5.0 * share.number_bytes * outputs + cast, kernels=2)
    summed_gradient = machine.memory_time(
        share.number_bytes * (2.0 * outputs + 3.0 * inputs) + cast, kernels=2
    )
    rank = share.inputs.workload.lora_rank
    return Operator(
        name=matrix.name,
        module=_MODULE,
        forward=add((*products, summed)),
        backward=add((*gradients, summed_gradient)),
        flops=np.asarray(2.0 * rank * rows * (np.asarray(depth) + columns)),
        selective=share.execution.selective_share,
    )


def _expert_adapter(share: MicroBatchShare, group: LayerGroup, matrix: AdaptedMatrix) -> Operator:
    """Return the grouped LoRA products of the routed experts of a rank.

    The four of the backward pass take twice as long as the two of the forward pass.
    """
    inputs, machine = share.inputs, share.machine
    op = layer_of(inputs.model, group).experts
    rank, split = inputs.workload.lora_rank, share.expert_tensor_parallel
    rows = share.expert_pairs(op.per_token if op else 0) * split
    sets = _expert_sets(inputs, group, share.expert_parallel)
    depth, columns = matrix.local(split)
    down, up = (
        machine.grouped_gemm_time(rows, sets, rank, width, 1, share.unquantized)
        for width in (depth, columns)
    )
    return _adapter_sum(share, matrix, rows, (depth, columns), (down, up), (2.0 * (down + up),))


def _prefix(share: MicroBatchShare, group: LayerGroup) -> Iterator[Operator]:
    """Yield attention to the virtual tokens of prefix tuning."""
    core, machine = layer_of(share.inputs.model, group).core, share.machine
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
        selective=share.execution.selective_share,
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
    execution, machine = share.execution, share.machine
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
            selective=execution.selective_share,
        )


def adapter_bytes(inputs: ServingInputs, c: ServingConfigurations) -> FloatArray:
    """Return bytes of all LoRA adapter slots on one GPU of the fullest stage."""
    slots, rank = inputs.max_loras, inputs.workload.lora_rank
    if not slots:
        return np.zeros(())
    layers = inputs.model.num_hidden_layers
    uneven = np.ceil(layers / c.pipeline_parallel) / layers
    numbers = add(
        group.num_hidden_layers * sides
        for group in inputs.model.layer_groups
        for sides in _slot_sides(inputs, layer_of(inputs.model, group), c)
    )
    return np.asarray(SIXTEEN_BIT_BYTES * slots * rank * numbers * uneven)


def _slot_sides(inputs: ServingInputs, layer: Layer, c: ServingConfigurations) -> Iterator[Numeric]:
    """Yield inputs plus outputs of a layer's LoRA matrices on one GPU (parameters at rank 1)."""
    for op in layer.of(MatrixProduct):
        if _is_adapted(op, inputs.workload.lora_targets):
            yield sum(_slot_shape(op, c.tensor_parallel))
    if _has_adapted_experts(inputs):
        for experts in layer.of(Experts):
            local = held_experts(inputs, experts.num_experts, c) / c.expert_parallel
            width = experts.width / c.expert_tensor_parallel
            yield local * experts.matrices * (experts.depth + width)


def _is_adapted(op: MatrixProduct, targets: AdapterTargets) -> bool:
    """Return whether a fused product has LoRA adapters, by any of its matrices."""
    if op.holder not in _ADAPTED:
        return False
    is_any = any(part.adapter in _CHOSEN[targets] for part in op.columns.parts)
    return is_any or targets is AdapterTargets.ALL_LINEAR


def _has_adapted_experts(inputs: ServingInputs) -> bool:
    """Whether an engine's routed experts have adapters too."""
    is_all = inputs.workload.lora_targets is AdapterTargets.ALL_LINEAR
    return is_all and inputs.engine.memory.adapted_experts


def _slot_shape(op: MatrixProduct, tensor_parallel: Numeric) -> tuple[Numeric, Numeric]:
    """Return (inputs, outputs) of a product's LoRA matrices on one rank.

    Matrices that are one product have an adapter each.
    """
    depth, columns = op.on_rank(tensor_parallel)
    return op.joined * depth, columns


def adapter_load_time(inputs: ServingInputs, c: ServingConfigurations) -> Numeric:
    """Return mean seconds that a request waits to load its LoRA adapter from the host."""
    if inputs.adapter_draws == np.inf:
        return 0.0
    each = adapter_bytes(inputs, c) / inputs.max_loras
    link = inputs.engine.execution.host_link_fraction
    return (1 - inputs.adapter_hits) * inputs.machine.host_copy_time(each, link)


def serving_adapter_launches(inputs: ServingInputs, layer: Layer) -> float:
    """Return host seconds per layer to launch LoRA kernels."""
    if not inputs.max_loras:
        return 0.0
    targets = inputs.workload.lora_targets
    number = sum(_is_adapted(op, targets) for op in layer.of(MatrixProduct))
    if _has_adapted_experts(inputs):
        number += _OF_EXPERTS * len([*layer.of(Experts)])
    return number * inputs.engine.execution.adapter_launch_time


def serving_adapters(share: BatchShare, op: LayerOperator) -> Iterator[Operator]:
    """Yield the LoRA operators of a layer's operator; nothing without a LoRA adapter.

    Every request uses an adapter. The requests of a step are spread evenly over ``max_loras``.
    There is one adapter per (token, expert) pair of adapted experts.
    """
    work, c = share.inputs.workload, share.configurations
    if not share.inputs.max_loras:
        return
    if isinstance(op, MatrixProduct) and _is_adapted(op, work.lora_targets):
        shape = _slot_shape(op, share.tensor_parallel)
        yield _slot_products(share, op, share.tokens, shape, share.distinct_adapters, kernels=1)
    elif isinstance(op, Experts) and _has_adapted_experts(share.inputs):
        rows = share.batch.tokens * op.per_token / c.expert_parallel
        touched = experts_touched(
            num_experts=op.num_experts,
            num_experts_per_tok=op.per_token,
            tokens=share.batch.tokens,
            dispersion=work.expert_dispersion,
        )
        read = np.minimum(touched / c.expert_parallel * share.distinct_adapters, rows)
        width, before = op.width / c.expert_tensor_parallel, op.matrices - 1
        shape = before * op.depth + width, before * width + op.depth
        yield _slot_products(share, op, rows, shape, read, kernels=_OF_EXPERTS)


def _slot_products(
    share: BatchShare,
    op: LayerOperator,
    rows: FloatArray,
    shape: tuple[Numeric, Numeric],
    read: FloatArray,
    kernels: int,
) -> Operator:
    """Return the LoRA operator of a layer's operator; ``read``: distinct adapters in the batch."""
    rank, execution, (inputs, outputs) = share.inputs.workload.lora_rank, share.execution, shape
    moved = lora_serving_bytes(
        rows=rows, inputs=inputs, outputs=outputs, lora_rank=rank, adapters=read
    )
    time = share.machine.memory_time(
        moved / execution.adapter_bandwidth_fraction, kernels=kernels * execution.adapter_kernels
    )
    return Operator(
        name=f"{op.name}_adapters",
        module="lora",
        forward=np.where(rows > 0, time, 0.0),
        flops=np.asarray(2.0 * rows * rank * (np.asarray(inputs) + outputs)),
    )
