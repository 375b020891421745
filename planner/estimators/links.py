"""What joins GPUs, as functions from bytes to seconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from functools import cached_property

import numpy as np

from planner.base.arrays import BoolArray, FloatArray, Numeric
from planner.base.records import record
from planner.estimators.ledger import LATENCY, LINK, NETWORK, Ledger, Work
from planner.formulas.collectives import (
    all_to_all_bandwidth,
    bus_volume,
    collective_time,
    group_bandwidth,
    large_scale_wait,
    network_latency,
    point_to_point_time,
    ranks_per_domain,
    ring_latency,
)
from planner.specs.catalogue import Catalogue
from planner.specs.cluster import ClusterSpec
from planner.specs.gpu import CollectiveEfficiency, GpuSpec


def exchange_work(
    kind: str,
    links: Mapping[str, Numeric],
    time: FloatArray,
    volume: Numeric,
    bandwidth: FloatArray,
    peak: FloatArray,
) -> Work:
    """A collective that moves a ``volume`` past each rank, at a ``bandwidth``, at best at ``peak``.

    ``links``: ranks of the group and of one domain, and what fabric and network reach. It is bound
    by the network where that, not the fabric, limits its bandwidth; what starts it and what small
    messages lose is latency.
    """
    size, local = np.asarray(links["group_size"], np.float64), np.asarray(links["ranks_in_domain"])
    pieces = (size - 1) / np.maximum(local - 1, 1) if kind == "all_to_all" else 1.0
    by_network = (size > local) & (bandwidth < links["scale_up"] * pieces * (1 - 1e-9))
    moving = np.where(size > 1, volume / bandwidth, 0.0)
    return Work(
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
) -> Work:
    """A message to one other GPU, ``inside`` a domain or over the network."""
    peak = np.where(inside, cluster.scale_up.bandwidth, cluster.scale_out.bandwidth)
    moving = time - latency
    return Work(
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
"""An all-reduce over two domains, of which ``base_latency`` is, crosses the network twice."""


@record(kw_only=True)
class Group:
    """Ranks that communicate: ``size`` of them, ``stride`` GPUs apart."""

    size: Numeric
    stride: Numeric


@record(kw_only=True)
class Links:
    """The fabric and the network of a cluster of one kind of GPU.

    ``catalogue``: where the tables of the GPU's kernels and of its fabric are. ``ledger``: where
    what is behind the seconds is recorded, if anywhere.
    """

    gpu: GpuSpec
    cluster: ClusterSpec
    catalogue: Catalogue = field(default_factory=Catalogue)
    ledger: Ledger | None = field(default=None, compare=False, repr=False)

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

    def _bus_bandwidth(
        self, kind: str, links: Mapping[str, Numeric], sent_across: Numeric, most_nics: int
    ) -> FloatArray:
        """Bytes per second that a collective moves past each rank."""
        if kind == "all_to_all":
            return all_to_all_bandwidth(**links, sent_across=sent_across)
        up, out = self.cluster.scale_up, self.cluster.scale_out
        return group_bandwidth(
            **links,
            domain_size=up.domain_size,
            gpus_per_nic=out.gpus_per_nic,
            most_nics=most_nics,
        )

    def record(self, work: Work) -> None:
        """Keep what is behind seconds, where there is a ledger."""
        if self.ledger is not None:
            self.ledger.add(work)

    @property
    def mark(self) -> int:
        """Where the next work will be recorded, for `unused`."""
        return 0 if self.ledger is None else self.ledger.mark

    def unused(self, where: BoolArray, *names: str, since: int = 0) -> None:
        """Forget an alternative that was recorded since a mark, where nobody uses it.

        ``names``: formulas or collectives, all where none is named.
        """
        if self.ledger is not None and np.all(where):
            self.ledger.forget(*names, since=since)

    def close(self, part: str) -> None:
        """What was recorded last is behind a part of a step."""
        if self.ledger is not None:
            self.ledger.close(part)

    def recorded_parts(self) -> Mapping[str, tuple[Work, ...]]:
        """What is behind the parts of a step that belong to no operator."""
        return {} if self.ledger is None else self.ledger.parts()

    def fills_domain(self, group: Group) -> BoolArray:
        """Whether a group is inside one scale-up domain and takes more than half of it."""
        local = self._local_ranks(group)
        wide = 2 * local > self.cluster.scale_up.domain_size
        return np.asarray(wide & (np.asarray(group.size) == local) & (local > 1))

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
        time = point_to_point_time(
            num_bytes=num_bytes,
            bandwidth=np.where(inside, fabric, self._network_bandwidth),
            latency=latency,
        )
        if self.ledger is not None:
            self.record(message_work(self.cluster, inside, num_bytes, time, latency))
        return time

    def large_scale_wait(self, step_time: Numeric, num_gpus: Numeric) -> FloatArray:
        """Seconds that a step of so many GPUs waits for the slowest and between pods."""
        out = self.cluster.scale_out
        return large_scale_wait(
            step_time=step_time,
            num_gpus=num_gpus,
            pod_size=out.pod_size,
            slowdown_per_doubling=out.slowdown_per_doubling,
        )

    def _network_latency(self, kind: str, num_domains: Numeric, local: Numeric) -> FloatArray:
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

    def _local_ranks(self, group: Group) -> FloatArray:
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
