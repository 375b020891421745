"""Work of kernels and copies: FLOPs, bytes, tabulated sizes, and a ledger that records them.

A search has no ledger: its machine computes seconds only. `planner explain` predicts one
configuration with a ledger on its machine. Every kernel, exchange and copy then records its work,
and `attributed` adds the work to the operator that the seconds belong to. The seconds come from the
same functions, so no prediction depends on a ledger.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

import numpy as np

from planner.base.arrays import CodeArray, FloatArray, Numeric
from planner.base.enums import AttentionKernels, Precision
from planner.base.records import record
from planner.base.software_enums import AttentionKernel
from planner.formulas.attention import (
    chunked_scan_bytes,
    chunked_scan_flops,
    selective_scan_bytes,
    selective_scan_flops,
)
from planner.layers.operators import Scan
from planner.specs.gpu import (
    AttentionKernelEfficiency,
    Efficiency,
    GpuSpec,
    GroupedGemmEfficiency,
    TiledGemmEfficiency,
    gemm_key,
)
from planner.specs.quantization import KernelFormat, first_of

COMPUTE, MEMORY, LINK, NETWORK = "compute", "memory", "link", "network"
LAUNCH, LATENCY, HOST = "launch", "latency", "host"


@record(kw_only=True)
class KernelWork:
    """Work of one kernel, exchange or copy, and its seconds.

    ``formula`` names the formula of ``time`` [s] from ``figures`` in SI units; ``terms`` are the
    seconds of each bound, ``at_peak`` the seconds at the peaks of hardware and links. ``key``: key
    of the efficiencies in the spec of the GPU.
    """

    formula: str
    time: FloatArray
    at_peak: Numeric
    terms: Mapping[str, Numeric]
    figures: Mapping[str, Numeric] = field(default_factory=dict)
    key: str = ""


class Ledger:
    """The work that is recorded while one configuration is predicted."""

    def __init__(self) -> None:
        self._open: list[KernelWork] = []
        self._parts: dict[str, tuple[KernelWork, ...]] = {}
        self._recorded: list[tuple[object, tuple[KernelWork, ...]]] = []

    def add(self, work: KernelWork) -> None:
        """Record what was just predicted."""
        self._open.append(work)

    def drain(self) -> tuple[KernelWork, ...]:
        """The work recorded since the last call."""
        works, self._open = tuple(self._open), []
        return works

    def of(self, seconds: object) -> tuple[KernelWork, ...]:
        """Return the work recorded since the last call; if none, the work of these ``seconds``."""
        recorded = self.drain()
        if not recorded:
            return next((works for earlier, works in self._recorded if earlier is seconds), ())
        self._recorded.append((seconds, recorded))
        return recorded

    @property
    def mark(self) -> int:
        """Index of the next work among those recorded since the last call of `drain`."""
        return len(self._open)

    def forget(self, *names: str, since: int = 0) -> None:
        """Drop work recorded since a mark: of these formulas or collectives; all if none named."""
        self._open[since:] = [
            work
            for work in self._open[since:]
            if names and not {work.formula, work.key.rpartition(".")[2]} & {*names}
        ]

    def close(self, part: str) -> None:
        """Assign the recorded work to a part of a step."""
        self._parts[part] = (*self._parts.get(part, ()), *self.drain())

    def parts(self) -> dict[str, tuple[KernelWork, ...]]:
        """The work of each closed part of a step; the ledger then starts a new step."""
        parts, self._parts = self._parts, {}
        return parts


def scan_work(
    scan: Scan, tokens: FloatArray, tensor_parallel: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return FLOPs and bytes of a scan over tokens on one tensor-parallel rank.

    It is chunked, but where decays are of each channel.
    """
    t = tensor_parallel
    if scan.by_channel:
        width, read = scan.values / t, scan.keys
        return (
            selective_scan_flops(tokens=tokens, state=scan.state / t),
            selective_scan_bytes(tokens=tokens, width=width, key_width=read),
        )
    flops = chunked_scan_flops(
        tokens=tokens,
        key_width=scan.keys / t,
        value_width=scan.values / t,
        expanded_key_width=scan.expanded_keys / t,
        state=scan.state / t,
        delta_rule=scan.delta_rule,
    )
    moved = chunked_scan_bytes(
        tokens=tokens,
        mixed_width=scan.mixed / t,
        value_width=scan.values / t,
        state=scan.state / t,
        delta_rule=scan.delta_rule,
    )
    return flops, moved


