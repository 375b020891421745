"""LoRA adapters of an engine: their memory and their time in a step.

An engine allocates its adapter slots at the start: for every adapted matrix a pair of thin matrices
of the greatest rank, for as many adapters as a step may use. Where tensor parallelism splits the
columns of a matrix, every rank holds the first of the pair unsharded; where it splits the rows,
every rank holds the second unsharded [1]_ [2]_. Adapters of embedding and logits are not counted.

References
----------
.. [1] ``create_lora_weights`` of vllm/lora/layers/base_linear.py, column_parallel_linear.py and
   fused_moe.py, vLLM 0.33.
.. [2] ``get_lora_A_shape`` and ``get_lora_B_shape`` of python/sglang/srt/lora/mem_pool.py.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from planner.base.arrays import FloatArray, Numeric, add
from planner.base.enums import AdapterTargets
from planner.configurations.configuration_tables import ServingConfigurations
from planner.estimators.inference.context import BatchShare, ServingInputs
from planner.estimators.inference.operators import LayerContext, StepOperator
from planner.estimators.inference.weights import held_experts
from planner.formulas.memory import lora_serving_bytes
from planner.formulas.routing import experts_touched
from planner.layers.model import Layer, layer_of
from planner.layers.operators import (
    Experts,
    LayerOperator,
    MatrixProduct,
    MatrixSplit,
    ParameterPart,
)
from planner.specs.quantization import SIXTEEN_BIT_BYTES

_ADAPTED = (ParameterPart.ATTENTION, ParameterPart.FEED_FORWARD)
_NARROWER = {
    target: tuple(AdapterTargets)[: index + 1] for index, target in enumerate(AdapterTargets)
}


def is_adapted(op: MatrixProduct, targets: AdapterTargets) -> bool:
    """Return whether a fused product has LoRA adapters, by any of its matrices."""
    if op.holder not in _ADAPTED:
        return False
    is_any = any(part.adapter in _NARROWER[targets] for part in op.columns.parts)
    return is_any or targets is AdapterTargets.ALL_LINEAR


def has_adapted_experts(inputs: ServingInputs) -> bool:
    """Whether routed experts have adapters too."""
    is_all = inputs.workload.lora_targets is AdapterTargets.ALL_LINEAR
    return is_all and inputs.engine.memory.adapted_experts


def adapted_sides(op: MatrixProduct, tensor_parallel: Numeric) -> tuple[Numeric, Numeric]:
    """Return (inputs, outputs) of a product's LoRA matrices on one rank.

    Matrices that are one product have an adapter each.
    """
    if op.split is MatrixSplit.ROWS:
        return op.joined * op.depth / tensor_parallel, op.columns.total
    is_split = op.split is MatrixSplit.COLUMNS
    outputs = op.columns.on_rank(tensor_parallel) if is_split else op.columns.total
    return op.joined * op.depth, outputs


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
        for sides in _sides(inputs, layer_of(inputs.model, group), c)
    )
    return np.asarray(SIXTEEN_BIT_BYTES * slots * rank * numbers * uneven)


def _sides(inputs: ServingInputs, layer: Layer, c: ServingConfigurations) -> Iterator[Numeric]:
    """Yield inputs plus outputs of a layer's LoRA matrices on one GPU (parameters at rank 1)."""
    for op in layer.of(MatrixProduct):
        if is_adapted(op, inputs.workload.lora_targets):
            yield sum(adapted_sides(op, c.tensor_parallel))
    if has_adapted_experts(inputs):
        for experts in layer.of(Experts):
            local = held_experts(inputs, experts.num_experts, c) / c.expert_parallel
            width = experts.width / c.expert_tensor_parallel
            yield local * experts.matrices * (experts.depth + width)


def adapter_load_time(inputs: ServingInputs, c: ServingConfigurations) -> Numeric:
    """Return mean seconds that a request waits to load its LoRA adapter from the host."""
    if inputs.adapter_draws == np.inf:
        return 0.0
    each = adapter_bytes(inputs, c) / inputs.max_loras
    link = inputs.engine.execution.host_link_fraction
    return (1 - inputs.adapter_hits) * inputs.machine.host_copy_time(each, link)


