"""Efficiencies a GPU file leaves out, taken from a class of GPUs or a sibling, and marked so.

``default_efficiency`` of a GPU file names where the rest comes from: class files in
``hardware_specs/efficiency`` (``hopper``, ``nvlink``) or another GPU of the same silicon.
Of several names the later one wins; the file's own figures win over all.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from planner.base.enums import LinkKind, Precision
from planner.base.reading import table_of
from planner.errors import SpecError, did_you_mean
from planner.specs.cache import kept, stamp
from planner.specs.gpu import CollectiveEfficiency, GpuSpec
from planner.specs.load import check_spec, read_toml
from planner.specs.paths import SpecKind, listing, spec_folders

DEFAULT = "default ("
_LINK_CLASSES = {
    LinkKind.NVLINK: "nvlink",
    LinkKind.PCIE: "pcie",
    LinkKind.XGMI: "xgmi",
    LinkKind.NETWORK: "network",
}


def with_defaults(
    table: Mapping[str, object], where: str, folder: Path | None = None
) -> tuple[dict[str, object], list[Path]]:
    """A GPU's table completed from its defaults, and the files they came from.

    Raises
    ------
    SpecError
        A default is unknown, cannot be read, or leads back to itself.
    """
    return _completed(table, where, folder, ())


def is_measured(provenance: Mapping[str, str], part: str) -> bool:
    """Whether every figure of a part such as ``gemm.bf16`` was measured on this very GPU."""
    prefix = f"efficiency.{part}"
    sources = [
        source
        for key, source in provenance.items()
        if key == prefix or key.startswith(f"{prefix}.")
    ]
    others = (DEFAULT, "assumed", "transferred")
    return bool(sources) and not any(source.startswith(others) for source in sources)


def is_assumed(provenance: Mapping[str, str], part: str) -> bool:
    """Whether nothing published stands for a figure such as ``gemm.bf16.compute_fraction``."""
    source = provenance.get(f"efficiency.{part}", "assumed")
    return source.startswith((DEFAULT, "assumed")) and source.endswith("assumed")


def gemm_key(precision: Precision) -> str:
    """The row of ``Efficiency.gemm`` for a precision: that of fp8 for fp4, else that of bf16."""
    return "fp8" if precision in (Precision.FP8, Precision.FP4) else "bf16"


def collectives(
    gpu: GpuSpec, kind: LinkKind, folder: Path | None = None
) -> Mapping[str, CollectiveEfficiency]:
    """What collectives reach on a fabric of ``kind``: the GPU's own, or the kind's defaults.

    They differ when a cluster joins the GPUs otherwise than the GPU's own link does, such
    as PCIe cards with NVLink bridges.
    """
    if kind is gpu.scale_up.kind:
        return gpu.efficiency.collective
    name = _LINK_CLASSES.get(kind, "other_fabric")
    return _link_collectives(_default_file(name, f"collectives over {kind}", folder))


def _completed(
    table: Mapping[str, object], where: str, folder: Path | None, seen: tuple[str, ...]
) -> tuple[dict[str, object], list[Path]]:
    own = dict(table)
    names = own.pop("default_efficiency", [])
    names = [names] if isinstance(names, str) else names
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise SpecError(f"{where}: default_efficiency must be a name or a list of names.")
    efficiency: object = {}
    sources: dict[str, object] = {}
    files: list[Path] = []
    for name in names:
        default, used = _default_tables(name, where, folder, seen)
        efficiency = merged(efficiency, default["efficiency"])
        sources |= table_of(default["sources"], where)
        files += used
    if names:
        own["efficiency"] = merged(efficiency, own.get("efficiency", {}))
    if sources and isinstance(given := own.get("sources", {}), dict):
        own["sources"] = sources | given
    return own, files


def _default_tables(
    name: str, where: str, folder: Path | None, seen: tuple[str, ...]
) -> tuple[dict[str, object], list[Path]]:
    if name in seen:
        raise SpecError(f"{where}: default_efficiency leads back to {name!r}.")
    path = _default_file(name, where, folder)
    table, files = _completed(read_toml(path), str(path), folder, (*seen, name))
    efficiency, sources = table.get("efficiency"), table.get("sources", {})
    if not isinstance(efficiency, dict) or not isinstance(sources, dict):
        raise SpecError(f"{path}: needs the tables [efficiency] and [sources].")
    texts = {
        f"{name}.{key}": f"{DEFAULT}{name}): {text}"
        for key, text in {**sources, "assumed": "assumed"}.items()
    }
    return {"efficiency": _renamed(efficiency, name), "sources": texts}, [path, *files]


def _default_file(name: str, where: str, folder: Path | None) -> Path:
    places = [*spec_folders(SpecKind.EFFICIENCY, folder), *spec_folders(SpecKind.GPUS, folder)]
    for place in places:
        path = place / f"{name}.toml"
        if stamp(path) and os.path.isfile(path):
            return path
    known = [path.stem for place in places for path in listing(place, ".toml")]
    raise SpecError(f"{where}: default_efficiency {name!r} is unknown.{did_you_mean(name, known)}")


def _renamed(table: Mapping[str, object], prefix: str) -> dict[str, object]:
    """The table with ``prefix.`` before the source of each quantity in it."""
    renamed = {}
    for key, value in table.items():
        if isinstance(value, dict):
            value = _renamed(value, prefix)
        elif key == "source" and isinstance(value, str):
            value = f"{prefix}.{value}"
        renamed[key] = value
    return renamed


def merged(below: object, above: object) -> object:
    """Nested tables, the second over the first.

    A quantity is replaced as a whole: its number must not keep another's source.
    """
    if not isinstance(below, dict) or not isinstance(above, dict):
        return above
    if "value" in below or "value" in above:
        return above
    return {
        key: merged(below[key], above[key])
        if key in below and key in above
        else (above if key in above else below)[key]
        for key in {**below, **above}
    }


@kept
def _link_collectives(path: Path) -> Mapping[str, CollectiveEfficiency]:
    table = read_toml(path)
    where, sources = str(path), table.get("sources", {})
    efficiency = table_of(table.get("efficiency", {}), f"{where}: efficiency")
    operations = table_of(efficiency.get("collective", {}), f"{where}: efficiency.collective")
    rows = {name: table_of(row, f"{where} ({name})") for name, row in operations.items()}
    return {
        name: check_spec(CollectiveEfficiency, {**row, "sources": sources}, f"{where} ({name})")
        for name, row in rows.items()
    }
