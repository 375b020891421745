"""Routed experts in training and serving: their products, the sort of tokens, and the exchange."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from planner.base.arrays import FloatArray
from planner.base.enums import TokenDispatcher
from planner.estimators.inference.batch_share import BatchShare
from planner.estimators.inference.weights import held_experts
from planner.estimators.machine import CommunicationGroup
from planner.estimators.operators import Operator, make_operator
from planner.estimators.training.micro_batch_share import MicroBatchShare
from planner.formulas.collectives import unhidden_time
from planner.formulas.routing import domains_reached, expert_imbalance_factor
from planner.layers.model import Layer
from planner.layers.operators import ExpertBias, ExpertExchange, Experts, Permute
from planner.specs.framework import Execution

# In fp32, two casts and two products of 8 bytes each and a sum of 4 for both gradients.
_BIAS_BACKWARD = 1.5


def repeated_grouped_share(execution: Execution) -> float:
    """Share of the experts' products that selective recomputation without modules repeats."""
    of_all, of_grouped = execution.selective_share, execution.selective_grouped
    return of_all if of_grouped is None else of_grouped


def reached_by_token(layer: Layer, num_domains: FloatArray) -> FloatArray:
    """Return over how many of ``num_domains`` equal shares of experts a token's stand on average.

    Experts are shared out in order, so groups of them stand on consecutive ranks. The limit is
    the model's: engines, NeMo AutoModel (``Gate``) and Megatron-Core
    (``moe_router_num_groups``) route by it.
    """
    experts = layer.experts
    if experts is None:
        return np.ones(())
    return domains_reached(
        num_experts=experts.num_experts,
        num_experts_per_tok=experts.per_token,
        num_domains=num_domains,
        n_group=experts.n_group,
        topk_group=experts.topk_group,
    )


def training_experts(share: MicroBatchShare, op: Experts, layer: Layer) -> Iterator[Operator]:
    """Yield the matrix products of all experts on one GPU, on the tokens routed to them.

    The fullest rank's, if routing is not balanced. Ranks that split experts compute a part of
    the width of each for the tokens of all of them. What goes into a product and the gradients
    of what comes out of one are cast as the operands of other products are.
    """
    pairs, split = share.expert_pairs(op.per_token), share.expert_tensor_parallel
    local_experts = op.num_experts / share.expert_parallel
    machine, is_frozen = share.machine, share.inputs.workload.is_frozen
    matmul = machine.grouped_gemm_time(
        pairs * split, local_experts, op.depth, op.width / split, op.matrices, share.kernel_format
    )
    matmul = matmul + share.execution.expert_launch_time * local_experts
    # It reads and writes as many tensors as there are matrices.
    activation = machine.memory_time(share.number_bytes * op.matrices * pairs * op.width)
    depth, inside = op.depth * split, op.matrices - 1
    cast_inputs, cast_outputs = (
        machine.expert_cast_time(pairs * width, share.kernel_format)
        for width in (depth + op.width, depth + inside * op.width)
    )
    forward = matmul + activation + cast_inputs
    backward = matmul + 2 * activation if is_frozen else 2 * (matmul + activation)
    yield make_operator(
        op,
        forward,
        backward + cast_outputs,
        2.0 * op.matrices * op.depth * op.width * pairs,
        selective=repeated_grouped_share(share.execution),
        parts={"moe_act": activation / forward},
        weights=0.0 if is_frozen else matmul,
    )


def serving_experts(share: BatchShare, op: Experts, layer: Layer) -> Iterator[Operator]:
    """Yield the expert matrix products of the rank with the most tokens.

    Copies of experts share their tokens, and each that is visited is read.
    """
    c, batch, work = share.configurations, share.batch, share.inputs.workload
    pairs, width = batch.tokens * op.per_token, op.width / c.expert_tensor_parallel
    is_balanced = share.execution.balanced_experts
    uneven = np.ones(()) if is_balanced else np.asarray(c.expert_parallel)
    expert_copies = held_experts(share.inputs, op.num_experts, c)
    # Popular experts are copied, which balances the load of the ranks.
    popularity = np.where(expert_copies > op.num_experts, 0.0, work.expert_dispersion)
    fullest = expert_imbalance_factor(
        pairs=pairs, ranks=uneven, num_experts=op.num_experts, dispersion=popularity
    )
    rank_pairs = pairs / c.expert_parallel * fullest
    tokens = batch.tokens
    if work.equal_prompts:
        tokens = np.asarray(tokens / np.maximum(batch.decoding + batch.prompts, 1.0))
    time = share.kernels.experts(
        tokens=tokens,
        pairs=rank_pairs,
        num_experts=expert_copies,
        num_experts_per_tok=op.per_token,
        local_experts=expert_copies / c.expert_parallel,
        hidden_size=op.depth,
        width=width,
        matrices=op.matrices,
        quantization=c.expert_quantization,
        dispersion=work.expert_dispersion,
        uneven_ranks=uneven,
    )
    # It reads and writes as many tensors as there are matrices.
    moved = 2.0 * op.matrices * rank_pairs * width
    if share.machine.gpu.architecture in share.inputs.engine.whole_expert_buffers:
        # Other ranks' pairs: zeros into the activation and out of it, and others to be summed.
        zeros = 2.0 * (2 * op.matrices - 1) * width + 4.0 * op.depth
        moved = moved + zeros * pairs * (1 - 1 / c.expert_parallel)
    activation = share.kernels.elementwise(moved, kernels=0)
    flops = 2.0 * op.matrices * op.depth * width * rank_pairs
    yield make_operator(op, time + activation, flops=flops)


