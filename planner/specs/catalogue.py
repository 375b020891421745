"""Specs by name: which there are, where one is, and a GPU or cluster ready to use."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Generic, TypeVar

from planner.enums import LinkKind
from planner.errors import SpecError
from planner.specs.cache import kept, stamp
from planner.specs.cluster import ClusterSpec, ScaleOut, ScaleUp
from planner.specs.efficiency import with_defaults
from planner.specs.gemm_table import gemm_table_file, read_gemm_table
from planner.specs.gpu import GpuSpec
from planner.specs.load import check_spec, digest, provenance, read_text, read_toml
from planner.specs.paths import SpecKind, listing, spec_folders
from planner.units import UNITS

Spec = TypeVar("Spec")

# Aliases stand before the first table of a file; reading only them keeps look-ups quick.
_ALIASES = re.compile(r"^aliases\s*=\s*\[[^\]]*\]", re.MULTILINE)
_CARDS_PER_NODE = 8
_GPUS_PER_TRAY = 4
_ASSUMED_NODE_NETWORK = 400 * UNITS["byte/s"]["Gbit/s"]


@dataclass(frozen=True, kw_only=True)
class Loaded(Generic[Spec]):
    """A spec with the file it came from.

    ``provenance`` maps the dotted key of every number to the text of its source, ``digest``
    changes when a file behind the spec changes.
    """

    spec: Spec
    path: Path
    provenance: Mapping[str, str]
    digest: str


def names(kind: SpecKind | str) -> list[str]:
    """All specs of a kind, sorted."""
    return sorted(_files(kind))


def find(kind: SpecKind | str, name: str) -> Path:
    """The file of a spec, by name, alias or path.

    Raises
    ------
    SpecError
        There is none; the message names close ones.
    """
    if name.endswith(".toml") or "/" in name or "\\" in name:
        return _existing_file(Path(name))
    files = _files(kind)
    for word in (name, _normalised(name)):
        if word in files:
            return files[word]
    aliases = _aliases(kind)
    if path := _by_alias(name, files, aliases):
        return path
    raise SpecError(_unknown(SpecKind(kind), name, files, aliases))


def aliased(kind: SpecKind | str, name: str) -> Path | None:
    """The file that has ``name`` among its aliases, if there is one."""
    return _by_alias(name, _files(kind), _aliases(kind))


def _by_alias(name: str, files: Mapping[str, Path], aliases: Mapping[str, str]) -> Path | None:
    stem = aliases.get(_normalised(name))
    return None if stem is None else files[stem]


def load_gpu(name: str) -> GpuSpec:
    """A GPU by name, alias or path, completed with the defaults of its class.

    Raises
    ------
    SpecError
        It is unknown, or its file has faults.
    """
    return load_gpu_with_provenance(name).spec


@kept
def load_gpu_with_provenance(name: str) -> Loaded[GpuSpec]:
    """As `load_gpu`, with the source of each number.

    Raises
    ------
    SpecError
        It is unknown, or its file has faults.
    """
    path = find(SpecKind.GPUS, name)
    table, defaults = with_defaults(read_toml(path), str(path))
    files = [*defaults, *_kernel_files(table, str(path))]
    return loaded(GpuSpec, table, path, *files)


def load_cluster(name: str) -> ClusterSpec:
    """A cluster by name, alias or path.

    Raises
    ------
    SpecError
        It is unknown, or its file has faults.
    """
    return load_cluster_with_provenance(name).spec


@kept
def load_cluster_with_provenance(name: str) -> Loaded[ClusterSpec]:
    """As `load_cluster`, with the source of each number.

    Raises
    ------
    SpecError
        It is unknown, or its file has faults.
    """
    path = find(SpecKind.CLUSTERS, name)
    return loaded(ClusterSpec, read_toml(path), path)


def default_cluster(gpu: GpuSpec) -> ClusterSpec:
    """A cluster of the GPU's own links, for when no cluster is named.

    Cards on PCIe, bridged pairs among them, stand eight to a node. A network the GPU's file
    does not give is assumed to be 400 Gbit/s per node.
    """
    scale_up = _own_fabric(gpu)
    large = scale_up.domain_size > 2 * _CARDS_PER_NODE
    gpus_per_node = _GPUS_PER_TRAY if large else scale_up.domain_size
    return ClusterSpec(
        name=f"{gpu.name}-default",
        gpu=gpu.name,
        gpus_per_node=gpus_per_node,
        scale_up=scale_up,
        scale_out=ScaleOut(
            bandwidth=gpu.scale_out_bandwidth or _ASSUMED_NODE_NETWORK / _CARDS_PER_NODE,
            base_latency=19e-6,
            latency_per_doubling=12e-6,
            efficiency=0.94,
            oversubscription=1.0,
        ),
        notes="made from the GPU's own links; network latency and efficiency as of InfiniBand",
    )


def _own_fabric(gpu: GpuSpec) -> ScaleUp:
    link, host = gpu.scale_up, gpu.host
    bridged_pair = link.kind is LinkKind.NVLINK and link.domain_size == 2
    if link.kind is LinkKind.PCIE:
        return ScaleUp(kind=link.kind, bandwidth=link.bandwidth, domain_size=_CARDS_PER_NODE)
    if bridged_pair and host is not None and host.bandwidth is not None:
        return ScaleUp(kind=LinkKind.PCIE, bandwidth=host.bandwidth, domain_size=_CARDS_PER_NODE)
    return ScaleUp(kind=link.kind, bandwidth=link.bandwidth, domain_size=link.domain_size)


def loaded(kind: type[Spec], table: Mapping[str, Any], path: Path, *others: Path) -> Loaded[Spec]:
    """A table as a spec with the source of each number; ``others``: files it was completed from.

    Raises
    ------
    SpecError
        With one line per fault.
    """
    spec = check_spec(kind, table, where=str(path))
    texts = table.get("sources", {})
    origins = {key: texts.get(source, source) for key, source in provenance(table).items()}
    return Loaded(spec=spec, path=path, provenance=origins, digest=digest(path, *others))


def _kernel_files(table: Mapping[str, Any], where: str) -> list[Path]:
    efficiency = table.get("efficiency")
    name = efficiency.get("gemm_table") if isinstance(efficiency, Mapping) else None
    if not name or not isinstance(name, str):
        return []
    path = gemm_table_file(name, where)
    read_gemm_table(path)
    return [path]


@kept
def _files(kind: SpecKind | str) -> Mapping[str, Path]:
    files: dict[str, Path] = {}
    for folder in spec_folders(kind):
        for path in listing(folder, ".toml"):
            files.setdefault(path.stem, path)
    return files


def _existing_file(path: Path) -> Path:
    stamp(path)
    if not path.is_file():
        what = "is not a regular file" if path.exists() else "there is no such file"
        raise SpecError(f"{path}: {what}.")
    return path


def _normalised(name: str) -> str:
    return re.sub(r"[\s_]+", "-", name.strip().lower())


@kept
def _aliases(kind: SpecKind | str) -> Mapping[str, str]:
    found: dict[str, str] = {}
    for name, path in _files(kind).items():
        for alias in _aliases_in(path):
            for word in (alias, alias.rpartition("/")[2]):  # a repository, without its owner too
                found.setdefault(_normalised(word), name)
    return found


@kept
def _aliases_in(path: Path) -> tuple[str, ...]:
    try:
        match = _ALIASES.search(read_text(path))
        words = tomllib.loads(match.group())["aliases"] if match else []
    except (SpecError, ValueError):
        return ()  # the file is faulty; loading it by its name says how
    return tuple(word for word in words if isinstance(word, str))


def _unknown(
    kind: SpecKind, name: str, files: Mapping[str, Path], aliases: Mapping[str, str]
) -> str:
    targets = {**aliases, **{file: file for file in files}}
    close = get_close_matches(_normalised(name), sorted(targets), n=3, cutoff=0.7)
    suggestions = list(dict.fromkeys(targets[word] for word in close))
    hint = f" Did you mean {' or '.join(suggestions)}?" if suggestions else ""
    listing = f" `planner specs list {kind}` shows all {len(files)}."
    return f"Unknown {kind.singular} {name!r}.{hint}{listing}"
