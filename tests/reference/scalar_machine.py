"""Kernels and messages of one GPU in plain floats, straight from the published equations.

Part of the naive twin: it reads specs and imports none of the code it checks.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from scalar_attention import attention_kernels, kernel_rates
from scalar_table import tabulated_flops

from planner.specs.attention import AttentionSpec
from planner.specs.framework import FrameworkProfile
from planner.specs.gpu import ClusterSpec, GpuSpec
from planner.specs.model import ModelSpec
from planner.specs.training_workload import TrainingWorkload

# The kernel of fp8 products by recipe, that of experts, bytes of a weight and of an activation,
# and what casts move for a number; the kernel of blocks contains its casts, that of experts none.
RECIPES = {
    "delayed": ("fp8", "fp8_tensor", 1.0, 1.0, 3.0),
    "tensorwise": ("fp8", "fp8_tensor", 1.0, 1.0, 3.0),
    "rowwise": ("bf16", "bf16", 2.0, 2.0, 0.0),
    "blockwise": ("fp8_block", "fp8_tensor", 1 + 4 / 128**2, 4.0, 2 + 264 / 128),
    "mxfp8": ("fp8", "fp8", 33 / 32, 33 / 32, 2 + 66 / 32),
}
COMPUTE_BYTES = {"bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "fp4": 0.5 + 1 / 16}
PASSES = {"all_reduce": 2, "custom_all_reduce": 2, "all_gather": 1, "reduce_scatter": 1}


@dataclass(frozen=True, kw_only=True)
class World:
    """Everything that does not depend on the layout."""

    gpu: GpuSpec
    cluster: ClusterSpec
    model: ModelSpec
    framework: FrameworkProfile
    workload: TrainingWorkload

    @property
    def sixteen_bit(self) -> str:
        return "bf16" if "bf16" in self.gpu.peak_flops else "fp16"


@dataclass(frozen=True, kw_only=True)
class Layout:
    """One configuration; ``precision`` and ``recompute`` are words."""

    num_gpus: int
    tensor_parallel: int = 1
    context_parallel: int = 1
    pipeline_parallel: int = 1
    virtual_pipeline: int = 1
    layer_split: bool = False
    expert_parallel: int = 1
    micro_batch_size: int = 1
    global_batch_size: int = 1
    zero_stage: int = 0
    data_parallel_replicas: int = 1
    recompute: str = "none"
    recompute_num_layers: int = 0
    recompute_modules: str = "none"
    saved_tensors: str = "none"
    offloaded_tensors: str = "none"
    offload: str = "none"
    precision: str = "bf16"
    sequence_parallel: bool = False
    flash_attention: bool = True
    fp8_attention: bool = False
    fp8_recipe: str = "auto"
    attention_kernel: str = "auto"
    expert_compute: str = "auto"
    torch_compile: str = "auto"
    loss_kernel: str = "auto"
    loss_chunks: int = 0
    optimizer: str = "adam"
    optimizer_state_precision: str = "framework"
    main_params_precision: str = "framework"
    main_grads_precision: str = "framework"
    optimizer_in_backward: bool = False
    paged_optimizer: bool = False
    norm_input_bits: int = 0
    fc1_input_bits: int = 0
    activation_input_bits: int = 0
    fc2_input_bits: int = 0
    reduce_bucket_size: float = 0.0
    sub_group_size: float = 0.0
    stage3_max_live_parameters: float = 0.0
    zero3_init: bool = True
    eval_batch_size: int = 0
    expert_tensor_parallel: int = 1
    overlap_expert_parallel: bool = False
    token_dispatcher: str = "auto"
    expert_capacity_factor: float = 0.0
    expert_imbalance: float = 1.0
    cp_comm_type: str = "p2p"
    tp_comm_overlap: bool = False
    pipeline_schedule: str = "one_forward_one_backward"

    @property
    def fused(self) -> bool:
        return self.flash_attention and self.attention_kernel != "eager"

    @property
    def data_parallel(self) -> float:
        model_parallel = self.tensor_parallel * self.context_parallel * self.pipeline_parallel
        return self.num_gpus / model_parallel

    @property
    def num_micro_batches(self) -> float:
        return self.global_batch_size / (self.data_parallel * self.micro_batch_size)


def tokens(world: World, layout: Layout) -> float:
    """Tokens of a micro-batch on one context-parallel rank."""
    return layout.micro_batch_size * world.workload.sequence_length / layout.context_parallel


def own_tokens(world: World, layout: Layout) -> float:
    """Those whose residual stream the GPU holds: sequence parallelism splits them."""
    split = layout.tensor_parallel if layout.sequence_parallel else 1
    return tokens(world, layout) / split


def expert_load(layout: Layout) -> float:
    """Tokens of the fullest rank of experts over the mean; what exceeds the capacity is dropped."""
    most = min(layout.expert_imbalance, layout.expert_parallel)
    return min(most, layout.expert_capacity_factor or math.inf)


def of_gradients(world: World, layout: Layout, name: str) -> float:
    """A number of the framework's states, that of fp16 training where it has its own."""
    states = world.framework.states
    told = layout.main_grads_precision
    if told != "framework" and name in ("gradient", "gradient_on_wire"):
        return {"fp32": 4, "bf16": 2}[told]
    in_fp16 = layout.precision == "fp16" and states.fp16 is not None
    usual = getattr(states.fp16 if in_fp16 else states, name)
    updated_in_16 = layout.main_params_precision == "bf16" and not states.main_weight
    return min(usual, 2) if name == "gradient" and updated_in_16 else usual