_OF_EXPERTS = 2  # one set of kernels before the activation, one after it


def adapters(context: LayerContext, op: LayerOperator) -> Iterator[StepOperator]:
    """Yield the LoRA operators of a layer's operator; nothing without a LoRA adapter.

    Every request uses an adapter. The requests of a step are spread evenly over ``max_loras``.
    """
    inputs = context.rank.inputs
    if not inputs.max_loras:
        return
    if isinstance(op, MatrixProduct) and is_adapted(op, inputs.workload.lora_targets):
        yield _product_adapter(context, op)
    elif isinstance(op, Experts) and has_adapted_experts(inputs):
        yield _expert_adapters(context, op)


def adapter_launches(inputs: ServingInputs, layer: Layer) -> float:
    """Return host seconds per layer to launch LoRA kernels."""
    if not inputs.max_loras:
        return 0.0
    targets = inputs.workload.lora_targets
    number = sum(is_adapted(op, targets) for op in layer.of(MatrixProduct))
    if has_adapted_experts(inputs):
        number += _OF_EXPERTS * len([*layer.of(Experts)])
    return number * inputs.engine.execution.adapter_launch_time


def _product_adapter(context: LayerContext, op: MatrixProduct) -> StepOperator:
    """Return the LoRA kernels of one adapted matrix product in a serving step."""
    rank = context.rank
    inputs, outputs = adapted_sides(op, rank.configurations.tensor_parallel)
    read = _distinct_adapters(rank)
    return _operator(
        context, op, rows=rank.tokens, inputs=inputs, outputs=outputs, read=read, sets=1
    )


def _expert_adapters(context: LayerContext, op: Experts) -> StepOperator:
    """Return LoRA operators of routed experts, one adapter per (token, expert) pair."""
    rank, c = context.rank, context.rank.configurations
    rows = rank.batch.tokens * op.per_token / c.expert_parallel
    touched = experts_touched(
        num_experts=op.num_experts,
        num_experts_per_tok=op.per_token,
        tokens=rank.batch.tokens,
        dispersion=rank.inputs.workload.expert_dispersion,
    )
    read = np.minimum(touched / c.expert_parallel * _distinct_adapters(rank), rows)
    width = op.width / c.expert_tensor_parallel
    before = op.matrices - 1
    return _operator(
        context,
        op,
        rows=rows,
        inputs=before * op.depth + width,
        outputs=before * width + op.depth,
        read=read,
        sets=_OF_EXPERTS,
    )


def _operator(
    context: LayerContext,
    op: LayerOperator,
    *,
    rows: FloatArray,
    inputs: Numeric,
    outputs: Numeric,
    read: FloatArray,
    sets: int,
) -> StepOperator:
    """Return a LoRA operator with seconds and FLOPs; ``read``: distinct adapters in the batch."""
    shared_inputs = context.rank.inputs
    rank, execution = shared_inputs.workload.lora_rank, shared_inputs.engine.execution
    moved = lora_serving_bytes(
        rows=rows, inputs=inputs, outputs=outputs, lora_rank=rank, adapters=read
    )
    time = context.kernels.machine.memory_time(
        moved / execution.adapter_bandwidth_fraction, kernels=sets * execution.adapter_kernels
    )
    return StepOperator(
        name=f"{op.name}_adapters",
        module="lora",
        time=np.where(rows > 0, time, 0.0),
        flops=np.asarray(2.0 * rows * rank * (np.asarray(inputs) + outputs)),
    )


def _distinct_adapters(rank: BatchShare) -> FloatArray:
    """Number of different adapters of a step's requests on this rank."""
    requests = rank.decoding + rank.batch.prompts * rank.prompt_share
    slots = rank.inputs.max_loras
    return experts_touched(num_experts=slots, num_experts_per_tok=1, tokens=requests, dispersion=0)
