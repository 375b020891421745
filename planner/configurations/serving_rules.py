"""Named rules: why a serving configuration is impossible."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.arrays import BoolArray, CodeArray
from planner.configurations.rule import (
    OUT_OF_HOST_MEMORY,
    Rule,
    first_broken,
    indivisible,
    left_over_gpus,
    predicted,
    uneven_widths,
)
from planner.configurations.serving import ServingConfigurations
from planner.enums import AttentionKind, CacheType, Precision, Quantization
from planner.specs.engine import EngineProfile
from planner.specs.gpu import GpuSpec
from planner.specs.model import ModelSpec
from planner.specs.quantization import compute_precision
from planner.specs.serving import ServingWorkload


@dataclass(frozen=True, kw_only=True)
class ServingContext:
    """What the rules are judged against; ``domain_size``: GPUs on one fast fabric."""

    gpu: GpuSpec
    model: ModelSpec
    engine: EngineProfile
    workload: ServingWorkload
    domain_size: int


def _heads(c: ServingConfigurations, context: ServingContext) -> BoolArray:
    t = c.tensor_parallel
    violated = np.zeros((), dtype=np.bool_)
    for attention in context.model.attentions:
        heads, shared = attention.split_heads
        violated = violated | indivisible(heads, t)
        if attention.kind is not AttentionKind.LATENT:
            violated = violated | (indivisible(shared, t) & indivisible(1.0, shared / t))
    return violated


def _layers(c: ServingConfigurations, context: ServingContext) -> BoolArray:
    return np.asarray(c.pipeline_parallel > context.model.num_hidden_layers)


def _experts(c: ServingConfigurations, context: ServingContext) -> BoolArray:
    numbers = {group.num_experts for group in context.model.layer_groups} - {0}
    violated = indivisible(c.stage_gpus, c.expert_parallel)
    for number in numbers:
        violated = violated | indivisible(number, c.expert_parallel)
    return violated if numbers else np.asarray(c.expert_parallel > 1)


def _attention_data(c: ServingConfigurations, context: ServingContext) -> BoolArray:
    has_experts = context.model.num_experts > 0
    lone = c.concurrency < c.attention_data_parallel
    return np.asarray((c.attention_data_parallel > 1) & (lone if has_experts else True))


def _quantization(c: ServingConfigurations, context: ServingContext) -> BoolArray:
    peaks, engine = context.gpu.peak_flops, context.engine
    lacking = np.asarray(
        [
            compute_precision(code, peaks) is None or code.word not in engine.quantizations
            for code in Quantization
        ]
    )
    return np.asarray(lacking[c.quantization] | lacking[c.expert_quantization])


def _kv_cache(c: ServingConfigurations, context: ServingContext) -> BoolArray:
    lacks_fp8 = Precision.FP8 not in context.gpu.peak_flops
    return np.asarray((c.kv_cache == CacheType.FP8) & lacks_fp8)


def _positions(c: ServingConfigurations, context: ServingContext) -> BoolArray:
    length = context.workload.input_tokens + context.workload.output_tokens
    limit = context.model.max_position_embeddings
    return np.asarray(limit is not None and length > limit)


def _offload(c: ServingConfigurations, context: ServingContext) -> BoolArray:
    host = context.gpu.host
    lacks_host = host is None or host.bandwidth is None
    return np.asarray(((c.weight_offload > 0) | (c.kv_offload > 0)) & lacks_host)


def _engine(c: ServingConfigurations, context: ServingContext) -> BoolArray:
    violated = np.zeros((), dtype=np.bool_)
    names = ("tensor_parallel", "pipeline_parallel", "expert_parallel", "attention_data_parallel")
    for name in names:
        if not getattr(context.engine, name):
            violated = violated | (getattr(c, name) > 1)
    return violated


def _fabric(c: ServingConfigurations, context: ServingContext) -> BoolArray:
    return np.asarray(c.tensor_parallel > context.domain_size)


SERVING_RULES: tuple[Rule, ...] = tuple(
    Rule(name=name, description=description, violated=violated)
    for name, description, violated in (
        (
            "gpu_count",
            "tensor x attention_data x pipeline parallel must divide the number of GPUs",
            left_over_gpus,
        ),
        (
            "attention_heads",
            "tensor_parallel must divide the heads of attention and of states, and divide the "
            "key-value heads or be a multiple of them",
            _heads,
        ),
        ("intermediate_size", "tensor_parallel must divide the feed-forward width", uneven_widths),
        ("num_hidden_layers", "pipeline_parallel cannot exceed the layers", _layers),
        (
            "expert_parallel",
            "expert_parallel must divide the experts and the GPUs of a pipeline stage",
            _experts,
        ),
        (
            "attention_data_parallel",
            "attention_data_parallel needs experts and at least one request per rank",
            _attention_data,
        ),
        ("quantization", "GPU or engine has no kernels for this quantization", _quantization),
        ("kv_cache", "the GPU has no fp8 for this cache", _kv_cache),
        ("context_length", "input and output together exceed the model's positions", _positions),
        ("offload", "the GPU's link to its host is not known", _offload),
        ("engine", "the engine does not support this combination", _engine),
        ("fabric", "tensor_parallel cannot leave the fast fabric of a node", _fabric),
    )
)  # fmt: skip

OUT_OF_SERVING_MEMORY = predicted(
    "out_of_memory", "weights and the cache of all requests need more than the engine may use"
)

SERVING_REJECTING: tuple[Rule, ...] = (*SERVING_RULES, OUT_OF_HOST_MEMORY, OUT_OF_SERVING_MEMORY)
"""All that rejects a configuration before the user's limits, in order."""


def first_broken_serving_rule(c: ServingConfigurations, context: ServingContext) -> CodeArray:
    """One-based number in ``SERVING_RULES`` of the first rule each breaks, else 0."""
    return first_broken(SERVING_RULES, c, context)
