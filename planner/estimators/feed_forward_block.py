"""Operators of the feed-forward block of a layer: dense, shared experts, routed experts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from planner.arrays import FloatArray, Numeric
from planner.estimators.operators import Operator, elementwise, linear, tensor_collectives
from planner.estimators.share import Share, repeats_outputs
from planner.formulas.collectives import distinct_share
from planner.formulas.overlap import partly_hidden
from planner.specs.model import FeedForwardSpec, LayerGroup

# In fp32, two casts and two products of 8 bytes each and a sum of 4 for both gradients.
_BIAS_BACKWARD = 1.5


def feed_forward_block(share: Share, group: LayerGroup) -> Iterator[Operator]:
    """From the norm before the feed-forward to the residual after it."""
    if not (feed_forward := group.feed_forward):
        return
    for operator in _from_norm_to_output(share, group, feed_forward):
        yield replace(operator, in_feed_forward=True)
    own = share.own_tokens * share.hidden_size
    yield elementwise(
        share, "feed_forward_residual", "residual", elements=own, forward_bytes=6, backward_bytes=6
    )


def _from_norm_to_output(
    share: Share, group: LayerGroup, feed_forward: FeedForwardSpec
) -> Iterator[Operator]:
    """The block but for its residual: what recomputation of feed-forward blocks repeats."""
    own = share.own_tokens * share.hidden_size
    repeats = repeats_outputs(share, group)
    if not group.parallel_residual:
        yield elementwise(
            share, "feed_forward_norm", "norm", elements=own, forward_bytes=4, backward_bytes=6
        ).repeating(repeats)
    if feed_forward.num_experts:
        yield from _experts(share, feed_forward, repeats)
        if feed_forward.shared_intermediate_size:
            yield from _dense(share, feed_forward, feed_forward.shared_intermediate_size)
    else:
        yield from _dense(share, feed_forward, feed_forward.intermediate_size)


def _dense(share: Share, feed_forward: FeedForwardSpec, width: int) -> Iterator[Operator]:
    local = width / share.tensor_parallel
    inputs = 2 if feed_forward.gated else 1
    yield linear(
        share,
        "gate_up" if feed_forward.gated else "up",
        "feed_forward",
        rows=share.tokens,
        columns=inputs * local,
        depth=share.hidden_size,
    )
    yield elementwise(
        share,
        "activation",
        "activation",
        elements=share.tokens * local,
        forward_bytes=2 * (inputs + 1),
        backward_bytes=2 * (2 * inputs + 1),
    )
    yield linear(
        share, "down", "feed_forward", rows=share.tokens, columns=share.hidden_size, depth=local
    )
    yield from tensor_collectives(share, "feed_forward")


def _experts(share: Share, feed_forward: FeedForwardSpec, repeats: Numeric) -> Iterator[Operator]:
    """Router, dispatch, routed experts, combine; routing is taken as balanced."""
    k, h = feed_forward.num_experts_per_tok, share.hidden_size
    pairs = share.own_tokens * k
    width = feed_forward.expert_inputs(h)
    yield linear(
        share,
        "router",
        "router",
        rows=share.own_tokens,
        columns=feed_forward.num_experts,
        depth=h,
        sixteen_bit=True,
    )
    if feed_forward.moe_latent_size:
        own = share.own_tokens
        yield linear(share, "latent_down", "experts", rows=own, columns=width, depth=h)
        yield linear(share, "latent_up", "experts", rows=own, columns=h, depth=width)
    yield _permute(share, pairs * width)
    yield _routed(share, feed_forward, repeats)
    passes = share.setting.framework.execution.expert_bias_passes
    if feed_forward.bias and passes:
        yield _expert_bias(share, passes * pairs * width)
    yield _all_to_all(share, pairs * width, k)


def _routed(share: Share, feed_forward: FeedForwardSpec, repeats: Numeric) -> Operator:
    """All matrices of the experts on this GPU, each on the tokens sent to it."""
    width = feed_forward.moe_intermediate_size
    h = feed_forward.expert_inputs(share.hidden_size)
    matrices = 3 if feed_forward.gated else 2
    pairs = share.own_tokens * feed_forward.num_experts_per_tok
    local_experts = feed_forward.num_experts / share.expert_parallel
    machine = share.setting.machine
    matmul = machine.grouped_gemm_time(
        pairs, local_experts, h, width, matrices, share.kernel_format
    )
    launches = share.setting.framework.execution.expert_launch_time
    matmul = matmul + launches * local_experts
    activation = machine.memory_time(2.0 * matrices * pairs * width)
    backward = 2 * (matmul + activation)
    if share.setting.workload.is_frozen:
        backward = matmul + 2 * activation
    return Operator(
        name="experts",
        module="experts",
        forward=matmul + activation,
        backward=backward,
        flops=2.0 * matrices * h * width * pairs,
        selective=repeats * activation / (matmul + activation),
    )


def _expert_bias(share: Share, passed: FloatArray) -> Operator:
    """Adding the weighted bias of each expert to its outputs, by kernels of its own.

    The backward pass casts as often, and sums the gradients of biases and weights.
    """
    time = share.setting.machine.memory_time(2.0 * passed)
    return Operator(
        name="expert_bias",
        module="experts",
        forward=time,
        backward=_BIAS_BACKWARD * time,
        flops=np.zeros(()),
    )


def _permute(share: Share, elements: FloatArray) -> Operator:
    """Sorting tokens by expert before the experts, and back after them."""
    machine, execution = share.setting.machine, share.setting.framework.execution
    passes = execution.permute_passes
    time = machine.memory_time(2 * passes * 4.0 * elements, kernels=2)
    return Operator(
        name="permute", module="experts", forward=time, backward=time, flops=np.zeros(())
    )


def _all_to_all(share: Share, elements: FloatArray, copies: int) -> Operator:
    """Tokens go to their experts and come back."""
    machine, framework = share.setting.machine, share.setting.framework
    domains = machine.num_domains(share.expert_group)
    sent = distinct_share(num_copies=copies, num_domains=domains)
    one_way = machine.collective(
        "all_to_all",
        2.0 * elements,
        share.expert_group,
        sent_across=sent if framework.execution.deduplicated_dispatch else 1.0,
    )
    there_and_back = partly_hidden(
        communication=2 * one_way, hidden=framework.overlap.expert_parallel
    )
    return Operator(
        name="experts_all_to_all",
        module="experts",
        part="expert_parallel",
        forward=there_and_back,
        backward=there_and_back,
        flops=np.zeros(()),
    )