def value_dim(attention: AttentionSpec) -> int:
    return attention.v_head_dim or attention.head_dim


def key_heads(attention: AttentionSpec, layout: Layout) -> float:
    """Key-value heads on a GPU; a head is not split but copied."""
    return max(attention.num_key_value_heads / layout.tensor_parallel, 1.0)


def roofline(
    world: World,
    e: Any,
    flops: float,
    num_bytes: float,
    precision: str,
    own: float | None = None,
) -> float:
    """t0 + ((F/(P e))^q + (B/(W b))^q)^(1/q), P under a sustained clock, maybe the kernel's own."""
    gpu = world.gpu
    rate = gpu.peak_flops[precision] * e.compute_fraction
    sustained = own or gpu.efficiency.sustained_compute_fraction
    if precision in ("fp8", "fp4") and gpu.efficiency.sustained_fp8_fraction is not None:
        sustained = gpu.efficiency.sustained_fp8_fraction
    compute = flops / (rate * sustained)
    traffic = num_bytes / (gpu.memory_bandwidth * e.bandwidth_fraction)
    q = e.sharpness
    return e.latency + (compute**q + traffic**q) ** (1 / q)


def _by_precision(table: Any, precision: str) -> Any:
    """The row of the precision itself; matrices in fp4 are as those in fp8 where it has none."""
    for name in {"fp4": ("nvfp4", "fp8"), "fp8": ("fp8",)}.get(precision, ()):
        if name in table:
            return table[name]
    return table["bf16"]