@record()
class KernelFlops:
    """FLOPs of a kernel: useful ``flops``, executed ``paid``, and ``moved`` bytes.

    ``sizes`` are those of a matrix product, by term.
    """

    flops: Numeric
    moved: Numeric
    paid: Numeric
    sizes: Mapping[str, Numeric] = field(default_factory=dict)


def kernel_work(
    formula: str, gpu: GpuSpec, e: Rows, time: FloatArray, done: KernelFlops
) -> KernelWork:
    """Return the recorded work of a kernel that computes and moves data.

    ``e`` is what it reaches of the peaks, as `planner.estimators.kernel_work` has it.
    """
    compute = done.paid / (e["peak"] * e["compute_fraction"])
    memory = done.moved / (gpu.memory_bandwidth * e["bandwidth_fraction"])
    return KernelWork(
        formula=formula,
        time=time,
        at_peak=np.maximum(done.flops / e["peak"], done.moved / gpu.memory_bandwidth),
        terms={COMPUTE: compute, MEMORY: memory, LAUNCH: e["latency"]},
        figures={
            **done.sizes,
            "flops": done.flops,
            "paid_flops": done.paid,
            "num_bytes": done.moved,
            "peak_flops": e["peak"],
            "compute_fraction": e["compute_fraction"],
            "memory_bandwidth": np.asarray(gpu.memory_bandwidth),
            "bandwidth_fraction": e["bandwidth_fraction"],
            "latency": e["latency"],
            "sharpness": e["sharpness"],
        },
        key=_key(gpu, formula, e),
    )


def moved_work(
    gpu: GpuSpec, num_bytes: Numeric, fraction: Numeric, latency: Numeric, time: FloatArray
) -> KernelWork:
    """Return the recorded work of memory-bound kernels."""
    return KernelWork(
        formula="memory",
        time=time,
        at_peak=num_bytes / gpu.memory_bandwidth,
        terms={MEMORY: num_bytes / (gpu.memory_bandwidth * fraction), LAUNCH: latency},
        figures={
            "num_bytes": num_bytes,
            "memory_bandwidth": np.asarray(gpu.memory_bandwidth),
            "bandwidth_fraction": fraction,
            "latency": latency,
        },
        key="efficiency.memory_bound",
    )


def cache_work(
    gpu: GpuSpec,
    *,
    moved: Numeric,
    bandwidth: Numeric,
    flops: Numeric,
    rate: Numeric,
    peak: Numeric,
    others: Numeric,
    latency: Numeric,
    time: FloatArray,
    cache: str,
) -> KernelWork:
    """Return the recorded work of attention over a KV cache, with the slowest part's limit.

    ``others``: seconds of vector instructions, or of blocks that read alone.
    """
    return KernelWork(
        formula="cache",
        time=time,
        at_peak=np.maximum(moved / gpu.memory_bandwidth, flops / peak),
        terms={
            MEMORY: moved / bandwidth,
            COMPUTE: np.maximum(flops / rate, others),
            LAUNCH: latency,
        },
        figures={
            "flops": flops,
            "num_bytes": moved,
            "peak_flops": peak,
            "compute_fraction": rate / peak,
            "memory_bandwidth": np.asarray(gpu.memory_bandwidth),
            "bandwidth_fraction": bandwidth / gpu.memory_bandwidth,
            "latency": latency,
        },
        key=f"efficiency.attention_decode.{cache}",
    )


