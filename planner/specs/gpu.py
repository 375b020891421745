"""GPUs, the nodes and networks that join them, and efficiencies that a GPU file leaves out.

``default_efficiency`` of a GPU file names where the rest comes from: class files in
``hardware_specs/efficiency`` (``hopper``, ``nvlink``) or another GPU of the same silicon.
Of several names the later one wins; the file's own figures win over all.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Annotated

from planner.base.enums import LinkKind, Precision
from planner.base.reading import table_of
from planner.errors import SpecError, did_you_mean
from planner.specs.cache import kept, stamp
from planner.specs.checked import Interval, checked
from planner.specs.load import (
    Bytes,
    BytesPerSecond,
    FlopPerSecond,
    Fraction,
    Ratio,
    Seconds,
    Share,
    Watts,
    check_spec,
    read_toml,
)
from planner.specs.paths import SpecKind, listing, spec_folders

Count = Annotated[int, Interval(ge=1, le=1_000_000)]


@checked
class GemmEfficiency:
    """``t = t0 + ((F/(P e))^q + (B/(W b))^q)^(1/q)``: e, b, t0, q in this order."""

    compute_fraction: Fraction
    bandwidth_fraction: Fraction
    latency: Seconds
    sharpness: Annotated[Ratio, Interval(ge=0.5)]


@checked
class AttentionEfficiency:
    """The GEMM form with ``F (1 + s0/s) (1 + X0/X)``, X the waves of 128-row tiles."""

    compute_fraction: Fraction
    bandwidth_fraction: Fraction
    latency: Seconds
    sharpness: Annotated[Ratio, Interval(ge=0.5)]
    sequence_offset: Ratio
    wave_fill: Ratio


@checked
class DecodeAttentionEfficiency:
    """``t = t0 + (2 b kv d kv_bytes (s + s0) + 4 b h d)/(W b)``."""

    bandwidth_fraction: Fraction
    latency: Seconds
    sequence_offset: Ratio


@checked
class GroupedGemmEfficiency:
    """Experts' matrices, form M7; ``row_offset`` is m0, ``width_offset`` i0.

    ``permute_passes``: how often the kernels move a 16-bit copy of every token-expert pair.
    """

    compute_fraction: Fraction
    bandwidth_fraction: Fraction
    latency: Seconds
    sharpness: Annotated[Ratio, Interval(ge=0.5)]
    row_offset: Ratio
    width_offset: Ratio
    permute_passes: Ratio


@checked
class TiledGemmEfficiency:
    """GEMM forms G7/G8b: ``F = 2 ((m+m0)(n+n0) + A0 SM 128^2)(k+k0)``; A0 is 0 in G7."""

    compute_fraction: Fraction
    bandwidth_fraction: Fraction
    latency: Seconds
    sharpness: Annotated[Ratio, Interval(ge=0.5)]
    row_offset: Ratio
    column_offset: Ratio
    depth_offset: Ratio
    area_floor: Ratio


@checked
class WaveGemmEfficiency:
    """GEMM form G8: ``F = 2 m n (k+k0)``, done in waves of output tiles over the GPU.

    Tiles 128x256, 128x128, 64x128, 64x64, the fastest counts; each smaller step multiplies
    the rate by ``tile_penalty`` g. ``x`` waves cost ``(1-z) x + z ceil(x)`` with z the
    ``wave_rounding``; below one wave, K is split up to ``split_limit`` sk ways.
    """

    compute_fraction: Fraction
    bandwidth_fraction: Fraction
    latency: Seconds
    sharpness: Annotated[Ratio, Interval(ge=0.5)]
    depth_offset: Ratio
    wave_rounding: Share
    split_limit: Annotated[Ratio, Interval(ge=1)]
    tile_penalty: Fraction


@checked
class MemoryBoundEfficiency:
    """``t = t0 + bytes/(W b)`` of one elementwise or reduction kernel."""

    bandwidth_fraction: Fraction
    latency: Seconds


@checked
class CollectiveEfficiency:
    """``t = a0 + a1 (n-1) + (V + sqrt(V V0))/(B n/(n+x))``, B a fraction of the link.

    ``base_latency`` a0, ``latency_per_rank`` a1, ``bandwidth_fraction`` B / link,
    ``ramp_bytes`` V0, ``small_group_penalty`` x.
    """

    base_latency: Seconds
    latency_per_rank: Seconds
    bandwidth_fraction: Fraction
    ramp_bytes: Bytes
    small_group_penalty: Ratio


@checked
class Fp8AttentionEfficiency:
    """Rates of training's attention kernels in 8 bit over those in 16 bit."""

    forward: Fraction
    backward: Fraction


@checked
class AttentionKernelEfficiency:
    """Rates of a training kernel of attention over those of the GPU's own, in 16 bit."""

    forward: Fraction
    backward: Fraction


