"""The silicon and its links as functions from work to seconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from planner.arrays import BoolArray, CodeArray, FloatArray, Numeric
from planner.enums import AttentionKernels, ComputePrecision, Precision
from planner.estimators.efficiencies import by_precision, chosen, nearest_head
from planner.formulas.attention import wave_fill_factor
from planner.formulas.collectives import (
    all_to_all_bandwidth,
    bus_volume,
    collective_time,
    group_bandwidth,
    network_latency,
    point_to_point_time,
    ranks_per_domain,
)
from planner.formulas.interpolation import trilinear
from planner.formulas.roofline import (
    gemm_bytes,
    gemm_flops,
    memory_bound_time,
    roofline_time,
    tiled_gemm_flops,
)
from planner.specs.catalogue import Catalogue
from planner.specs.cluster import ClusterSpec
from planner.specs.gemm_table import GemmTable
from planner.specs.gpu import (
    CollectiveEfficiency,
    GemmEfficiency,
    GpuSpec,
    GroupedGemmEfficiency,
    HostLink,
)

_PASSES = {
    "all_reduce": 2,
    "custom_all_reduce": 2,
    "all_gather": 1,
    "reduce_scatter": 1,
    "all_to_all": 1,
}
_UNKNOWN_MULTIPROCESSORS = 128
TILE_AREA = 128.0**2
# An eighth of two sockets with eight channels of DDR4-3200.
_USUAL_HOST_MEMORY_BANDWIDTH = 51.2e9


@dataclass(frozen=True, kw_only=True)
class Group:
    """Ranks that communicate: ``size`` of them, ``stride`` GPUs apart."""

    size: Numeric
    stride: Numeric


@dataclass(frozen=True, kw_only=True)
class Machine:
    """A GPU in a cluster.

    ``ideal`` says that the specs and profiles are those of `planner.estimators.ideal`: the
    roofline bound. ``memory_efficiency`` replaces the reached share of the memory bandwidth.
    ``catalogue``: where the tables of the GPU's kernels and of its fabric are.
    """

    gpu: GpuSpec
    cluster: ClusterSpec
    ideal: bool = False
    memory_efficiency: float | None = None
    catalogue: Catalogue = field(default_factory=Catalogue)

    @property
    def sixteen_bit(self) -> CodeArray:
        """The 16-bit precision of what is never computed in 8: bf16 where the GPU has it."""
        has_bf16 = Precision.BF16 in self.gpu.peak_flops
        code = ComputePrecision.BF16 if has_bf16 else ComputePrecision.FP16
        return np.asarray(code, dtype=np.int8)

    def peak(self, precision: CodeArray) -> FloatArray:
        """Dense peak [FLOP/s] of each precision code; NaN where the GPU lacks it."""
        return np.asarray(self._peaks[precision])

    def gemm_time(
        self,
        rows: Numeric,
        columns: Numeric,
        depth: Numeric,
        precision: CodeArray,
        output_bytes: Numeric = 2,
        input_bytes: Numeric = 2,
    ) -> FloatArray:
        """Seconds of ``C[rows, columns] = A B``; in fp4 with the cast of A."""
        table = self._gemm_table
        in_sixteen_bit = np.zeros(())
        if table is not None:
            in_sixteen_bit = self._measured_gemm_time(table, rows, columns, depth, output_bytes)
            if np.all(precision < ComputePrecision.FP8):
                return in_sixteen_bit
        sizes = {"rows": rows, "columns": columns, "depth": depth}
        num_bytes = gemm_bytes(**sizes, input_bytes=input_bytes, output_bytes=output_bytes)
        flops = gemm_flops(**sizes)
        e = chosen(self._gemm, precision)
        time = self._roofline(e, flops=flops, num_bytes=num_bytes, precision=precision)
        if table is not None:
            time = np.where(precision < ComputePrecision.FP8, in_sixteen_bit, time)
        measured = self.gpu.efficiency.quantized_gemm.get("nvfp4")
        is_fp4 = precision == ComputePrecision.FP4
        if measured is None or not np.any(is_fp4):
            return time
        tiles = tiled_gemm_flops(
            **sizes,
            row_offset=measured.row_offset,
            column_offset=measured.column_offset,
            depth_offset=measured.depth_offset,
            area_floor=measured.area_floor * self.num_multiprocessors * TILE_AREA,
        )
        kernel = {name: np.asarray(value) for name, value in vars(measured).items()}
        in_fp4 = self._roofline(kernel, flops=tiles, num_bytes=num_bytes, precision=precision)
        return np.where(is_fp4, in_fp4, time)

    def _measured_gemm_time(
        self,
        table: GemmTable,
        rows: Numeric,
        columns: Numeric,
        depth: Numeric,
        output_bytes: Numeric,
    ) -> FloatArray:
        """Seconds of a 16-bit product by the GPU's table, and of bytes its output has above 2."""
        efficiency = self.gpu.efficiency
        e = efficiency.gemm["bf16"]
        logs = [np.log(np.asarray(size)) for size in (rows, columns, depth)]
        work = np.exp(trilinear(table.sizes, table.work, logs))
        rate = float(self.peak(self.sixteen_bit)) * e.compute_fraction
        time = work / (rate * efficiency.sustained_compute_fraction)
        wider = np.maximum(np.asarray(output_bytes) - 2.0, 0.0)
        if not np.any(wider):
            return np.asarray(time)
        more = wider * rows * columns
        fraction = self._bandwidth_fraction(np.asarray(e.bandwidth_fraction))
        moved = more / (self.gpu.memory_bandwidth * fraction)
        return np.asarray((time**e.sharpness + moved**e.sharpness) ** (1 / e.sharpness))

    def vector_product_time(self, rows: Numeric, columns: Numeric, depth: Numeric) -> FloatArray:
        """Seconds of a 16-bit product without tensor cores; 0 where its rate is not known."""
        reached = self.gpu.efficiency.vector_product_fraction
        peak = self.gpu.peak_flops.get(Precision.FP32)
        if reached is None or peak is None:
            return np.zeros(())
        return gemm_flops(rows=rows, columns=columns, depth=depth) / (peak * reached)

    def grouped_gemm_time(
        self,
        pairs: Numeric,
        experts: Numeric,
        hidden_size: int,
        width: int,
        matrices: int,
        precision: CodeArray,
    ) -> FloatArray:
        """Seconds of all matrices of ``experts`` local experts on ``pairs`` tokens.

        The measured kernels' own permutation is left out: it is an operator of its own.
        """
        e = chosen(self._grouped_gemm, precision)
        rows_per_expert = np.maximum(pairs / np.asarray(experts), 1e-9)
        padding = (1 + e["width_offset"] / width) * (1 + e["row_offset"] / rows_per_expert)
        return self._roofline(
            e,
            flops=2.0 * matrices * hidden_size * width * pairs * padding,
            num_bytes=2.0 * matrices * hidden_size * width * np.asarray(experts),
            precision=precision,
        )

    def attention_time(
        self,
        flops: Numeric,
        num_bytes: Numeric,
        sequences: Numeric,
        num_heads: Numeric,
        sequence_length: Numeric,
        head_dim: int,
        kernels: AttentionKernels,
    ) -> FloatArray:
        """Seconds of a fused attention kernel in 16 bit, forward."""
        e = nearest_head(self.gpu.efficiency.attention, head_dim)
        e["compute_fraction"] = e["compute_fraction"] * self._attention_rate(kernels)
        fill = wave_fill_factor(
            sequences=sequences,
            num_heads=num_heads,
            sequence_length=sequence_length,
            num_multiprocessors=self.num_multiprocessors,
            wave_fill=e["wave_fill"],
        )
        offset = 1 + e["sequence_offset"] / sequence_length
        return self._roofline(
            e,
            flops=flops * fill * offset,
            num_bytes=num_bytes,
            precision=self.sixteen_bit,
            sustained=self.gpu.efficiency.sustained_attention_fraction,
        )

    def fp8_attention_rates(self, used: BoolArray) -> tuple[FloatArray, FloatArray]:
        """Rates of attention in 8 bit over those in 16 bit where it is ``used``, else 1.

        Forward, then backward.
        """
        e = self.gpu.efficiency.fp8_attention
        if e is None or not np.any(used):
            return np.ones(()), np.ones(())
        return np.where(used, e.forward, 1.0), np.where(used, e.backward, 1.0)

    def _attention_rate(self, kernels: AttentionKernels) -> float:
        """Rate of attention kernels over that of kernels written for this GPU."""
        e = self.gpu.efficiency
        if kernels is AttentionKernels.NATIVE:
            return 1.0
        if kernels is AttentionKernels.FLASH_ATTENTION_2 and e.flash_attention_2_fraction:
            return e.flash_attention_2_fraction
        return e.portable_attention_fraction

    @property
    def num_multiprocessors(self) -> int:
        """Those of the GPU, or a common number of them."""
        return self.gpu.num_multiprocessors or _UNKNOWN_MULTIPROCESSORS

    def memory_time(self, num_bytes: Numeric, kernels: float = 1) -> FloatArray:
        """Seconds of ``kernels`` memory-bound kernels that move ``num_bytes`` together."""
        e = self.gpu.efficiency.memory_bound
        return memory_bound_time(
            num_bytes=num_bytes,
            memory_bandwidth=self.gpu.memory_bandwidth,
            bandwidth_fraction=self._bandwidth_fraction(e.bandwidth_fraction),
            latency=kernels * e.latency,
        )

    def num_domains(self, group: Group) -> FloatArray:
        """Scale-up domains over which a group stands."""
        return np.asarray(group.size / self._local_ranks(group))

    def collective(
        self,
        kind: str,
        num_bytes: Numeric,
        group: Group,
        sent_across: Numeric = 1.0,
        most_nics: int = 0,
    ) -> FloatArray:
        """Seconds of a collective; ``num_bytes`` is the whole tensor on one rank.

        ``sent_across``: share of an all-to-all's bytes between domains that is sent;
        ``most_nics``: network interfaces by which a ring leaves a node, 0 for all.
        """
        e = self._collectives[kind]
        up, out = self.cluster.scale_up, self.cluster.scale_out
        local = self._local_ranks(group)
        waiting = network_latency(
            num_domains=group.size / local,
            base_latency=out.base_latency,
            latency_per_doubling=out.latency_per_doubling,
        )
        links = {
            "ranks_in_domain": local,
            "group_size": group.size,
            "scale_up": up.bandwidth * e.bandwidth_fraction,
            "scale_out": self._network_bandwidth,
        }
        if kind == "all_to_all":
            bandwidth = all_to_all_bandwidth(**links, sent_across=sent_across)
        else:
            bandwidth = group_bandwidth(
                **links,
                domain_size=up.domain_size,
                gpus_per_nic=out.gpus_per_nic,
                most_nics=most_nics,
            )
        volume = bus_volume(num_bytes=num_bytes, group_size=group.size, passes=_PASSES[kind])
        return collective_time(
            volume=volume,
            group_size=group.size,
            bandwidth=bandwidth,
            base_latency=e.base_latency,
            latency_per_rank=e.latency_per_rank,
            ramp_bytes=e.ramp_bytes,
            small_group_penalty=e.small_group_penalty,
            network_latency=waiting,
            ranks_in_domain=local,
        )

    def has_collective(self, kind: str) -> bool:
        """Whether the fabric has a collective of this name."""
        return kind in self._collectives

    def send_time(self, num_bytes: Numeric, distance: Numeric) -> FloatArray:
        """Seconds of a message to the GPU ``distance`` ranks away."""
        up, out = self.cluster.scale_up, self.cluster.scale_out
        inside = np.asarray(distance) < up.domain_size
        e = self._collectives["all_gather"]
        fabric = up.bandwidth * e.bandwidth_fraction
        latency = np.where(inside, e.base_latency, out.base_latency)
        return point_to_point_time(
            num_bytes=num_bytes,
            bandwidth=np.where(inside, fabric, self._network_bandwidth),
            latency=latency,
        )

    def host_copy_time(self, num_bytes: Numeric, link_fraction: float) -> FloatArray:
        """Seconds to copy between a GPU and its host while its neighbours do so too."""
        link = self._host.bandwidth or np.nan
        return np.asarray(num_bytes / np.minimum(link * link_fraction, self._host_memory_bandwidth))

    def host_memory_time(self, num_bytes: Numeric, memory_fraction: float) -> FloatArray:
        """Seconds in which the host reads and writes so many bytes for each of its GPUs."""
        return np.asarray(num_bytes / (self._host_memory_bandwidth * memory_fraction))

    @property
    def host_memory(self) -> float:
        """Bytes of host memory of a GPU; infinite where nobody says."""
        return self.cluster.host_memory_per_gpu or self._host.memory_per_gpu or np.inf

    @property
    def _host(self) -> HostLink:
        return self.gpu.host or HostLink(description="unknown")

    @property
    def _host_memory_bandwidth(self) -> float:
        own = self._host.memory_bandwidth
        return self.cluster.host_memory_bandwidth or own or _USUAL_HOST_MEMORY_BANDWIDTH

    def _local_ranks(self, group: Group) -> FloatArray:
        return ranks_per_domain(
            group_size=group.size,
            stride=group.stride,
            domain_size=self.cluster.scale_up.domain_size,
        )

    @cached_property
    def _peaks(self) -> FloatArray:
        peaks = self.gpu.peak_flops
        return np.array([peaks.get(Precision(code.word), np.nan) for code in ComputePrecision])

    @cached_property
    def _gemm(self) -> Mapping[str, FloatArray]:
        return by_precision(GemmEfficiency, self.gpu.efficiency.gemm)

    @cached_property
    def _grouped_gemm(self) -> Mapping[str, FloatArray]:
        table = dict(self.gpu.efficiency.grouped_gemm)
        table["fp4"] = table.get("nvfp4", table["bf16"])
        return by_precision(GroupedGemmEfficiency, table)

    @cached_property
    def _gemm_table(self) -> GemmTable | None:
        return self.catalogue.gemm_table(self.gpu)

    @cached_property
    def _collectives(self) -> Mapping[str, CollectiveEfficiency]:
        return self.catalogue.collectives(self.gpu, self.cluster.scale_up.kind)

    @property
    def _network_bandwidth(self) -> float:
        out = self.cluster.scale_out
        return out.bandwidth / out.oversubscription * out.efficiency

    def _bandwidth_fraction(self, measured: Numeric) -> Numeric:
        if self.memory_efficiency is not None:
            return self.memory_efficiency
        return measured

    def _roofline(
        self,
        e: dict[str, FloatArray],
        flops: Numeric,
        num_bytes: Numeric,
        precision: CodeArray,
        sustained: Numeric | None = None,
    ) -> FloatArray:
        if sustained is None:
            sustained = self._sustained(precision)
        return roofline_time(
            flops=flops,
            num_bytes=num_bytes,
            peak_flops=self.peak(precision),
            memory_bandwidth=self.gpu.memory_bandwidth,
            compute_fraction=e["compute_fraction"] * sustained,
            bandwidth_fraction=self._bandwidth_fraction(e["bandwidth_fraction"]),
            latency=e["latency"],
            sharpness=e["sharpness"],
        )

    def _sustained(self, precision: CodeArray) -> Numeric:
        """The clock under hours of products in each precision code over that of a burst."""
        efficiency = self.gpu.efficiency
        if efficiency.sustained_fp8_fraction is None:
            return efficiency.sustained_compute_fraction
        return np.where(
            precision >= ComputePrecision.FP8,
            efficiency.sustained_fp8_fraction,
            efficiency.sustained_compute_fraction,
        )