def peak_work(flops: Numeric, peak: Numeric, reached: Numeric, time: FloatArray) -> KernelWork:
    """Return the recorded work of FLOPs at a share of a peak, data movement ignored."""
    return KernelWork(
        formula="rate",
        time=time,
        at_peak=flops / peak,
        terms={COMPUTE: time},
        figures={"flops": flops, "peak_flops": peak, "compute_fraction": np.asarray(reached)},
        key="efficiency.vector_product_fraction",
    )


def copy_work(
    num_bytes: Numeric, rate: Numeric, peak: Numeric, time: FloatArray, start: float = 0.0
) -> KernelWork:
    """Return the recorded work of a copy between GPU and host, or in host memory."""
    terms = {HOST: time - start}
    figures = {"num_bytes": np.asarray(num_bytes), "bandwidth": np.asarray(rate)}
    if start:
        terms[LATENCY], figures["latency"] = np.asarray(start), np.asarray(start)
    return KernelWork(
        formula="copy",
        time=time,
        at_peak=num_bytes / np.asarray(peak),
        terms=terms,
        figures=figures,
        key="host.bandwidth",
    )


def _key(gpu: GpuSpec, formula: str, e: Rows) -> str:
    """Return the spec key of a kernel's efficiency, such as ``efficiency.gemm.bf16``."""
    table = {"experts": "grouped_gemm", "attention": "attention"}.get(formula, "")
    tables = (table,) if table else ("gemm", "quantized_gemm", "wave_gemm")
    sharpness = float(np.ravel(e["sharpness"])[0])
    for table_name in tables:
        for name, reached in getattr(gpu.efficiency, table_name).items():
            if reached.sharpness == sharpness:
                return f"efficiency.{table_name}.{name}"
    return f"efficiency.{tables[0]}"


Rows = Mapping[str, FloatArray]

SIXTEEN_BIT_BYTES = 2.0
_TILE_AREA = 128.0**2
_UNKNOWN_MULTIPROCESSORS = 128
_NO_TILES = {"row_offset": 0.0, "column_offset": 0.0, "depth_offset": 0.0, "area_floor": 0.0}
# Substitutes for expert formats that were not measured on a GPU; default: 16 bit.
_NEAREST_EXPERTS = {"fp8_tensor": "fp8"}
_ROOFLINE = ("compute_fraction", "bandwidth_fraction", "latency", "sharpness")
_EIGHT_BIT = (Precision.FP8, Precision.FP4)


@record(kw_only=True)
class KernelVisibility:
    """Factors of a framework or an engine on the measured kernels of a GPU; default: none.

    ``sustained``: share of the way from the clock of a burst to that of hours of products.
    ``compute``, ``bandwidth``: rates of products over the measured ones, ``dense_compute``,
    ``expert_compute`` and ``quantized_bandwidth`` more of them in dense products, in those of
    experts and in those of quantized weights. ``latency``, ``dense_latency``, ``expert_latency``:
    what shows of the start of kernels, of all and of products. ``vector_bandwidth``: bytes per
    second that a multiprocessor loads at most in products of few rows. ``permutes``: kernels of
    experts sort their tokens, as the measured ones do; ``triton_experts``: those of Triton, where a
    GPU has them. ``fused_casts``: casts of activations are part of other kernels; ``reads_casts``:
    products read activations once more where the measured ones cast them. ``half_accumulation``:
    products of 16 bit sum in 16 bit.
    """

    sustained: float = 1.0
    compute: float = 1.0
    dense_compute: float = 1.0
    expert_compute: float = 1.0
    bandwidth: float = 1.0
    quantized_bandwidth: float = 1.0
    latency: float = 1.0
    dense_latency: float = 1.0
    expert_latency: float = 1.0
    vector_bandwidth: float = 0.0
    permutes: bool = True
    triton_experts: bool = False
    fused_casts: bool = False
    reads_casts: bool = True
    half_accumulation: bool = False


def num_multiprocessors(gpu: GpuSpec) -> int:
    """Number of multiprocessors of a GPU, or a common default."""
    return gpu.num_multiprocessors or _UNKNOWN_MULTIPROCESSORS


