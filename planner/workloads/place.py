"""The GPUs of a plan: their cluster, their price, and what of their peaks is reached."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from planner.enums import Contract, Precision
from planner.errors import SearchSpaceError, SpecError
from planner.estimators.ideal import ideal_hardware
from planner.estimators.machine import Machine
from planner.request import Request
from planner.specs.catalogue import default_cluster
from planner.specs.cluster import ClusterSpec
from planner.specs.gpu import GpuSpec
from planner.specs.site import Site
from planner.units import parse_quantity
from planner.workloads.electricity import with_power
from planner.workloads.failures import reliability_of
from planner.workloads.notes import Notes
from planner.workloads.offers import offer_of

DEFAULT_GPU = "a100-sxm-80gb"
LARGEST_OF_ALL = 16_384


@dataclass(frozen=True, kw_only=True)
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
    wanted = any("cost" in word for word in (*request.objectives, *request.constraints))
    offer = offer_of(request, spec, wanted and is_only, notes)
    site = Site(
        offer=offer,
        contract=request.contract or Contract.ON_DEMAND,
        reliability=reliability_of(request, notes),
    )
    compute = _compute_share(request, spec)
    if request.ideal:
        spec, cluster = ideal_hardware(spec, cluster, compute)
    return Place(
        machine=Machine(
            gpu=spec,
            cluster=cluster,
            ideal=request.ideal,
            memory_efficiency=share_of_peak(
                request.memory_efficiency, "byte/s", spec.memory_bandwidth, "memory_efficiency"
            ),
            catalogue=notes.catalogue,
        ),
        site=with_power(site, request, notes),
    )


def _compute_share(request: Request, spec: GpuSpec) -> float:
    """The share of each peak that kernels of an ideal engine reach; 1 where nobody says so."""
    if request.workload == "train" or request.flops_efficiency is None:
        return 1.0
    if not request.ideal:
        raise SearchSpaceError(
            "To serve, --flops-efficiency replaces what kernels reach: give --ideal beside it."
        )
    peak = spec.peak_flops.get(Precision.BF16, spec.peak_flops.get(Precision.FP16, float("nan")))
    return share_of_peak(request.flops_efficiency, "flop/s", peak, "flops_efficiency") or 1.0


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
        notes.defaults["cluster"] = (
            f"nodes of {cluster.gpus_per_node}, {cluster.scale_out.bandwidth * 8 / 1e9:g} Gbit/s "
            "per GPU between them (the GPU's own links)"
        )
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
