"""The roofline bound as specs and profiles: every efficiency 1, every latency and overhead 0."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from planner.base.enums import LinkKind, Precision
from planner.specs.engine import EngineProfile
from planner.specs.framework import FrameworkProfile
from planner.specs.gpu import (
    ClusterSpec,
    CollectiveEfficiency,
    Fp8AttentionEfficiency,
    GpuSpec,
    collectives,
)
from planner.specs.validated import T, replace_unvalidated

_KERNEL = {
    **dict.fromkeys(("compute_fraction", "bandwidth_fraction", "tile_penalty"), 1.0),
    **dict.fromkeys(("latency", "base_latency", "latency_per_rank", "ramp_bytes"), 0.0),
    **dict.fromkeys(("row_offset", "column_offset", "depth_offset", "width_offset"), 0.0),
    **dict.fromkeys(("sequence_offset", "area_floor", "wave_fill", "wave_rounding"), 0.0),
    **dict.fromkeys(("small_group_penalty", "permute_passes"), 0.0),
    "sharpness": np.inf,
}
_EFFICIENCY: dict[str, object] = {
    **dict.fromkeys(("sustained_compute_fraction", "attention_backward_fraction"), 1.0),
    "portable_attention_fraction": 1.0,
    "attention_kernels": {},
    **dict.fromkeys(("sustained_fp8_fraction", "sustained_attention_fraction"), None),
    **dict.fromkeys(("vector_product_fraction", "gemm_table", "gemm_table_bandwidth"), None),
}
_TRAINING = {
    **dict.fromkeys(("layer_launch_time", "adapter_launch_time", "dequantize_launch_time"), 0.0),
    **dict.fromkeys(("expert_launch_time", "expert_host_wait", "expert_bias_passes"), 0.0),
    **dict.fromkeys(("expert_loop_time", "module_gather_time", "module_hook_time"), 0.0),
    **dict.fromkeys(("micro_batch_overhead", "step_overhead", "weight_broadcast_time"), 0.0),
    "adapter_cast_bytes": 0.0,
    **dict.fromkeys(("node_reduce_wait",), 0.0),
    **dict.fromkeys(("elementwise_passes", "permute_passes", "dequantize_passes"), 1.0),
    "loss_passes": 2.0,
}
_SERVING = {
    **dict.fromkeys(("compute_fraction", "weight_bandwidth_fraction", "hidden_copies"), 1.0),
    **dict.fromkeys(("quantized_bandwidth_fraction", "attention_bandwidth_fraction"), 1.0),
    **dict.fromkeys(("decode_launch_time", "prefill_launch_time", "expert_launch_time"), 0.0),
    **dict.fromkeys(("expert_loop_time", "quantized_launch_time", "collective_launch_time"), 0.0),
    **dict.fromkeys(("decode_expert_launch_time", "draft_overhead"), 0.0),
    **dict.fromkeys(("latent_launch_time", "recurrent_launch_time"), 0.0),
    **dict.fromkeys(("draft_sequence_overhead", "adapter_launch_time"), 0.0),
    "network_callback_time": 0.0,
    **dict.fromkeys(("adapter_kernels", "adapter_bandwidth_fraction"), 1.0),
    **dict.fromkeys(("step_overhead", "sequence_overhead", "request_overhead"), 0.0),
    **dict.fromkeys(("elementwise_passes", "score_passes", "unpacking_bytes"), 0.0),
    **dict.fromkeys(("attention_padding_fraction", "repeated_read_fraction"), 0.0),
    **dict.fromkeys(("vector_attention_instructions", "vector_attention_instructions_8bit"), 0.0),
    **dict.fromkeys(("fp8_unpack_instructions", "attention_block_bandwidth"), 0.0),
    **dict.fromkeys(
        ("vector_bandwidth", "host_attention_fraction", "kernel_latency_fraction"), 0.0
    ),
    "host_link_fraction": 1.0,
    "host_expert_time": 0.0,
    "row_instructions": 0.0,
    **dict.fromkeys(("unpacked_rows", "expert_tile_rows", "vector_rows"), 0),
    "custom_all_reduce": False,
    "fused_quantization": True,
    "reads_casts": False,
    "balanced_experts": True,
}


def ideal_hardware(gpu: GpuSpec, cluster: ClusterSpec) -> tuple[GpuSpec, ClusterSpec]:
    """Return a GPU and cluster that reach their peaks without latency."""
    kind = cluster.scale_up.kind
    efficiency = replace_unvalidated(
        _with_numbers(gpu.efficiency, _KERNEL),
        **_EFFICIENCY,
        collective=_ideal_collectives(gpu, kind, _KERNEL),
        fp8_attention=_fp8_attention(gpu),
    )
    link = replace_unvalidated(gpu.scale_up, kind=kind)
    network = replace_unvalidated(
        cluster.scale_out,
        efficiency=1.0,
        base_latency=0.0,
        latency_per_doubling=0.0,
        slowdown_per_doubling=0.0,
    )
    return (
        replace_unvalidated(gpu, efficiency=efficiency, scale_up=link),
        replace_unvalidated(cluster, scale_out=network),
    )


def with_compute_share(gpu: GpuSpec, share: float) -> GpuSpec:
    """Return an ideal GPU with products and attention at a ``share`` of dense peaks.

    Their time is the longer of computing and moving, as llm-analysis takes its
    ``flops_efficiency`` (github.com/cli99/llm-analysis, llm_analysis/analysis.py).
    """
    return replace_unvalidated(
        gpu, efficiency=_with_numbers(gpu.efficiency, {"compute_fraction": share})
    )


def with_link_share(gpu: GpuSpec, kind: LinkKind, share: float) -> GpuSpec:
    """Return a GPU with collectives over ``kind`` at a ``share`` of link bandwidth.

    So does the ``intra_node_memory_efficiency`` of llm-analysis; latencies stay.
    """
    reached = _ideal_collectives(gpu, kind, {"bandwidth_fraction": share})
    efficiency = replace_unvalidated(gpu.efficiency, collective=reached)
    return replace_unvalidated(
        gpu, efficiency=efficiency, scale_up=replace_unvalidated(gpu.scale_up, kind=kind)
    )


def ideal_framework(framework: FrameworkProfile) -> FrameworkProfile:
    """Return a framework with fused operators and no launch time."""
    offloading = replace_unvalidated(
        framework.offloading, host_link_fraction=1.0, host_memory_fraction=1.0
    )
    execution = replace_unvalidated(framework.execution, **_TRAINING)
    overlap = replace_unvalidated(framework.overlap, gather_nics=0)
    return replace_unvalidated(
        framework, execution=execution, overlap=overlap, offloading=offloading
    )


def ideal_engine(engine: EngineProfile) -> EngineProfile:
    """Return an engine as fast as the GPU: no launch time, fused element-wise work.

    Decode attention stays on the GPU, and routing fills experts evenly.
    """
    return replace_unvalidated(
        engine,
        execution=replace_unvalidated(engine.execution, **_SERVING),
        linear_compute_by_architecture={},
        row_instructions_by_architecture={},
        expert_compute_by_architecture={},
        fp8_cache_compute_by_architecture={},
        sparse_heads_by_architecture={},
        attention_split=None,
    )


def _fp8_attention(gpu: GpuSpec) -> Fp8AttentionEfficiency | None:
    """Return the 8-bit attention speedup of an ideal GPU: the ratio of peaks."""
    measured, peaks = gpu.efficiency.fp8_attention, gpu.peak_flops
    sixteen_bit = peaks.get(Precision.BF16, peaks.get(Precision.FP16))
    if measured is None or sixteen_bit is None:
        return measured
    ratio = peaks.get(Precision.FP8, np.nan) / sixteen_bit
    return replace_unvalidated(measured, forward=ratio, backward=ratio)


def _ideal_collectives(
    gpu: GpuSpec, kind: LinkKind, numbers: Mapping[str, float]
) -> dict[str, CollectiveEfficiency]:
    measured = collectives(gpu, kind)
    return {name: _with_numbers(efficiency, numbers) for name, efficiency in measured.items()}


def _with_numbers(spec: T, numbers: Mapping[str, float]) -> T:
    """Return an efficiency tree with these numbers in place of those of kernels."""

    def changed(value: object) -> object:
        if isinstance(value, Mapping):
            return {key: changed(item) for key, item in value.items()}
        return _with_numbers(value, numbers) if hasattr(value, "__dataclass_fields__") else value

    values = {name: numbers.get(name, changed(default)) for name, default in vars(spec).items()}
    return replace_unvalidated(spec, **values)