def gemm(
    world: World,
    rows: float,
    columns: float,
    depth: float,
    precision: str,
    output_bytes: float = 2,
    recipe: str = "delayed",
) -> float:
    """2mnk FLOPs; each operand passes memory once, in the bits it is computed in.

    Products in 16 bits may be those of a table, their output beyond 2 bytes beside them.
    """
    if precision == "fp8" and recipe == "rowwise":
        precision = world.sixteen_bit
    table = world.gpu.efficiency.gemm_table
    if table and precision in ("bf16", "fp16"):
        e = world.gpu.efficiency.gemm["bf16"]
        sizes, clock = (rows, columns, depth), world.gpu.efficiency.sustained_compute_fraction
        compute = tabulated(world.gpu, table, precision, sizes, clock)
        compute *= plain_product(world.gpu, precision, sizes, clock)
        compute /= plain_product(world.gpu, precision, sizes, clock, measured=True)
        more = (output_bytes - 2) * rows * columns
        traffic = more / (world.gpu.memory_bandwidth * e.bandwidth_fraction)
        return (compute**e.sharpness + traffic**e.sharpness) ** (1 / e.sharpness)
    weight = COMPUTE_BYTES[precision]
    cast = 3.0 if precision == "fp4" else weight  # reads two bytes, writes and reads the fp4 ones
    kernel = {"fp4": "nvfp4", "fp8": "fp8"}.get(precision, "bf16")
    if precision == "fp8":
        kernel, _, weight, cast, _ = RECIPES[recipe]
    num_bytes = weight * columns * depth + cast * rows * depth + output_bytes * rows * columns
    tiled = world.gpu.efficiency.quantized_gemm
    if kernel not in world.gpu.efficiency.gemm and kernel in tiled:
        e = tiled[kernel]
        floor = e.area_floor * (world.gpu.num_multiprocessors or 128) * 128 * 128
        area = (rows + e.row_offset) * (columns + e.column_offset) + floor
        return roofline(world, e, 2 * area * (depth + e.depth_offset), num_bytes, precision)
    e = world.gpu.efficiency.gemm.get(kernel) or _by_precision(world.gpu.efficiency.gemm, precision)
    return roofline(world, e, 2 * rows * columns * depth, num_bytes, precision)


def recipe_of(world: World, layout: Layout) -> str:
    """That of the layout, or the framework's own, which may be another one for groups of 32."""
    if layout.fp8_recipe != "auto":
        return layout.fp8_recipe
    groups = "fp4" in world.gpu.peak_flops and world.framework.fp8_recipe_of_groups
    return groups or world.framework.fp8_recipe


def cast(
    world: World, numbers: float, precision: str, recipe: str, of_experts: bool = False
) -> float:
    """What kernels of their own take to write numbers in fp8."""
    moved = RECIPES[recipe][4] if precision == "fp8" else 0.0
    if recipe == "blockwise" and not of_experts:
        moved = 0.0
    return elementwise(world, moved * numbers) if moved else 0.0


Product = tuple[float, float, float]


def tabulated(gpu: Any, table: str, precision: str, sizes: Product, clock: float) -> float:
    """A product of the table, on the GPU it was measured on."""
    e = gpu.efficiency.gemm["bf16"]
    return tabulated_flops(table, *sizes) / (gpu.peak_flops[precision] * e.compute_fraction * clock)


def plain_product(
    gpu: Any, precision: str, sizes: Product, clock: float, measured: bool = False
) -> float:
    """The form that is fitted to all products, with this memory or that of the table's GPU."""
    e, (m, n, k) = gpu.efficiency.gemm["bf16"], sizes
    bandwidth = gpu.memory_bandwidth
    if measured:
        bandwidth = gpu.efficiency.gemm_table_bandwidth or bandwidth
    compute = 2 * m * n * k / (gpu.peak_flops[precision] * e.compute_fraction * clock)
    traffic = 2 * (m * k + n * k + m * n) / (bandwidth * e.bandwidth_fraction)
    return float(e.latency + (compute**e.sharpness + traffic**e.sharpness) ** (1 / e.sharpness))


def grouped_gemm(
    world: World, pairs: float, experts: float, h: int, width: int, matrices: int, precision: str,
    recipe: str = "delayed",
) -> float:  # fmt: skip
    """The roofline on padded rows and widths, the experts' weights read once."""
    table, weight = world.gpu.efficiency.grouped_gemm, COMPUTE_BYTES[precision]
    e = _by_precision(table, precision)
    if precision == "fp8":
        _, kernel, weight, _, _ = RECIPES[recipe]
        if recipe == "rowwise":
            precision = world.sixteen_bit
        e = table.get(kernel) or table.get("fp8") or table["bf16"]
    padding = (1 + e.width_offset / width) * (1 + e.row_offset / (pairs / experts))
    flops = 2 * matrices * h * width * pairs * padding
    read = weight * matrices * h * width * experts
    return roofline(world, e, flops, read, precision)


def reads_latent(attention: AttentionSpec) -> bool:
    """Whether a sparse kernel reads the latent itself, one key for all heads (arXiv:2512.02556)."""
    return attention.kind == "latent" and attention.index_topk > 0