@checked
class HostCopyEfficiency:
    """One copy between a GPU and its host: ``t = t0 + B/(W b)``, W the bandwidth of the link."""

    bandwidth_fraction: Fraction = 1.0
    latency: Seconds = 0.0


@checked
class Efficiency:
    """What the kernels of a GPU reach, by operator kind and precision or head size.

    ``sustained_compute_fraction``: the clock under hours of training over that of a burst;
    ``sustained_fp8_fraction`` and ``sustained_attention_fraction``: those of products in 8 bit and
    of attention, where they are others.
    ``portable_attention_fraction``: rate of attention kernels not written for this
    architecture over that of its own; ``attention_kernels``: rates of kernels by name that are
    neither. ``attention_backward_fraction``: rate of the backward kernel over
    that of the forward kernel. ``vector_product_fraction``: of the FP32 peak, what 16-bit
    products reach that have no kernels on tensor cores. ``gemm_table``: name of the table of
    measured 16-bit products, which ``gemm.bf16`` scales; ``gemm_table_bandwidth``: that of the
    memory of the GPU it was measured on. ``fp8_attention``: absent where training has no attention
    kernels in 8 bit.
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


@checked
class ScaleUpLink:
    """The GPU's own fabric: bandwidth per GPU and direction, GPUs it can join."""

    kind: LinkKind
    bandwidth: BytesPerSecond
    domain_size: Count
    description: str = ""


@checked
class HostLink:
    """The path between a GPU and its host, and the host's share of memory."""

    description: str
    bandwidth: BytesPerSecond | None = None
    memory_per_gpu: Bytes | None = None
    memory_bandwidth: BytesPerSecond | None = None


@checked
class GpuSpec:
    """One GPU. Peaks are dense; a precision that is absent is not supported.

    ``allocatable_share``: share of the memory that programs find: error correction, driver and
    operating system keep the rest. ``unified_memory``: its memory is that of the host, so that what
    moves to the host frees nothing. ``fp16_accumulate_flops``: dense peak of products of 16 bit
    that sum in 16 bit, where it is higher. ``num_devices``: devices that programs see it as, each
    with a process of its own. ``architecture``: the generation, as engine profiles name it.
    ``announced``: its figures are those of its maker before anybody has measured one.
    ``unmeasured``: no published run is of its generation, and those of its vendor's others do
    not tell of it.
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
        """Its link to the host; in one memory a copy is read and written there."""
        if self.unified_memory:
            bandwidth = self.memory_bandwidth
            return HostLink(
                description="one memory", bandwidth=bandwidth / 2, memory_bandwidth=bandwidth
            )
        return self.host or HostLink(description="unknown")

    @property
    def allocatable_memory(self) -> float:
        """Bytes that programs find on the GPU."""
        return self.memory_capacity * self.allocatable_share

    @property
    def scales_groups(self) -> bool:
        """Whether its products scale groups of 32 numbers themselves, as those in 4 bit do."""
        return Precision.FP4 in self.peak_flops


@checked
class ScaleUp:
    """The fabric inside a domain: one direction, per GPU."""

    kind: LinkKind
    bandwidth: BytesPerSecond
    domain_size: Count


@checked
class ScaleOut:
    """The network between domains: one direction, per GPU.

    A collective over k domains pays ``base_latency + latency_per_doubling log2(k/2)``, a ring of
    gathers or scatters half the ``base_latency`` for each domain it goes on to;
    ``efficiency`` is the share of the NIC's rate that it reaches. ``gpus_per_nic``: neighbours
    that share a NIC; ``bandwidth`` is the share of one. A step lasts longer by
    ``slowdown_per_doubling`` for each doubling of its GPUs beyond ``pod_size``
    (`planner.formulas.collectives.large_scale_wait`).
    """

    bandwidth: BytesPerSecond
    base_latency: Seconds
    latency_per_doubling: Seconds
    efficiency: Fraction
    oversubscription: Annotated[Ratio, Interval(ge=1)]
    gpus_per_nic: Count = 1
    pod_size: Count = 512
    slowdown_per_doubling: Share = 0.015


@checked
class ClusterSpec:
    """How many GPUs of which kind stand in a node, and what joins them.

    ``host_memory``: that of a node, ``host_memory_per_gpu``: a GPU's share of it where the node's
    is not known; ``host_memory_bandwidth``: a GPU's share of that of its node;
    ``drive_bandwidth``: its share of what the drives of its node read and write.
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
    table: Mapping[str, object], where: str, folder: Path | None = None
) -> tuple[dict[str, object], list[Path]]:
    """A GPU's table completed from its defaults, and the files they came from.

    Raises
    ------
    SpecError
        A default is unknown, cannot be read, or leads back to itself.
    """
    completed, files = _completed(table, where, folder, ())
    link, of_link = _default_tables(_HOST_LINK, where, folder, ())
    efficiency = merged(link["efficiency"], completed.get("efficiency", {}))
    sources = table_of(link["sources"], where) | table_of(completed.get("sources", {}), where)
    return {**completed, "efficiency": efficiency, "sources": sources}, [*files, *of_link]


