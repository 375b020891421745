"""Kernels of a serving engine in plain floats, straight from the equations.

Part of the naive twin of serving: it reads specs and imports none of the code it checks.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import ceil, expm1, log1p, sqrt
from types import SimpleNamespace
from typing import Any

import scalar_machine
from scalar_attention import kernel_rates

from planner.specs.engine import EngineProfile
from planner.specs.model import ModelSpec
from planner.specs.serving_workload import ServingWorkload

_LAYERS, _END = 8.030261248e9 - 2 * 128256 * 4096, 128256 * 4096


def _layers(mean: float, embedding: float, logits: float) -> float:
    """Bytes of a weight of the layers of Llama-3.1-8B, from the bits of its file."""
    return (mean * (_LAYERS + 2 * _END) - (embedding + logits) * _END) / _LAYERS / 8


# Bytes of a weight and of an activation that a product moves, scales included, and the words
# of its rows in a GPU's efficiencies: dense and grouped.
FORMATS = {
    "w16a16": (2.0, 2.0, "bf16", "bf16", "bf16"),
    "fp8": (1.0, 1.0, "fp8", "fp8_tensor", "fp8"),
    "w4a16": (0.5 + 2 / 128, 2.0, "int4_weight_only", "int4_weight_only", "bf16"),
    "nvfp4": (0.5 + 1 / 16, 3.0, "nvfp4", "nvfp4", "fp4"),
    "q4_k_m": (_layers(4.8944, 4.5, 6.5625), 2.0, "int4_weight_only", "int4_weight_only", "bf16"),
    "q6_k": (_layers(6.5633, 6.5625, 6.5625), 2.0, "int8_weight_only", "bf16", "bf16"),
}
# Types of GGUF files: the embedding's bytes of a weight; logits are all q6_k.
EMBEDDINGS = {"q4_k_m": 4.5 / 8, "q6_k": 6.5625 / 8}
# The same on GPUs without that arithmetic: kernels of integers, which compute in 16 bits.
UNPACKED = {
    "fp8": (1.0, 2.0, "int8_weight_only", "bf16", "bf16"),
    "nvfp4": (0.5 + 1 / 16, 2.0, "int4_weight_only", "int4_weight_only", "bf16"),
}
CACHE_BYTES = {"bf16": 2.0, "fp8": 1.0, "int4": 0.5 + 2 / 64}


@dataclass(frozen=True, kw_only=True)
class ServingWorld:
    """Everything that does not depend on the replica."""

    gpu: Any
    cluster: Any
    model: ModelSpec
    engine: EngineProfile
    workload: ServingWorkload
    draft: ModelSpec | None = None

    @property
    def execution(self) -> Any:
        return self.engine.execution

    @property
    def sixteen_bit(self) -> str:
        return "bf16" if "bf16" in self.gpu.peak_flops else "fp16"

    @cached_property
    def links(self) -> Any:
        """What collectives need: tokens go to each domain once."""
        once = SimpleNamespace(execution=SimpleNamespace(deduplicated_dispatch=True))
        return SimpleNamespace(gpu=self.gpu, cluster=self.cluster, framework=once)

    @property
    def latency_fraction(self) -> float:
        own = self.engine.kernel_latency_by_architecture.get(self.gpu.architecture, 1.0)
        return self.execution.kernel_latency_fraction * own


@dataclass(frozen=True, kw_only=True)
class Replica:
    """One configuration; types are words."""

    num_gpus: float = 1
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    attention_data_parallel: int = 1
    expert_parallel: int = 1
    concurrency: float = 1
    max_num_batched_tokens: float = 8192
    quantization: str = "w16a16"
    expert_quantization: str = "w16a16"
    kv_cache: str = "bf16"
    weight_offload: float = 0.0
    kv_offload: float = 0.0
    gpu_memory_utilization: float = 0.0

    @property
    def stage_gpus(self) -> int:
        return self.tensor_parallel * self.attention_data_parallel

    @property
    def step_tokens(self) -> float:
        return self.max_num_batched_tokens * self.attention_data_parallel


def form_of(world: ServingWorld, word: str) -> tuple[float, float, str, str, str]:
    """How this GPU multiplies weights of a type."""
    return FORMATS[word] if FORMATS[word][4] in world.gpu.peak_flops else UNPACKED[word]


def memory_time(world: ServingWorld, num_bytes: float, kernels: float = 1.0) -> float:
    e = world.gpu.efficiency.memory_bound
    moved = num_bytes / (world.gpu.memory_bandwidth * e.bandwidth_fraction)
    return float(kernels * e.latency + moved)


def elementwise(world: ServingWorld, num_bytes: float, kernels: int = 1) -> float:
    """As many passes as the engine needs; what graphs hide of starts does not show."""
    if num_bytes <= 0:
        return 0.0
    passes = world.execution.elementwise_passes
    return memory_time(world, num_bytes * passes, kernels * world.latency_fraction)


def product(world: ServingWorld, rows: float, columns: float, depth: float, form: str) -> float:
    """2mnk FLOPs, in tiles where the row has them; a cast of A reads 2 and writes 1 byte."""
    if rows <= 0:
        return 0.0
    weight, activation, kernel, _, peak = form_of(world, form)
    e = world.gpu.efficiency.gemm.get(kernel)
    flops = 2 * rows * columns * depth
    if e is None:
        e = world.gpu.efficiency.quantized_gemm[kernel]
        area = (rows + e.row_offset) * (columns + e.column_offset)
        area += e.area_floor * (world.gpu.num_multiprocessors or 128) * 128 * 128
        flops = 2 * area * (depth + e.depth_offset)
    moved = weight * columns * depth + activation * rows * depth + 2 * rows * columns
    time = _roofline(world, e, flops, moved, form, own_library=True)
    table = world.gpu.efficiency.gemm_table
    if table and kernel == "bf16":
        sizes = (rows, columns, depth)
        held = clock(world, peak)
        time *= scalar_machine.tabulated(world.gpu, table, peak, sizes, held)
        time /= scalar_machine.plain_product(world.gpu, peak, sizes, held, measured=True)
    casts = kernel == "fp8" and not world.execution.fused_quantization
    time += _rows(world, rows, columns * depth, weight)
    return time + (memory_time(world, 3 * rows * depth) if casts else 0.0)


def _rows(world: ServingWorld, rows: float, weights: float, weight_bytes: float) -> float:
    """(rows - 1) c mk instructions of a lane, two FLOPs each."""
    execution, gpu = world.execution, world.gpu
    if not execution.row_instructions or rows > execution.vector_rows or weight_bytes >= 2:
        return 0.0
    instructions = world.engine.row_instructions_by_architecture.get(
        gpu.architecture, execution.row_instructions
    )
    return max(rows - 1, 0.0) * 2 * instructions * weights / gpu.peak_flops["fp32"]


def engine_of(world: ServingWorld, kind: str) -> float:
    """What the engine shows of the start of one kind of kernels more or less than of others."""
    table = getattr(world.engine, f"{kind}_latency_by_architecture")
    return float(table.get(world.gpu.architecture, 1.0))


def clock(world: ServingWorld, precision: str) -> float:
    """1 - s (1 - c), c the clock of hours of products and s what steps of the engine see of it."""
    e = world.gpu.efficiency
    held = e.sustained_compute_fraction
    if precision in ("fp8", "fp4") and e.sustained_fp8_fraction is not None:
        held = e.sustained_fp8_fraction
    return 1 - world.execution.sustained_clock * (1 - held)


def _roofline(
    world: ServingWorld, e: Any, flops: float, moved: float, form: str, own_library: bool
) -> float:
    execution, gpu = world.execution, world.gpu
    compute, read = e.compute_fraction, e.bandwidth_fraction
    if own_library:
        compute *= world.engine.linear_compute_by_architecture.get(gpu.architecture, 1.0)
        read *= execution.quantized_bandwidth_fraction if FORMATS[form][0] < 2 else 1.0
    else:
        compute *= world.engine.expert_compute_by_architecture.get(gpu.architecture, 1.0)
        if any(block.num_experts and block.bias for block in world.model.feed_forwards):
            slow = world.engine.slow_experts_by_architecture.get(gpu.architecture, {})
            compute *= slow.get(form, 1.0)
    precision = form_of(world, form)[4]
    peak = gpu.peak_flops[precision] * compute * execution.compute_fraction
    peak *= clock(world, precision)
    bandwidth = gpu.memory_bandwidth * read * execution.weight_bandwidth_fraction
    q = e.sharpness
    together = ((flops / peak) ** q + (moved / bandwidth) ** q) ** (1 / q)
    own = engine_of(world, "dense" if own_library else "expert")
    return float(e.latency * world.latency_fraction * own + together)


def experts_visited(num_experts: int, chosen: int, tokens: float, dispersion: float) -> float:
    """E (1 - (1 + d k T / E)^(-1/d)), no more than evenly E (1 - (1 - k/E)^T), no less than k."""
    even = -expm1(tokens * log1p(-chosen / num_experts)) if chosen < num_experts else 1.0
    share = even
    if dispersion > 0:
        skewed = -expm1(-log1p(dispersion * chosen * tokens / num_experts) / dispersion)
        share = min(skewed, even)
    return max(num_experts * share, chosen * min(tokens, 1.0))


def largest_of(ranks: int) -> float:
    """Tukey's lambda quantile of (n - 3/8) / (n + 1/4), Blom's place of the largest of n."""
    place = (ranks - 0.375) / (ranks + 0.25)
    return float(4.91 * (place**0.14 - (1 - place) ** 0.14)) if ranks > 1 else 0.0


def fullest_rank(pairs: float, ranks: int, num_experts: int, dispersion: float) -> float:
    """1 + z sqrt(n / m + d n / E), at most n."""
    spread = ranks / max(pairs, 1.0) + dispersion * ranks / num_experts
    return min(1 + largest_of(ranks) * sqrt(spread), float(ranks))


def most_read(share: float, ranks: int, local: float) -> float:
    """s + z / 2 sqrt(s (1 - s) / l), at most all."""
    return float(min(share + largest_of(ranks) / 2 * sqrt(share * (1 - share) / local), 1.0))


def expert_slots(world: ServingWorld, c: Replica, mlp: Any) -> int:
    """Experts of a layer with their copies: those asked for, or as few as fill all ranks."""
    if not world.engine.redundant_experts:
        return mlp.num_experts
    if world.workload.redundant_experts is not None:
        return mlp.num_experts + world.workload.redundant_experts
    return ceil(mlp.num_experts / c.expert_parallel) * c.expert_parallel


def experts(
    world: ServingWorld, c: Replica, mlp: Any, tokens: float, pairs: float, all_pairs: float
) -> float:
    """Matrices of the rank with most of the ``pairs``; those of the experts visited are read."""
    number, h = expert_slots(world, c, mlp), mlp.moe_latent_size or world.model.hidden_size
    weight, _, _, row, _ = form_of(world, c.expert_quantization)
    table = world.gpu.efficiency.grouped_gemm
    of_triton = table.get(f"{row}_triton") if world.execution.triton_experts else None
    e = of_triton or table.get(row) or table[{"fp8_tensor": "fp8"}.get(row, "bf16")]
    local = number / c.expert_parallel
    width = mlp.moe_intermediate_size / (c.stage_gpus / c.expert_parallel)
    visited = experts_visited(
        number, mlp.num_experts_per_tok, tokens, world.workload.expert_dispersion
    )
    share = most_read(visited / number, c.expert_parallel, local)
    read = max(share * local, min(pairs, 1.0))
    rows, tile = pairs / local, min(tokens, world.engine.execution.expert_tile_rows)
    computed = max(rows + share * max(e.row_offset, tile / 2), share * tile) / rows
    padding = (1 + e.width_offset / width) * computed
    matrices = 3 if mlp.gated else 2
    flops = 2 * matrices * h * width * pairs * padding
    moved = matrices * h * width * read * weight
    time = _roofline(world, e, flops, moved, c.expert_quantization, own_library=False)
    permuted = 2 * e.permute_passes * h * pairs
    time += permuted / (world.gpu.memory_bandwidth * e.bandwidth_fraction)
    passed = 2 * matrices * pairs * width
    if world.gpu.architecture in world.engine.whole_expert_buffers:
        # Zeros for the others: written and read before the activation, and to be summed.
        each = 2 * (2 * (matrices - 1) + 1) * width + 2 * 2 * h
        passed += each * all_pairs * (1 - 1 / c.expert_parallel)
    return time + elementwise(world, passed, kernels=0)


def prompt_attention(
    world: ServingWorld, head_dim: int, prompts: float, heads: float, queries: float,
    flops: float, num_bytes: float, sinks: bool = False,
) -> float:  # fmt: skip
    """The roofline of fused attention; work grows where few tiles of 128 rows fill the GPU."""
    if prompts <= 0:
        return 0.0
    efficiency = world.gpu.efficiency
    table = efficiency.attention
    sizes = {int(key.removeprefix("head_dim_")): key for key in table}
    e = table[sizes[min(sizes, key=lambda size: abs(size - head_dim))]]
    tiles = max(prompts * heads * -(-queries // 128), 1.0)
    work = flops / world.execution.compute_fraction
    if sinks:
        work /= world.engine.sink_rate_by_architecture.get(world.gpu.architecture, 1.0)
    work *= 1 + e.wave_fill * (world.gpu.num_multiprocessors or 128) / tiles
    work *= 1 + e.sequence_offset / queries
    work /= kernel_rates(efficiency, world.execution.attention_kernels)[0]
    own = efficiency.sustained_attention_fraction
    time = scalar_machine.roofline(world, e, work, num_bytes, world.sixteen_bit, own)  # type: ignore[arg-type]
    scores = flops / (4 * head_dim)
    passes = world.execution.score_passes
    return time + (memory_time(world, passes * 4 * scores) if passes > 0 else 0.0)


def decode_attention(
    world: ServingWorld, c: Replica, *, sequences: float, context: float, per_token: float,
    heads: float, group: float, query_bytes: float, flops: float,
) -> float:  # fmt: skip
    """Cache and queries over the bandwidth, or FLOPs over the rate of attention."""
    if sequences <= 0:
        return 0.0
    execution, gpu = world.execution, world.gpu
    e = gpu.efficiency.attention_decode["bf16" if c.kv_cache == "bf16" else "fp8"]
    keys = context + execution.attention_padding_fraction * e.sequence_offset
    again = 1 + execution.repeated_read_fraction * (group - 1)
    moved = sequences * per_token * again * keys + query_bytes
    bandwidth = gpu.memory_bandwidth * e.bandwidth_fraction
    bandwidth *= execution.attention_bandwidth_fraction
    rate = gpu.peak_flops[world.sixteen_bit] * execution.compute_fraction
    rate *= gpu.efficiency.attention["head_dim_128"].compute_fraction
    if c.kv_cache == "fp8":
        rate *= world.engine.fp8_cache_compute_by_architecture.get(gpu.architecture, 1.0)
    return float(max(moved / bandwidth, flops / rate) + e.latency * world.latency_fraction)


def all_reduce(world: ServingWorld, num_bytes: float, size: int) -> float:
    """NCCL's, or one kernel over peer memory where that is faster inside a domain."""
    if size <= 1:
        return 0.0
    ring = scalar_machine.collective(world.links, "all_reduce", num_bytes, size, 1)
    ring += world.execution.collective_launch_time
    if size > world.cluster.scale_up.domain_size:
        ring += world.execution.network_callback_time
    table = world.gpu.efficiency.collective
    inside = size <= world.cluster.scale_up.domain_size
    if world.execution.custom_all_reduce and inside and "custom_all_reduce" in table:
        direct = scalar_machine.collective(world.links, "custom_all_reduce", num_bytes, size, 1)
        ring = min(ring, direct)
    return ring
