"""Named rules: why a serving configuration is impossible."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from planner.base.arrays import BoolArray, CodeArray
from planner.base.enums import AttentionKind, CacheType, Precision, Quantization
from planner.base.records import record
from planner.configurations.configuration_tables import (
    NOWHERE,
    OUT_OF_HOST_MEMORY,
    Reason,
    Rule,
    ServingConfigurations,
    first_broken,
    has_left_over_gpus,
    has_uneven_heads,
    has_uneven_widths,
    is_indivisible,
    prediction_rule,
)
from planner.question.terms import terms_about
from planner.specs.engine import EngineProfile
from planner.specs.gpu import GpuSpec
from planner.specs.model import ModelSpec
from planner.specs.quantization import GGUF_BITS, compute_precision
from planner.specs.serving_workload import ServingWorkload, redundant_experts

# Share of a layer's experts, if the user sets no copies; published deployments have a quarter.
_MOST_COPIES = 0.5
_ONE_STAGE = "one_stage"


@record(kw_only=True)
class ServingContext:
    """The context of the rules.

    ``domain_size``: GPUs on one fast fabric; ``is_pool``: workers of a pool that sends or receives
    KV caches.
    """

    gpu: GpuSpec
    model: ModelSpec
    engine: EngineProfile
    workload: ServingWorkload
    domain_size: int
    is_pool: bool = False


def _experts(c: ServingConfigurations, context: ServingContext) -> BoolArray:
    """True where expert parallelism does not divide the experts with their copies, or the GPUs."""
    numbers = {group.num_experts for group in context.model.layer_groups} - {0}
    violated = is_indivisible(c.stage_gpus, c.expert_parallel)
    for number in numbers:
        if context.engine.redundant_experts:
            copies = redundant_experts(context.workload, number, c.expert_parallel)
            uneven = is_indivisible(number + copies, c.expert_parallel)
            is_specified = context.workload.redundant_experts is not None
            violated = violated | uneven | ((copies > _MOST_COPIES * number) & (not is_specified))
        else:
            violated = violated | is_indivisible(number, c.expert_parallel)
    return violated if numbers else np.asarray(c.expert_parallel > 1)


def can_split_prompts(
    gpu: GpuSpec, model: ModelSpec, engine: EngineProfile, workload: ServingWorkload
) -> bool:
    """Return whether an engine has prefill context parallelism for a model, a GPU and requests.

    Parameters
    ----------
    gpu : GPU
    model : model
    engine : engine profile
    workload : requests
    """
    limits = {
        "experts": model.num_experts > 0,
        "latent": all(each.kind is AttentionKind.LATENT for each in model.attentions),
        "nvidia": gpu.vendor == "NVIDIA",
        "text": workload.images_per_sample == 0,
        "no_adapters": workload.lora_rank == 0,
        "no_drafts": workload.draft_tokens == 0,
    }
    of_engine = [name for name in engine.context_parallel_limits if name != _ONE_STAGE]
    return engine.context_parallel and all(limits[name] for name in of_engine)


def _context_parallel(c: ServingConfigurations, context: ServingContext) -> BoolArray:
    """True where the engine splits no prompts of the model, on the GPU or in this pipeline."""
    split = c.context_parallel > 1
    engine = context.engine
    if not engine.context_parallel:  # refused by another rule
        return NOWHERE
    if not can_split_prompts(context.gpu, context.model, engine, context.workload):
        return np.asarray(split)
    one_stage = _ONE_STAGE in engine.context_parallel_limits
    return np.asarray(split & (c.pipeline_parallel > 1) & one_stage)


def _quantization(c: ServingConfigurations, context: ServingContext) -> BoolArray:
    """True where the engine lacks the weight format, or the GPU has no kernel for it."""
    engine = context.engine
    dense = _lacking(context, engine.unpacked_dense_by_architecture)
    experts = _lacking(context, engine.unpacked_experts_by_architecture)
    if not context.model.num_experts:
        experts = dense
    else:
        refused = engine.refused_experts_by_architecture.get(context.gpu.architecture, ())
        experts = experts | np.isin([code.word for code in Quantization], refused)
    return np.asarray(dense[c.quantization] | experts[c.expert_quantization])


def _lacking(context: ServingContext, unpacked: Mapping[str, tuple[str, ...]]) -> BoolArray:
    """True, by weight format, where the engine lacks the format, or the GPU a kernel for it."""
    peaks, engine = context.gpu.peak_flops, context.engine
    read = unpacked.get(context.gpu.architecture, ())
    return np.asarray(
        [
            not (engine.gguf if code in GGUF_BITS else code.word in engine.quantizations)
            or (compute_precision(code, peaks) is None and code.word not in read)
            for code in Quantization
        ]
    )


def _kv_cache(c: ServingConfigurations, context: ServingContext) -> BoolArray:
    """True where the engine lacks the KV-cache format, or the GPU cannot process FP8 caches."""
    gpu = context.gpu
    unpacks = gpu.architecture in context.engine.unpacked_cache_architectures
    lacks_fp8 = Precision.FP8 not in gpu.peak_flops and not unpacks
    lacking = [
        code.word not in context.engine.caches or (code == CacheType.FP8 and lacks_fp8)
        for code in CacheType
    ]
    return np.asarray(lacking)[c.kv_cache]


def _positions(c: ServingConfigurations, context: ServingContext) -> BoolArray:
    length = context.workload.input_tokens + context.workload.output_tokens
    limit = context.model.max_position_embeddings
    return np.asarray(limit is not None and length > limit)


def _offload(c: ServingConfigurations, context: ServingContext) -> BoolArray:
    gpu = context.gpu
    lacks_host = gpu.unified_memory or gpu.host_link.bandwidth is None
    return np.asarray(((c.weight_offload > 0) | (c.kv_offload > 0)) & lacks_host)


def _engine(c: ServingConfigurations, context: ServingContext) -> BoolArray:
    """True where a parallel degree, or a combination of degrees, is not supported by the engine."""
    violated = NOWHERE
    for name in terms_about("parallel_degree", "serve"):
        if not getattr(context.engine, name):
            violated = violated | (getattr(c, name) > 1)
    for name in context.engine.undivided:
        ranks = getattr(c, name)
        violated = violated | ((ranks > 1) & (ranks != c.stage_gpus))
    split = context.workload.decode_context_parallel
    if split > 1:  # github.com/vllm-project/vllm/pull/23734: parts instead of copies
        heads = [
            1 if each.kind is AttentionKind.LATENT else each.split_heads[1]
            for each in context.model.attentions
        ]
        copies = c.tensor_parallel / max(heads, default=1)
        violated = violated | (copies < split) | is_indivisible(c.tensor_parallel, split)
    if context.engine.one_split:
        violated = violated | ((c.tensor_parallel > 1) & (c.pipeline_parallel > 1))
    return violated


def _block_widths(c: ServingConfigurations, context: ServingContext) -> BoolArray:
    """True where a rank's share of an FP8-block matrix is not a multiple of the block width."""
    block = np.asarray(float(context.engine.fp8_block))
    violated = NOWHERE
    if not block:
        return violated
    dense = c.quantization == Quantization.FP8_BLOCK
    experts = c.expert_quantization == Quantization.FP8_BLOCK
    for mlp in context.model.feed_forwards:
        widths = ((mlp.shared_width, c.tensor_parallel, dense),
                  (mlp.moe_intermediate_size, c.expert_tensor_parallel, experts))  # fmt: skip
        for width, ranks, is_scaled in widths:
            violated = violated | (is_scaled & (ranks > 1) & is_indivisible(width / ranks, block))
    return violated


