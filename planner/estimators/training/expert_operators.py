"""Routed experts of training: their matrices, and how tokens come to them and back."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from planner.base.arrays import FloatArray, Numeric
from planner.base.enums import TokenDispatcher, ZeroStage
from planner.base.software_enums import ExpertCompute
from planner.configurations.training import TrainingConfigurations
from planner.estimators.machine import Group
from planner.estimators.training.operators import Operator, timed
from planner.estimators.training.share import Share
from planner.formulas.collectives import distinct_share
from planner.formulas.overlap import partly_hidden
from planner.layers.model import Layer
from planner.layers.operators import ExpertBias, ExpertExchange, Experts, Permute

# In fp32, two casts and two products of 8 bytes each and a sum of 4 for both gradients.
_BIAS_BACKWARD = 1.5


def experts(share: Share, op: Experts, layer: Layer) -> Iterator[Operator]:
    """All matrices of the experts on this GPU, each on the tokens sent to it.

    The fullest rank's, if routing is not balanced. Ranks that split experts compute a part of
    the width of each for the tokens of all of them. What goes into a product and the gradients
    of what comes out of one are cast as the operands of other products are.
    """
    pairs, split = expert_pairs(share, op.per_token), share.expert_tensor_parallel
    local_experts = op.num_experts / share.expert_parallel
    machine = share.setting.machine
    matmul = machine.grouped_gemm_time(
        pairs * split, local_experts, op.depth, op.width / split, op.matrices, share.kernel_format
    )
    launches = share.setting.framework.execution.expert_launch_time
    matmul = matmul + launches * local_experts
    # It reads and writes as many tensors as there are matrices.
    activation = machine.memory_time(share.number_bytes * op.matrices * pairs * op.width)
    inside = op.matrices - 1
    depth = op.depth * split
    cast_inputs = machine.expert_cast_time(pairs * (depth + op.width), share.kernel_format)
    cast_outputs = machine.expert_cast_time(
        pairs * (depth + inside * op.width), share.kernel_format
    )
    backward = 2 * (matmul + activation)
    if share.setting.workload.is_frozen:
        backward = matmul + 2 * activation
    yield timed(
        op,
        forward=matmul + activation + cast_inputs,
        backward=backward + cast_outputs,
        flops=2.0 * op.matrices * op.depth * op.width * pairs,
        parts={"moe_act": activation / (matmul + activation + cast_inputs)},
        weights=0.0 if share.setting.workload.is_frozen else matmul,
    )


def loop_launches(share: Share, c: TrainingConfigurations, layer: Layer) -> Numeric:
    """Seconds of the host for a loop over a GPU's experts, forward; twice that backward.

    Each expert has kernels of its own, and waits for the number of its tokens. ZeRO-3 gathers
    each of its matrices where the loop comes to it: nobody knows before which have tokens.
    """
    execution = share.setting.framework.execution
    if layer.experts is None or not np.any(c.expert_compute == ExpertCompute.LOOP):
        return 0.0
    op = layer.experts
    gathers = np.where(c.zero_stage == ZeroStage.WEIGHTS, op.matrices, 0)
    each = execution.expert_loop_time + execution.module_gather_time * gathers
    local = op.num_experts / share.expert_parallel
    return np.where(c.expert_compute == ExpertCompute.LOOP, local * each, 0.0)


def permute(share: Share, op: Permute, layer: Layer) -> Iterator[Operator]:
    """A read and a write of every dispatched token, before the experts and after them."""
    machine, execution = share.setting.machine, share.setting.framework.execution
    elements = expert_pairs(share, op.per_token) * op.columns.whole
    traffic = 2 * share.number_bytes * 2 * execution.permute_passes * elements
    time = machine.memory_time(traffic, kernels=2)
    yield timed(op, forward=time, backward=time)


def expert_bias(share: Share, op: ExpertBias, layer: Layer) -> Iterator[Operator]:
    """Adding the weighted bias of each expert to its outputs, by kernels of its own.

    The backward pass casts as often, and sums the gradients of biases and weights.
    """
    passes = share.setting.framework.execution.expert_bias_passes
    if not passes:
        return
    elements = expert_pairs(share, op.per_token) * op.columns.whole
    time = share.setting.machine.memory_time(share.number_bytes * passes * elements)
    yield timed(op, forward=time, backward=_BIAS_BACKWARD * time)


def expert_exchange(share: Share, op: ExpertExchange, layer: Layer) -> Iterator[Operator]:
    """Tokens go to their experts and come back."""
    bytes_of_pairs = share.number_bytes * expert_pairs(share, op.per_token) * op.columns.whole
    time = np.where(
        share.token_dispatcher == TokenDispatcher.ALLGATHER,
        _gathered(share, op),
        _sent(share, op, bytes_of_pairs),
    )
    there_and_back = partly_hidden(
        communication=time, hidden=share.setting.framework.overlap.expert_parallel
    )
    yield timed(op, forward=there_and_back, backward=there_and_back, part="expert_parallel")


def _sent(share: Share, op: ExpertExchange, bytes_of_pairs: FloatArray) -> FloatArray:
    """An all-to-all each way; then ranks that split experts gather tokens and add up outputs."""
    machine, framework = share.setting.machine, share.setting.framework
    gathers = share.token_dispatcher == TokenDispatcher.ALLGATHER
    domains = machine.num_domains(share.expert_group)
    once = distinct_share(num_copies=op.per_token, num_domains=domains)
    own = float(TokenDispatcher.FLEX) if framework.execution.deduplicated_dispatch else 0.0
    used = np.where(share.token_dispatcher == TokenDispatcher.AUTO, own, share.token_dispatcher)
    one_way = machine.collective(
        "all_to_all",
        bytes_of_pairs,
        share.expert_group,
        sent_across=np.where(used == TokenDispatcher.FLEX, once, 1.0),
    )
    machine.unused(gathers, "all_to_all")
    if np.all(share.expert_tensor_parallel == 1):
        return 2 * one_way
    whole = bytes_of_pairs * share.expert_tensor_parallel
    gather, scatter = (
        machine.collective(kind, whole, share.expert_tensor_group)
        for kind in ("all_gather", "reduce_scatter")
    )
    return 2 * one_way + gather + scatter


def _gathered(share: Share, op: ExpertExchange) -> FloatArray:
    """Every token comes to every rank of the experts, and the outputs are added up on its own."""
    if not np.any(share.token_dispatcher == TokenDispatcher.ALLGATHER):
        return np.zeros(())
    ranks = share.expert_parallel * share.expert_tensor_parallel
    group = Group(size=ranks, stride=1)
    whole = share.number_bytes * share.own_tokens * op.columns.whole * ranks
    machine = share.setting.machine
    return machine.collective("all_gather", whole, group) + machine.collective(
        "reduce_scatter", whole, group
    )


def expert_pairs(share: Share, per_token: int) -> FloatArray:
    """Tokens that come to a rank, the fullest one, once per expert that they visit."""
    return np.asarray(share.own_tokens * per_token * share.expert_load)
