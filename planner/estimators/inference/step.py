"""Time of one step of an engine: a batch of prompts, of decoding sequences, or of both."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from operator import attrgetter
from typing import Any

import numpy as np

from planner.base.arrays import CodeArray, FloatArray, Numeric, add
from planner.base.enums import CacheType, Quantization
from planner.base.records import record
from planner.configurations.configuration_tables import ServingConfigurations
from planner.estimators.inference.adapters import adapter_launches, adapters
from planner.estimators.inference.attention_core import (
    attention_core,
    cached_bytes,
    index_scores,
    scan,
    visible_tokens,
)
from planner.estimators.inference.context import Batch, BatchShare, ServingInputs
from planner.estimators.inference.kernels import SIXTEEN_BIT
from planner.estimators.inference.operators import LayerContext, StepOperator
from planner.estimators.inference.weights import held_experts, weight_bytes
from planner.estimators.kernel_work import KernelWork, attribute_work
from planner.formulas.collectives import distinct_domain_share
from planner.formulas.routing import expert_imbalance_factor
from planner.layers import operators as ops
from planner.layers.model import Layer, embedding_of, layer_of, logits_of
from planner.layers.operators import AttentionCore
from planner.specs.model import LayerGroup


def experts(context: LayerContext, op: ops.Experts, layer: Layer) -> Iterator[StepOperator]:
    """Yield the expert matrix products of the rank with the most tokens.

    Copies of experts share their tokens, and each that is visited is read.
    """
    rank, c = context.rank, context.rank.configurations
    pairs = rank.batch.tokens * op.per_token
    width = op.width / c.expert_tensor_parallel
    dispersion = rank.inputs.workload.expert_dispersion
    uneven = np.asarray(c.expert_parallel)
    if context.kernels.engine.execution.balanced_experts:
        uneven = np.ones(())
    expert_copies = held_experts(rank.inputs, op.num_experts, c)
    # Popular experts are copied, which balances the load of the ranks.
    popularity = np.where(expert_copies > op.num_experts, 0.0, dispersion)
    fullest = expert_imbalance_factor(
        pairs=pairs, ranks=uneven, num_experts=op.num_experts, dispersion=popularity
    )
    rank_pairs = pairs / c.expert_parallel * fullest
    time = context.kernels.experts(
        tokens=rank.batch.tokens
        if not rank.inputs.workload.equal_prompts
        else np.asarray(
            rank.batch.tokens / np.maximum(rank.batch.decoding + rank.batch.prompts, 1.0)
        ),
        pairs=rank_pairs,
        num_experts=expert_copies,
        num_experts_per_tok=op.per_token,
        local_experts=expert_copies / c.expert_parallel,
        hidden_size=op.depth,
        width=width,
        matrices=op.matrices,
        quantization=c.expert_quantization,
        dispersion=dispersion,
        uneven_ranks=uneven,
    )
    # It reads and writes as many tensors as there are matrices.
    activation = context.kernels.elementwise(2.0 * op.matrices * rank_pairs * width, kernels=0)
    yield StepOperator(
        name=op.name,
        module=op.module,
        time=time + activation,
        flops=2.0 * op.matrices * op.depth * width * rank_pairs,
    )


def exchange(context: LayerContext, op: ops.ExpertExchange, layer: Layer) -> Iterator[StepOperator]:
    """Yield the experts' all-reduce, or the all-to-all or all-gather of data-parallel attention.

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
    sent = distinct_domain_share(num_copies=op.per_token, num_domains=machine.num_domains(group))
    sent_bytes = 2.0 * rank.tokens * op.columns.total * np.minimum(op.per_token, c.expert_parallel)
    all_to_all_time = machine.collective("all_to_all", sent_bytes, group, sent_across=sent)
    separate = np.minimum(gathered, 2.0 * all_to_all_time)
    is_data_parallel = c.attention_data_parallel > 1
    if machine.ledger is not None:
        machine.unused(is_data_parallel, "all_reduce", "custom_all_reduce")
        machine.unused(
            ~is_data_parallel | (gathered > 2.0 * all_to_all_time), "all_gather", "reduce_scatter"
        )
        machine.unused(~is_data_parallel | (gathered <= 2.0 * all_to_all_time), "all_to_all")
    time = np.where(is_data_parallel, separate, together)
    yield context.communication("experts_exchange", "experts", "expert_parallel", time)


