"""Routed experts of training: their matrices, and how tokens come to them and back."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from planner.arrays import FloatArray
from planner.estimators.operators import Operator, timed
from planner.estimators.products import SIXTEEN_BIT
from planner.estimators.share import Share, repeats_outputs
from planner.formulas.collectives import distinct_share
from planner.formulas.overlap import partly_hidden
from planner.layers.model import Layer
from planner.layers.operators import ExpertBias, ExpertExchange, Experts, Permute

# In fp32, two casts and two products of 8 bytes each and a sum of 4 for both gradients.
_BIAS_BACKWARD = 1.5


def experts(share: Share, op: Experts, layer: Layer) -> Iterator[Operator]:
    """All matrices of the experts on this GPU, each on the tokens sent to it.

    Routing is taken as balanced. What goes into a product and the gradients of what comes out of
    one are cast as the operands of other products are.
    """
    pairs = _pairs(share, op.per_token)
    local_experts = op.num_experts / share.expert_parallel
    machine = share.setting.machine
    matmul = machine.grouped_gemm_time(
        pairs, local_experts, op.depth, op.width, op.matrices, share.kernel_format
    )
    launches = share.setting.framework.execution.expert_launch_time
    matmul = matmul + launches * local_experts
    # It reads and writes as many tensors as there are matrices.
    activation = machine.memory_time(SIXTEEN_BIT * op.matrices * pairs * op.width)
    inside = op.matrices - 1
    cast_inputs = machine.cast_time(pairs * (op.depth + op.width), share.kernel_format)
    cast_outputs = machine.cast_time(pairs * (op.depth + inside * op.width), share.kernel_format)
    backward = 2 * (matmul + activation)
    if share.setting.workload.is_frozen:
        backward = matmul + 2 * activation
    yield timed(
        op,
        forward=matmul + activation + cast_inputs,
        backward=backward + cast_outputs,
        flops=2.0 * op.matrices * op.depth * op.width * pairs,
        selective=repeats_outputs(share, layer) * activation / (matmul + activation + cast_inputs),
    )


def permute(share: Share, op: Permute, layer: Layer) -> Iterator[Operator]:
    """A read and a write of every dispatched token, before the experts and after them."""
    machine, execution = share.setting.machine, share.setting.framework.execution
    elements = _pairs(share, op.per_token) * op.columns.whole
    traffic = 2 * SIXTEEN_BIT * 2 * execution.permute_passes * elements
    time = machine.memory_time(traffic, kernels=2)
    yield timed(op, forward=time, backward=time)


def expert_bias(share: Share, op: ExpertBias, layer: Layer) -> Iterator[Operator]:
    """Adding the weighted bias of each expert to its outputs, by kernels of its own.

    The backward pass casts as often, and sums the gradients of biases and weights.
    """
    passes = share.setting.framework.execution.expert_bias_passes
    if not passes:
        return
    elements = _pairs(share, op.per_token) * op.columns.whole
    time = share.setting.machine.memory_time(SIXTEEN_BIT * passes * elements)
    yield timed(op, forward=time, backward=_BIAS_BACKWARD * time)


def expert_exchange(share: Share, op: ExpertExchange, layer: Layer) -> Iterator[Operator]:
    """Tokens go to their experts and come back."""
    machine, framework = share.setting.machine, share.setting.framework
    domains = machine.num_domains(share.expert_group)
    sent = distinct_share(num_copies=op.per_token, num_domains=domains)
    one_way = machine.collective(
        "all_to_all",
        SIXTEEN_BIT * _pairs(share, op.per_token) * op.columns.whole,
        share.expert_group,
        sent_across=sent if framework.execution.deduplicated_dispatch else 1.0,
    )
    there_and_back = partly_hidden(
        communication=2 * one_way, hidden=framework.overlap.expert_parallel
    )
    yield timed(op, forward=there_and_back, backward=there_and_back, part="expert_parallel")


def _pairs(share: Share, per_token: int) -> FloatArray:
    """Tokens of a rank, once per expert that they visit."""
    return np.asarray(share.own_tokens * per_token)