def kernel_dims(attention: AttentionSpec) -> tuple[int, int]:
    """Numbers of a key and of a value in a fused kernel: 576 and 512 in DeepSeek-V3.2."""
    if reads_latent(attention):
        return attention.kv_lora_rank + attention.qk_rope_head_dim, attention.kv_lora_rank
    return attention.head_dim, value_dim(attention)


def fused_attention(world: World, attention: AttentionSpec, layout: Layout) -> float:
    """FlashAttention forward, causal: 2 n k a (d_qk + d_v) FLOPs, q k v o through memory once.

    Sparse kernels work on every chosen key of a query, masked ones too.
    """
    s = world.workload.sequence_length
    a = attention.num_attention_heads / layout.tensor_parallel
    window = min(attention.sliding_window or s, s)
    mean_keys = (window * (window + 1) / 2 + (s - window) * window) / s
    if layout.attention_kernel == "masked":
        mean_keys = s
    if attention.index_topk:
        mean_keys = min(attention.index_topk, s)
    d_qk, d_v = kernel_dims(attention)
    dims = d_qk + d_v
    keys = 1.0 if reads_latent(attention) else key_heads(attention, layout)
    n = tokens(world, layout)
    written_for = attention_kernels(world, layout)
    kernel = SimpleNamespace(heads=a, head_dim=d_qk, kernels=written_for)
    num_bytes = 2 * n * (a + keys) * dims
    flops = 2 * n * mean_keys * a * dims
    if layout.attention_kernel == "masked":
        # The mask is read for each head, whose numbers fill 64 or 128.
        num_bytes += 2 * n * s * a
        kernel.head_dim = 64 if d_qk <= 64 else max(d_qk, 128)
        flops *= kernel.head_dim / d_qk
    c, steps = layout.context_parallel, 1.0
    if layout.cp_comm_type == "a2a":
        kernel.heads = a / c
    else:  # a kernel for the keys of each rank of the ring, two side by side
        steps = max(c / 2, 1)
    return steps * fused_kernel(world, layout, kernel, flops / steps, num_bytes / steps)


def fused_kernel(
    world: World, layout: Layout, kernel: Any, flops: float, num_bytes: float
) -> float:
    """The roofline of attention kernels on work that grows where few tiles fill the GPU."""
    s = world.workload.sequence_length
    table = world.gpu.efficiency.attention
    sizes = {int(key.removeprefix("head_dim_")): key for key in table}
    e = table[sizes[min(sizes, key=lambda size: abs(size - kernel.head_dim))]]
    tiles = layout.micro_batch_size * kernel.heads * math.ceil(s / 128)
    waves = tiles / (world.gpu.num_multiprocessors or 128)
    work = flops * (1 + e.wave_fill / waves) * (1 + e.sequence_offset / s)
    work /= kernel_rates(world.gpu.efficiency, kernel.kernels)[0]
    own = world.gpu.efficiency.sustained_attention_fraction
    return roofline(world, e, work, num_bytes, world.sixteen_bit, own)


def elementwise(world: World, num_bytes: float) -> float:
    """t0 + B/(W b)."""
    e = world.gpu.efficiency.memory_bound
    return e.latency + num_bytes / (world.gpu.memory_bandwidth * e.bandwidth_fraction)


def network_rate(world: World) -> float:
    out = world.cluster.scale_out
    return out.bandwidth * out.efficiency / out.oversubscription