_NUMBER = 2.0  # bytes of an activation
# Tensors of a norm: it includes the sum with the residual stream before it.
_NORM_TENSORS = 4
_SAMPLING_BYTES = 12.0  # fp32 logits are read by softmax, top-k and sampling
_CHOICE_BYTES = 8.0  # scores of experts in fp32, and the chosen ones
# Parts of other kernels: sums of norms, gates of the attention before them.
_FUSED = ("residual", "output_gate")
# Prompts have one kernel, sequences that decode another.
_KERNELS = {"convolution": 2}


def layer_operators(context: LayerContext, group: LayerGroup) -> Iterator[StepOperator]:
    """Operators of one layer of a group."""
    yield from _of(context, layer_of(context.rank.inputs.model, group))


def end_operators(context: LayerContext) -> Iterator[StepOperator]:
    """Embedding, final norm, logits of the tokens to be sampled, sampling."""
    model = context.rank.inputs.model
    yield from _of(context, embedding_of(model))
    yield from _of(context, logits_of(model))


def _of(context: LayerContext, layer: Layer) -> Iterator[StepOperator]:
    for op in layer.operators:
        yield from _KINDS[type(op)](context, op, layer)
        yield from adapters(context, op)


def _product(context: LayerContext, op: ops.MatrixProduct, layer: Layer) -> Iterator[StepOperator]:
    """Yield the kernels of a matrix product of a layer in a serving step."""
    core, t = layer.core, context.rank.configurations.tensor_parallel
    if op.reads == "residual" and op.split is ops.MatrixSplit.NONE:
        yield from _joined_projections(context, op, layer)
        return
    if core and core.latent_width and op.reads == "key_latent":
        yield from _expansion(context, op, core)
        return
    rows = _rows(context, op)
    columns = op.columns.on_rank(t) if op.split is ops.MatrixSplit.COLUMNS else op.columns.total
    depth = op.depth / t if op.split is ops.MatrixSplit.ROWS else op.depth
    code = _code(context, op, layer)
    stored = _embedding_bytes(context) if op.holder is ops.ParameterPart.LOGITS else None
    yield context.linear(
        op.name, op.module, rows=rows, columns=columns, depth=depth, quantization=code,
        stored=stored,
    )  # fmt: skip
    if op.module == "router":
        moved = _CHOICE_BYTES * rows * op.columns.total
        yield context.elementwise("choose_experts", "router", num_bytes=moved)


def _joined_projections(
    context: LayerContext, op: ops.MatrixProduct, layer: Layer
) -> Iterator[StepOperator]:
    """Yield the unsharded projections into latent spaces, joined into one product."""
    same = [
        each
        for each in layer.of(ops.MatrixProduct)
        if each.reads == op.reads
        and each.split is ops.MatrixSplit.NONE
        and each.module == op.module
    ]
    if op is same[0]:
        columns = sum(each.columns.total for each in same)
        rows = context.rank.tokens
        name = f"{op.module}_down"
        yield context.linear(
            name,
            op.module,
            rows=rows,
            columns=columns,
            depth=op.depth,
            quantization=context.stored_code("attention"),
        )


def _expansion(
    context: LayerContext, op: ops.MatrixProduct, core: ops.AttentionCore
) -> Iterator[StepOperator]:
    """Yield the expansion of MLA's latent: for prompts to keys and values, in decoding folded."""
    rank, t = context.rank, context.rank.configurations.tensor_parallel
    prompt = rank.prompt_tokens
    columns = op.columns.on_rank(t)
    code = context.stored_code("attention")
    yield context.linear(
        op.name, op.module, rows=prompt, columns=columns, depth=op.depth, quantization=code
    )
    for name, width in (("keys", core.qk_dim - core.rope_dim), ("values", core.v_dim)):
        yield context.linear(
            f"absorb_{name}",
            op.module,
            rows=rank.tokens - prompt,
            columns=core.heads / t * width,
            depth=op.depth,
            quantization=SIXTEEN_BIT,
        )


def _code(context: LayerContext, op: ops.MatrixProduct, layer: Layer) -> CodeArray | None:
    """Return the quantization code of a product; None if the configuration's code applies."""
    if op.holder is ops.ParameterPart.LOGITS:
        if context.rank.inputs.workload.embedding_bits is not None:
            return SIXTEEN_BIT
        return None if context.rank.inputs.engine.quantized_ends else SIXTEEN_BIT
    if op.sixteen_bit or op.holder is ops.ParameterPart.ROUTER:
        return SIXTEEN_BIT
    if op.holder is ops.ParameterPart.ATTENTION:
        return context.stored_code("attention")
    if op.holder is ops.ParameterPart.FEED_FORWARD:
        has_experts = any(layer.of(ops.Experts))
        return context.stored_code("shared_experts" if has_experts else "feed_forward")
    return None


