"""What results depend on beside the plan: the program and every file that is read."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np

from planner.base.reading import TABLE, read_bytes
from planner.errors import OutputError, SpecError
from planner.specs.paths import data_files
from planner.sweeps.plan import SweepPlan
from planner.version import __version__

_PACKAGE = Path(__file__).resolve().parents[1]
_VERSIONS = ("version", "numpy")


def identity(plan: SweepPlan) -> dict[str, str]:
    """The versions, and digests of the program, of all files of specs and of those named.

    Other versions of numpy round some results otherwise.
    """
    return {
        "version": __version__,
        "numpy": np.__version__,
        "program": _digest(sorted(_PACKAGE.rglob("*.py"))),
        "specs": _digest(data_files(plan.specs)),
        "files": _digest(_named(plan)),
    }


def check_same(mine: Mapping[str, str], other: Mapping[str, str], who: str) -> None:
    """Refuse to go on where something else would compute something else.

    Raises
    ------
    OutputError
        It says what differs.
    """
    if differ := differences(mine, other):
        raise OutputError(f"{who} has another {differ}: its results would not go together.")


def differences(mine: Mapping[str, str], other: Mapping[str, str]) -> str:
    """In words, in what something else differs from here; empty where in nothing."""
    return " and ".join(
        f"{name} ({other.get(name, 'none')}, here {value})" if name in _VERSIONS else name
        for name, value in mine.items()
        if other.get(name) != value
    )


def _named(plan: SweepPlan) -> Iterator[Path]:
    """The files that a plan names itself: own models, GPUs, spaces, prices."""
    for work in plan.works:
        answers = [one for values in work.axes.values() for one in values]
        for value in (*answers, *work.settings.values()):
            if not isinstance(value, str | Path):
                continue
            inside = os.path.join(value, "config.json")  # of a model's folder
            yield from (Path(path) for path in (value, inside) if os.path.isfile(path))


def _digest(paths: Iterable[Path]) -> str:
    """Of the names and contents of files; of what differs between machines nothing."""
    whole = hashlib.sha256()
    for path in paths:
        try:
            content = read_bytes(path, TABLE)
        except SpecError:
            continue
        whole.update(os.fsencode(path.name) + b"\0" + hashlib.sha256(content).digest())
    return whole.hexdigest()[:16]
