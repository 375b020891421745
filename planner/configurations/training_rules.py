"""Named rules: why a training configuration is impossible."""

from __future__ import annotations

import numpy as np

from planner.base.arrays import BoolArray, CodeArray, is_among
from planner.base.enums import AttentionKind, ContextExchange, Offload, Recompute, ZeroStage
from planner.base.records import record
from planner.configurations.enumerate import NOTHING_GIVEN, AsGiven
from planner.configurations.option_rules import (
    ATTENTION_KERNEL,
    LOSS_CHUNKS,
    OPTION_RULES,
    WIDEST_FP8_HEAD,
    attention_kernel,
    beside_shards,
    fp8_attention,
    fp8_recipe,
    lacking_precision,
    loss_chunks,
    second_engine,
    unsupported_options,
    unsupported_states,
)
from planner.configurations.table import (
    OUT_OF_HOST_MEMORY,
    Reason,
    Rule,
    first_broken,
    indivisible,
    left_over_gpus,
    predicted,
    uneven_widths,
)
from planner.configurations.training import TrainingConfigurations
from planner.question.terms import terms_about
from planner.specs.framework import FrameworkProfile
from planner.specs.gpu import GpuSpec
from planner.specs.model import ModelSpec
from planner.specs.workload import TrainingWorkload, layers_of_chunks


@record(kw_only=True)
class Context:
    """What the rules are judged against.

    ``logits_in_layers``: what all logits are worth in layers.
    """

    gpu: GpuSpec
    model: ModelSpec
    framework: FrameworkProfile
    workload: TrainingWorkload
    logits_in_layers: int = 1
    as_given: AsGiven = NOTHING_GIVEN


END_CHUNKS = 2
"""Chunks of an interleaved schedule that may hold no layer: of the embedding, of the logits."""


def _as_given(c: TrainingConfigurations, context: Context) -> BoolArray:
    return context.as_given.is_broken(c)


def _batch(c: TrainingConfigurations, _: Context) -> BoolArray:
    m = c.num_micro_batches
    return np.asarray((m < 1) | (m != np.floor(m)))


def _heads(c: TrainingConfigurations, context: Context) -> BoolArray:
    t = c.tensor_parallel
    violated = np.zeros((), dtype=np.bool_)
    for attention in context.model.attentions:
        heads, shared = attention.split_heads
        violated = violated | indivisible(heads, t)
        if attention.kind is not AttentionKind.LATENT:
            copied = (not attention.has_state) & ~indivisible(1.0, shared / t)
            violated = violated | (indivisible(shared, t) & ~copied)
    return violated


def _layout(c: TrainingConfigurations, context: Context) -> BoolArray:
    layout = context.workload.pipeline_layout
    if not layout:
        return np.zeros((), dtype=np.bool_)
    sizes = layers_of_chunks(layout)
    # A chunk without any layer holds the embedding or the loss.
    empty = 0 in sizes[1:-1]
    fits = sum(sizes) == context.model.num_hidden_layers
    chunks = c.pipeline_parallel * c.virtual_pipeline
    return np.asarray((chunks != len(sizes)) | (not fits) | empty)


def _layers(c: TrainingConfigurations, context: Context) -> BoolArray:
    if context.workload.pipeline_layout:
        return np.zeros((), dtype=np.bool_)
    v = c.virtual_pipeline
    places = context.model.num_hidden_layers + np.where(v > 1, END_CHUNKS, 0)
    return np.asarray(c.pipeline_parallel * v > places)


def _virtual(c: TrainingConfigurations, context: Context) -> BoolArray:
    p = c.pipeline_parallel
    unsupported = p == 1 if context.framework.interleaved_schedule else np.ones((), np.bool_)
    return np.asarray((c.virtual_pipeline > 1) & unsupported)


def _layer_split(c: TrainingConfigurations, _: Context) -> BoolArray:
    useless = (c.pipeline_parallel == 1) | (c.virtual_pipeline > 1)
    return np.asarray(c.layer_split & useless)


def _interleaved_batch(c: TrainingConfigurations, _: Context) -> BoolArray:
    return np.asarray(
        (c.virtual_pipeline > 1) & indivisible(c.num_micro_batches, c.pipeline_parallel)
    )


def _interleaved_layers(c: TrainingConfigurations, context: Context) -> BoolArray:
    if context.workload.pipeline_layout:
        return np.zeros((), dtype=np.bool_)
    chunks = c.pipeline_parallel * c.virtual_pipeline
    layers = context.model.num_hidden_layers
    most = np.ceil(layers / chunks)
    # The embedding counts as a layer, the logits as what they are worth.
    lighter = np.minimum(most, 1) + np.minimum(most, context.logits_in_layers)
    return np.asarray((c.virtual_pipeline > 1) & (most * chunks - layers > lighter))


def _sequence(c: TrainingConfigurations, _: Context) -> BoolArray:
    return np.asarray(c.sequence_parallel & (c.tensor_parallel == 1))


