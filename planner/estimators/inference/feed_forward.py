"""Operators of the feed-forward block in prefill and decode."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from planner.arrays import FloatArray
from planner.estimators.inference.kernels import SIXTEEN_BIT
from planner.estimators.inference.operators import LayerContext, StepOperator
from planner.estimators.inference.setting import Rank
from planner.formulas.collectives import distinct_share
from planner.formulas.routing import fullest_rank_factor
from planner.specs.model import FeedForwardSpec, LayerGroup


def feed_forward_block(layer: LayerContext, group: LayerGroup) -> Iterator[StepOperator]:
    """From the norm before the feed-forward to what its ranks exchange."""
    if not (feed_forward := group.feed_forward):
        return
    own = layer.rank.tokens * layer.rank.hidden_size
    if not group.parallel_residual:
        yield layer.elementwise("feed_forward_norm", "norm", num_bytes=8.0 * own)
    if not feed_forward.num_experts:
        yield from _dense(layer, feed_forward, feed_forward.intermediate_size)
        yield layer.tensor_all_reduce("feed_forward")
        return
    if feed_forward.shared_intermediate_size:
        yield from _dense(layer, feed_forward, feed_forward.shared_intermediate_size)
    yield from _experts(layer, feed_forward)


def _dense(
    layer: LayerContext, feed_forward: FeedForwardSpec, width: int
) -> Iterator[StepOperator]:
    rank = layer.rank
    local = width / rank.configurations.tensor_parallel
    inputs = 2 if feed_forward.gated else 1
    yield layer.linear(
        "gate_up" if feed_forward.gated else "up",
        "feed_forward",
        rows=rank.tokens,
        columns=inputs * local,
        depth=rank.hidden_size,
    )
    moved = 2.0 * (inputs + 1) * rank.tokens * local
    yield layer.elementwise("activation", "activation", num_bytes=moved)
    yield layer.linear(
        "down", "feed_forward", rows=rank.tokens, columns=rank.hidden_size, depth=local
    )


def _experts(layer: LayerContext, feed_forward: FeedForwardSpec) -> Iterator[StepOperator]:
    """Router, routed experts, and the exchange around them."""
    rank, c = layer.rank, layer.rank.configurations
    k, h, e = feed_forward.num_experts_per_tok, rank.hidden_size, feed_forward.num_experts
    inputs = feed_forward.expert_inputs(h)
    yield layer.linear(
        "router", "router", rows=rank.tokens, columns=e, depth=h, quantization=SIXTEEN_BIT
    )
    yield layer.elementwise("choose_experts", "router", num_bytes=8.0 * rank.tokens * e)
    if feed_forward.moe_latent_size:
        for name, columns, depth in (("latent_down", inputs, h), ("latent_up", h, inputs)):
            yield layer.linear(
                name,
                "experts",
                rows=rank.tokens,
                columns=columns,
                depth=depth,
                quantization=SIXTEEN_BIT,
            )
    pairs = rank.batch.tokens * k
    width = feed_forward.moe_intermediate_size / c.expert_tensor_parallel
    matrices = 3 if feed_forward.gated else 2
    dispersion = rank.setting.workload.expert_dispersion
    fullest = fullest_rank_factor(pairs=pairs, ranks=c.expert_parallel)
    if layer.kernels.engine.execution.balanced_experts:
        fullest = np.ones(())
    mine = pairs / c.expert_parallel * fullest
    time = layer.kernels.experts(
        tokens=_choosing(rank),
        pairs=mine,
        num_experts=e,
        num_experts_per_tok=k,
        local_experts=e / c.expert_parallel,
        hidden_size=inputs,
        width=width,
        matrices=matrices,
        quantization=c.expert_quantization,
        dispersion=dispersion,
    )
    activation = layer.kernels.elementwise(2.0 * matrices * mine * width, kernels=0)
    yield StepOperator(
        name="experts",
        module="experts",
        time=time + activation,
        flops=2.0 * matrices * inputs * width * mine,
    )
    yield _exchange(layer, k, inputs)


def _choosing(rank: Rank) -> FloatArray:
    """Tokens that choose experts each on their own."""
    batch = rank.batch
    if not rank.setting.workload.equal_prompts:
        return batch.tokens
    return np.asarray(batch.tokens / np.maximum(batch.decoding + batch.prompts, 1.0))


def _exchange(layer: LayerContext, copies: int, width: int) -> StepOperator:
    """What the ranks of the experts exchange.

    Ranks that hold the same tokens add up their results. With data-parallel attention each
    sends its tokens: to all ranks, or to those of their experts, whichever is faster.
    """
    rank, c = layer.rank, layer.rank.configurations
    num_bytes = 2.0 * rank.batch.tokens * rank.hidden_size
    group = rank.stage_group
    together = layer.kernels.all_reduce(num_bytes, group)
    gathered = layer.collective("all_gather", num_bytes, group) + layer.collective(
        "reduce_scatter", num_bytes, group
    )
    domains = layer.kernels.machine.num_domains(group)
    sent = distinct_share(num_copies=copies, num_domains=domains)
    own = 2.0 * rank.tokens * width * np.minimum(copies, c.expert_parallel)
    there = layer.kernels.machine.collective("all_to_all", own, group, sent_across=sent)
    apart = np.minimum(gathered, 2.0 * there)
    time = np.where(c.attention_data_parallel > 1, apart, together)
    return layer.communication("experts_exchange", "experts", "expert_parallel", time)