def _rows(context: LayerContext, op: ops.LayerOperator) -> FloatArray:
    """Rows of an operator: after the last layer only the sampled tokens."""
    at_the_end = op.module == "logits" or op.name == "final_norm"
    return context.rank.sampled if at_the_end else context.rank.tokens


def _elementwise(
    context: LayerContext, op: ops.Elementwise, layer: Layer
) -> Iterator[StepOperator]:
    """Yield the memory-bound kernel of an element-wise operator; nothing if it is fused."""
    if op.module in _FUSED or op.name in _FUSED:
        return
    t, rows = context.rank.configurations.tensor_parallel, _rows(context, op)
    if op.module == "norm":
        moved = _NUMBER * _NORM_TENSORS * rows * op.columns.total
    elif op.module == "rope":
        # The same kernel rotates keys and writes them to the cache.
        queries = _NUMBER * op.forward * op.columns.split / t
        cached = layer.core if layer.core and not layer.core.shares_cache else None
        moved = rows * (queries + _NUMBER * cached_bytes(context.rank, cached))
    else:
        is_whole = op.module == "residual_streams"
        width = op.columns.total if is_whole else op.columns.on_rank(t)
        moved = _NUMBER * op.forward * rows * width
    kernels = _KERNELS.get(op.name, 1)
    yield context.elementwise(op.name, op.module, num_bytes=moved, kernels=kernels)


def _lookup(context: LayerContext, op: ops.Lookup, layer: Layer) -> Iterator[StepOperator]:
    read = (_embedding_bytes(context) or _NUMBER) - _NUMBER
    moved = (_NUMBER * op.forward + read) * context.rank.tokens * op.columns.total
    yield context.elementwise(op.name, op.module, num_bytes=moved)


def _embedding_bytes(context: LayerContext) -> float | None:
    """Bytes of a weight of embedding and logits; None where these have 16 bits."""
    bits = context.rank.inputs.workload.embedding_bits
    return None if bits in (None, 16) else bits / 8


def _sampling(context: LayerContext, op: ops.Loss, layer: Layer) -> Iterator[StepOperator]:
    """Yield the all-gather of the logits of all vocabulary shards, and the sampling of tokens."""
    logits = context.rank.sampled * op.columns.total
    time = context.collective("all_gather", _NUMBER * logits, context.rank.tensor_group)
    yield context.communication("logits_gather", "logits", "tensor_parallel", time)
    yield context.elementwise("sampling", "logits", num_bytes=_SAMPLING_BYTES * logits, kernels=3)


def _block_exchange(
    context: LayerContext, op: ops.BlockExchange, layer: Layer
) -> Iterator[StepOperator]:
    """Yield the tensor-parallel all-reduce after an attention or feed-forward block."""
    is_last = op.module == "feed_forward"
    if is_last and layer.experts:
        return
    joined = context.rank.inputs.engine.execution.joined_all_reduce
    if not is_last and joined and layer.side_by_side:
        return
    yield context.tensor_all_reduce(op.module)


def _vocabulary_reduce(
    context: LayerContext, op: ops.VocabularyReduce, layer: Layer
) -> Iterator[StepOperator]:
    if not op.backward:
        yield context.tensor_all_reduce(op.module)


def _nothing(context: LayerContext, op: ops.LayerOperator, layer: Layer) -> Iterator[StepOperator]:
    """Part of other kernels, or of training alone."""
    return iter(())


_KINDS: dict[
    type[ops.LayerOperator], Callable[[LayerContext, Any, Layer], Iterator[StepOperator]]
] = {
    ops.AttentionCore: attention_core,
    ops.BlockExchange: _block_exchange,
    ops.Elementwise: _elementwise,
    ops.ExpertBias: _nothing,
    ops.ExpertExchange: exchange,
    ops.Experts: experts,
    ops.HeadExchange: _nothing,
    ops.IndexScores: index_scores,
    ops.Lookup: _lookup,
    ops.Loss: _sampling,
    ops.Permute: _nothing,
    ops.MatrixProduct: _product,
    ops.Scan: scan,
    ops.VocabularyReduce: _vocabulary_reduce,
    ops.Weights: _nothing,
}