def dense_rows(gpu: GpuSpec, formats: Sequence[KernelFormat], shown: KernelVisibility) -> Rows:
    """Return efficiency, peak [FLOP/s] and bytes per element of dense products per format.

    ``cast_bytes``: what kernels of their own move for an activation; ``tabulated``: sizes are
    those of a table of measured products.
    """
    rows = _columns([_dense_row(gpu, form, shown) for form in formats])
    rows["area_floor"] = rows["area_floor"] * num_multiprocessors(gpu) * _TILE_AREA
    is_quantized = rows["weight"] < SIXTEEN_BIT_BYTES
    rows["compute_fraction"] = rows["compute_fraction"] * shown.dense_compute
    read = shown.bandwidth * np.where(is_quantized, shown.quantized_bandwidth, 1.0)
    rows["bandwidth_fraction"] = rows["bandwidth_fraction"] * read
    rows["latency"] = rows["latency"] * (shown.latency * shown.dense_latency)
    return rows


def expert_rows(gpu: GpuSpec, formats: Sequence[KernelFormat], shown: KernelVisibility) -> Rows:
    """Return efficiency, peak and bytes per element of grouped expert products per format."""
    rows = _columns([_expert_row(gpu, form, shown) for form in formats])
    rows["read_fraction"] = rows["bandwidth_fraction"]
    rows["compute_fraction"] = rows["compute_fraction"] * shown.expert_compute
    rows["bandwidth_fraction"] = rows["bandwidth_fraction"] * shown.bandwidth
    rows["latency"] = rows["latency"] * (shown.latency * shown.expert_latency)
    rows["permute_passes"] = rows["permute_passes"] * shown.permutes
    return rows


def clock(efficiency: Efficiency, precision: Precision | None, sustained: float) -> float:
    """Return the sustained clock of products in a precision, relative to a short burst."""
    in_hours = efficiency.sustained_compute_fraction
    if precision in _EIGHT_BIT and efficiency.sustained_fp8_fraction is not None:
        in_hours = efficiency.sustained_fp8_fraction
    return 1.0 - sustained * (1.0 - in_hours)


def _columns(rows: Sequence[Mapping[str, float]]) -> dict[str, FloatArray]:
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}


def _dense_row(gpu: GpuSpec, form: KernelFormat, shown: KernelVisibility) -> dict[str, float]:
    """Return the efficiency, peak and bytes per element of dense products in one number format."""
    kernel, is_bare = _dense_kernel(gpu, form)
    row = {name: kernel[name] for name in TiledGemmEfficiency.__dataclass_fields__}
    if shown.fused_casts and not is_bare and "fp8" in gpu.efficiency.gemm:
        row["latency"] = min(row["latency"], gpu.efficiency.gemm["fp8"].latency)
    activation = form.activation if shown.reads_casts else min(form.activation, SIXTEEN_BIT_BYTES)
    peak = _peak(gpu, form)
    sixteen = first_of(form.compute, gpu.peak_flops) in (Precision.FP16, Precision.BF16)
    if sixteen and shown.half_accumulation and gpu.fp16_accumulate_flops:
        peak = gpu.fp16_accumulate_flops
    return {
        **row,
        **_rate(gpu, form, row["compute_fraction"], shown),
        "peak": peak,
        "weight": form.weight,
        "activation": activation,
        "cast_bytes": form.cast_bytes if is_bare and not shown.fused_casts else 0.0,
        "tabulated": float(form.kernel == "bf16" and bool(gpu.efficiency.gemm_table)),
    }


def _expert_row(gpu: GpuSpec, form: KernelFormat, shown: KernelVisibility) -> dict[str, float]:
    """Return efficiency, peak and bytes per element of grouped expert products in a format."""
    table = gpu.efficiency.grouped_gemm
    nearest = table.get(_NEAREST_EXPERTS.get(form.experts, "bf16"), table["bf16"])
    of_triton = table.get(f"{form.experts}_triton") if shown.triton_experts else None
    measured = vars(of_triton or table.get(form.experts, nearest))
    row = {name: measured[name] for name in GroupedGemmEfficiency.__dataclass_fields__}
    return {
        **row,
        **_rate(gpu, form, row["compute_fraction"], shown),
        "peak": _peak(gpu, form),
        "weight": form.weight,
        "cast_bytes": form.cast_bytes,
    }


