"""Folders of spec files, and the lookup of names in them; no other module has folders.

Order of lookup: the folder of the request, the working directory, shipped files.

Parameters
----------
folder : folder of own spec files, searched first; None: working directory and shipped files
kind : kind of spec, such as ``gpus``
name : name of the spec
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from functools import cache
from pathlib import Path

from planner.base.read_files import packaged_rows, parse_toml
from planner.base.records import record
from planner.errors import SpecError, close_choices
from planner.specs.file_cache import IDENTITY, cache_between_runs, cache_by_files, stamp
from planner.specs.spec_files import read_text

# Words around a GPU's name, dropped in this order until the rest is a name.
_MAKERS = {
    "nvidia",
    "tesla",
    "geforce",
    "amd",
    "instinct",
    "radeon",
    "intel",
    "apple",
    "google",
    "ascend",
}
_MACHINES = {"dgx", "hgx", "node", "macbook", "gpu", "gpus", "card", "accelerator", "graphics"}
_MACHINES |= {"data", "center", "mega", "oam", "ac", "arc"}
_EDITIONS = {"blackwell", "hopper", "ampere", "workstation", "server", "desktop", "edition"}
_EDITIONS |= {"generation"}
_LINES = {"pro", "quadro"}
_DROPPED = (
    _MAKERS | {"gpu"},
    _MAKERS | _MACHINES,
    _MAKERS | _MACHINES | _EDITIONS,
    _MAKERS | _MACHINES | _EDITIONS | _LINES,
)
_MEMORY_TYPE = re.compile(r"(?:hbm|gddr)\d?[a-z]?")
_COUNT = re.compile(r"\d{1,3}x|x\d{1,3}")
_COUNTED = re.compile(r"^\d{1,3}[x*](?=[a-z]+\d)|(?<=\d{3})x\d{1,2}$")
_SIZE = re.compile(r"(\d{2,3})g(?:i?b)?")
_FORM = re.compile(r"(sxm|pcie|nvl)\d?")
_PROFILE = re.compile(r"\d{1,3}[abcq]")  # of a virtual GPU, such as L40S-48C
_TRADE_MARKS = re.compile(r"[®™]|\((?:r|tm)\)", re.IGNORECASE)
# A card of 180 GiB is sold as one of 192 GB.
_SIZE_TOLERANCE = 0.1


@record(kw_only=True)
class CloudInstance:
    """A type of a cloud's machines.

    Parameters
    ----------
    gpu : name of its GPU
    gpus : number of its GPUs
    """

    gpu: str
    gpus: int


@cache
def cloud_instances() -> Mapping[str, CloudInstance]:
    """Return types of machines of clouds by their names, in lower case."""
    return {
        row["instance"]: CloudInstance(gpu=row["gpu"], gpus=int(row["gpus"]))
        for row in packaged_rows(Path(__file__).parent / "instances.csv")
    }


def named_gpu(text: str, gpu_by_name: Mapping[str, str]) -> str | None:
    """Return the GPU that a driver, scheduler, cloud or person names; None if unknown.

    Parameters
    ----------
    text : name, such as ``NVIDIA H100 80GB HBM3``
    gpu_by_name : GPUs by their names and aliases in lower case

    >>> named_gpu("NVIDIA H100 80GB HBM3", {"h100": "h100-sxm-80gb"})
    'h100-sxm-80gb'
    """
    if not text.isprintable():
        return None
    lower = _TRADE_MARKS.sub("", text).strip().lower()
    for word in (lower, f"standard_{lower}"):
        if (instance := cloud_instances().get(re.sub(r"\s+", "_", word))) is not None:
            return instance.gpu
    by_letters = {_join(_parts(name)): gpu for name, gpu in gpu_by_name.items()}
    parts = _parts(lower.partition("mig-")[0])
    parts = [part for part in parts if not _COUNT.fullmatch(part)]
    for dropped in _DROPPED:
        name = [part for part in parts if part not in dropped]
        for spelling in (name, [_COUNTED.sub("", part) for part in name]):
            if gpu := by_letters.get(_join(spelling)) or _variant(spelling, by_letters):
                return gpu
    return None


def _variant(parts: list[str], by_letters: Mapping[str, str]) -> str | None:
    """Return the GPU of a family by the memory size and form that follow its name."""
    described = (_SIZE, _FORM, _MEMORY_TYPE, _PROFILE)
    family = [part for part in parts if not any(kind.fullmatch(part) for kind in described)]
    gpu = by_letters.get(_join(family))
    if gpu is None or len(family) == len(parts):
        return None
    size = next((int(match[1]) for part in parts if (match := _SIZE.fullmatch(part))), None)
    form = next((match[1] for part in parts if (match := _FORM.fullmatch(part))), "")
    stem = gpu.partition("-")[0]
    relatives = [gpu]
    if re.search(r"\d", stem):
        relatives += [name for name in {*by_letters.values()} if name.startswith(f"{stem}-")]
    near = [name for name in relatives if size is None or _has_size(name, size)]
    near = [name for name in near if name.endswith(f"-{size}gb")] or near
    fitting = [name for name in sorted(near) if (form or "sxm") in name]
    return next(iter((*fitting, *near)), None)


def _has_size(gpu: str, size: int) -> bool:
    """Whether the memory size in a GPU's name is ``size`` [GB]; True if the name has none."""
    match = re.search(r"-(\d+)gb$", gpu)
    return match is None or abs(int(match[1]) / size - 1) <= _SIZE_TOLERANCE


