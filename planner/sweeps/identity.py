"""What results depend on beside the plan: the program and every file of specs."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from planner.errors import OutputError
from planner.specs.paths import data_files
from planner.version import __version__

_PACKAGE = Path(__file__).resolve().parents[1]


def identity(specs: Path | None = None) -> dict[str, str]:
    """The version, and digests of the program and of all files of specs that may be read."""
    return {
        "version": __version__,
        "program": _digest(sorted(_PACKAGE.rglob("*.py"))),
        "specs": _digest(data_files(specs)),
    }


def check_same(mine: Mapping[str, str], other: Mapping[str, str], who: str) -> None:
    """Refuse to go on where something else would compute something else.

    Raises
    ------
    OutputError
        It says what differs.
    """
    differ = [name for name, value in mine.items() if other.get(name) != value]
    if differ:
        versions = f" ({other.get('version')}, here {mine['version']})"
        raise OutputError(
            f"{who} has another {' and '.join(differ)}"
            f"{versions if 'version' in differ else ''}: its results would not go together."
        )


def _digest(paths: Iterable[Path]) -> str:
    """Of the names and contents of files; of what differs between machines nothing."""
    whole = hashlib.sha256()
    for path in paths:
        try:
            content = path.read_bytes()
        except OSError:
            continue
        whole.update(os.fsencode(path.name) + b"\0" + hashlib.sha256(content).digest())
    return whole.hexdigest()[:16]