def collective(
    world: World, kind: str, num_bytes: float, size: float, stride: float, nics: int = 0
) -> float:
    """a0 + a1 (g-1) + network + (V + sqrt(V V0)) / (B n/(n+x)), g ranks in one domain.

    The network: trees of all-reduces take a logarithm of the domains, rings pass all of them.
    """
    if size <= 1:
        return 0.0
    up, out = world.cluster.scale_up, world.cluster.scale_out
    e = world.gpu.efficiency.collective[kind]
    local = min(size, max(up.domain_size // stride, 1))
    domains = size / local
    fabric = up.bandwidth * e.bandwidth_fraction
    if domains > 1:
        shares = local if local == up.domain_size else max(local / out.gpus_per_nic, 1)
        rate = min(fabric, min(shares, nics or shares) * network_rate(world))
        if kind in ("all_gather", "reduce_scatter"):
            wait = (domains - 1) * (out.base_latency / 2 + e.latency_per_rank * (local - 1))
        else:
            wait = out.base_latency + out.latency_per_doubling * max(math.log2(domains / 2), 0)
    else:
        rate, wait = fabric, 0.0
    volume = PASSES[kind] * num_bytes * (size - 1) / size
    ramped = volume + math.sqrt(volume * e.ramp_bytes)
    moving = ramped / (rate * size / (size + e.small_group_penalty))
    return e.base_latency + e.latency_per_rank * (local - 1) + wait + moving


def all_to_all(
    world: World,
    num_bytes: float,
    size: int,
    stride: int = 1,
    sent_across: Callable[[float], float] = lambda domains: 1.0,
) -> float:
    """Each rank sends every other its piece: some over the fabric, some by its own NIC.

    ``sent_across``: of a number of domains, the share of the bytes between them that is sent.
    """
    if size <= 1:
        return 0.0
    up, out = world.cluster.scale_up, world.cluster.scale_out
    e = world.gpu.efficiency.collective["all_to_all"]
    local = min(size, max(up.domain_size // stride, 1))
    domains = size / local
    wait = seconds_across = 0.0
    piece = num_bytes / size
    seconds_inside = piece * (local - 1) / (up.bandwidth * e.bandwidth_fraction)
    if domains > 1:
        wait = out.base_latency + out.latency_per_doubling * max(math.log2(domains / 2), 0)
        seconds_across = piece * (size - local) / network_rate(world)
        seconds_across *= sent_across(domains)
    volume = piece * (size - 1)
    ramp = 1 + math.sqrt(e.ramp_bytes / volume)
    slowest = max(seconds_inside, seconds_across) * ramp * (size + e.small_group_penalty) / size
    return e.base_latency + e.latency_per_rank * (local - 1) + wait + slowest


def reached(mlp: Any, shares: float) -> float:
    """Over how many of equal shares of the experts the experts of a token stand on average.

    By the groups that it may be routed to, each as likely: the experts of a share that are among
    those of the chosen groups, all of which the token must miss.
    """
    experts, groups, chosen = mlp.num_experts, mlp.n_group, mlp.topk_group
    if shares % groups and groups % shares:
        groups, chosen = 1, 1
    own, size = experts / shares, experts / groups
    missed = []
    for among in itertools.combinations(range(groups), chosen):
        starts = [group * size for group in among]
        held = sum(max(min(start + size, own) - start, 0.0) for start in starts)
        left = chosen * size
        chances = (max(left - held - i, 0.0) / (left - i) for i in range(mlp.num_experts_per_tok))
        missed.append(math.prod(chances))
    return min(shares * (1 - sum(missed) / len(missed)), mlp.num_experts_per_tok)


def send(world: World, num_bytes: float, leaves_domain: bool) -> float:
    """Latency and bytes over bandwidth of one message."""
    if leaves_domain:
        return world.cluster.scale_out.base_latency + num_bytes / network_rate(world)
    e = world.gpu.efficiency.collective["all_gather"]
    rate = world.cluster.scale_up.bandwidth * e.bandwidth_fraction
    return e.base_latency + num_bytes / rate


def shown(communication: float, computation: float, interference: float) -> float:
    """What two activities side by side take, max + g min, over the computation alone."""
    both = max(communication, computation) + interference * min(communication, computation)
    return both - computation


def rank_wait(world: World, layout: Layout) -> float:
    """What a pass of a layer waits where tensor parallelism takes more than half a domain."""
    domain = world.cluster.scale_up.domain_size
    wide = 2 * layout.tensor_parallel > domain >= layout.tensor_parallel > 1
    return world.framework.execution.node_reduce_wait if wide else 0.0