def _parts(text: str) -> list[str]:
    return re.findall(r"[a-z0-9+.*]+", text)


def _join(parts: Iterable[str]) -> str:
    return "".join(parts)


API_PRICES = "api_prices.csv"
"""Name of a list of prices per token."""

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
        """The singular of the kind in messages."""
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
    """Return the folders of specs of ``kind`` in lookup order, the user's ``folder`` first."""
    word = SpecKind(kind)
    candidates = [root / word for root in _user_roots(folder)]
    if word in _OF_SPACES:
        candidates.append(Path("search_spaces") / _OF_SPACES[word])
    candidates.append(_shipped(word))
    return _existing(candidates)


@cache_by_files
def listing(folder: Path, suffix: str) -> tuple[str, ...]:
    """Return the sorted names of the entries of a folder that end with ``suffix``, without it.

    Parameters
    ----------
    folder : folder to list
    suffix : end of the names
    """
    stamp(folder)
    try:
        entries = sorted(name for name in os.listdir(folder) if name.endswith(suffix))
    except OSError:  # no folder, or one that may not be read
        return ()
    return tuple(name.removesuffix(suffix) for name in entries)


def is_shipped(kind: SpecKind, name: str) -> bool:
    """Return whether planner ships a spec of this name."""
    return name in listing(_shipped(kind), ".toml")


def price_files(folder: Path | None = None) -> list[Path]:
    """Return the price lists in lookup order."""
    return extra_files("prices.csv", folder)


def data_folders(folder: Path | None = None) -> list[Path]:
    """Return the folders of all files that a plan may use."""
    roots = [*_user_roots(folder), Path("search_spaces")]
    roots += [_data_folder("hardware_specs"), _data_folder("search_spaces")]
    roots += [_shipped(kind) for kind in (SpecKind.MODELS, SpecKind.FRAMEWORKS, SpecKind.ENGINES)]
    return _existing(roots)


def data_files(folder: Path | None = None) -> list[Path]:
    """Return every file that a plan may use, sorted by path within each folder."""
    paths = [path for root in data_folders(folder) for path in sorted(root.rglob("*"))]
    return [path for path in paths if path.suffix in (".toml", ".csv") and os.path.isfile(path)]


def api_price_files(folder: Path | None = None) -> list[Path]:
    """Return the lists of API prices per token in lookup order."""
    return extra_files(API_PRICES, folder)


def load_file(path: Path) -> Path:
    """Return the file of a daily load: an existing path, else the built-in file of this name.

    Parameters
    ----------
    path : path or name of the file
    """
    shipped = _data_folder("search_spaces") / "loads" / path.name
    is_shipped = str(path) == path.name and not os.path.exists(path) and os.path.exists(shipped)
    return shipped if is_shipped else path


def kernel_folders(folder: Path | None = None) -> list[Path]:
    """Return the folders of measured kernel tables in lookup order."""
    return extra_files("kernels", folder)