def offload_wait(rank: BatchShare, busy: FloatArray) -> FloatArray:
    """Return seconds per step in which the GPU waits for host copies, beyond ``busy`` time.

    Weights, and the cache where the GPU attends to it, are copied over the host link while the
    GPU computes. Where the host attends to the cache, the GPU waits for that.
    """
    c, machine = rank.configurations, rank.inputs.machine
    if not np.any(c.weight_offload > 0) and not np.any(c.kv_offload > 0):
        return np.zeros(())
    execution = rank.inputs.engine.execution
    weights = c.weight_offload * weight_bytes(rank.inputs, c).total * c.pipeline_parallel
    computes = rank.inputs.engine.execution.host_attention_fraction > 0
    by_host = np.asarray(computes and rank.configurations.kv_cache == CacheType.BF16)
    cache = np.where(by_host, 0.0, _offloaded_cache(rank))
    hidden = execution.hidden_copies * busy
    copied = machine.host_copy_time(weights + cache, execution.host_link_fraction)
    wait = np.maximum(copied - hidden, 0.0)
    if not np.any(by_host):
        return wait
    read = np.where(by_host, _offloaded_cache(rank, for_each_head=True), 0.0)
    return wait + machine.host_memory_time(read, execution.host_attention_fraction)


def _offloaded_cache(rank: BatchShare, for_each_head: bool = False) -> FloatArray:
    """Return bytes of the offloaded KV cache of all layers that a decode step moves.

    ``for_each_head``: where query heads share keys and values, each writes and reads a copy.
    """
    sequences = rank.configurations.kv_offload * rank.decoding
    return add(
        group.num_hidden_layers
        * _cache_of(rank, layer_of(rank.inputs.model, group).core, for_each_head)
        * sequences
        for group in rank.inputs.model.layer_groups
    )


def _cache_of(rank: BatchShare, core: AttentionCore | None, for_each_head: bool) -> Numeric:
    """Return KV-cache bytes per sequence that a decode step moves in one layer on one rank."""
    if core is None:
        return 0.0
    num_bytes = cached_bytes(rank, core) * visible_tokens(rank, rank.batch.context, core)
    heads = core.heads / core.key_value_heads
    is_shared = not core.latent_width and heads > 1
    return num_bytes * (1 + 2 * heads) if for_each_head and is_shared else num_bytes


@record(kw_only=True)
class InferenceStep:
    """Seconds of a step through all pipeline stages, part by part; the parts add up.

    ``layers`` holds the operators of one layer of each group with the number of layers,
    ``ends`` those outside them. ``launch_wait``: the GPU waits for the host to launch.
    ``transfer_wait``: it waits for offloaded weights and cache, or for the host that attends to
    it. ``slowest_stage``: seconds of the pipeline stage that the others wait for, with the copies
    of its own weights and cache, which every step needs again. ``works``: recorded work of the
    parts that belong to no operator.
    """

    layers: tuple[tuple[int, tuple[StepOperator, ...]], ...]
    ends: tuple[StepOperator, ...]
    kernels: FloatArray
    pipeline: FloatArray
    launch_wait: FloatArray
    transfer_wait: FloatArray
    overhead: FloatArray
    slowest_stage: FloatArray
    works: Mapping[str, tuple[KernelWork, ...]] = field(default_factory=dict)

    @property
    def total(self) -> FloatArray:
        """Seconds of the step."""
        return add(
            (self.kernels, self.pipeline, self.launch_wait, self.transfer_wait, self.overhead)
        )

    def cycle(self, micro_batches: Numeric) -> FloatArray:
        """Return seconds between two steps of a micro-batch if several share the pipeline.

        Each returns to the first stage when it has passed all, and when all have passed the
        slowest.
        """
        return np.maximum(self.total, micro_batches * self.slowest_stage)


