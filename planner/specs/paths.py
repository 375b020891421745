"""Where spec files are: the one module that knows folders.

Looked up in this order: the folder of the request, the working directory, what is shipped.
"""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path

from planner.specs.cache import IDENTITY, kept, stamp

API_PRICES = "api_prices.csv"
"""What a list of prices per token is called."""

_PACKAGE = Path(__file__).resolve().parents[1]


class SpecKind(StrEnum):
    """The kinds of spec files; the value is the name of their folder."""

    GPUS = "gpus"
    CLUSTERS = "clusters"
    MODELS = "models"
    FRAMEWORKS = "frameworks"
    ENGINES = "engines"
    SPACES = "spaces"
    EFFICIENCY = "efficiency"
    SWEEPS = "sweeps"
    RELIABILITY = "reliability"

    @property
    def singular(self) -> str:
        """The word for one of them in messages."""
        return _SINGULAR[self]


_SINGULAR = {
    SpecKind.GPUS: "GPU",
    SpecKind.CLUSTERS: "cluster",
    SpecKind.MODELS: "model",
    SpecKind.FRAMEWORKS: "framework",
    SpecKind.ENGINES: "engine",
    SpecKind.SPACES: "search space",
    SpecKind.EFFICIENCY: "efficiency class",
    SpecKind.SWEEPS: "sweep",
    SpecKind.RELIABILITY: "reliability",
}


# The folders of `search_spaces` that hold them.
_OF_SPACES = {SpecKind.SPACES: ".", SpecKind.SWEEPS: "sweeps"}


def spec_folders(kind: SpecKind | str, folder: Path | None = None) -> list[Path]:
    """The folders that hold specs of ``kind``, that of the user's ``folder`` in front."""
    word = SpecKind(kind)
    candidates = [root / word for root in _user_roots(folder)]
    if word in _OF_SPACES:
        candidates.append(Path("search_spaces") / _OF_SPACES[word])
    candidates.append(_shipped(word))
    return _existing(candidates)


@kept
def listing(folder: Path, suffix: str) -> tuple[Path, ...]:
    """The entries of a folder whose names end with ``suffix``, sorted."""
    stamp(folder)
    try:
        found = sorted(name for name in os.listdir(folder) if name.endswith(suffix))
    except OSError:  # no folder, or one that may not be read
        return ()
    return tuple(folder / name for name in found)


def price_files(folder: Path | None = None) -> list[Path]:
    """The price lists, the one whose prices count first in front."""
    return beside_specs("prices.csv", folder)


def data_files(folder: Path | None = None) -> list[Path]:
    """Every file that a plan may read, sorted by its place in its folder."""
    roots = [*_user_roots(folder), Path("search_spaces")]
    roots += [_data_folder("hardware_specs"), _data_folder("search_spaces")]
    roots += [_shipped(kind) for kind in (SpecKind.MODELS, SpecKind.FRAMEWORKS, SpecKind.ENGINES)]
    found = [path for root in _existing(roots) for path in sorted(root.rglob("*"))]
    return [path for path in found if path.suffix in (".toml", ".csv") and os.path.isfile(path)]


def api_price_files(folder: Path | None = None) -> list[Path]:
    """The lists of prices per token, the one whose prices count first in front."""
    return beside_specs(API_PRICES, folder)


def load_file(path: Path) -> Path:
    """The file of a day's load: where it is named, else the one of this name that is shipped."""
    shipped = _data_folder("search_spaces") / "loads" / path.name
    is_shipped = str(path) == path.name and not os.path.exists(path) and os.path.exists(shipped)
    return shipped if is_shipped else path


def kernel_folders(folder: Path | None = None) -> list[Path]:
    """The folders of tables of measured kernels, the one to look in first in front."""
    return beside_specs("kernels", folder)


def beside_specs(name: str, folder: Path | None = None) -> list[Path]:
    """The files or folders of a name beside the folders of specs, the one that counts in front."""
    roots = [*_user_roots(folder), _data_folder("hardware_specs")]
    return _existing([root / name for root in roots])


def _user_roots(folder: Path | None) -> list[Path]:
    local = Path("hardware_specs")
    return [local] if folder is None else [folder, local]


def _shipped(kind: SpecKind) -> Path:
    if kind is SpecKind.MODELS:
        return _PACKAGE / "model_specs"
    if kind is SpecKind.FRAMEWORKS:
        return _PACKAGE / "framework_profiles"
    if kind is SpecKind.ENGINES:
        return _PACKAGE / "engine_profiles"
    if kind in _OF_SPACES:
        return _data_folder("search_spaces") / _OF_SPACES[kind]
    return _data_folder("hardware_specs") / kind


def _data_folder(name: str) -> Path:
    # A wheel carries the folder inside the package; a checkout, editable or not, beside it.
    inside = _PACKAGE / "data" / name
    return inside if stamp(inside) else _PACKAGE.parent / name


def _existing(candidates: list[Path]) -> list[Path]:
    found: dict[tuple[int, ...], Path] = {}
    for path in candidates:
        if seen := stamp(path):
            found.setdefault(seen[IDENTITY], path)
    return list(found.values())
