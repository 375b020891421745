"""Named rules: why a training configuration is impossible."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np

from planner.base.arrays import BoolArray, CodeArray, add, is_among
from planner.base.enums import (
    AttentionKind,
    ComputePrecision,
    ContextExchange,
    Fp8Recipe,
    MainPrecision,
    Offload,
    OptimizerKind,
    PipelineSchedule,
    Precision,
    Recompute,
    StatePrecision,
    TokenDispatcher,
    ZeroStage,
)
from planner.base.records import record
from planner.base.software_enums import (
    AttentionKernel,
    ExpertCompute,
    LossKernel,
    RecomputedModules,
    TorchCompile,
)
from planner.configurations.configuration_tables import (
    NOWHERE,
    OUT_OF_HOST_MEMORY,
    Reason,
    Rule,
    TrainingConfigurations,
    has_left_over_gpus,
    has_uneven_heads,
    has_uneven_widths,
    is_any_indivisible,
    is_indivisible,
    prediction_rule,
)
from planner.configurations.enumerate import NOTHING_SPECIFIED, SpecifiedValues
from planner.question.terms import terms_about
from planner.specs.framework import FrameworkProfile
from planner.specs.gpu import GpuSpec
from planner.specs.model import ModelSpec
from planner.specs.quantization import NARROW
from planner.specs.training_workload import TrainingWorkload, layers_of_chunks

# cuDNN's attention in 8 bit: 128, or 192 for the keys of latent attention.
WIDEST_FP8_HEAD = 192

_MAMBA = (AttentionKind.MAMBA1, AttentionKind.MAMBA2)


def fp8_attention(c: TrainingConfigurations, context: Context) -> BoolArray:
    """True where 8-bit attention has no kernels, or no other matrix product is in 8 bit."""
    if not c.fp8_attention.any():
        return NOWHERE
    widest = max((a.head_dim for a in context.model.attentions if not a.has_state), default=0)
    lacking = context.gpu.efficiency.fp8_attention is None or widest > WIDEST_FP8_HEAD
    wider = ~NARROW[c.precision]
    return np.asarray(c.fp8_attention & (lacking | wider | ~c.fused_attention))


def fp8_recipe(c: TrainingConfigurations, context: Context) -> BoolArray:
    """True where an FP8 recipe is set without FP8, or the GPU lacks its scaling of groups."""
    if not c.fp8_recipe.any():
        return NOWHERE
    violated = (c.fp8_recipe != Fp8Recipe.AUTO) & (c.precision != ComputePrecision.FP8)
    if not context.gpu.scales_groups:
        violated = violated | (c.fp8_recipe == Fp8Recipe.MXFP8)
    if "fp8_block" not in context.gpu.efficiency.quantized_gemm:
        violated = violated | (c.fp8_recipe == Fp8Recipe.BLOCKWISE)
    return np.asarray(violated)


def lacking_precision(c: TrainingConfigurations, context: Context) -> BoolArray:
    """True where the GPU has no arithmetic in the precision."""
    peaks = context.gpu.peak_flops
    lacking = [Precision(code.word) not in peaks for code in ComputePrecision]
    return np.asarray(lacking)[c.precision]


_BEFORE_AMPERE = ("pascal", "volta", "turing")
_FLASH = (AttentionKernel.FA2, AttentionKernel.FA3, AttentionKernel.FA4)
_WIDEST_FLASH_HEAD = 256

ATTENTION_KERNEL = (
    "attention_kernel: fa2 needs NVIDIA from Ampere on or AMD, fa3 Hopper, fa4 Hopper or a data "
    f"centre's Blackwell, cudnn NVIDIA from Ampere on; fa2 to fa4 heads of at most "
    f"{_WIDEST_FLASH_HEAD}; all but auto and eager flash_attention"
)
"""The rule in words."""


LOSS_CHUNKS = "loss_chunks needs loss_kernel chunked or linear"
"""The rule in words."""


def loss_chunks(c: TrainingConfigurations, _: Context) -> BoolArray:
    """True where loss chunks are set for a loss kernel that processes all tokens at once."""
    return np.asarray((c.loss_chunks > 0) & (c.loss_kernel < LossKernel.CHUNKED))


def has_kernel(gpu: GpuSpec, kernel: AttentionKernel) -> bool:
    """True if a GPU can run an attention kernel [1]_ [2]_."""
    is_nvidia = gpu.vendor == "NVIDIA" and gpu.architecture not in _BEFORE_AMPERE
    return {
        AttentionKernel.FA2: is_nvidia or gpu.vendor == "AMD",
        AttentionKernel.FA3: gpu.architecture == "hopper",
        AttentionKernel.FA4: gpu.architecture in ("hopper", "blackwell"),
        AttentionKernel.CUDNN: is_nvidia,
    }.get(kernel, True)


def attention_kernel(c: TrainingConfigurations, context: Context) -> BoolArray:
    """True where GPU or head width exclude the attention kernel, or attention is unfused."""
    if not c.attention_kernel.any():
        return NOWHERE
    heads = [
        attention.head_dim for attention in context.model.attentions if not attention.has_state
    ]
    is_wide = max(heads, default=0) > _WIDEST_FLASH_HEAD
    lacking = np.array(
        [
            not has_kernel(context.gpu, kernel) or (is_wide and kernel in _FLASH)
            for kernel in AttentionKernel
        ]
    )
    fused = c.attention_kernel > AttentionKernel.EAGER
    return np.asarray(lacking[c.attention_kernel] | (fused & ~c.flash_attention))


_MOST_BITS = 32
_FP32_BYTES = 4.0


def unsupported_options(c: TrainingConfigurations, f: FrameworkProfile) -> dict[str, BoolArray]:
    """By option: True where a configuration uses a value that the framework lacks."""
    has_dispatcher = [code.word in (*f.token_dispatchers, "auto") for code in TokenDispatcher]
    schedules = [code.word in f.pipeline_schedules for code in PipelineSchedule]
    is_usual = c.pipeline_schedule <= PipelineSchedule.INTERLEAVED
    rings = (c.cp_comm_type == ContextExchange.P2P) | f.head_exchange
    violations = {"token_dispatcher": ~np.asarray(has_dispatcher)[c.token_dispatcher]}
    violations["pipeline_schedule"] = ~(is_usual | np.asarray(schedules)[c.pipeline_schedule])
    violations["cp_comm_type"] = ~np.asarray(rings)
    if not f.expert_tensor_parallel:
        violations["expert_tensor_parallel"] = c.expert_tensor_parallel > 1
    named = c.recompute_modules
    if np.any(named):
        lacking = [name for name in RecomputedModules.names() if name not in f.recompute_modules]
        violations["recompute_modules"] = (
            add(RecomputedModules.has(named, name) for name in lacking) > 0
        )
    if not f.saved_tensors:
        violations["saved_tensors"] = c.saved_tensors != 0
        violations["offloaded_tensors"] = c.offloaded_tensors != 0
    if not f.expert_overlap:
        violations["overlap_expert_parallel"] = c.overlap_expert_parallel
    if not f.execution.expert_loop_time:
        violations["expert_compute"] = c.expert_compute == ExpertCompute.LOOP
    if not f.compilation.selectable:
        violations["torch_compile"] = c.torch_compile != TorchCompile.AUTO
    if not f.overlap.asynchronous_tensor_parallel:
        violations["tp_comm_overlap"] = c.tp_comm_overlap
    return violations


def _paged(c: TrainingConfigurations, context: Context) -> BoolArray:
    """True where a paged optimizer has no kernels: by optimizer, state format, GPU or offload."""
    if not c.paged_optimizer.any():
        return NOWHERE
    kinds = is_among(c.optimizer, (OptimizerKind.ADAM, OptimizerKind.LION))
    states, state_precision = context.framework.states, c.optimizer_state_precision
    narrow = is_among(state_precision, (StatePrecision.BF16, StatePrecision.FP8))
    if states.optimizer - states.main_weight < 2 * _FP32_BYTES:
        narrow = narrow | (state_precision == StatePrecision.FRAMEWORK)
    leave = np.asarray([code.of_states for code in Offload])[c.offload]
    is_possible = context.gpu.vendor == "NVIDIA" and bool(context.gpu.host_link.bandwidth)
    return np.asarray(c.paged_optimizer & (~kinds | narrow | leave | (not is_possible)))


def _split_experts(c: TrainingConfigurations, context: Context) -> BoolArray:
    """True where expert tensor parallelism does not divide the width of an expert."""
    split = c.expert_tensor_parallel
    blocks = [group.feed_forward for group in context.model.layer_groups if group.num_experts]
    widths = {block.moe_intermediate_size for block in blocks if block}
    return is_any_indivisible(widths, split) if widths else np.asarray(split > 1)


def _routing(c: TrainingConfigurations, context: Context) -> BoolArray:
    """True where routing options have no experts, or the expert imbalance exceeds its maximum."""
    named = (c.token_dispatcher != TokenDispatcher.AUTO) | (c.expert_capacity_factor > 0)
    named = named | (c.expert_compute == ExpertCompute.LOOP)
    blocks = [group.feed_forward for group in context.model.layer_groups if group.num_experts]
    # However they are spread: a token goes to so many different experts.
    maximum = max(
        (block.num_experts / block.num_experts_per_tok for block in blocks if block), default=1.0
    )
    return np.asarray((named & (not blocks)) | (c.expert_imbalance > maximum))


def _expert_overlap(c: TrainingConfigurations, context: Context) -> BoolArray:
    """True where Megatron-Core refuses ``overlap_moe_expert_parallel_comm``.

    NVIDIA/Megatron-LM, ``TransformerConfig.__post_init__``; its model with Mamba layers has no
    schedule for it (NVIDIA-NeMo/Megatron-Bridge#4975).
    """
    has_mamba = any(mixer.kind in _MAMBA for mixer in context.model.attentions)
    lacking = (c.expert_parallel == 1) | (c.recompute == Recompute.FULL)
    lacking = lacking | (c.token_dispatcher == TokenDispatcher.ALLGATHER) | has_mamba
    unsplit = (c.pipeline_parallel > 1) & (c.virtual_pipeline == 1)
    unsplit = unsplit & (c.pipeline_schedule != PipelineSchedule.DUALPIPE)
    return np.asarray(c.overlap_expert_parallel & (lacking | unsplit))


def _head_exchange(c: TrainingConfigurations, context: Context) -> BoolArray:
    """True where all-to-all context parallelism has heads that the ranks do not divide."""
    used = (c.cp_comm_type == ContextExchange.A2A) & (c.context_parallel > 1)
    if not np.any(used):
        return NOWHERE
    heads = (each.num_attention_heads for each in context.model.attentions if not each.has_state)
    return np.asarray(used & is_any_indivisible(heads, c.tensor_parallel * c.context_parallel))


def _schedule(c: TrainingConfigurations, _: Context) -> BoolArray:
    """True where a zero-bubble or DualPipe schedule does not fit the stages or micro-batches."""
    s, p, m = c.pipeline_schedule, c.pipeline_parallel, c.num_micro_batches
    other = s >= PipelineSchedule.ZERO_BUBBLE
    if not np.any(other):
        return NOWHERE
    both_ends = (p % 2 != 0) | (m % 2 != 0) | (m < 2 * p)
    violated = (p == 1) | (c.virtual_pipeline > 1)
    return np.asarray(other & (violated | ((s == PipelineSchedule.DUALPIPE) & both_ends)))


def unsupported_states(c: TrainingConfigurations, f: FrameworkProfile) -> dict[str, BoolArray]:
    """By option: True where the framework lacks the optimizer or the format of its states."""
    states = {}
    if c.optimizer.any():
        states["optimizer"] = _not_among(c.optimizer, OptimizerKind, f.optimizers)
    if np.any(precision := c.optimizer_state_precision):
        states["optimizer_state_precision"] = _not_among(
            precision, StatePrecision, f.state_precisions
        )
    if np.any(precision := c.main_params_precision):
        states["main_params_precision"] = _not_among(precision, MainPrecision, f.main_precisions)
    if np.any(precision := c.main_grads_precision):
        states["main_grads_precision"] = _not_among(precision, MainPrecision, f.main_precisions)
    if not f.optimizer_in_backward:
        states["optimizer_in_backward"] = c.optimizer_in_backward
    if not f.paged_optimizer:
        states["paged_optimizer"] = c.paged_optimizer
    if not f.memory.reduce_bucket_size:
        states["reduce_bucket_size"] = c.reduce_bucket_size > 0
    if not f.memory.sub_group_size:
        states["sub_group_size"] = c.sub_group_size > 0
    if not f.memory.max_live_parameters:
        states["stage3_max_live_parameters"] = c.stage3_max_live_parameters > 0
    if not f.offloading.loaded_per_process:
        states["zero3_init"] = ~c.zero3_init
    return states


def _not_among(
    codes: CodeArray,
    kinds: type[OptimizerKind | StatePrecision | MainPrecision],
    names: Sequence[str],
) -> BoolArray:
    """True where a code is neither the default (0) nor one of ``names``."""
    lacking = [kind != 0 and kind.word not in names for kind in kinds]
    return np.asarray(np.array(lacking)[codes])


def _recomputed_modules(c: TrainingConfigurations, context: Context) -> BoolArray:
    """True where the model has no recomputed module, or recomputation is not selective."""
    named = c.recompute_modules
    if not np.any(named):
        return NOWHERE
    module_names = _modules_of(context.model)
    has_any = add(RecomputedModules.has(named, name) for name in module_names) > 0
    return np.asarray((named != 0) & (~has_any | (c.recompute != Recompute.SELECTIVE)))


def _modules_of(model: ModelSpec) -> set[str]:
    """The names of a model's modules that ``recompute_modules`` can contain."""
    modules = {"layernorm"}
    for group in model.layer_groups:
        attention, block = group.attention, group.feed_forward
        if attention:
            modules |= {"attention"} if attention.has_state else {"attention", "core_attn"}
            modules |= {"mla_up_proj"} if attention.kind is AttentionKind.LATENT else set()
        if block:
            modules |= {"moe", "moe_act"} if block.num_experts else {"mlp"}
            modules |= {"mlp_act"} if block.shared_width else set()
            modules |= {"shared_experts"} if block.num_experts and block.shared_width else set()
    return modules


def _kept_tensors(c: TrainingConfigurations, _: Context) -> BoolArray:
    """True where saved and offloaded tensors conflict, or recomputation is not full."""
    saved, moved = c.saved_tensors, c.offloaded_tensors
    if not (np.any(saved) or np.any(moved)):
        return NOWHERE
    violated = ((saved | moved) != 0) & (c.recompute != Recompute.FULL)
    offloads_twice = (moved != 0) & np.asarray([code.of_activations for code in Offload])[c.offload]
    return np.asarray(violated | ((saved & moved) != 0) | offloads_twice)


def _input_bits(c: TrainingConfigurations, _: Context) -> BoolArray:
    bit_columns = (c.norm_input_bits, c.fc1_input_bits, c.activation_input_bits, c.fc2_input_bits)
    return np.asarray(add(np.where(bits > _MOST_BITS, 1.0, 0.0) for bits in bit_columns) > 0)


OPTION_RULES = (
    ("input_bits", "norm_input_bits, fc1_input_bits, activation_input_bits and fc2_input_bits are "
     "32 at most", _input_bits),
    ("recompute_modules", "recompute_modules need recompute selective, and one of them at least in"
     " the model", _recomputed_modules),
    ("paged_optimizer", "paged_optimizer needs adam or lion with optimizer_state_precision int8 or"
     " fp32, an NVIDIA GPU whose host link is known, and no offload of states", _paged),
    ("saved_tensors", "saved_tensors and offloaded_tensors need full recomputation and have no "
     "tensor in common; offload of activations moves all by itself", _kept_tensors),
    ("expert_tensor_parallel", "expert_tensor_parallel must divide the width of the experts",
     _split_experts),
    ("expert_routing", "token_dispatcher, expert_capacity_factor, expert_imbalance and "
     "expert_compute loop need experts; expert_imbalance is at most the experts over those that a "
     "token visits", _routing),
    ("overlap_expert_parallel", "overlap_expert_parallel needs expert_parallel > 1, no full "
     "recomputation, a token_dispatcher other than allgather, no Mamba layers and, if "
     "pipeline_parallel > 1, virtual_pipeline > 1 or dualpipe", _expert_overlap),
    ("tp_comm_overlap", "tp_comm_overlap needs tensor_parallel > 1 and sequence_parallel",
     lambda c, _: np.asarray(c.tp_comm_overlap
                            & ((c.tensor_parallel == 1) | ~c.sequence_parallel))),
    ("cp_comm_type", "cp_comm_type a2a needs heads of attention that tensor x context parallel "
     "divides", _head_exchange),
    ("pipeline_schedule", "zero_bubble and dualpipe need pipeline_parallel > 1 and "
     "virtual_pipeline 1; dualpipe an even pipeline_parallel and an even number of micro-batches, "
     "twice as many at least", _schedule),
)  # fmt: skip


def second_engine(c: TrainingConfigurations, f: FrameworkProfile) -> BoolArray:
    """ZeRO stages by another engine of the framework, which has plain optimizers."""
    has_optimizer = is_among(c.optimizer, (OptimizerKind.ADAM, OptimizerKind.SGD))
    return np.asarray(is_among(c.zero_stage, f.fsdp_zero_stages) & has_optimizer)


def allows_sharded_axis(c: TrainingConfigurations, f: FrameworkProfile, name: str) -> BoolArray:
    """True where the parallelism ``name`` may be combined with the sharding of weights."""
    if name not in f.sharded_parallel:
        return NOWHERE
    is_allowed = (c.zero_stage >= ZeroStage.GRADIENTS) | (c.data_parallel == 1)
    if name == "context_parallel" and f.head_exchange:  # of ranks outside the shards' gathers
        is_allowed = is_allowed | (c.cp_comm_type == ContextExchange.A2A)
    if name == "expert_parallel":  # copies of all else need every rank to have its own experts
        is_allowed = is_allowed | (
            (c.zero_stage == ZeroStage.NONE) & (c.expert_parallel == c.data_parallel)
        )
        is_allowed = is_allowed & (c.tensor_parallel * c.context_parallel == 1)
    return np.asarray(is_allowed)


@record(kw_only=True)
class Context:
    """The context of the rules.

    ``logits_in_layers``: work of all logits in layers.
    """

    gpu: GpuSpec
    model: ModelSpec
    framework: FrameworkProfile
    workload: TrainingWorkload
    logits_in_layers: int = 1
    specified: SpecifiedValues = NOTHING_SPECIFIED


END_CHUNKS = 2
"""Chunks of an interleaved schedule that may have no layer: those of embedding and logits."""


def _layout(c: TrainingConfigurations, context: Context) -> BoolArray:
    """True where pipeline stages and model layers do not match the specified pipeline layout."""
    layout = context.workload.pipeline_layout
    if not layout:
        return NOWHERE
    sizes = layers_of_chunks(layout)
    # A chunk without any layer holds the embedding or the loss.
    empty = 0 in sizes[1:-1]
    fits = sum(sizes) == context.model.num_hidden_layers
    chunks = c.pipeline_parallel * c.virtual_pipeline
    return np.asarray((chunks != len(sizes)) | (not fits) | empty)


def _layers(c: TrainingConfigurations, context: Context) -> BoolArray:
    """True where pipeline chunks outnumber the layers, or must be equal and are not."""
    if context.workload.pipeline_layout:
        return NOWHERE
    v = c.virtual_pipeline
    slots = context.model.num_hidden_layers + np.where(v > 1, END_CHUNKS, 0)
    chunks = c.pipeline_parallel * v
    violated = chunks > slots
    if context.framework.equal_chunks:
        layers = context.model.num_hidden_layers - context.model.mtp_num_layers
        violated = violated | is_indivisible(layers, chunks)
    return np.asarray(violated)


def _interleaved_layers(c: TrainingConfigurations, context: Context) -> BoolArray:
    """True where interleaved chunks leave more empty layer slots than embedding and logits fill."""
    if context.workload.pipeline_layout:
        return NOWHERE
    chunks = c.pipeline_parallel * c.virtual_pipeline
    layers = context.model.num_hidden_layers
    layers_per_chunk = np.ceil(layers / chunks)
    # The embedding counts as a layer, the logits as what they are worth.
    lighter = np.minimum(layers_per_chunk, 1) + np.minimum(
        layers_per_chunk, context.logits_in_layers
    )
    return np.asarray((c.virtual_pipeline > 1) & (layers_per_chunk * chunks - layers > lighter))


def _sequence_length(c: TrainingConfigurations, context: Context) -> BoolArray:
    """True where context and sequence parallelism do not divide the sequence length."""
    cp = c.context_parallel
    halves = np.where(c.cp_comm_type == ContextExchange.P2P, 2, 1)  # the causal mask in a ring
    pieces = np.where(cp > 1, halves * cp, 1.0)
    split = np.where(c.sequence_parallel, c.tensor_parallel, 1.0)
    return is_indivisible(context.workload.computed_length, pieces * split)


def _experts(c: TrainingConfigurations, context: Context) -> BoolArray:
    """True where expert parallelism does not divide the experts or the GPUs of a stage."""
    ranks = c.num_gpus / c.pipeline_parallel
    numbers = {group.num_experts for group in context.model.layer_groups} - {0}
    violated = is_indivisible(ranks, c.expert_ranks) | is_any_indivisible(
        numbers, c.expert_parallel
    )
    return violated if numbers else np.asarray(c.expert_parallel > 1)


def _experts_in_shards(c: TrainingConfigurations, context: Context) -> BoolArray:
    """True where expert parallelism does not divide the ranks that shard one model copy."""
    if not context.framework.experts_in_shards:
        return NOWHERE
    is_copied = c.zero_stage == ZeroStage.NONE
    copies = np.where(is_copied, c.data_parallel, c.data_parallel_replicas)
    of_copy = c.num_gpus / c.pipeline_parallel / copies
    return np.asarray((c.expert_parallel > 1) & is_indivisible(of_copy, c.expert_parallel))


def _replicas(c: TrainingConfigurations, context: Context) -> BoolArray:
    """True where data-parallel replicas do not divide the ranks, or nothing is sharded."""
    replicas = c.data_parallel_replicas
    if np.all(replicas == 1):
        return NOWHERE
    ranks = c.data_parallel * c.context_parallel
    violated = (ranks <= replicas) | is_indivisible(ranks, replicas)
    if context.model.num_experts > 0:
        copies = c.num_gpus / (c.pipeline_parallel * c.expert_ranks)
        violated = violated | is_indivisible(copies, replicas)
    return np.asarray((replicas > 1) & (violated | (c.zero_stage == ZeroStage.NONE)))


def _recomputed_layers(c: TrainingConfigurations, context: Context) -> BoolArray:
    """True where the recomputed layers are all of a stage, or recomputation is not full."""
    layers = c.recompute_num_layers
    if not np.any(layers):
        return NOWHERE
    all_of_stage = layers >= context.model.num_hidden_layers / c.pipeline_parallel
    return np.asarray((layers > 0) & ((c.recompute != Recompute.FULL) | all_of_stage))


def unsupported(c: TrainingConfigurations, f: FrameworkProfile) -> dict[str, BoolArray]:
    """By parameter: True where a configuration uses a value that the framework lacks."""
    in_pipeline = (c.pipeline_parallel > 1) & ~is_among(c.zero_stage, f.pipeline_zero_stages)
    violations = {
        "zero_stage": ~(is_among(c.zero_stage, f.zero_stages) | second_engine(c, f)) | in_pipeline,
        # Stages of a framework without a schedule for them may take turns.
        "pipeline_parallel": in_pipeline
        if f.pipeline_parallel
        else (c.pipeline_parallel > 1) & ~(c.layer_split & f.layer_split),
    }
    if not f.layer_split:
        violations["layer_split"] = c.layer_split
    for name in terms_about("collective"):
        if not getattr(f, name):
            violations[name] = (getattr(c, name) > 1) & ~allows_sharded_axis(c, f, name)
    if not f.interleaved_schedule:
        violations["virtual_pipeline"] = c.virtual_pipeline > 1
    if not f.hybrid_sharding:
        replicas = "data_parallel_replicas"
        violations[replicas] = (c.data_parallel_replicas > 1) & ~allows_sharded_axis(c, f, replicas)
    if not f.partial_recompute:
        violations["recompute_num_layers"] = c.recompute_num_layers > 0
    parts = {Recompute.FEED_FORWARD: f.feed_forward_recompute}
    parts[Recompute.SELECTIVE] = f.selective_recompute
    violations["recompute"] = is_among(
        c.recompute, [part for part, is_supported in parts.items() if not is_supported]
    )
    if not f.sequence_parallel:
        violations["sequence_parallel"] = c.sequence_parallel
    if not f.fp8_attention:
        violations["fp8_attention"] = c.fp8_attention
    return violations | unsupported_states(c, f) | unsupported_options(c, f)


def _sharded_from(kind: Offload, profile: FrameworkProfile) -> int:
    """The lowest ZeRO stage with which a framework supports this kind of offloading."""
    if kind.to_drives:
        return ZeroStage.WEIGHTS
    if kind.of_weights:
        return profile.states.weights_sharded_from
    return ZeroStage.OPTIMIZER if kind.of_states else ZeroStage.NONE


def _in_backward(c: TrainingConfigurations, _: Context) -> BoolArray:
    """True where the optimizer step in the backward pass meets more passes or offloaded states."""
    if not c.optimizer_in_backward.any():
        return NOWHERE
    leave = np.asarray([code.of_states for code in Offload])[c.offload]
    waits = (c.num_micro_batches > 1) | (c.pipeline_parallel > 1) | leave
    return np.asarray(c.optimizer_in_backward & waits)


def _offload(c: TrainingConfigurations, context: Context) -> BoolArray:
    """True where the framework, the ZeRO stage or the GPU's host link excludes the offloading."""
    if not c.any_offload:
        return NOWHERE
    profile = context.framework
    kinds = {*profile.offloading.kinds, Offload.NONE.word}
    supports_kind = [kinds.issuperset(kind.parts) for kind in Offload]
    sharded_from = np.asarray([_sharded_from(kind, profile) for kind in Offload])[c.offload]
    has_no_replicas = c.data_parallel * c.context_parallel == 1
    violated = ~np.asarray(supports_kind)[c.offload] | (
        (c.zero_stage < sharded_from) & ~has_no_replicas
    )
    if context.gpu.unified_memory:
        violated = violated | (c.offloaded_tensors != 0)
    elif context.gpu.host_link.bandwidth is None:
        violated = violated | (c.offload != Offload.NONE) | (c.offloaded_tensors != 0)
    return np.asarray(violated)


RULES: tuple[Rule[TrainingConfigurations, Context], ...] = tuple(
    Rule(name=name, description=description, violated=violated)
    for name, description, violated in (
        ("gpu_count", "tensor x context x pipeline parallel must divide the number of GPUs",
         has_left_over_gpus),
        ("global_batch_size", "data_parallel x micro_batch_size must divide global_batch_size",
         lambda c, _: np.asarray((c.num_micro_batches < 1)
                                | (c.num_micro_batches != np.floor(c.num_micro_batches)))),
        ("as_given", "data_parallel and gradient_accumulation_steps are those that were given",
         lambda c, context: context.specified.is_broken(c)),
        ("attention_heads", "tensor_parallel must divide the heads of attention and of states, and"
         " divide the key-value heads or be a multiple of them", has_uneven_heads),
        ("intermediate_size", (
            "tensor_parallel must divide the "
            "feed-forward width"
        ), has_uneven_widths),
        ("pipeline_layout", "pipeline_layout has pipeline_parallel x virtual_pipeline chunks, of "
         "all layers of the model, and none without layers inside", _layout),
        ("num_hidden_layers", "pipeline_parallel x virtual_pipeline cannot exceed the layers, or "
         "with virtual_pipeline > 1 the layers, the embedding and the loss; some frameworks need "
         "equal chunks", _layers),
        ("trained_layers", "trained_layers needs pipeline_parallel 1",
         lambda c, context: (c.pipeline_parallel > 1) & (context.workload.trained_layers > 0)),
        ("virtual_pipeline", "virtual_pipeline > 1 needs pipeline_parallel > 1 and an interleaved "
         "schedule",
         lambda c, context: np.asarray((c.virtual_pipeline > 1) & (
             (c.pipeline_parallel == 1) | (not context.framework.interleaved_schedule)))),
        ("layer_split", "layer_split needs pipeline_parallel > 1 without virtual_pipeline",
         lambda c, _: np.asarray(c.layer_split
                                & ((c.pipeline_parallel == 1) | (c.virtual_pipeline > 1)))),
        ("interleaved_micro_batches", "an interleaved schedule needs micro-batches in multiples of"
         " pipeline_parallel",
         lambda c, _: np.asarray((c.virtual_pipeline > 1)
                                & is_indivisible(c.num_micro_batches, c.pipeline_parallel))),
        ("interleaved_layers", "an interleaved schedule needs equal chunks, where the embedding "
         "counts as a layer and the loss as one or, if it is worth more, as up to so many",
         _interleaved_layers),
        ("sequence_parallel", "sequence_parallel needs tensor_parallel > 1",
         lambda c, _: np.asarray(c.sequence_parallel & (c.tensor_parallel == 1))),
        ("sequence_length", "2 x context_parallel (a2a: 1 x) x sequence-parallel ranks must divide"
         " sequence_length", _sequence_length),
        ("context_parallel", "context_parallel > 1 needs flash_attention",
         lambda c, _: np.asarray((c.context_parallel > 1) & ~c.fused_attention)),
        ("expert_parallel", "expert_parallel must divide the experts and, times "
         "expert_tensor_parallel, the GPUs of a pipeline stage", _experts),
        ("expert_sequence_parallel", "experts with tensor_parallel > 1 need sequence_parallel",
         lambda c, context: np.asarray((c.tensor_parallel > 1) & ~c.sequence_parallel
                                      & (context.model.num_experts > 0))),
        *OPTION_RULES,
        ("zero_stage", "zero_stage > 0 on several GPUs needs several data-parallel ranks",
         lambda c, _: np.asarray((c.zero_stage > ZeroStage.NONE) & (c.num_gpus > 1)
                                & (c.data_parallel * c.context_parallel == 1))),
        ("data_parallel_replicas", "data_parallel_replicas > 1 needs zero_stage > 0, and divides "
         "the data-parallel ranks with two or more left to shard over", _replicas),
        ("expert_shards", "this framework splits experts over the GPUs of a pipeline stage that "
         "share one copy of the weights, whose number expert_parallel must divide",
         _experts_in_shards),
        ("recompute_num_layers", "recompute_num_layers > 0 needs full recomputation of fewer "
         "layers than a stage has", _recomputed_layers),
        ("attention_kernel", ATTENTION_KERNEL, attention_kernel),
        ("loss_chunks", LOSS_CHUNKS, loss_chunks),
        ("fp8_attention", "fp8_attention needs flash_attention, precision fp8 or fp4, heads of at "
         f"most {WIDEST_FP8_HEAD}, and a GPU with such kernels", fp8_attention),
        ("fp8_recipe", "fp8_recipe needs precision fp8; mxfp8 a GPU that scales groups of 32 "
         "itself, blockwise one with kernels for it", fp8_recipe),
        ("optimizer_in_backward", "optimizer_in_backward needs one micro-batch per step, no "
         "pipeline and no offload of states", _in_backward),
        ("framework", "the framework does not support this combination",
         lambda c, context: reduce(np.logical_or, unsupported(c, context.framework).values())),
        ("offload", "the framework cannot offload this, or not at this zero_stage (drives: 3), or "
         "the GPU's link to its host is not known", _offload),
        ("precision", "the GPU lacks this precision", lacking_precision),
    )
)  # fmt: skip

OUT_OF_MEMORY = prediction_rule("out_of_memory", "the fullest GPU needs more memory than is usable")

REJECTING: tuple[Reason, ...] = (*RULES, OUT_OF_HOST_MEMORY, OUT_OF_MEMORY)
"""All reasons that reject a configuration before the user's limits, in order."""