def step_time(
    inputs: ServingInputs, configurations: ServingConfigurations, batch: Batch, decoding: bool
) -> InferenceStep:
    """Predict seconds of one step on ``batch``; ``decoding``: without prompts, as a CUDA graph."""
    c = configurations
    rank = BatchShare(inputs=inputs, configurations=c, batch=batch)
    layer = LayerContext(rank=rank, kernels=inputs.kernels)
    ledger = inputs.machine.ledger
    layers = tuple(
        (
            group.num_hidden_layers,
            tuple(attribute_work(ledger, layer_operators(layer, group), attrgetter("time"))),
        )
        for group in inputs.model.layer_groups
    )
    ends = tuple(attribute_work(ledger, end_operators(layer), attrgetter("time")))
    per_layer = [(count, add(o.time for o in operators)) for count, operators in layers]
    kernels = add((*(count * time for count, time in per_layer), *(o.time for o in ends)))
    wait = add(
        count * np.maximum(_launch_time(rank, group, decoding) - time, 0.0)
        for group, (count, time) in zip(inputs.model.layer_groups, per_layer, strict=True)
    )
    overhead = _overhead(rank)
    p, layer_count = c.pipeline_parallel, inputs.model.num_hidden_layers
    sent = 2.0 * rank.tokens * inputs.model.stream_width
    send = np.where(p > 1, inputs.machine.send_time(sent, c.stage_gpus), 0.0)
    inputs.machine.close("pipeline")
    busy = kernels + wait
    waited = offload_wait(rank, busy)
    inputs.machine.close("transfer_wait")
    ends_time = add(o.time for o in ends)
    # The stages that have a layer more than others do not hold the logits as well.
    mean_layer = (busy - ends_time) / layer_count
    slowest = np.maximum(
        np.ceil(layer_count / p) * mean_layer, np.floor(layer_count / p) * mean_layer + ends_time
    )
    return InferenceStep(
        layers=layers,
        ends=ends,
        kernels=kernels,
        pipeline=np.asarray((p - 1) * send),
        launch_wait=wait,
        transfer_wait=waited,
        overhead=overhead,
        slowest_stage=slowest + send + overhead + waited / p,
        works=inputs.machine.recorded_parts(),
    )


def _overhead(rank: BatchShare) -> FloatArray:
    """Return seconds per step in which the host schedules and samples while the GPU waits."""
    execution, batch = rank.inputs.engine.execution, rank.batch
    # Ranks that share the requests have hosts that work side by side.
    default = execution.step_overhead + execution.sequence_overhead * rank.sampled
    verifying = execution.draft_overhead + execution.draft_sequence_overhead * rank.decoding
    verifies = (batch.tokens_per_sequence > 1) & (batch.decoding > 0)
    return np.asarray(default + np.where(verifies, verifying, 0.0))


def _launch_time(rank: BatchShare, group: LayerGroup, decoding: bool) -> Numeric:
    """Return host seconds per layer to launch the kernels of a step."""
    execution = rank.inputs.engine.execution
    each, routing, captured_routing = _quantized_launch_time(rank, group), 0.0, 0.0
    mixing = _mixing_launch_time(rank, group)
    if group.num_experts > 1:
        each = each + execution.expert_loop_time * group.num_experts
        routing = execution.expert_launch_time
        captured_routing = execution.decode_expert_launch_time
    blocks = group.num_blocks / 2
    host_time = each + adapter_launches(rank.inputs, layer_of(rank.inputs.model, group))
    launched = host_time + blocks * execution.prefill_launch_time + routing + mixing
    if not decoding:
        return launched
    longest = execution.captured_context or np.inf
    shown = host_time if execution.decode_launch_time > 0 else each
    captured = shown + blocks * execution.decode_launch_time + captured_routing
    return np.where(rank.batch.context > longest, launched, captured)


def _mixing_launch_time(rank: BatchShare, group: LayerGroup) -> float:
    """Return host seconds per layer to launch linear attention or state-space mixers."""
    execution, layer = rank.inputs.engine.execution, layer_of(rank.inputs.model, group)
    if layer.scan is not None:
        return execution.recurrent_launch_time
    is_latent = layer.core is not None and layer.core.latent_width > 0
    return execution.latent_launch_time if is_latent else 0.0


def _quantized_launch_time(rank: BatchShare, group: LayerGroup) -> Numeric:
    """Return host seconds per layer that quantized matrices add to launches."""
    c, time = rank.configurations, rank.inputs.engine.execution.quantized_launch_time
    if time == 0:
        return 0.0
    of_attention, of_feed_forward = layer_of(rank.inputs.model, group).num_matrices
    experts = c.expert_quantization if group.num_experts > 1 else c.quantization
    in_attention = np.where(c.quantization == Quantization.W16A16, 0, of_attention)
    return time * (in_attention + np.where(experts == Quantization.W16A16, 0, of_feed_forward))