def _sequence_length(c: TrainingConfigurations, context: Context) -> BoolArray:
    cp = c.context_parallel
    halves = np.where(c.cp_comm_type == ContextExchange.P2P, 2, 1)  # the causal mask in a ring
    pieces = np.where(cp > 1, halves * cp, 1.0)
    split = np.where(c.sequence_parallel, c.tensor_parallel, 1.0)
    return indivisible(context.workload.computed_length, pieces * split)


def _ring_without_flash(c: TrainingConfigurations, _: Context) -> BoolArray:
    return np.asarray((c.context_parallel > 1) & ~c.fused_attention)


def _experts(c: TrainingConfigurations, context: Context) -> BoolArray:
    ranks = c.num_gpus / c.pipeline_parallel
    numbers = {group.num_experts for group in context.model.layer_groups} - {0}
    violated = indivisible(ranks, c.expert_ranks)
    for number in numbers:
        violated = violated | indivisible(number, c.expert_parallel)
    return violated if numbers else np.asarray(c.expert_parallel > 1)


def _experts_need_sequence(c: TrainingConfigurations, context: Context) -> BoolArray:
    has_experts = context.model.num_experts > 0
    return np.asarray(has_experts & (c.tensor_parallel > 1) & ~c.sequence_parallel)


def _zero(c: TrainingConfigurations, _: Context) -> BoolArray:
    alone = (c.data_parallel * c.context_parallel == 1) & (c.num_gpus > 1)
    return np.asarray((c.zero_stage > ZeroStage.NONE) & alone)


def _replicas(c: TrainingConfigurations, context: Context) -> BoolArray:
    replicas = c.data_parallel_replicas
    if np.all(replicas == 1):
        return np.zeros((), dtype=np.bool_)
    ranks = c.data_parallel * c.context_parallel
    violated = (ranks <= replicas) | indivisible(ranks, replicas)
    if context.model.num_experts > 0:
        copies = c.num_gpus / (c.pipeline_parallel * c.expert_ranks)
        violated = violated | indivisible(copies, replicas)
    return np.asarray((replicas > 1) & (violated | (c.zero_stage == ZeroStage.NONE)))


def _recomputed_layers(c: TrainingConfigurations, context: Context) -> BoolArray:
    layers = c.recompute_num_layers
    if not np.any(layers):
        return np.zeros((), dtype=np.bool_)
    all_of_stage = layers >= context.model.num_hidden_layers / c.pipeline_parallel
    return np.asarray((layers > 0) & ((c.recompute != Recompute.FULL) | all_of_stage))


def unsupported(c: TrainingConfigurations, f: FrameworkProfile) -> dict[str, BoolArray]:
    """Where configurations ask a framework for what it lacks, by parameter."""
    in_pipeline = (c.pipeline_parallel > 1) & ~is_among(c.zero_stage, f.pipeline_zero_stages)
    found = {
        "zero_stage": ~(is_among(c.zero_stage, f.zero_stages) | second_engine(c, f)) | in_pipeline,
        # Stages of a framework without a schedule for them may take turns.
        "pipeline_parallel": in_pipeline
        if f.pipeline_parallel
        else (c.pipeline_parallel > 1) & ~(c.layer_split & f.layer_split),
    }
    if not f.layer_split:
        found["layer_split"] = c.layer_split
    for name in terms_about("collective"):
        if not getattr(f, name):
            found[name] = (getattr(c, name) > 1) & ~beside_shards(c, f, name)
    if not f.interleaved_schedule:
        found["virtual_pipeline"] = c.virtual_pipeline > 1
    if not f.hybrid_sharding:
        replicas = "data_parallel_replicas"
        found[replicas] = (c.data_parallel_replicas > 1) & ~beside_shards(c, f, replicas)
    if not f.partial_recompute:
        found["recompute_num_layers"] = c.recompute_num_layers > 0
    if not f.feed_forward_recompute:
        found["recompute"] = c.recompute == Recompute.FEED_FORWARD
    if not f.fp8_attention:
        found["fp8_attention"] = c.fp8_attention
    return found | unsupported_states(c, f) | unsupported_options(c, f)


def _framework(c: TrainingConfigurations, context: Context) -> BoolArray:
    violated, *others = unsupported(c, context.framework).values()
    for other in others:
        violated = violated | other
    return np.asarray(violated)


def _sharded_from(kind: Offload, profile: FrameworkProfile) -> int:
    """The ZeRO stage from which a framework offloads so; ZeRO-Infinity needs the third."""
    if kind.to_drives:
        return ZeroStage.WEIGHTS
    if kind.of_weights:
        return profile.states.weights_sharded_from
    return ZeroStage.OPTIMIZER if kind.of_states else ZeroStage.NONE


def _in_backward(c: TrainingConfigurations, _: Context) -> BoolArray:
    if not c.optimizer_in_backward.any():
        return np.zeros((), dtype=np.bool_)
    waits = (c.num_micro_batches > 1) | (c.pipeline_parallel > 1) | (c.offload != Offload.NONE)
    return np.asarray(c.optimizer_in_backward & waits)


