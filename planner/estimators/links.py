"""What joins GPUs, as functions from bytes to seconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from planner.arrays import BoolArray, FloatArray, Numeric
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


@dataclass(frozen=True, kw_only=True)
class Group:
    """Ranks that communicate: ``size`` of them, ``stride`` GPUs apart."""

    size: Numeric
    stride: Numeric


@dataclass(frozen=True, kw_only=True)
class Links:
    """The fabric and the network of a cluster of one kind of GPU.

    ``catalogue``: where the tables of the GPU's kernels and of its fabric are.
    """

    gpu: GpuSpec
    cluster: ClusterSpec
    catalogue: Catalogue = field(default_factory=Catalogue)

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
        return point_to_point_time(
            num_bytes=num_bytes,
            bandwidth=np.where(inside, fabric, self._network_bandwidth),
            latency=latency,
        )

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
