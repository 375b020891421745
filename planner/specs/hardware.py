"""A GPU or a cluster ready to use, with the source of each number and its measured GEMM times.

Parameters
----------
folder : folder of own spec files, searched first; None: working directory and shipped files
name : name, alias or path of the spec
gpu : GPU
where : name or file of the GPU, for error messages
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np

from planner.base.arrays import FloatArray
from planner.base.enums import LinkKind
from planner.base.read_files import TABLE, UncheckedTable
from planner.base.records import record
from planner.base.units import UNITS
from planner.errors import SpecError, did_you_mean
from planner.specs.file_cache import cache_between_runs, stamp
from planner.specs.gpu import ClusterSpec, GpuSpec, ScaleOut, ScaleUp, with_defaults
from planner.specs.spec_files import check_spec, digest, provenance, read_text, read_toml
from planner.specs.spec_paths import SpecKind, find, kernel_folders, listing

Spec = TypeVar("Spec")

_CARDS_PER_NODE = 8
_GPUS_PER_TRAY = 4
_ASSUMED_NODE_NETWORK = 400 * UNITS["byte/s"]["Gbit/s"]


@record(kw_only=True)
class LoadedSpec(Generic[Spec]):
    """A spec with the file that it came from.

    Parameters
    ----------
    spec : spec
    path : file of the spec
    provenance : text of the source of each number, by dotted key
    digest : hexadecimal digest of the files of the spec
    """

    spec: Spec
    path: Path
    provenance: Mapping[str, str]
    digest: str


def load_gpu(name: str, folder: Path | None = None) -> GpuSpec:
    """Load a GPU by name, alias or path, completed with the defaults of its class.

    Raises SpecError if the spec is unknown or its file has errors.
    """
    return load_gpu_with_provenance(name, folder).spec


@cache_between_runs
def load_gpu_with_provenance(name: str, folder: Path | None = None) -> LoadedSpec[GpuSpec]:
    """Load a GPU as `load_gpu` does, with the source of each number.

    Raises SpecError if the spec is unknown or its file has errors.
    """
    path = find(SpecKind.GPUS, name, folder)
    table, defaults = with_defaults(read_toml(path), str(path), folder)
    files = [*defaults, *_kernel_files(table, str(path), folder)]
    return load_spec(GpuSpec, table, path, *files)


def load_cluster(name: str, folder: Path | None = None) -> ClusterSpec:
    """Load a cluster by name, alias or path.

    Raises SpecError if the spec is unknown or its file has errors.
    """
    return load_cluster_with_provenance(name, folder).spec


@cache_between_runs
def load_cluster_with_provenance(name: str, folder: Path | None = None) -> LoadedSpec[ClusterSpec]:
    """Load a cluster as `load_cluster` does, with the source of each number.

    Raises SpecError if the spec is unknown or its file has errors.
    """
    path = find(SpecKind.CLUSTERS, name, folder)
    return load_spec(ClusterSpec, read_toml(path), path)


def network_bandwidth(gpu: GpuSpec) -> float | None:
    """Return the network bandwidth per GPU and direction in its file [bytes/s]; None without one.

    The only link of a machine with one GPU, such as a DGX Spark, is the network.
    """
    is_network = gpu.scale_up.kind is LinkKind.NETWORK
    return gpu.scale_out_bandwidth or (gpu.scale_up.bandwidth if is_network else None)


def default_cluster(gpu: GpuSpec) -> ClusterSpec:
    """Return the default cluster of a GPU, from the links in its file.

    Nodes have eight PCIe cards, also with bridged pairs. If the file has no network, 400 Gbit/s per
    node are assumed.
    """
    scale_up = _default_fabric(gpu)
    large = scale_up.domain_size > 2 * _CARDS_PER_NODE
    gpus_per_node = _GPUS_PER_TRAY if large else scale_up.domain_size
    return ClusterSpec(
        name=f"{gpu.name}-default",
        gpu=gpu.name,
        gpus_per_node=gpus_per_node,
        scale_up=scale_up,
        scale_out=ScaleOut(
            bandwidth=network_bandwidth(gpu) or _ASSUMED_NODE_NETWORK / _CARDS_PER_NODE,
            base_latency=19e-6,
            latency_per_doubling=12e-6,
            efficiency=0.94,
            oversubscription=1.0,
        ),
        notes="made from the GPU's links; network latency and efficiency as of InfiniBand",
    )


def _default_fabric(gpu: GpuSpec) -> ScaleUp:
    """Return the scale-up links of a GPU in a usual server; PCIe cards share one node."""
    link, host = gpu.scale_up, gpu.host
    bridged_pair = link.kind is LinkKind.NVLINK and link.domain_size == 2
    if link.kind is LinkKind.PCIE:
        return ScaleUp(kind=link.kind, bandwidth=link.bandwidth, domain_size=_CARDS_PER_NODE)
    if bridged_pair and host is not None and host.bandwidth is not None:
        return ScaleUp(kind=LinkKind.PCIE, bandwidth=host.bandwidth, domain_size=_CARDS_PER_NODE)
    return ScaleUp(kind=link.kind, bandwidth=link.bandwidth, domain_size=link.domain_size)


def load_spec(
    kind: type[Spec], table: UncheckedTable, path: Path, *others: Path
) -> LoadedSpec[Spec]:
    """Check a table as a ``kind``, with the source of each number; ``others``: files merged in.

    Raises SpecError with one line per error.

    Parameters
    ----------
    kind : class of the spec
    table : table of the file, keys as in TOML
    path : file of the table
    others : files that completed the table
    """
    spec = check_spec(kind, table, where=str(path))
    sources = table.get("sources")
    texts = sources if isinstance(sources, Mapping) else {}
    origins = {key: texts.get(source, source) for key, source in provenance(table).items()}
    return LoadedSpec(spec=spec, path=path, provenance=origins, digest=digest(path, *others))


def _kernel_files(table: UncheckedTable, where: str, folder: Path | None) -> list[Path]:
    """Return the file of the GEMM table that a GPU file names, after reading it; [] without one."""
    efficiency = table.get("efficiency")
    name = efficiency.get("gemm_table") if isinstance(efficiency, Mapping) else None
    if not name or not isinstance(name, str):
        return []
    path = gemm_table_file(name, where, folder)
    read_gemm_table(path)
    return [path]


COLUMNS = "rows,columns,depth,share"
_LARGE = 4096


@record(kw_only=True, eq=False)
class GemmTable:
    """Measured matrix products: by size, the work of a large product with the same time.

    Parameters
    ----------
    sizes : logarithms of rows, columns and depth, each ascending
    work : logarithm of the FLOPs with the same time at the median rate of products with all sizes
        at least 4,096; shape (rows, columns, depth)
    """

    sizes: tuple[FloatArray, FloatArray, FloatArray]
    work: FloatArray


def gemm_table_file(name: str, where: str, folder: Path | None = None) -> Path:
    """Return the file of the GEMM table that the GPU file ``where`` names.

    Raises SpecError if the file is missing.

    Parameters
    ----------
    name : name of the table
    """
    folders = kernel_folders(folder)
    for place in folders:
        path = place / f"{name}.csv"
        if stamp(path) and os.path.isfile(path):
            return path
    valid_names = [name for place in folders for name in listing(place, ".csv")]
    raise SpecError(
        f"{where}: efficiency.gemm_table {name!r} is unknown: there is no {name}.csv in "
        f"{' or '.join(map(str, folders))}.{did_you_mean(name, valid_names)}"
    )


def load_gemm_table(name: str, where: str, folder: Path | None = None) -> GemmTable:
    """Load the GEMM table that the GPU file ``where`` names.

    Raises SpecError if the table is missing or no full grid of positive numbers.

    Parameters
    ----------
    name : name of the table
    """
    return read_gemm_table(gemm_table_file(name, where, folder))


@cache_between_runs
def read_gemm_table(path: Path) -> GemmTable:
    """Read the GEMM table in a file (cached).

    Raises SpecError if the table is no full grid of positive numbers.

    Parameters
    ----------
    path : file to read
    """
    try:
        header, *lines = read_text(path, TABLE).splitlines() or [""]
        if header.strip() != COLUMNS:
            raise SpecError(f"{path}:1: the first line must be {COLUMNS}.")
        if not lines:
            raise SpecError(f"{path}: has no products.")
        values = np.loadtxt(lines, delimiter=",", ndmin=2)
    except ValueError as error:
        raise SpecError(f"{path}: cannot be read: {str(error).rstrip('.')}.") from error
    if values.shape[1] != len(COLUMNS.split(",")) or not np.all(values > 0):
        raise SpecError(f"{path}: every line must have four positive numbers.")
    axes = [np.array(sorted(set(column))) for column in values[:, :3].T.tolist()]
    shape = tuple(len(axis) for axis in axes)
    indices = [np.searchsorted(axis, values[:, i]) for i, axis in enumerate(axes)]
    share = np.full(shape, np.nan)
    share[tuple(indices)] = values[:, 3]
    if len(values) != share.size or np.any(np.isnan(share)) or min(shape) < 2:
        raise SpecError(f"{path}: must have each combination of its rows, columns and depths once.")
    rows, columns, depth = np.meshgrid(*axes, indexing="ij")
    large = np.minimum(np.minimum(rows, columns), depth) >= _LARGE
    typical = _median(share[large]) if np.any(large) else np.max(share)
    work = np.log(2 * rows * columns * depth * typical / share)
    work = (_growing(work) + _growing(work, from_large=True)) / 2
    first, second, third = (np.log(axis) for axis in axes)
    return GemmTable(sizes=(first, second, third), work=work)


def _growing(work: FloatArray, from_large: bool = False) -> FloatArray:
    """Return ``work`` made monotonic in every size: running maximum, or minimum from large."""
    for axis in range(3):
        if from_large:
            work = np.flip(np.minimum.accumulate(np.flip(work, axis), axis=axis), axis)
        else:
            work = np.maximum.accumulate(work, axis=axis)
    return work


def _median(values: FloatArray) -> float:
    # numpy's function imports its masked arrays, which takes longer than reading a table.
    ordered, half = np.sort(values), values.size // 2
    return float(ordered[half] + ordered[~half]) / 2