def extra_files(name: str, folder: Path | None = None) -> list[Path]:
    """Return files or folders of a name next to the spec folders, in lookup order.

    Parameters
    ----------
    name : name of a file or folder
    """
    roots = [*_user_roots(folder), _data_folder("hardware_specs")]
    return _existing([root / name for root in roots])


def _user_roots(folder: Path | None) -> list[Path]:
    local = Path("hardware_specs")
    return [local] if folder is None else [folder, local]


def _shipped(kind: SpecKind) -> Path:
    """Return the folder of the built-in specs of a kind."""
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
    # A wheel has the folder inside the package; a checkout has it next to the package.
    inside = _PACKAGE / "data" / name
    return inside if stamp(inside) else _PACKAGE.parent / name


def _existing(candidates: list[Path]) -> list[Path]:
    """Return the paths that exist, each folder once even if two paths lead to it."""
    by_identity: dict[tuple[int, ...], Path] = {}
    for path in candidates:
        if seen := stamp(path):
            by_identity.setdefault(seen[IDENTITY], path)
    return list(by_identity.values())


# They precede the first table of a file; reading only them keeps look-ups fast.
_ALIASES = re.compile(r"^aliases\s*=\s*\[[^\]]*\]", re.MULTILINE)
_NAME = re.compile(r"^name\s*=\s*\"([^\"\n\\]+)\"", re.MULTILINE)

_MAX_SUGGESTIONS = 3
_SHORTEST_PART = 3


class UnknownSpecError(SpecError):
    """No spec has this name; close ones are looked for when somebody reads the message."""

    def __str__(self) -> str:
        # The caller raises it again with the position of the name.
        return _unknown(*self.args) if len(self.args) > 1 else super().__str__()


def names(kind: SpecKind | str, folder: Path | None = None) -> list[str]:
    """Return the sorted names of all specs of a kind; ``folder`` hides built-ins of equal name."""
    return sorted(_folders(kind, folder))


def find(kind: SpecKind | str, name: str, folder: Path | None = None) -> Path:
    """Return the file of a spec, by name, alias or path; raise SpecError if unknown.

    Raises SpecError if no file has the name; the message lists close names.

    Parameters
    ----------
    name : name, alias or path of the spec
    """
    if name.endswith(".toml") or "/" in name or "\\" in name:
        direct = Path(name)
        stamp(direct)
        if not os.path.isfile(direct):
            problem = "is not a regular file" if os.path.exists(direct) else "there is no such file"
            raise SpecError(f"{direct}: {problem}.")
        return direct
    folders = _folders(kind, folder)
    for word in (name, _normalised(name)):
        if word in folders:
            return folders[word] / f"{word}.toml"
    if path := aliased(kind, name, folder):
        return path
    if SpecKind(kind) is SpecKind.GPUS and (gpu := named_gpu(name, gpus_by_name(folder))):
        return folders[gpu] / f"{gpu}.toml"
    raise UnknownSpecError(SpecKind(kind), name, folders, aliases_of(kind, folder))


@cache_by_files
def gpus_by_name(folder: Path | None = None) -> Mapping[str, str]:
    """Return the names of GPU specs by name and alias."""
    by_name = {name: name for name in names(SpecKind.GPUS, folder)}
    return {**aliases_of(SpecKind.GPUS, folder), **by_name}


def aliased(kind: SpecKind | str, name: str, folder: Path | None = None) -> Path | None:
    """Return the file with ``name`` among its aliases; None if there is none.

    Parameters
    ----------
    name : name, alias or path of the spec
    """
    stem = aliases_of(kind, folder).get(_normalised(name))
    if stem is None and SpecKind(kind) is SpecKind.MODELS and "/" not in name:
        stem = _models_by_letters(folder).get(_letters(name))
    return None if stem is None else _folders(kind, folder)[stem] / f"{stem}.toml"


def ollama_rows() -> list[dict[str, str]]:
    """Return models and types of weights of Ollama's library by name and tag."""
    return packaged_rows(Path(__file__).parent / "ollama.csv")