def is_measured(provenance: Mapping[str, str], part: str) -> bool:
    """Whether every figure of a part such as ``gemm.bf16`` was measured on this very GPU."""
    prefix = f"efficiency.{part}"
    sources = [
        source
        for key, source in provenance.items()
        if key == prefix or key.startswith(f"{prefix}.")
    ]
    others = (DEFAULT, "assumed", "transferred")
    return bool(sources) and not any(source.startswith(others) for source in sources)


def is_assumed(provenance: Mapping[str, str], part: str) -> bool:
    """Whether nothing published stands for a figure such as ``gemm.bf16.compute_fraction``."""
    source = provenance.get(f"efficiency.{part}", "assumed")
    return source.startswith((DEFAULT, "assumed")) and source.endswith("assumed")


def gemm_key(precision: Precision) -> str:
    """The row of ``Efficiency.gemm`` for a precision: that of fp8 for fp4, else that of bf16."""
    return "fp8" if precision in (Precision.FP8, Precision.FP4) else "bf16"


def collectives(
    gpu: GpuSpec, kind: LinkKind, folder: Path | None = None
) -> Mapping[str, CollectiveEfficiency]:
    """What collectives reach on a fabric of ``kind``: the GPU's own, or the kind's defaults.

    They differ when a cluster joins the GPUs otherwise than the GPU's own link does, such
    as PCIe cards with NVLink bridges.
    """
    if kind is gpu.scale_up.kind:
        return gpu.efficiency.collective
    name = _LINK_CLASSES.get(kind, "other_fabric")
    return _link_collectives(_default_file(name, f"collectives over {kind}", folder))


def _completed(
    table: Mapping[str, object], where: str, folder: Path | None, seen: tuple[str, ...]
) -> tuple[dict[str, object], list[Path]]:
    own = dict(table)
    names = own.pop("default_efficiency", [])
    names = [names] if isinstance(names, str) else names
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise SpecError(f"{where}: default_efficiency must be a name or a list of names.")
    efficiency: object = {}
    sources: dict[str, object] = {}
    files: list[Path] = []
    for name in names:
        default, used = _default_tables(name, where, folder, seen)
        efficiency = merged(efficiency, default["efficiency"])
        sources |= table_of(default["sources"], where)
        files += used
    if names:
        own["efficiency"] = merged(efficiency, own.get("efficiency", {}))
    if sources and isinstance(given := own.get("sources", {}), dict):
        own["sources"] = sources | given
    return own, files


def _default_tables(
    name: str, where: str, folder: Path | None, seen: tuple[str, ...]
) -> tuple[dict[str, object], list[Path]]:
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
    places = [*spec_folders(SpecKind.EFFICIENCY, folder), *spec_folders(SpecKind.GPUS, folder)]
    for place in places:
        path = place / f"{name}.toml"
        if stamp(path) and os.path.isfile(path):
            return path
    known = [path.stem for place in places for path in listing(place, ".toml")]
    raise SpecError(f"{where}: default_efficiency {name!r} is unknown.{did_you_mean(name, known)}")


def _renamed(table: Mapping[str, object], prefix: str) -> dict[str, object]:
    """The table with ``prefix.`` before the source of each quantity in it."""
    renamed = {}
    for key, value in table.items():
        if isinstance(value, dict):
            value = _renamed(value, prefix)
        elif key == "source" and isinstance(value, str):
            value = f"{prefix}.{value}"
        renamed[key] = value
    return renamed


def merged(below: object, above: object) -> object:
    """Nested tables, the second over the first.

    A quantity is replaced as a whole: its number must not keep another's source.
    """
    if not isinstance(below, dict) or not isinstance(above, dict):
        return above
    if "value" in below or "value" in above:
        return above
    return {
        key: merged(below[key], above[key])
        if key in below and key in above
        else (above if key in above else below)[key]
        for key in {**below, **above}
    }


@kept
def _link_collectives(path: Path) -> Mapping[str, CollectiveEfficiency]:
    table = read_toml(path)
    where, sources = str(path), table.get("sources", {})
    efficiency = table_of(table.get("efficiency", {}), f"{where}: efficiency")
    operations = table_of(efficiency.get("collective", {}), f"{where}: efficiency.collective")
    rows = {name: table_of(row, f"{where} ({name})") for name, row in operations.items()}
    return {
        name: check_spec(CollectiveEfficiency, {**row, "sources": sources}, f"{where} ({name})")
        for name, row in rows.items()
    }
