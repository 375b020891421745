"""The kernels of served adapters beside the products that have them, and their launches."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from planner.base.arrays import FloatArray, Numeric
from planner.estimators.inference.adapters import (
    adapted_sides,
    has_adapted_experts,
    is_adapted,
)
from planner.estimators.inference.operators import LayerContext, StepOperator
from planner.estimators.inference.setting import Rank, ServingSetting
from planner.formulas.adapters import served_adapter_bytes
from planner.formulas.routing import experts_touched
from planner.layers.model import Layer
from planner.layers.operators import Experts, Op, Product

_OF_EXPERTS = 2  # one set of kernels before the activation, one after it


def adapters(context: LayerContext, op: Op) -> Iterator[StepOperator]:
    """Those beside an operator; none without adapters, or beside one that has none.

    All requests use one, and those of a step are evenly spread over as many as it may have.
    """
    setting = context.rank.setting
    if not setting.max_loras:
        return
    if isinstance(op, Product) and is_adapted(op, setting.workload.lora_targets):
        yield _of_product(context, op)
    elif isinstance(op, Experts) and has_adapted_experts(setting):
        yield _of_experts(context, op)


def adapter_launches(setting: ServingSetting, layer: Layer) -> float:
    """Seconds of the host to launch those of a layer."""
    if not setting.max_loras:
        return 0.0
    targets = setting.workload.lora_targets
    number = sum(is_adapted(op, targets) for op in layer.of(Product))
    if has_adapted_experts(setting):
        number += _OF_EXPERTS * len([*layer.of(Experts)])
    return number * setting.engine.execution.adapter_launch_time


def _of_product(context: LayerContext, op: Product) -> StepOperator:
    rank = context.rank
    inputs, outputs = adapted_sides(op, rank.configurations.tensor_parallel)
    read = _different(rank)
    return _operator(
        context, op, rows=rank.tokens, inputs=inputs, outputs=outputs, read=read, sets=1
    )


def _of_experts(context: LayerContext, op: Experts) -> StepOperator:
    """A token's copies have the adapters of their experts, each pair of both of its own."""
    rank, c = context.rank, context.rank.configurations
    rows = rank.batch.tokens * op.per_token / c.expert_parallel
    touched = experts_touched(
        num_experts=op.num_experts,
        num_experts_per_tok=op.per_token,
        tokens=rank.batch.tokens,
        dispersion=rank.setting.workload.expert_dispersion,
    )
    read = np.minimum(touched / c.expert_parallel * _different(rank), rows)
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
    op: Op,
    *,
    rows: FloatArray,
    inputs: Numeric,
    outputs: Numeric,
    read: FloatArray,
    sets: int,
) -> StepOperator:
    setting = context.rank.setting
    rank, execution = setting.workload.lora_rank, setting.engine.execution
    moved = served_adapter_bytes(
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


def _different(rank: Rank) -> FloatArray:
    """Different adapters of the requests of a step on this rank."""
    requests = rank.decoding + rank.batch.prompts * rank.prompt_share
    slots = rank.setting.max_loras
    return experts_touched(num_experts=slots, num_experts_per_tok=1, tokens=requests, dispersion=0)
