"""The GPUs of a plan: their cluster, their price, and what of their peaks is reached."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from planner.base.enums import Contract, Precision
from planner.base.records import record
from planner.base.units import parse_quantity
from planner.errors import SearchSpaceError, SpecError
from planner.estimators.ideal import ideal_hardware, with_compute_share, with_link_share
from planner.estimators.machine import Machine
from planner.question.request import Request
from planner.specs.catalogue import default_cluster
from planner.specs.cluster import ClusterSpec
from planner.specs.efficiency import is_assumed
from planner.specs.gpu import GpuSpec
from planner.specs.site import Site
from planner.workloads.electricity import with_power
from planner.workloads.failures import reliability_of
from planner.workloads.notes import Notes
from planner.workloads.offers import offer_of

DEFAULT_GPU = "a100-sxm-80gb"
_MOST_OF_NODE = 1024
LARGEST_OF_ALL = 16_384
# Nodes of 8 A100, H100 and H200 that clouds rent and NVIDIA sells have 1.8 to 3.2 times their
# GPUs' memory: 1,152 to 2,048 GiB.
_MOST_HOST_MEMORY = 1e18
_USUAL_HOST_SHARE = 2.5


@record(kw_only=True)
class Place:
    """A GPU in its cluster, and on what terms it runs."""

    machine: Machine
    site: Site


def read_place(
    request: Request, gpu: str | None, counts: tuple[int, ...], notes: Notes, is_only: bool
) -> Place:
    """The GPU ``gpu`` of a request; a price that is wanted must be known where it ``is_only``.

    Raises
    ------
    SpecError, SearchSpaceError
        Something is unknown, faulty or impossible.
    """
    spec, cluster = hardware(gpu, request.cluster, list(counts), notes)
    if request.workload == "train" and not request.at_shares:
        _note_kernels(spec, gpu or spec.name, notes)
    cluster = with_host_memory(cluster, spec, request.node_host_memory)
    cluster = with_nodes(cluster, request.gpus_per_node)
    if "cluster" in notes.defaults:
        notes.defaults["cluster"] = _own_links(cluster)
    wanted = any("cost" in word for word in (*request.objectives, *request.constraints))
    offer = offer_of(request, spec, wanted and is_only, notes)
    site = Site(
        offer=offer,
        contract=request.contract or Contract.ON_DEMAND,
        reliability=reliability_of(request, notes),
    )
    if request.at_shares:
        spec, cluster = ideal_hardware(spec, cluster)
    spec, cluster = with_links(spec, cluster, request)
    share = None if request.workload == "train" else _compute_share(request, spec)
    if share is not None:
        spec = with_compute_share(spec, share)
    return Place(
        machine=Machine(
            gpu=spec,
            cluster=cluster,
            ideal=request.at_shares,
            flops_efficiency=share,
            memory_efficiency=share_of_peak(
                request.memory_efficiency, "byte/s", spec.memory_bandwidth, "memory_efficiency"
            ),
            catalogue=notes.catalogue,
        ),
        site=with_power(site, request, notes),
    )


def _note_kernels(gpu: GpuSpec, word: str, notes: Notes) -> None:
    """Say of a GPU that a ``word`` names where no publication tells what a GPU's products reach."""
    provenance = notes.catalogue.load_gpu(word).provenance
    if is_assumed(provenance, "gemm.bf16.compute_fraction"):
        share = gpu.efficiency.gemm["bf16"].compute_fraction
        notes.defaults["kernels"] = (
            f"products reach {share:.0%} of the peak of {gpu.name}, which nothing published tells"
        )


def every_count(most: int | None) -> tuple[int, ...]:
    """The powers of two up to a cluster's end; without one, up to 16,384."""
    return tuple(2**power for power in range((most or LARGEST_OF_ALL).bit_length()))


def gpu_counts(num_gpus: Any) -> list[int]:
    """One or several numbers of GPUs as a list."""
    return [*num_gpus] if isinstance(num_gpus, tuple | list) else [num_gpus]