SERVING_RULES: tuple[Rule[ServingConfigurations, ServingContext], ...] = tuple(
    Rule(name=name, description=description, violated=violated)
    for name, description, violated in (
        ("gpu_count", "tensor x context x attention_data x pipeline parallel must divide the"
         " number of GPUs", has_left_over_gpus),
        ("attention_heads", "tensor_parallel must divide the heads of attention and of states, and"
         " divide the key-value heads or be a multiple of them",
         lambda c, context: NOWHERE if context.engine.pads_heads
         else has_uneven_heads(c, context, copies_states=True)),
        ("intermediate_size", (
            "tensor_parallel must divide the "
            "feed-forward width"
        ), has_uneven_widths),
        ("num_hidden_layers", "pipeline_parallel cannot exceed the layers",
         lambda c, context: np.asarray(c.pipeline_parallel > context.model.num_hidden_layers)),
        ("expert_parallel", "expert_parallel must divide the GPUs of a pipeline stage and the "
         "experts with their copies", _experts),
        ("attention_data_parallel", "attention_data_parallel needs experts",
         lambda c, context: np.asarray((c.attention_data_parallel > 1)
                                      & (context.model.num_experts == 0))),
        ("context_parallel", "the engine has no prefill context parallelism for this model, GPU, "
         "request or pipeline", _context_parallel),
        ("quantization", "the engine has no kernels for this quantization on this GPU",
         _quantization),
        ("kv_cache", "the engine has no cache of this type, or the GPU no fp8 and the engine no "
         "kernels that read such a cache without it", _kv_cache),
        ("context_length", "input and output together exceed the model's positions", _positions),
        ("offload", "the GPU's link to its host is not known, or both have one memory", _offload),
        ("engine", "the engine does not support this combination", _engine),
        ("pipelines_of_pools", "pools of this engine cannot hand on caches of pipeline stages",
         lambda c, context: np.asarray((c.pipeline_parallel > 1) & context.is_pool
                                      & (not context.engine.pipelines_of_pools))),
        ("block_widths", "widths on a GPU must be whole blocks of the engine's 8-bit block scales",
         _block_widths),
        ("fabric", "tensor_parallel of this engine cannot leave the fast fabric",
         lambda c, context: np.asarray((c.tensor_parallel > context.domain_size)
                                      & (not context.engine.tensor_parallel_across_nodes))),
    )
)  # fmt: skip

OUT_OF_SERVING_MEMORY = prediction_rule(
    "out_of_memory", "weights and the cache of all requests need more than the engine may use"
)

SERVING_REJECTING: tuple[Reason, ...] = (*SERVING_RULES, OUT_OF_HOST_MEMORY, OUT_OF_SERVING_MEMORY)
"""All reasons that reject a configuration before the user's limits, in order."""


def first_broken_serving_rule(c: ServingConfigurations, context: ServingContext) -> CodeArray:
    """The one-based number of the first broken rule in ``SERVING_RULES``; 0: none."""
    return first_broken(SERVING_RULES, c, context)
