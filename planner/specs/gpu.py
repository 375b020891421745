"""GPUs, their nodes and networks, and default efficiencies.

``default_efficiency`` of a GPU file names the sources of missing figures: class files in
``hardware_specs/efficiency`` (``hopper``, ``nvlink``) or another GPU of the same silicon.
Later names override earlier ones; the figures in the file override all.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Annotated

from planner.base.enums import LinkKind, Precision
from planner.base.read_files import UncheckedTable, require_table
from planner.errors import SpecError, did_you_mean
from planner.specs.file_cache import cache_by_files, stamp
from planner.specs.spec_files import (
    Bytes,
    BytesPerSecond,
    FlopPerSecond,
    Fraction,
    Numbers,
    Ratio,
    Seconds,
    Share,
    Watts,
    check_spec,
    read_toml,
)
from planner.specs.spec_paths import SpecKind, listing, spec_folders
from planner.specs.validated import Interval, validated

Count = Annotated[int, Interval(ge=1, le=1_000_000)]


@validated
class GemmEfficiency:
    """Time of a matrix product: ``t = t0 + ((F/(P e))^q + (B/(W b))^q)^(1/q)``.

    Parameters
    ----------
    compute_fraction : e, share of the peak FLOP/s
    bandwidth_fraction : b, share of the memory bandwidth
    latency : t0 [s], start of the kernel
    sharpness : q, exponent of the soft maximum
    """

    compute_fraction: Fraction
    bandwidth_fraction: Fraction
    latency: Seconds
    sharpness: Annotated[Ratio, Interval(ge=0.5)]


@validated
class AttentionEfficiency:
    """Time of a prefill attention kernel: the GEMM form with ``F (1 + s0/s) (1 + X0/X)``.

    X is the number of waves of 128-row tiles.

    Parameters
    ----------
    compute_fraction : e, share of the peak FLOP/s
    bandwidth_fraction : b, share of the memory bandwidth
    latency : t0 [s], start of the kernel
    sharpness : q, exponent of the soft maximum
    sequence_offset : s0 [tokens]
    wave_fill : X0 [waves]
    """

    compute_fraction: Fraction
    bandwidth_fraction: Fraction
    latency: Seconds
    sharpness: Annotated[Ratio, Interval(ge=0.5)]
    sequence_offset: Ratio
    wave_fill: Ratio


@validated
class DecodeAttentionEfficiency:
    """Time of a decode attention kernel: ``t = t0 + (2 b kv d kv_bytes (s + s0) + 4 b h d)/(W b)``.

    Parameters
    ----------
    bandwidth_fraction : share of the memory bandwidth
    latency : t0 [s], start of the kernel
    sequence_offset : s0 [tokens]
    """

    bandwidth_fraction: Fraction
    latency: Seconds
    sequence_offset: Ratio


@validated
class GroupedGemmEfficiency:
    """Time of the matrix products of experts, form M7.

    Parameters
    ----------
    compute_fraction : share of the peak FLOP/s
    bandwidth_fraction : share of the memory bandwidth
    latency : start of the kernel [s]
    sharpness : exponent of the soft maximum
    row_offset : m0 [rows]
    width_offset : i0 [columns]
    permute_passes : number of times that kernels move a 16-bit copy of every token-expert pair
    """

    compute_fraction: Fraction
    bandwidth_fraction: Fraction
    latency: Seconds
    sharpness: Annotated[Ratio, Interval(ge=0.5)]
    row_offset: Ratio
    width_offset: Ratio
    permute_passes: Ratio


@validated
class TiledGemmEfficiency:
    """GEMM forms G7 and G8b: ``F = 2 ((m+m0)(n+n0) + A0 SM 128^2)(k+k0)``.

    Parameters
    ----------
    compute_fraction : share of the peak FLOP/s
    bandwidth_fraction : share of the memory bandwidth
    latency : start of the kernel [s]
    sharpness : exponent of the soft maximum
    row_offset : m0 [rows]
    column_offset : n0 [columns]
    depth_offset : k0 [elements of the inner dimension]
    area_floor : A0 [128x128 tiles per multiprocessor]; 0 in G7
    """

    compute_fraction: Fraction
    bandwidth_fraction: Fraction
    latency: Seconds
    sharpness: Annotated[Ratio, Interval(ge=0.5)]
    row_offset: Ratio
    column_offset: Ratio
    depth_offset: Ratio
    area_floor: Ratio


@validated
class WaveGemmEfficiency:
    """GEMM form G8: ``F = 2 m n (k+k0)``, done in waves of output tiles over the GPU.

    Tiles are 128x256, 128x128, 64x128 and 64x64; the fastest counts. ``x`` waves cost ``(1-z) x + z
    ceil(x)``; below one wave, K is split.

    Parameters
    ----------
    compute_fraction : share of the peak FLOP/s
    bandwidth_fraction : share of the memory bandwidth
    latency : start of the kernel [s]
    sharpness : exponent of the soft maximum
    depth_offset : k0 [elements of the inner dimension]
    wave_rounding : z, share of the rounding to whole waves
    split_limit : sk, most parts of K
    tile_penalty : g, factor on the rate for each smaller tile
    """

    compute_fraction: Fraction
    bandwidth_fraction: Fraction
    latency: Seconds
    sharpness: Annotated[Ratio, Interval(ge=0.5)]
    depth_offset: Ratio
    wave_rounding: Share
    split_limit: Annotated[Ratio, Interval(ge=1)]
    tile_penalty: Fraction


@validated
class MemoryBoundEfficiency:
    """Time of one elementwise or reduction kernel: ``t = t0 + bytes/(W b)``.

    Parameters
    ----------
    bandwidth_fraction : b, share of the memory bandwidth
    latency : t0 [s], start of the kernel
    """

    bandwidth_fraction: Fraction
    latency: Seconds


@validated
class CollectiveEfficiency:
    """Time of a collective: ``t = a0 + a1 (n-1) + (V + sqrt(V V0))/(B n/(n+x))``.

    Parameters
    ----------
    base_latency : a0, start of the collective [s]
    latency_per_rank : a1, additional latency of each rank [s]
    bandwidth_fraction : B over the bandwidth of the link
    ramp_bytes : V0, message size of half the bandwidth [bytes]
    small_group_penalty : x, loss of bandwidth in small groups [ranks]
    """

    base_latency: Seconds
    latency_per_rank: Seconds
    bandwidth_fraction: Fraction
    ramp_bytes: Bytes
    small_group_penalty: Ratio


@validated
class Fp8AttentionEfficiency:
    """Rates of training's attention kernels in 8 bit over those in 16 bit.

    Parameters
    ----------
    forward : 8-bit rate of the forward kernel over its 16-bit rate
    backward : 8-bit rate of the backward kernel over its 16-bit rate
    """

    forward: Fraction
    backward: Fraction


@validated
class AttentionKernelEfficiency:
    """Rates of a 16-bit training kernel of attention over those of the GPU's native kernels.

    Parameters
    ----------
    forward : rate of the forward kernel over that of the GPU's native kernel
    backward : rate of the backward kernel over that of the GPU's native kernel
    register_width : numbers of the widest head whose sums the backward kernel of PyTorch under a
        mask holds in registers
    """

    forward: Fraction
    backward: Fraction
    register_width: Numbers = 128.0


@validated
class HostCopyEfficiency:
    """One copy between a GPU and its host: ``t = t0 + B/(W b)``, W the bandwidth of the link.

    Parameters
    ----------
    bandwidth_fraction : b, share of the bandwidth of the host link
    latency : t0 [s], start of the copy
    """

    bandwidth_fraction: Fraction = 1.0
    latency: Seconds = 0.0


@validated
class Efficiency:
    """Efficiency of the kernels of a GPU, by kind of operator and by precision or head size.

    Parameters
    ----------
    gemm : matrix products by precision (``bf16``, ``fp8``)
    attention : prefill attention by head size
    attention_decode : decode attention by head size
    grouped_gemm : matrix products of experts by precision
    quantized_gemm : products of quantized weights by kernel
    memory_bound : elementwise and reduction kernels
    collective : collectives by name
    sustained_compute_fraction : clock under hours of training over that of a burst
    portable_attention_fraction : rate of attention kernels written for other architectures over the
        rate of the GPU's native kernels
    attention_backward_fraction : rate of the backward attention kernel over that of the forward
        kernel
    host_copy : copies between GPU and host
    sustained_fp8_fraction : ``sustained_compute_fraction`` of 8-bit products; None: the same
    sustained_attention_fraction : ``sustained_compute_fraction`` of attention; None: the same
    vector_product_fraction : share of the FP32 peak that 16-bit products without tensor cores reach
    fp8_attention : 8-bit attention in training; None: no such kernels
    attention_kernels : rates of other attention kernels by name
    gemm_table : name of the table of measured 16-bit products, which ``gemm.bf16`` scales; empty:
        none
    gemm_table_bandwidth : memory bandwidth of the GPU that the table was measured on [bytes/s]
    wave_gemm : matrix products of form G8 by precision
    """

    gemm: Mapping[str, GemmEfficiency]
    attention: Mapping[str, AttentionEfficiency]
    attention_decode: Mapping[str, DecodeAttentionEfficiency]
    grouped_gemm: Mapping[str, GroupedGemmEfficiency]
    quantized_gemm: Mapping[str, TiledGemmEfficiency]
    memory_bound: MemoryBoundEfficiency
    collective: Mapping[str, CollectiveEfficiency]
    sustained_compute_fraction: Fraction
    portable_attention_fraction: Fraction
    attention_backward_fraction: Fraction
    host_copy: HostCopyEfficiency = HostCopyEfficiency()
    sustained_fp8_fraction: Fraction | None = None
    sustained_attention_fraction: Fraction | None = None
    vector_product_fraction: Fraction | None = None
    fp8_attention: Fp8AttentionEfficiency | None = None
    attention_kernels: Mapping[str, AttentionKernelEfficiency] = field(default_factory=dict)
    gemm_table: str = ""
    gemm_table_bandwidth: BytesPerSecond | None = None
    wave_gemm: Mapping[str, WaveGemmEfficiency] = field(default_factory=dict)


@validated
class ScaleUpLink:
    """Fabric of a GPU inside its scale-up domain, such as NVLink.

    Parameters
    ----------
    kind : kind of the fabric
    bandwidth : bandwidth per GPU and direction [bytes/s]
    domain_size : GPUs that the fabric can join
    description : name of the link in reports
    """

    kind: LinkKind
    bandwidth: BytesPerSecond
    domain_size: Count
    description: str = ""


@validated
class HostLink:
    """Link between a GPU and its host, and the GPU's share of host memory.

    Parameters
    ----------
    description : name of the link in reports
    bandwidth : bandwidth per GPU and direction [bytes/s]
    memory_per_gpu : host memory per GPU [bytes]
    memory_bandwidth : bandwidth of host memory per GPU [bytes/s]
    """

    description: str
    bandwidth: BytesPerSecond | None = None
    memory_per_gpu: Bytes | None = None
    memory_bandwidth: BytesPerSecond | None = None


@validated
class GpuSpec:
    """One GPU. Peaks are dense; a precision that is absent is not supported.

    Parameters
    ----------
    name : name of the file
    vendor : maker, such as ``nvidia``
    memory_capacity : memory of the GPU [bytes]
    memory_bandwidth : bandwidth of the GPU's memory [bytes/s]
    peak_flops : dense peak by precision [FLOP/s]
    scale_up : fabric to the GPUs of its domain
    efficiency : efficiency of its kernels
    year : year of release
    scale_out_bandwidth : network bandwidth per GPU and direction [bytes/s]
    host : link to the host
    num_multiprocessors : streaming multiprocessors or compute units
    fp16_accumulate_flops : dense peak of 16-bit products that accumulate in 16 bits [FLOP/s], where
        it is higher
    num_devices : devices that programs see, each with a process
    architecture : generation, as engine profiles name it
    announced : the maker has published the figures and no independent measurement exists
    unmeasured : no published run is of this generation, and runs of the vendor's other generations
        do not apply
    allocatable_share : share of the memory that programs can allocate; the driver, error correction
        and operating system take the rest
    unified_memory : GPU and host share one memory, so that offloading to the host frees nothing
    thermal_design_power : thermal design power of the board [W]
    aliases : other names
    doubtful : why the figures are in doubt; empty: they are not
    notes : remarks
    """

    name: str
    vendor: str
    memory_capacity: Bytes
    memory_bandwidth: BytesPerSecond
    peak_flops: Mapping[Precision, FlopPerSecond]
    scale_up: ScaleUpLink
    efficiency: Efficiency
    year: Annotated[int, Interval(ge=2010, le=2100)] | None = None
    scale_out_bandwidth: BytesPerSecond | None = None
    host: HostLink | None = None
    num_multiprocessors: Count | None = None
    fp16_accumulate_flops: FlopPerSecond | None = None
    num_devices: Count = 1
    architecture: str = ""
    announced: bool = False
    unmeasured: bool = False
    allocatable_share: Share = 1.0
    unified_memory: bool = False
    thermal_design_power: Watts | None = None
    aliases: tuple[str, ...] = ()
    doubtful: str = ""
    notes: str = ""

    @property
    def host_link(self) -> HostLink:
        """Link to the host; with unified memory, copies inside that memory."""
        if self.unified_memory:
            bandwidth = self.memory_bandwidth
            return HostLink(
                description="one memory", bandwidth=bandwidth / 2, memory_bandwidth=bandwidth
            )
        return self.host or HostLink(description="unknown")

    @property
    def allocatable_memory(self) -> float:
        """Memory that programs can allocate [bytes]."""
        return self.memory_capacity * self.allocatable_share

    @property
    def scales_groups(self) -> bool:
        """Whether tensor cores scale groups of 32 numbers (MXFP8), as those for FP4 do."""
        return Precision.FP4 in self.peak_flops


@validated
class ScaleUp:
    """Fabric inside a scale-up domain of a cluster.

    Parameters
    ----------
    kind : kind of the fabric
    bandwidth : bandwidth per GPU and direction [bytes/s]
    domain_size : GPUs of a domain
    """

    kind: LinkKind
    bandwidth: BytesPerSecond
    domain_size: Count


@validated
class ScaleOut:
    """Network between scale-up domains.

    A collective over k domains pays ``base_latency + latency_per_doubling log2(k/2)``; a ring of
    gathers or scatters pays half the ``base_latency`` for each further domain.

    Parameters
    ----------
    bandwidth : bandwidth per GPU and direction [bytes/s], its share of a network card
    base_latency : latency of a collective over two domains [s]
    latency_per_doubling : additional latency for each doubling of the domains [s]
    efficiency : share of the rate of the network card that is reached
    oversubscription : bandwidth below the switches over that above them
    gpus_per_nic : GPUs that share a network card
    pod_size : GPUs beyond which steps slow down
        (`planner.formulas.collectives.large_scale_slowdown_time`)
    slowdown_per_doubling : relative slowdown for each doubling of the GPUs beyond ``pod_size``
    """

    bandwidth: BytesPerSecond
    base_latency: Seconds
    latency_per_doubling: Seconds
    efficiency: Fraction
    oversubscription: Annotated[Ratio, Interval(ge=1)]
    gpus_per_nic: Count = 1
    pod_size: Count = 512
    slowdown_per_doubling: Share = 0.015


@validated
class ClusterSpec:
    """Nodes of GPUs, the fabric inside them and the network between them.

    Parameters
    ----------
    name : name of the file
    gpu : name of the GPU
    gpus_per_node : GPUs of a node
    scale_up : fabric inside a domain
    scale_out : network between domains
    max_gpus : GPUs of the cluster; None: no limit
    host_memory : memory of the host of a node [bytes]
    host_memory_per_gpu : host memory per GPU [bytes], where that of a node is unknown
    host_memory_bandwidth : bandwidth of host memory per GPU [bytes/s]
    drive_bandwidth : bandwidth of the drives of a node per GPU [bytes/s]
    aliases : other names
    notes : remarks
    """

    name: str
    gpu: str
    gpus_per_node: Count
    scale_up: ScaleUp
    scale_out: ScaleOut
    max_gpus: Count | None = None
    host_memory: Bytes | None = None
    host_memory_per_gpu: Bytes | None = None
    host_memory_bandwidth: BytesPerSecond | None = None
    drive_bandwidth: BytesPerSecond | None = None
    aliases: tuple[str, ...] = ()
    notes: str = ""


DEFAULT = "default ("
_HOST_LINK = "host_link"
_LINK_CLASSES = {
    LinkKind.NVLINK: "nvlink",
    LinkKind.PCIE: "pcie",
    LinkKind.XGMI: "xgmi",
    LinkKind.NETWORK: "network",
}


def with_defaults(
    table: UncheckedTable, where: str, folder: Path | None = None
) -> tuple[dict[str, object], list[Path]]:
    """Return a GPU's table completed from its default files, and those files.

    Raises SpecError if a default is unknown, cannot be read, or leads back to itself.

    Parameters
    ----------
    table : table of the GPU file
    where : file or table that error messages name
    folder : folder of own spec files, searched first; None: working directory and shipped files
    """
    completed, files = _completed(table, where, folder, ())
    link, of_link = _default_tables(_HOST_LINK, where, folder, ())
    efficiency = merge_tables(link["efficiency"], completed.get("efficiency", {}))
    sources = require_table(link["sources"], where) | require_table(
        completed.get("sources", {}), where
    )
    return {**completed, "efficiency": efficiency, "sources": sources}, [*files, *of_link]


def is_measured(provenance: Mapping[str, str], part: str) -> bool:
    """Return whether all figures of a part, such as ``gemm.bf16``, were measured on this GPU.

    Parameters
    ----------
    provenance : source of each number by its dotted key
    part : dotted key below ``efficiency``, such as ``gemm.bf16``
    """
    prefix = f"efficiency.{part}"
    sources = [
        source
        for key, source in provenance.items()
        if key == prefix or key.startswith(f"{prefix}.")
    ]
    others = (DEFAULT, "assumed", "transferred")
    return bool(sources) and not any(source.startswith(others) for source in sources)


def is_assumed(provenance: Mapping[str, str], part: str) -> bool:
    """Return whether a figure has no published source.

    Parameters
    ----------
    provenance : source of each number by its dotted key
    part : dotted key below ``efficiency``, such as ``gemm.bf16.compute_fraction``
    """
    source = provenance.get(f"efficiency.{part}", "assumed")
    return source.startswith((DEFAULT, "assumed")) and source.endswith("assumed")


def gemm_key(precision: Precision) -> str:
    """Return the row of ``Efficiency.gemm`` for a precision: "fp8" for FP8 and FP4, else "bf16".

    Parameters
    ----------
    precision : precision of the product
    """
    return "fp8" if precision in (Precision.FP8, Precision.FP4) else "bf16"


def collectives(
    gpu: GpuSpec, kind: LinkKind, folder: Path | None = None
) -> Mapping[str, CollectiveEfficiency]:
    """Return the efficiency of collectives on a fabric of ``kind``: of the GPU, or defaults.

    They differ if the links of a cluster are not those of the GPU, such as PCIe cards with NVLink
    bridges.

    Parameters
    ----------
    gpu : GPU
    kind : kind of the fabric
    folder : folder of own spec files, searched first; None: working directory and shipped files
    """
    if kind is gpu.scale_up.kind:
        return gpu.efficiency.collective
    name = _LINK_CLASSES.get(kind, "other_fabric")
    return _link_collectives(_default_file(name, f"collectives over {kind}", folder))


def _completed(
    table: UncheckedTable, where: str, folder: Path | None, seen: tuple[str, ...]
) -> tuple[dict[str, object], list[Path]]:
    """Fill in efficiencies from the named default files; return the table and the files used."""
    completed = dict(table)
    names = completed.pop("default_efficiency", [])
    names = [names] if isinstance(names, str) else names
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise SpecError(f"{where}: default_efficiency must be a name or a list of names.")
    efficiency: object = {}
    sources: dict[str, object] = {}
    files: list[Path] = []
    for name in names:
        default, used = _default_tables(name, where, folder, seen)
        efficiency = merge_tables(efficiency, default["efficiency"])
        sources |= require_table(default["sources"], where)
        files += used
    if names:
        completed["efficiency"] = merge_tables(efficiency, completed.get("efficiency", {}))
    if sources and isinstance(sources_of_file := completed.get("sources", {}), dict):
        completed["sources"] = sources | sources_of_file
    return completed, files


def _default_tables(
    name: str, where: str, folder: Path | None, seen: tuple[str, ...]
) -> tuple[dict[str, object], list[Path]]:
    """Return the efficiency and sources of one default file, and the files read for them."""
    if name in seen:
        raise SpecError(f"{where}: default_efficiency leads back to {name!r}.")
    path = _default_file(name, where, folder)
    table, files = _completed(read_toml(path), str(path), folder, (*seen, name))
    efficiency, sources = table.get("efficiency"), table.get("sources", {})
    if not isinstance(efficiency, dict) or not isinstance(sources, dict):
        raise SpecError(f"{path}: needs the tables [efficiency] and [sources].")
    texts = {
        f"{name}.{key}": f"{DEFAULT}{name}): {text}"
        for key, text in {**sources, "assumed": "assumed"}.items()
    }
    return {"efficiency": _renamed(efficiency, name), "sources": texts}, [path, *files]


def _default_file(name: str, where: str, folder: Path | None) -> Path:
    """Return the path of a default efficiency file; raise SpecError if the name is unknown."""
    folders = [*spec_folders(SpecKind.EFFICIENCY, folder), *spec_folders(SpecKind.GPUS, folder)]
    for place in folders:
        path = place / f"{name}.toml"
        if stamp(path) and os.path.isfile(path):
            return path
    valid_names = [name for place in folders for name in listing(place, ".toml")]
    raise SpecError(
        f"{where}: default_efficiency {name!r} is unknown.{did_you_mean(name, valid_names)}"
    )


def _renamed(table: UncheckedTable, prefix: str) -> dict[str, object]:
    """Return the table with ``prefix.`` before the source of each quantity."""
    renamed = {}
    for key, value in table.items():
        if isinstance(value, dict):
            value = _renamed(value, prefix)
        elif key == "source" and isinstance(value, str):
            value = f"{prefix}.{value}"
        renamed[key] = value
    return renamed


def merge_tables(below: object, above: object) -> object:
    """Merge nested tables; ``above`` takes precedence over ``below``.

    A quantity is replaced with its source: a number must not keep the source of another.

    Parameters
    ----------
    below : table whose values are replaced
    above : table whose values win
    """
    if not isinstance(below, dict) or not isinstance(above, dict):
        return above
    if "value" in below or "value" in above:
        return above
    return {
        key: merge_tables(below[key], above[key])
        if key in below and key in above
        else (above if key in above else below)[key]
        for key in {**below, **above}
    }


@cache_by_files
def _link_collectives(path: Path) -> Mapping[str, CollectiveEfficiency]:
    """Return the efficiency of each collective operation in a file of measured links."""
    table = read_toml(path)
    where, sources = str(path), table.get("sources", {})
    efficiency = require_table(table.get("efficiency", {}), f"{where}: efficiency")
    operations = require_table(efficiency.get("collective", {}), f"{where}: efficiency.collective")
    rows = {name: require_table(row, f"{where} ({name})") for name, row in operations.items()}
    return {
        name: check_spec(CollectiveEfficiency, {**row, "sources": sources}, f"{where} ({name})")
        for name, row in rows.items()
    }
