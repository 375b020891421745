"""Seconds of work and transfers on a GPU, its links, network and host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from functools import cached_property

import numpy as np

from planner.base.arrays import BoolArray, CodeArray, FloatArray, Numeric
from planner.base.enums import AttentionKernels, ComputePrecision, Precision
from planner.base.records import record
from planner.estimators.kernel_table import KernelTable, select_rows
from planner.estimators.kernel_work import (
    LATENCY,
    LINK,
    NETWORK,
    KernelVisibility,
    KernelWork,
    Ledger,
    Rows,
    copy_work,
    dense_rows,
    expert_rows,
    peak_work,
    rate_of_class,
)
from planner.formulas.collectives import (
    all_to_all_bandwidth,
    bus_volume,
    collective_time,
    group_bandwidth,
    large_scale_slowdown_time,
    network_latency,
    point_to_point_time,
    ranks_per_domain,
    ring_latency,
)
from planner.formulas.roofline import gemm_flops
from planner.specs.catalogue import Catalogue
from planner.specs.gpu import ClusterSpec, CollectiveEfficiency, GpuSpec, HostLink
from planner.specs.quantization import TRAINING_FORMATS


def exchange_work(
    kind: str,
    links: Mapping[str, Numeric],
    time: FloatArray,
    volume: Numeric,
    bandwidth: FloatArray,
    peak: FloatArray,
) -> KernelWork:
    """Return the recorded work of a collective: ``volume`` [byte] per rank, ``peak`` [byte/s].

    ``links``: ranks of the group and of one domain, and the bandwidths of fabric and network. The
    exchange is network-bound if the network limits its bandwidth. Start-up and the loss of small
    messages count as latency.
    """
    size, local = np.asarray(links["group_size"], np.float64), np.asarray(links["ranks_in_domain"])
    pieces = (size - 1) / np.maximum(local - 1, 1) if kind == "all_to_all" else 1.0
    by_network = (size > local) & (bandwidth < links["scale_up"] * pieces * (1 - 1e-9))
    moving = np.where(size > 1, volume / bandwidth, 0.0)
    return KernelWork(
        formula="collective",
        time=time,
        at_peak=np.where(size > 1, volume / peak, 0.0),
        terms={
            NETWORK: np.where(by_network, moving, 0.0),
            LINK: np.where(by_network, 0.0, moving),
            LATENCY: np.maximum(time - moving, 0.0),
        },
        figures={
            "volume": volume,
            "bandwidth": bandwidth,
            "peak_bandwidth": peak,
            "group_size": size,
            "ranks_in_domain": local,
        },
        key=f"efficiency.collective.{kind}",
    )


def message_work(
    cluster: ClusterSpec,
    inside: BoolArray,
    num_bytes: Numeric,
    time: FloatArray,
    latency: FloatArray,
) -> KernelWork:
    """Return the recorded work of a message to one GPU; ``inside``: True in the same domain."""
    peak = np.where(inside, cluster.scale_up.bandwidth, cluster.scale_out.bandwidth)
    moving = time - latency
    return KernelWork(
        formula="message",
        time=time,
        at_peak=num_bytes / peak,
        terms={
            LINK: np.where(inside, moving, 0.0),
            NETWORK: np.where(inside, 0.0, moving),
            LATENCY: latency,
        },
        figures={
            "volume": num_bytes,
            "bandwidth": num_bytes / np.maximum(moving, np.finfo(np.float64).tiny),
            "peak_bandwidth": peak,
        },
        key="efficiency.collective.all_gather",
    )


_PASSES = {
    "all_reduce": 2,
    "custom_all_reduce": 2,
    "all_gather": 1,
    "reduce_scatter": 1,
    "all_to_all": 1,
}
_RINGS = ("all_gather", "reduce_scatter")
_CROSSINGS = 2.0
_VECTOR_FRACTION = 0.5  # of Ampere, assumed for architectures without a measurement
"""An all-reduce over two domains, as in ``base_latency``, crosses the network twice."""


@record(kw_only=True)
class CommunicationGroup:
    """Ranks that communicate: ``size`` of them, ``stride`` GPUs apart."""

    size: Numeric
    stride: Numeric


@record(kw_only=True)
class Links:
    """The fabric and the network of a cluster of one kind of GPU.

    ``catalogue``: specs with the tables of the GPU's kernels and of its fabric. ``ledger``: record
    of the work behind the seconds, if any.
    """

    gpu: GpuSpec
    cluster: ClusterSpec
    catalogue: Catalogue = field(default_factory=Catalogue)
    ledger: Ledger | None = field(default=None, compare=False, repr=False)

    def num_domains(self, group: CommunicationGroup) -> FloatArray:
        """Scale-up domains over which a group stands."""
        return np.asarray(group.size / self._local_ranks(group))

    def collective(
        self,
        kind: str,
        num_bytes: Numeric,
        group: CommunicationGroup,
        sent_across: Numeric = 1.0,
        most_nics: int = 0,
    ) -> FloatArray:
        """Return seconds of a collective; ``num_bytes``: size of the full tensor on one rank.

        ``sent_across``: share of an all-to-all's bytes between domains that is sent;
        ``most_nics``: network interfaces by which a ring leaves a node, 0 for all.
        """
        if self.ledger is None and not (np.asarray(group.size) > 1).any():
            return np.zeros(())
        e = self._collectives[kind]
        up, out = self.cluster.scale_up, self.cluster.scale_out
        local = self._local_ranks(group)
        waiting = self._network_latency(kind, group.size / local, local)
        links = {
            "ranks_in_domain": local,
            "group_size": group.size,
            "scale_up": up.bandwidth * e.bandwidth_fraction,
            "scale_out": self._network_bandwidth,
        }
        bandwidth = self._bus_bandwidth(kind, links, sent_across, most_nics)
        volume = bus_volume(num_bytes=num_bytes, group_size=group.size, passes=_PASSES[kind])
        time = collective_time(
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
        if self.ledger is not None:
            at_peak = links | {"scale_up": up.bandwidth, "scale_out": out.bandwidth}
            peak = self._bus_bandwidth(kind, at_peak, sent_across, most_nics)
            self.record(exchange_work(kind, links, time, volume, bandwidth, peak))
        return time

    def gather_scatter_time(self, num_bytes: Numeric, group: CommunicationGroup) -> FloatArray:
        """Return seconds of an all-gather and a reduce-scatter of ``num_bytes`` each."""
        gather = self.collective("all_gather", num_bytes, group)
        return gather + self.collective("reduce_scatter", num_bytes, group)

    def _bus_bandwidth(
        self, kind: str, links: Mapping[str, Numeric], sent_across: Numeric, most_nics: int
    ) -> FloatArray:
        """Return the bus bandwidth per rank of a collective [byte/s]."""
        if kind == "all_to_all":
            return all_to_all_bandwidth(**links, sent_across=sent_across)
        up, out = self.cluster.scale_up, self.cluster.scale_out
        return group_bandwidth(
            **links, domain_size=up.domain_size, gpus_per_nic=out.gpus_per_nic, most_nics=most_nics
        )

    def record(self, work: KernelWork) -> None:
        """Keep what is behind seconds, where there is a ledger."""
        if self.ledger is not None:
            self.ledger.add(work)

    @property
    def mark(self) -> int:
        """Index of the next recorded work, for `unused`."""
        return 0 if self.ledger is None else self.ledger.mark

    def unused(self, where: BoolArray, *names: str, since: int = 0) -> None:
        """Drop work recorded since a mark if ``where`` is True everywhere (alternative not used).

        ``names``: formulas or collectives; all if none is named.
        """
        if self.ledger is not None and np.all(where):
            self.ledger.forget(*names, since=since)

    def close(self, part: str) -> None:
        """Assign the work recorded last to a part of a step."""
        if self.ledger is not None:
            self.ledger.close(part)

    def recorded_parts(self) -> Mapping[str, tuple[KernelWork, ...]]:
        """Work of the parts of a step that belong to no operator."""
        return {} if self.ledger is None else self.ledger.parts()

    def fills_domain(self, group: CommunicationGroup) -> BoolArray:
        """Whether a group lies in one scale-up domain and uses over half of it."""
        local = self._local_ranks(group)
        wide = 2 * local > self.cluster.scale_up.domain_size
        return np.asarray(wide & (np.asarray(group.size) == local) & (local > 1))

    def hides_exchange(self, group: CommunicationGroup) -> BoolArray:
        """Return a mask: True if matrix products can hide exchanges of this group.

        Its ranks are in one scale-up domain, whose links reach the memory of the others.
        """
        inside = self._local_ranks(group) == np.asarray(group.size)
        return np.asarray(inside & self.cluster.scale_up.kind.reaches_memory)

    def has_collective(self, kind: str) -> bool:
        """Whether the fabric has a collective of this name."""
        return kind in self._collectives

    def send_time(self, num_bytes: Numeric, distance: Numeric) -> FloatArray:
        """Return seconds of a message to the GPU ``distance`` ranks away."""
        up, out = self.cluster.scale_up, self.cluster.scale_out
        inside = np.asarray(distance) < up.domain_size
        e = self._collectives["all_gather"]
        fabric = up.bandwidth * e.bandwidth_fraction
        latency = np.where(inside, e.base_latency, out.base_latency)
        time = point_to_point_time(
            num_bytes=num_bytes,
            bandwidth=np.where(inside, fabric, self._network_bandwidth),
            latency=latency,
        )
        if self.ledger is not None:
            self.record(message_work(self.cluster, inside, num_bytes, time, latency))
        return time

    def large_scale_wait(self, step_time: Numeric, num_gpus: Numeric) -> FloatArray:
        """Return extra seconds per step on ``num_gpus`` GPUs for stragglers and pods."""
        out = self.cluster.scale_out
        return large_scale_slowdown_time(
            step_time=step_time,
            num_gpus=num_gpus,
            pod_size=out.pod_size,
            slowdown_per_doubling=out.slowdown_per_doubling,
        )

    def _network_latency(self, kind: str, num_domains: Numeric, local: Numeric) -> FloatArray:
        """Return network seconds of a collective: per ring hop, or per doubling of the domains."""
        out = self.cluster.scale_out
        if kind in _RINGS:
            return ring_latency(
                num_domains=num_domains,
                ranks_in_domain=local,
                hop=out.base_latency / _CROSSINGS,
                latency_per_rank=self._collectives[kind].latency_per_rank,
            )
        return network_latency(
            num_domains=num_domains,
            base_latency=out.base_latency,
            latency_per_doubling=out.latency_per_doubling,
        )

    def _local_ranks(self, group: CommunicationGroup) -> FloatArray:
        """Return how many ranks of a communication group are in one scale-up domain."""
        return ranks_per_domain(
            group_size=group.size,
            stride=group.stride,
            domain_size=self.cluster.scale_up.domain_size,
        )

    @cached_property
    def _collectives(self) -> Mapping[str, CollectiveEfficiency]:
        return self.catalogue.collectives(self.gpu, self.cluster.scale_up.kind)

    @property
    def _network_bandwidth(self) -> float:
        out = self.cluster.scale_out
        return out.bandwidth / out.oversubscription * out.efficiency


__all__ = ["CommunicationGroup", "Machine"]

# An eighth of two sockets with eight channels of DDR4-3200.
_USUAL_HOST_MEMORY_BANDWIDTH = 51.2e9
# ZeRO-Infinity (arXiv:2104.07857, section 3): drives of a DGX-2 node give each of its 16 GPUs
# 1.6 GB/s.
_USUAL_DRIVE_BANDWIDTH = 1.6e9
# Hours of products at the sustained clock; casts and the sorting of experts' tokens are operators
# of their own.
_TRAINING = KernelVisibility(permutes=False)


@record(kw_only=True)
class Machine(Links):
    """A GPU in a cluster.

    ``ideal``: the specs and profiles come from `planner.estimators.ideal_hardware`, which is the
    roofline bound. ``memory_efficiency`` replaces the reached share of the memory bandwidth,
    ``flops_efficiency`` that of the peak in an ideal machine.
    """

    ideal: bool = False
    flops_efficiency: float | None = None
    memory_efficiency: float | None = None

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
    ) -> FloatArray:
        """Return seconds of a product A B at the sustained clock, without `cast_time`.

        ``precision``: a code of `ComputePrecision`, or of ``TRAINING_FORMATS``.
        """
        e = select_rows(self._dense, precision)
        return self.kernels.without_casts(rows, columns, depth, e, output_bytes)

    def gemm_times(
        self, products: Sequence[tuple[Numeric, Numeric, Numeric, Numeric]], precision: CodeArray
    ) -> Sequence[FloatArray]:
        """Return the `gemm_time` of several products of (rows, columns, depth, output bytes)."""
        if self.ledger is not None:
            return [self.gemm_time(m, n, k, precision, width) for m, n, k, width in products]
        numbers = [np.shape(number) for product in products for number in product]
        together = np.empty((4, len(products), *np.broadcast_shapes(np.shape(precision), *numbers)))
        for index, product in enumerate(products):
            for side, number in enumerate(product):
                together[side, index] = number
        rows, columns, depth, output_bytes = together
        return [*self.gemm_time(rows, columns, depth, precision, output_bytes)]

    def cast_time(self, elements: Numeric, precision: CodeArray) -> FloatArray:
        """Seconds of separate kernels that quantize so many numbers for products."""
        return self.kernels.casts(elements, {"cast_bytes": self._dense["cast_bytes"][precision]})

    def expert_cast_time(self, elements: Numeric, precision: CodeArray) -> FloatArray:
        """As `cast_time`, for the grouped products of experts."""
        return self.kernels.casts(elements, {"cast_bytes": self._experts["cast_bytes"][precision]})

    def vector_product_time(self, rows: Numeric, columns: Numeric, depth: Numeric) -> FloatArray:
        """Return seconds of a 16-bit product without tensor cores; 0 if unknown."""
        reached = self.gpu.efficiency.vector_product_fraction
        peak = self.gpu.peak_flops.get(Precision.FP32)
        if reached is None or peak is None:
            return np.zeros(())
        flops = gemm_flops(rows=rows, columns=columns, depth=depth)
        time = flops / (peak * reached)
        if self.ledger is not None:
            self.record(peak_work(flops, peak, reached, time))
        return time

    def vector_time(self, flops: Numeric) -> FloatArray:
        """Return seconds of 32-bit FLOPs without tensor cores; 0 if the peak is unknown."""
        reached = self.gpu.efficiency.vector_product_fraction or _VECTOR_FRACTION
        peak = self.gpu.peak_flops.get(Precision.FP32, np.inf)
        time = np.asarray(flops / (peak * reached))
        if self.ledger is not None:
            self.record(peak_work(flops, peak, reached, time))
        return time

    def peak_time(self, flops: Numeric) -> FloatArray:
        """Return seconds of 16-bit FLOPs at the dense peak."""
        peak = self.peak(self.sixteen_bit)
        time = np.asarray(flops / peak)
        if self.ledger is not None:
            self.record(peak_work(flops, peak, 1.0, time))
        return time

    def grouped_gemm_time(
        self,
        pairs: Numeric,
        experts: Numeric,
        hidden_size: Numeric,
        width: Numeric,
        matrices: Numeric,
        precision: CodeArray,
    ) -> FloatArray:
        """Return seconds of all matrices of ``experts`` local experts on ``pairs`` tokens.

        The measured kernels' own permutation is left out: it is an operator of its own.
        """
        return self.kernels.experts(
            pairs=pairs,
            local_experts=experts,
            hidden_size=hidden_size,
            width=width,
            matrices=matrices,
            e=select_rows(self._experts, precision),
        )

    def attention_rate(self, kernels: AttentionKernels) -> float:
        """Forward rate of a class of attention kernels relative to those written for this GPU."""
        return rate_of_class(self.gpu.efficiency, kernels)

    def fp8_attention_rates(self, used: BoolArray) -> tuple[FloatArray, FloatArray]:
        """Return attention speed relative to 16 bits: 8-bit rate if ``used``, else 1.

        Forward, then backward.
        """
        e = self.gpu.efficiency.fp8_attention
        if e is None or not np.any(used):
            return np.ones(()), np.ones(())
        return np.where(used, e.forward, 1.0), np.where(used, e.backward, 1.0)

    def memory_time(self, num_bytes: Numeric, kernels: float = 1) -> FloatArray:
        """Seconds of ``kernels`` memory-bound kernels that move ``num_bytes`` together."""
        return self.kernels.memory_time(num_bytes, kernels)

    def kernel_table(self, shown: KernelVisibility) -> KernelTable:
        """Return the GPU's kernel efficiencies as some software reaches them."""
        return KernelTable(
            gpu=self.gpu,
            shown=shown,
            gemm_table=self.catalogue.gemm_table(self.gpu),
            memory_efficiency=self.memory_efficiency,
            ledger=self.ledger,
        )

    def host_copy_time(self, num_bytes: Numeric, link_fraction: float) -> FloatArray:
        """Return seconds to copy to or from the host while other GPUs copy too.

        ``link_fraction`` is what the copies of a program reach, the start of each included.
        """
        link = self._host.bandwidth or np.nan
        rate = np.minimum(link * link_fraction, self._host_memory_bandwidth)
        return self._copied(num_bytes, rate, link)

    def single_copy_time(
        self, num_bytes: Numeric, link_fraction: float | None = None
    ) -> FloatArray:
        """Return seconds of one copy to or from pinned host memory, with latency."""
        link, e = self._host.bandwidth or np.nan, self.gpu.efficiency.host_copy
        share = e.bandwidth_fraction if link_fraction is None else link_fraction
        rate = np.minimum(link * share, self._host_memory_bandwidth)
        return self._copied(num_bytes, rate, link, e.latency)

    def host_memory_time(self, num_bytes: Numeric, memory_fraction: float) -> FloatArray:
        """Seconds in which the host reads and writes so many bytes for each of its GPUs."""
        rate = self._host_memory_bandwidth
        return self._copied(num_bytes, rate * memory_fraction, rate)

    def drive_copy_time(self, num_bytes: Numeric) -> FloatArray:
        """Seconds in which a host's drives read or write so many bytes for one of its GPUs."""
        return self._copied(num_bytes, self.drive_bandwidth, self.drive_bandwidth)

    @property
    def drive_bandwidth(self) -> float:
        """A GPU's share of what the drives of its node read and write [B/s]."""
        return self.cluster.drive_bandwidth or _USUAL_DRIVE_BANDWIDTH

    def _copied(
        self, num_bytes: Numeric, rate: Numeric, peak: Numeric, start: float = 0.0
    ) -> FloatArray:
        """Return seconds to copy ``num_bytes`` at a rate [byte/s], ``start`` seconds included."""
        time = np.asarray(num_bytes / rate) + start
        if self.ledger is not None:
            self.record(copy_work(num_bytes, rate, peak, time, start))
        return time

    @property
    def host_memory(self) -> float:
        """Bytes of host memory per GPU of a full node; infinite if not specified.

        0 where GPU and host share one memory.
        """
        cluster = self.cluster
        if self.gpu.unified_memory:
            return 0.0
        if cluster.host_memory is not None:
            return cluster.host_memory / cluster.gpus_per_node
        return cluster.host_memory_per_gpu or self._host.memory_per_gpu or np.inf

    def host_room(self, num_gpus: Numeric) -> FloatArray:
        """Return bytes of host memory per GPU for ``num_gpus`` GPUs that fill nodes in turn."""
        if self.cluster.host_memory is None:
            return np.asarray(self.host_memory)
        in_node = np.minimum(num_gpus, self.cluster.gpus_per_node)
        return np.asarray(self.cluster.host_memory / in_node)

    @property
    def _host(self) -> HostLink:
        return self.gpu.host_link

    @property
    def _host_memory_bandwidth(self) -> float:
        profile_bandwidth = self._host.memory_bandwidth
        return (
            self.cluster.host_memory_bandwidth or profile_bandwidth or _USUAL_HOST_MEMORY_BANDWIDTH
        )

    @cached_property
    def _peaks(self) -> FloatArray:
        peaks = self.gpu.peak_flops
        return np.array([peaks.get(Precision(code.word), np.nan) for code in ComputePrecision])

    @cached_property
    def kernels(self) -> KernelTable:
        """The kernels of the GPU as training shows them."""
        return self.kernel_table(_TRAINING)

    @cached_property
    def _dense(self) -> Rows:
        return dense_rows(self.gpu, TRAINING_FORMATS, _TRAINING)

    @cached_property
    def _experts(self) -> Rows:
        return expert_rows(self.gpu, TRAINING_FORMATS, _TRAINING)
