"""The cluster of a run."""

from __future__ import annotations

from dataclasses import replace

from planner.base.enums import LinkKind
from planner.base.units import UNITS
from planner.specs.catalogue import default_cluster
from planner.specs.cluster import ClusterSpec, ScaleUp
from planner.specs.gpu import GpuSpec
from planner.validation.models import NotPredicted
from planner.validation.runs import Run

_GIGABIT = UNITS["byte/s"]["Gbit/s"]
_GIGABYTE = UNITS["byte"]["GB"]
_PCIE_BANDWIDTH = 25e9
_LARGEST_NODE = 16


def run_cluster(run: Run, gpu: GpuSpec) -> ClusterSpec:
    """The GPU's own links, changed by what the run says of node, fabric and network.

    Where nobody counts the network interfaces of a node, each has the rate of the GPU's own.

    Raises
    ------
    NotPredicted
        No cluster has such nodes or rates.
    """
    try:
        return _cluster(run, gpu)
    except ValueError as error:
        raise NotPredicted("impossible cluster: node size or network rate is absurd") from error


def _cluster(run: Run, gpu: GpuSpec) -> ClusterSpec:
    cluster = default_cluster(gpu)
    fabric = _fabric(run, gpu, cluster)
    per_node = run.count("gpus_per_node") or cluster.gpus_per_node
    if fabric.domain_size <= _LARGEST_NODE:
        fabric = replace(fabric, domain_size=max(per_node, 1))
    own = cluster.scale_out.bandwidth
    bandwidth = _network(run, per_node) or own
    nics = run.count("nics_per_node") or min(per_node * bandwidth / own, per_node)
    return replace(
        cluster,
        gpus_per_node=per_node,
        host_memory_per_gpu=_host_memory(run) or cluster.host_memory_per_gpu,
        scale_up=fabric,
        scale_out=replace(
            cluster.scale_out,
            bandwidth=bandwidth,
            gpus_per_nic=max(round(per_node / max(nics, 1)), 1),
        ),
    )


def _fabric(run: Run, gpu: GpuSpec, cluster: ClusterSpec) -> ScaleUp:
    on_pcie = run.word("scale_up_link") == LinkKind.PCIE
    if not on_pcie or cluster.scale_up.kind is LinkKind.PCIE:
        return cluster.scale_up
    bandwidth = gpu.host.bandwidth if gpu.host is not None else None
    return replace(cluster.scale_up, kind=LinkKind.PCIE, bandwidth=bandwidth or _PCIE_BANDWIDTH)


def _host_memory(run: Run) -> float | None:
    """Bytes of host memory of a GPU where the node's are given."""
    of_node = run.number("host_memory_gb")
    gpus = run.count("gpus_per_node") or run.count("num_gpus") or 1
    return of_node * _GIGABYTE / gpus if of_node else None


def _network(run: Run, gpus_per_node: int) -> float | None:
    """Bytes per second and GPU of the network; per node unless the run says otherwise."""
    rate = run.number("scale_out_gbit_per_s")
    if not rate:
        return None
    return rate * _GIGABIT / (1 if run.flag("scale_out_per_gpu") else gpus_per_node)
