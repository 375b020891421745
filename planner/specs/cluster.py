"""A cluster: GPUs in scale-up domains, joined by a scale-out network."""

from __future__ import annotations

from typing import Annotated

from planner.base.enums import LinkKind
from planner.specs.checked import Interval, checked
from planner.specs.gpu import Count
from planner.specs.quantity import Bytes, BytesPerSecond, Fraction, Ratio, Seconds, Share


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