def _rate(
    gpu: GpuSpec, form: KernelFormat, measured: float, shown: KernelVisibility
) -> dict[str, float]:
    """Return the reached share of the peak, and the clock factor contained in the share."""
    precision = first_of(form.compute, gpu.peak_flops)
    held = clock(gpu.efficiency, precision, shown.sustained)
    return {"compute_fraction": measured * held * shown.compute, "clock": held}


def _peak(gpu: GpuSpec, form: KernelFormat) -> float:
    precision = first_of(form.compute, gpu.peak_flops)
    return gpu.peak_flops[precision] if precision is not None else float("nan")


def _dense_kernel(gpu: GpuSpec, form: KernelFormat) -> tuple[dict[str, float], bool]:
    """Return the measured kernel of a format, and True if casts are extra kernels."""
    efficiency = gpu.efficiency
    if form.kernel in efficiency.gemm:
        return {**_NO_TILES, **vars(efficiency.gemm[form.kernel])}, True
    if form.kernel in efficiency.quantized_gemm:
        return dict(vars(efficiency.quantized_gemm[form.kernel])), False
    if form.kernel in efficiency.wave_gemm:
        wave = efficiency.wave_gemm[form.kernel]
        half_a_wave = wave.wave_rounding / 2
        row = {**_NO_TILES, **{k: v for k, v in vars(wave).items() if k in _ROOFLINE}}
        return {**row, "depth_offset": wave.depth_offset, "area_floor": half_a_wave}, True
    nearest = gemm_key(form.compute[0])
    return {**_NO_TILES, **vars(efficiency.gemm.get(nearest, efficiency.gemm["bf16"]))}, True


_DEFAULT_KERNEL_EFFICIENCY = AttentionKernelEfficiency(forward=1.0, backward=1.0)
# Written for each generation that they run on.
_NATIVE = (AttentionKernel.FA3, AttentionKernel.FA4, AttentionKernel.CUDNN)
_OF_CLASS = {
    AttentionKernels.FLASH_ATTENTION_2: AttentionKernel.FA2,
    AttentionKernels.PORTABLE: AttentionKernel.TRITON,
}


def rate_of_class(efficiency: Efficiency, kernels: AttentionKernels) -> float:
    """Rate forward of a class of kernels, as engines and profiles name it."""
    return _of_class(efficiency, kernels).forward


def rates(
    efficiency: Efficiency, codes: CodeArray, default: AttentionKernels
) -> tuple[FloatArray, FloatArray]:
    """Return forward and backward speed of attention kernels; ``default``: what AUTO means."""
    rows = [
        _of_class(efficiency, default) if code is AttentionKernel.AUTO else _of(efficiency, code)
        for code in AttentionKernel
    ]
    forward, backward = np.array([(row.forward, row.backward) for row in rows]).T
    return forward[codes], backward[codes]


def _of_class(efficiency: Efficiency, kernels: AttentionKernels) -> AttentionKernelEfficiency:
    if kernels is AttentionKernels.NATIVE:
        return _DEFAULT_KERNEL_EFFICIENCY
    return _of(efficiency, _OF_CLASS[kernels])


def _of(efficiency: Efficiency, kernel: AttentionKernel) -> AttentionKernelEfficiency:
    """Return the GPU's measured attention-kernel row, or a default or portable-kernel row."""
    row = efficiency.attention_kernels.get(kernel.word)
    if row is not None:
        return row
    if kernel in _NATIVE:
        return _DEFAULT_KERNEL_EFFICIENCY
    if kernel is AttentionKernel.SDPA:
        return _of(efficiency, AttentionKernel.FA2)
    portable = efficiency.portable_attention_fraction
    return AttentionKernelEfficiency(forward=portable, backward=portable)
