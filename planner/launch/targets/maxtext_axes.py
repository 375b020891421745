"""The axes of MaxText's mesh: how GPUs within and across nodes are dealt to them, and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import gcd, prod
from typing import Any

from planner.base.records import record
from planner.errors import LaunchError
from planner.launch.job import Job

AXES = ("tensor", "tensor_sequence", "context", "expert", "fsdp", "data", "pipeline")
"""Those that exchange most come first: they stand within a node."""
_REST = -1


def axes_of(job: Job) -> dict[str, int]:
    """The GPUs of each axis within and across nodes.

    Raises
    ------
    LaunchError
        Experts are not split over data-parallel GPUs, copies are not of whole shards, or the axes
        do not fill whole nodes.
    """
    expert, data = int(job["expert_parallel"]), int(job["data_parallel"])
    if data % expert:
        raise LaunchError(
            f"MaxText splits experts over data-parallel GPUs: expert_parallel {expert} does not "
            f"divide data_parallel {data}. Plan another expert_parallel."
        )
    shards, stage = data // expert, int(job["zero_stage"])
    copies = int(job["data_parallel_replicas"] or 1) if stage > 2 else shards  # ZeRO-3 alone
    if shards % copies:
        raise LaunchError(
            f"MaxText copies what its fsdp axes shard: data_parallel_replicas {copies} does not "
            f"divide {shards} data-parallel GPUs that share all but experts. Plan another "
            "data_parallel_replicas."
        )
    tensor = int(job["tensor_parallel"])
    sizes = {
        "tensor": 1 if job["sequence_parallel"] else tensor,
        "tensor_sequence": tensor if job["sequence_parallel"] else 1,
        "context": int(job["context_parallel"]),
        "expert": expert,
        "fsdp": shards // copies,
        "data": copies,
        "pipeline": int(job["pipeline_parallel"]),
    }
    left, found = job.gpus_per_node, dict[str, int]()
    for name in AXES:
        within = gcd(sizes[name], left)
        left //= within
        found |= {f"within_{name}": within, f"across_{name}": sizes[name] // within}
    if left > 1:
        raise LaunchError(
            f"The axes of MaxText's mesh cannot fill nodes of {job.gpus_per_node} GPUs with "
            f"{', '.join(f'{name} {size}' for name, size in sizes.items() if size > 1)}."
        )
    return found


@record(kw_only=True)
class Mesh:
    """The GPUs of each axis as a file tells them; ``num_gpus`` None where it does not."""

    sizes: Mapping[str, int]
    num_gpus: int | None

    @property
    def data(self) -> int:
        """Data-parallel ranks."""
        return prod(self.sizes[name] for name in ("data", "fsdp", "expert"))


def mesh_of(
    number: Callable[[str], int | None], nodes: int | None, gpus_per_node: int | None
) -> Mesh:
    """The mesh of a file's keys; an axis of -1 takes what the others leave.

    Raises
    ------
    LaunchError
        Axes do not fill the GPUs, or two of them take the rest.
    """
    within = _filled("ici", number, gpus_per_node, "fsdp")
    across = _filled("dcn", number, nodes, "data")
    sizes = {name: within[0][name] * across[0][name] for name in AXES}
    is_told = within[1] and across[1]
    return Mesh(sizes=sizes, num_gpus=prod(sizes.values()) if is_told else None)


def _filled(
    kind: str, number: Callable[[str], int | None], places: int | None, rest: str
) -> tuple[dict[str, int], bool]:
    """The sizes of the axes of one kind, and whether they are known."""
    keys = {name: f"{kind}_{name}_parallelism" for name in AXES}
    defaults: dict[str, Any] = {name: _REST if name == rest else 1 for name in AXES}
    sizes = {name: number(key) or defaults[name] for name, key in keys.items()}
    open_axes = [name for name, size in sizes.items() if size == _REST]
    told = prod(size for size in sizes.values() if size != _REST)
    if not open_axes:
        if places is not None and told != places:
            raise LaunchError(
                f"The {kind} axes have {told} places, but the file starts {places}: their product "
                "must be equal."
            )
        return sizes, True
    if len(open_axes) > 1:
        raise LaunchError(f"{' and '.join(keys[n] for n in open_axes)} are -1: one may be.")
    if places is not None and places % told:
        raise LaunchError(f"The {kind} axes have {told} places, which do not divide {places}.")
    is_known = places is not None
    sizes[open_axes[0]] = places // told if places is not None else 1
    return sizes, is_known