@cache_by_files
def _models_by_letters(folder: Path | None) -> Mapping[str, str]:
    """Return models by their names and aliases without the characters between words.

    Names of Ollama with a tag are among them; one of two models is not.
    """
    models: dict[str, set[str]] = {}
    folders = _folders(SpecKind.MODELS, folder)
    words = {**aliases_of(SpecKind.MODELS, folder), **{name: name for name in folders}}
    tagged = {
        f"{row['name']}:{row['tag']}": row["model"]
        for row in ollama_rows()
        if row["tag"] and row["model"] in folders
    }
    for word, stem in words.items():
        models.setdefault(_letters(word), set()).add(stem)
    models |= {_letters(word): {stem} for word, stem in tagged.items()}
    return {letters: next(iter(stems)) for letters, stems in models.items() if len(stems) == 1}


def _letters(name: str) -> str:
    return re.sub(r"[-_:\s]+", "", name.strip().lower())


@cache_by_files
def _folders(kind: SpecKind | str, folder: Path | None) -> Mapping[str, Path]:
    """Return the folder of each spec of a kind by name; the first that has a name wins."""
    folders: dict[str, Path] = {}
    for place in spec_folders(kind, folder):
        for name in listing(place, ".toml"):
            folders.setdefault(name, place)
    return folders


def _normalised(name: str) -> str:
    return re.sub(r"[\s_]+", "-", name.strip().lower())


@cache_between_runs
def aliases_of(kind: SpecKind | str, folder: Path | None = None) -> Mapping[str, str]:
    """Return spec names by lower-case alias, with and without its owner, or displayed name."""
    aliases: dict[str, str] = {}
    paths = {name: home / f"{name}.toml" for name, home in _folders(kind, folder).items()}
    for name, path in paths.items():
        for alias in _aliases_in(path):
            # A repository, without its owner too, and as the folder that tools make of it.
            for word in (alias, alias.rpartition("/")[2], alias.replace("/", "-")):
                aliases.setdefault(_normalised(word), name)
    for name, path in paths.items():  # results show the name that the file sets
        if shown := _name_in(path):
            aliases.setdefault(_normalised(shown), name)
    return aliases


@cache_by_files
def _name_in(path: Path) -> str:
    """Return the ``name`` that a spec file sets; "" if it sets none or cannot be read."""
    try:
        match = _NAME.search(read_text(path))
    except SpecError:
        return ""
    return match.group(1) if match else ""


@cache_by_files
def _aliases_in(path: Path) -> tuple[str, ...]:
    """Return the ``aliases`` list of a spec file; () without one or if the file has errors."""
    try:
        match = _ALIASES.search(read_text(path))
        words = parse_toml(match.group(), str(path))["aliases"] if match else None
    except SpecError:
        return ()  # the file has errors; loading it by its name reports them
    return tuple(word for word in words if isinstance(word, str)) if isinstance(words, list) else ()


def close_names(kind: SpecKind | str, name: str, folder: Path | None = None) -> str:
    """Return a sentence with the specs whose names or aliases are closest; "" if none is close."""
    return _close_names(name.rpartition("/")[2], _folders(kind, folder), aliases_of(kind, folder))


def _unknown(
    kind: SpecKind, name: str, files: Mapping[str, Path], aliases: Mapping[str, str]
) -> str:
    """Return the error message for an unknown spec name, with the closest names."""
    hint = _close_names(name, files, aliases)
    listing = f" `planner specs list {kind}` shows all {len(files)}."
    if kind is SpecKind.SWEEPS:  # few, and questions rather than specs
        listing = f" Known: {', '.join(sorted(files))}."
    return f"Unknown {kind.singular} {name!r}.{hint}{listing}"


def _close_names(name: str, files: Mapping[str, Path], aliases: Mapping[str, str]) -> str:
    targets = {**aliases, **{file: file for file in files}}
    close = close_choices(_normalised(name), targets, cutoff=0.7)
    if not close:  # such as the h100 of nvidia-h100: the most parts in common
        parts = {part for part in _normalised(name).split("-") if len(part) >= _SHORTEST_PART}
        shared = {word: len(parts & {*word.split("-")}) for word in sorted(targets)}
        close = sorted(filter(shared.get, shared), key=lambda word: -shared[word])[
            :_MAX_SUGGESTIONS
        ]
    starts = _normalised(name)
    by_spec = {
        spec: word if word.startswith(starts) and not spec.startswith(starts) else spec
        for word, spec in ((word, targets[word]) for word in close)
    }
    suggestions = [*by_spec.values()]
    return f" Did you mean {' or '.join(suggestions)}?" if suggestions else ""