def _offload(c: TrainingConfigurations, context: Context) -> BoolArray:
    if not c.any_offload:
        return np.zeros((), dtype=np.bool_)
    profile, host = context.framework, context.gpu.host
    kinds = {*profile.offloading.kinds, Offload.NONE.word}
    known = [kinds.issuperset(kind.parts) for kind in Offload]
    sharded_from = np.asarray([_sharded_from(kind, profile) for kind in Offload])[c.offload]
    alone = c.data_parallel * c.context_parallel == 1
    violated = ~np.asarray(known)[c.offload] | ((c.zero_stage < sharded_from) & ~alone)
    if host is None or host.bandwidth is None:
        violated = violated | (c.offload != Offload.NONE) | (c.offloaded_tensors != 0)
    return np.asarray(violated)


RULES: tuple[Rule[TrainingConfigurations, Context], ...] = tuple(
    Rule(name=name, description=description, violated=violated)
    for name, description, violated in (
        ("gpu_count", "tensor x context x pipeline parallel must divide the number of GPUs",
         left_over_gpus),
        ("global_batch_size", "data_parallel x micro_batch_size must divide global_batch_size",
         _batch),
        ("as_given", "data_parallel and gradient_accumulation_steps are those that were given",
         _as_given),
        ("attention_heads", "tensor_parallel must divide the heads of attention and of states, and"
         " divide the key-value heads or be a multiple of them", _heads),
        ("intermediate_size", "tensor_parallel must divide the feed-forward width", uneven_widths),
        ("pipeline_layout", "pipeline_layout has pipeline_parallel x virtual_pipeline chunks, of "
         "all layers of the model, and none without layers inside", _layout),
        ("num_hidden_layers", "pipeline_parallel x virtual_pipeline cannot exceed the layers, or "
         "with virtual_pipeline > 1 the layers, the embedding and the loss", _layers),
        ("virtual_pipeline", "virtual_pipeline > 1 needs pipeline_parallel > 1 and an interleaved "
         "schedule", _virtual),
        ("layer_split", "layer_split needs pipeline_parallel > 1 without virtual_pipeline",
         _layer_split),
        ("interleaved_micro_batches", "an interleaved schedule needs micro-batches in multiples of"
         " pipeline_parallel", _interleaved_batch),
        ("interleaved_layers", "an interleaved schedule needs equal chunks, where the embedding "
         "counts as a layer and the loss as one or, if it is worth more, as up to so many",
         _interleaved_layers),
        ("sequence_parallel", "sequence_parallel needs tensor_parallel > 1", _sequence),
        ("sequence_length", "2 x context_parallel (a2a: 1 x) x sequence-parallel ranks must divide"
         " sequence_length", _sequence_length),
        ("context_parallel", "context_parallel > 1 needs flash_attention", _ring_without_flash),
        ("expert_parallel", "expert_parallel must divide the experts and, times "
         "expert_tensor_parallel, the GPUs of a pipeline stage", _experts),
        ("expert_sequence_parallel", "experts with tensor_parallel > 1 need sequence_parallel",
         _experts_need_sequence),
        *OPTION_RULES,
        ("zero_stage", "zero_stage > 0 on several GPUs needs several data-parallel ranks", _zero),
        ("data_parallel_replicas", "data_parallel_replicas > 1 needs zero_stage > 0, and divides "
         "the data-parallel ranks with two or more left to shard over", _replicas),
        ("recompute_num_layers", "recompute_num_layers > 0 needs full recomputation of fewer "
         "layers than a stage has", _recomputed_layers),
        ("attention_kernel", ATTENTION_KERNEL, attention_kernel),
        ("loss_chunks", LOSS_CHUNKS, loss_chunks),
        ("fp8_attention", "fp8_attention needs flash_attention, precision fp8 or fp4, heads of at "
         f"most {WIDEST_FP8_HEAD}, and a GPU with such kernels", fp8_attention),
        ("fp8_recipe", "fp8_recipe needs precision fp8; mxfp8 a GPU that scales groups of 32 "
         "itself, blockwise one with kernels for it", fp8_recipe),
        ("optimizer_in_backward", "optimizer_in_backward needs one micro-batch per step, no "
         "pipeline and no offload", _in_backward),
        ("framework", "the framework does not support this combination", _framework),
        ("offload", "the framework cannot offload this, or not at this zero_stage (drives: 3), or "
         "the GPU's link to its host is not known", _offload),
        ("precision", "the GPU lacks this precision", lacking_precision),
    )
)  # fmt: skip

OUT_OF_MEMORY = predicted("out_of_memory", "the fullest GPU needs more memory than is usable")

REJECTING: tuple[Reason, ...] = (*RULES, OUT_OF_HOST_MEMORY, OUT_OF_MEMORY)
"""All that rejects a configuration before the user's limits, in order."""


def first_broken_rule(c: TrainingConfigurations, context: Context) -> CodeArray:
    """One-based number in ``RULES`` of the first rule each configuration breaks, else 0."""
    return first_broken(RULES, c, context)