def hardware(
    gpu_name: str | None, cluster_name: str | None, counts: list[int], notes: Notes
) -> tuple[GpuSpec, ClusterSpec]:
    """The GPU and its cluster; what nobody named goes into ``notes``.

    Raises
    ------
    SpecError
        One of them is unknown or faulty, or the cluster has other GPUs or fewer.
    """
    cluster = None
    if cluster_name is not None:
        loaded = notes.catalogue.load_cluster(cluster_name)
        cluster = loaded.spec
        notes.spec("cluster", cluster.name, loaded.digest, loaded.provenance)
    elif gpu_name is None:
        notes.defaults["gpu"] = f"{DEFAULT_GPU} (default)"
    name = gpu_name or (cluster.gpu if cluster is not None else DEFAULT_GPU)
    gpu = notes.catalogue.load_gpu(name)
    notes.spec("gpu", gpu.spec.name, gpu.digest, gpu.provenance)
    if cluster is None:
        cluster = default_cluster(gpu.spec)
        notes.defaults["cluster"] = _own_links(cluster)
    elif gpu.spec.name != cluster.gpu and notes.catalogue.find("gpus", cluster.gpu) != gpu.path:
        raise SpecError(
            f"Cluster {cluster.name} is of {cluster.gpu}, not of {gpu.spec.name}: "
            "leave out --gpu or --cluster, or give a file of such a cluster."
        )
    elif cluster.max_gpus is not None and max(counts, default=0) > cluster.max_gpus:
        raise SpecError(
            f"Cluster {cluster.name} ends at {cluster.max_gpus} GPUs, not {max(counts)}: "
            "choose another --cluster, or --gpu for a cluster of any size."
        )
    return gpu.spec, cluster


def _own_links(cluster: ClusterSpec) -> str:
    """What is said of a cluster that nobody named."""
    return (
        f"nodes of {cluster.gpus_per_node}, {cluster.scale_out.bandwidth * 8 / 1e9:g} Gbit/s "
        "per GPU between them (the GPU's own links)"
    )


def with_host_memory(cluster: ClusterSpec, gpu: GpuSpec, given: float | None) -> ClusterSpec:
    """The cluster with the host memory of its nodes as given, or a GPU's share as assumed.

    Raises
    ------
    SearchSpaceError
        It is none.
    """
    if given is not None:
        if not 0 < given < _MOST_HOST_MEMORY:
            raise SearchSpaceError(
                "--host-memory of a node is more than 0 and less than a million TB, such as 512GiB."
            )
        return replace(cluster, host_memory=given)
    known = gpu.host.memory_per_gpu if gpu.host is not None else None
    if cluster.host_memory or cluster.host_memory_per_gpu or known:
        return cluster
    return replace(cluster, host_memory_per_gpu=_USUAL_HOST_SHARE * gpu.memory_capacity)


def with_nodes(cluster: ClusterSpec, gpus_per_node: int | None) -> ClusterSpec:
    """The cluster with so many GPUs in a node.

    The fabric joins those of a node, unless it joined GPUs of several nodes before.

    Raises
    ------
    SearchSpaceError
        No node has so many.
    """
    if gpus_per_node is None or gpus_per_node == cluster.gpus_per_node:
        return cluster
    if gpus_per_node > _MOST_OF_NODE:
        raise SearchSpaceError(f"gpus_per_node is at most {_MOST_OF_NODE:,}: {gpus_per_node:,}.")
    domain = cluster.scale_up.domain_size
    if domain <= cluster.gpus_per_node or domain < gpus_per_node:
        domain = gpus_per_node
    return replace(
        cluster,
        gpus_per_node=gpus_per_node,
        scale_up=replace(cluster.scale_up, domain_size=domain),
    )


def with_links(gpu: GpuSpec, cluster: ClusterSpec, request: Request) -> tuple[GpuSpec, ClusterSpec]:
    """A GPU and a cluster whose links reach given shares of their bandwidth.

    Raises
    ------
    SearchSpaceError
        A share is none.
    """
    name, up, out = "intra_node_efficiency", cluster.scale_up, cluster.scale_out
    inside = share_of_peak(request.intra_node_efficiency, "byte/s", up.bandwidth, name)
    if inside is not None:
        gpu = with_link_share(gpu, up.kind, inside)
    name = "inter_node_efficiency"
    between = share_of_peak(request.inter_node_efficiency, "byte/s", out.bandwidth, name)
    if between is not None:
        cluster = replace(cluster, scale_out=replace(out, efficiency=between))
    return gpu, cluster


def _compute_share(request: Request, gpu: GpuSpec) -> float | None:
    """The share of the peak that products of serving reach, of a rate that of the 16-bit peak."""
    peak = gpu.peak_flops.get(Precision.BF16, gpu.peak_flops.get(Precision.FP16, float("nan")))
    return share_of_peak(request.flops_efficiency, "flop/s", peak, "flops_efficiency")


def share_of_peak(
    given: float | str | None, dimension: str, peak: float, name: str
) -> float | None:
    """A share of a peak, given as a fraction or as an achieved rate with its unit.

    Raises
    ------
    SearchSpaceError
        It is neither, or not in (0, 1].
    """
    if given is None:
        return None
    if isinstance(given, str):
        try:
            share = parse_quantity(given, dimension) / peak
        except ValueError as error:
            raise SearchSpaceError(f"{name}: {error}.") from error
    else:
        share = given
    if not 0 < share <= 1:
        raise SearchSpaceError(
            f"{name} = {given} is {share:.4g} of the peak; it must be above 0 and at most 1."
        )
    return share
