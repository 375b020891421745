"""Spec files by name: which there are, and where one is."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path

from planner.base.reading import toml_of
from planner.errors import SpecError
from planner.specs.cache import kept, stamp
from planner.specs.load import read_text
from planner.specs.paths import SpecKind, listing, spec_folders

# Aliases stand before the first table of a file; reading only them keeps look-ups quick.
_ALIASES = re.compile(r"^aliases\s*=\s*\[[^\]]*\]", re.MULTILINE)

_MOST_MEANT = 3
_SHORTEST_PART = 3


def names(kind: SpecKind | str, folder: Path | None = None) -> list[str]:
    """All specs of a kind, sorted; those of ``folder`` hide others of their name."""
    return sorted(_files(kind, folder))


def find(kind: SpecKind | str, name: str, folder: Path | None = None) -> Path:
    """The file of a spec, by name, alias or path.

    Raises
    ------
    SpecError
        There is none; the message names close ones.
    """
    if name.endswith(".toml") or "/" in name or "\\" in name:
        return _existing_file(Path(name))
    files = _files(kind, folder)
    for word in (name, _normalised(name)):
        if word in files:
            return files[word]
    aliases = _aliases(kind, folder)
    if path := _by_alias(name, files, aliases):
        return path
    raise SpecError(_unknown(SpecKind(kind), name, files, aliases))


def aliased(kind: SpecKind | str, name: str, folder: Path | None = None) -> Path | None:
    """The file that has ``name`` among its aliases, if there is one."""
    return _by_alias(name, _files(kind, folder), _aliases(kind, folder))


def aliases_of(kind: SpecKind | str, folder: Path | None = None) -> Mapping[str, str]:
    """The specs that aliases mean: lower-case alias, with its owner and without -> name."""
    return _aliases(kind, folder)


def _by_alias(name: str, files: Mapping[str, Path], aliases: Mapping[str, str]) -> Path | None:
    stem = aliases.get(_normalised(name))
    return None if stem is None else files[stem]


@kept
def _files(kind: SpecKind | str, folder: Path | None) -> Mapping[str, Path]:
    files: dict[str, Path] = {}
    for place in spec_folders(kind, folder):
        for path in listing(place, ".toml"):
            files.setdefault(path.stem, path)
    return files


def _existing_file(path: Path) -> Path:
    stamp(path)
    if not os.path.isfile(path):
        what = "is not a regular file" if os.path.exists(path) else "there is no such file"
        raise SpecError(f"{path}: {what}.")
    return path


def _normalised(name: str) -> str:
    return re.sub(r"[\s_]+", "-", name.strip().lower())


@kept
def _aliases(kind: SpecKind | str, folder: Path | None) -> Mapping[str, str]:
    found: dict[str, str] = {}
    for name, path in _files(kind, folder).items():
        for alias in _aliases_in(path):
            for word in (alias, alias.rpartition("/")[2]):  # a repository, without its owner too
                found.setdefault(_normalised(word), name)
    return found


@kept
def _aliases_in(path: Path) -> tuple[str, ...]:
    try:
        match = _ALIASES.search(read_text(path))
        words = toml_of(match.group(), str(path))["aliases"] if match else []
    except SpecError:
        return ()  # the file is faulty; loading it by its name says how
    return tuple(word for word in words if isinstance(word, str))


def _unknown(
    kind: SpecKind, name: str, files: Mapping[str, Path], aliases: Mapping[str, str]
) -> str:
    targets = {**aliases, **{file: file for file in files}}
    close = get_close_matches(_normalised(name), sorted(targets), n=_MOST_MEANT, cutoff=0.7)
    close = close or _sharing_parts(_normalised(name), targets)
    suggestions = list(dict.fromkeys(targets[word] for word in close))
    hint = f" Did you mean {' or '.join(suggestions)}?" if suggestions else ""
    listing = f" `planner specs list {kind}` shows all {len(files)}."
    if kind is SpecKind.SWEEPS:  # few, and questions rather than specs
        listing = f" Known: {', '.join(sorted(files))}."
    return f"Unknown {kind.singular} {name!r}.{hint}{listing}"


def _sharing_parts(name: str, targets: Iterable[str]) -> list[str]:
    """Names with the most parts of an unlike one, such as the h100 of nvidia-h100."""
    parts = {part for part in name.split("-") if len(part) >= _SHORTEST_PART}
    shared = {word: len(parts & {*word.split("-")}) for word in sorted(targets)}
    found = sorted((word for word, number in shared.items() if number), key=lambda w: -shared[w])
    return found[:_MOST_MEANT]
