"""Routed experts in prefill and decode, and the exchange around them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from planner.base.arrays import FloatArray
from planner.estimators.inference.operators import LayerContext, StepOperator
from planner.estimators.inference.setting import Rank
from planner.estimators.inference.weights import held_experts
from planner.formulas.collectives import distinct_share
from planner.formulas.routing import fullest_rank_factor
from planner.layers.model import Layer
from planner.layers.operators import ExpertExchange, Experts


def experts(context: LayerContext, op: Experts, layer: Layer) -> Iterator[StepOperator]:
    """All matrices of the experts of the rank with most of the tokens.

    Copies of experts share their tokens, and each that is visited is read.
    """
    rank, c = context.rank, context.rank.configurations
    pairs = rank.batch.tokens * op.per_token
    width = op.width / c.expert_tensor_parallel
    dispersion = rank.setting.workload.expert_dispersion
    uneven = np.asarray(c.expert_parallel)
    if context.kernels.engine.execution.balanced_experts:
        uneven = np.ones(())
    held = held_experts(rank.setting, op.num_experts, c)
    # Copies are of the popular ones: they even out what ranks have to do.
    popularity = np.where(held > op.num_experts, 0.0, dispersion)
    fullest = fullest_rank_factor(
        pairs=pairs, ranks=uneven, num_experts=op.num_experts, dispersion=popularity
    )
    mine = pairs / c.expert_parallel * fullest
    time = context.kernels.experts(
        tokens=_choosing(rank),
        pairs=mine,
        num_experts=held,
        num_experts_per_tok=op.per_token,
        local_experts=held / c.expert_parallel,
        hidden_size=op.depth,
        width=width,
        matrices=op.matrices,
        quantization=c.expert_quantization,
        dispersion=dispersion,
        uneven_ranks=uneven,
    )
    # It reads and writes as many tensors as there are matrices.
    activation = context.kernels.elementwise(2.0 * op.matrices * mine * width, kernels=0)
    yield StepOperator(
        name=op.name,
        module=op.module,
        time=time + activation,
        flops=2.0 * op.matrices * op.depth * width * mine,
    )


def exchange(context: LayerContext, op: ExpertExchange, layer: Layer) -> Iterator[StepOperator]:
    """What the ranks of the experts exchange.

    Ranks that hold the same tokens add up their results. With data-parallel attention each
    sends its tokens: to all ranks, or to those of their experts, whichever is faster.
    """
    rank, c = context.rank, context.rank.configurations
    machine = context.kernels.machine
    num_bytes = 2.0 * rank.batch.tokens * rank.hidden_size
    group = rank.stage_group
    together = context.kernels.all_reduce(num_bytes, group)
    gathered = context.collective("all_gather", num_bytes, group) + context.collective(
        "reduce_scatter", num_bytes, group
    )
    sent = distinct_share(num_copies=op.per_token, num_domains=machine.num_domains(group))
    own = 2.0 * rank.tokens * op.columns.whole * np.minimum(op.per_token, c.expert_parallel)
    there = machine.collective("all_to_all", own, group, sent_across=sent)
    apart = np.minimum(gathered, 2.0 * there)
    is_apart = c.attention_data_parallel > 1
    if machine.ledger is not None:
        machine.unused(is_apart, "all_reduce", "custom_all_reduce")
        machine.unused(~is_apart | (gathered > 2.0 * there), "all_gather", "reduce_scatter")
        machine.unused(~is_apart | (gathered <= 2.0 * there), "all_to_all")
    time = np.where(is_apart, apart, together)
    yield context.communication("experts_exchange", "experts", "expert_parallel", time)


def _choosing(rank: Rank) -> FloatArray:
    """Tokens that choose experts each on their own."""
    batch = rank.batch
    if not rank.setting.workload.equal_prompts:
        return batch.tokens
    return np.asarray(batch.tokens / np.maximum(batch.decoding + batch.prompts, 1.0))