def permute(share: MicroBatchShare, op: Permute, layer: Layer) -> Iterator[Operator]:
    """Yield the memory-bound sort of tokens by expert, before the experts and after them."""
    elements = share.expert_pairs(op.per_token) * op.columns.total
    traffic = 2 * share.number_bytes * 2 * share.execution.permute_passes * elements
    time = share.machine.memory_time(traffic, kernels=2)
    yield make_operator(op, time, time, selective=repeated_grouped_share(share.execution))


def expert_bias(share: MicroBatchShare, op: ExpertBias, layer: Layer) -> Iterator[Operator]:
    """Yield the kernels that add each expert's weighted bias to its outputs.

    The backward pass casts as often, and sums the gradients of biases and weights.
    """
    passes = share.execution.expert_bias_passes
    if not passes:
        return
    elements = share.expert_pairs(op.per_token) * op.columns.total
    time = share.machine.memory_time(share.number_bytes * passes * elements)
    yield make_operator(op, time, _BIAS_BACKWARD * time)


def training_exchange(
    share: MicroBatchShare, op: ExpertExchange, layer: Layer
) -> Iterator[Operator]:
    """Yield the all-to-all that sends tokens to their experts and back (dispatch, combine)."""
    bytes_of_pairs = share.number_bytes * share.expert_pairs(op.per_token) * op.columns.total
    gathers = share.token_dispatcher == TokenDispatcher.ALLGATHER
    gathered = np.zeros(())
    if np.any(gathers):
        ranks = share.expert_parallel * share.expert_tensor_parallel
        num_bytes = share.number_bytes * share.local_tokens * op.columns.total * ranks
        gathered = share.machine.gather_scatter_time(
            num_bytes, CommunicationGroup(size=ranks, stride=1)
        )
    time = unhidden_time(
        communication=np.where(gathers, gathered, _dispatch_time(share, op, layer, bytes_of_pairs)),
        hidden=share.overlap.expert_parallel,
    )
    yield make_operator(op, time, time, part="expert_parallel")


def _dispatch_time(
    share: MicroBatchShare, op: ExpertExchange, layer: Layer, bytes_of_pairs: FloatArray
) -> FloatArray:
    """Return seconds of an all-to-all each way, with collectives inside expert-tensor groups.

    A dispatcher of its own kernels sends a token once to each rank that has experts of it
    (deepseek-ai/DeepEP, ``Buffer.get_dispatch_layout``: ``is_token_in_rank``), and once between
    domains.
    """
    machine, dispatcher = share.machine, share.token_dispatcher
    domains = reached_by_token(layer, machine.num_domains(share.expert_group))
    ranks = reached_by_token(layer, share.expert_parallel)
    default = float(TokenDispatcher.FLEX) if share.execution.deduplicated_dispatch else 0.0
    used = np.where(dispatcher == TokenDispatcher.AUTO, default, dispatcher)
    is_flex = used == TokenDispatcher.FLEX
    one_way = machine.collective(
        "all_to_all",
        bytes_of_pairs * np.where(is_flex, ranks / op.per_token, 1.0),
        share.expert_group,
        sent_across=np.where(is_flex, domains / ranks, 1.0),
    )
    machine.unused(dispatcher == TokenDispatcher.ALLGATHER, "all_to_all")
    if np.all(share.expert_tensor_parallel == 1):
        return 2 * one_way
    gathered = bytes_of_pairs * share.expert_tensor_parallel
    gather, scatter = (
        machine.collective(kind, gathered, share.expert_tensor_group)
        for kind in ("all_gather", "reduce_scatter")
    )
    return 2 * one_way + gather + scatter


def serving_exchange(share: BatchShare, op: ExpertExchange, layer: Layer) -> Iterator[Operator]:
    """Yield the experts' all-reduce, or the all-to-all or all-gather of data-parallel attention.

    Ranks that hold the same tokens add up their results. With data-parallel attention each
    sends its tokens: to all ranks, or to those of their experts, whichever is faster.
    """
    c, machine, group = share.configurations, share.machine, share.stage_group
    # Ranks of context parallelism all have the decoding sequences.
    decoded = share.batch.decoding * share.batch.tokens_per_sequence
    copied = (c.context_parallel - 1) * decoded
    num_bytes = 2.0 * (share.batch.tokens + copied) * share.hidden_size
    together = share.kernels.all_reduce(num_bytes, group)
    gathered = machine.gather_scatter_time(num_bytes, group)
    copies = np.minimum(op.per_token, c.expert_parallel)
    domains = reached_by_token(layer, machine.num_domains(group))
    one_way = machine.collective(
        "all_to_all",
        2.0 * share.tokens * op.columns.total * copies,
        group,
        sent_across=np.minimum(domains / copies, 1.0),
    )
    sent_both_ways = 2.0 * one_way
    is_data_parallel = c.attention_data_parallel * c.context_parallel > 1
    if machine.ledger is not None:
        is_gathered = gathered <= sent_both_ways
        machine.unused(is_data_parallel, "all_reduce", "custom_all_reduce")
        machine.unused(~is_data_parallel | ~is_gathered, "all_gather", "reduce_scatter")
        machine.unused(~is_data_parallel | is_gathered, "all_to_all")
    time = np.where(is_data_parallel, np.minimum(gathered, sent_both_ways), together)
    yield Operator(name="experts_exchange", module="experts", part="expert_parallel", forward=time)
