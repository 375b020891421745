"""Make docs/launch_files_read.md: files in the style of public ones, and what is read in each.

Run it after a change of what is read; a test fails while the file is not what it makes:

    python scripts/make_public_launches.py

The files are those of `tests/launch/public/`: each was written for this repository after a public
file, with its options, values and traps; `expected.toml` beside it names that file and says what
must be understood, asked for and not understood.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import planner

ROOT = Path(planner.__file__).parents[1]
FILE = ROOT / "docs" / "launch_files_read.md"
FOLDER = ROOT / "tests" / "launch" / "public"
EXPECTED = "expected.toml"


@dataclass(frozen=True, kw_only=True)
class Case:
    """A launch file and what must be made of it.

    ``source`` is the public file that it was written after, ``target`` the tool that it starts
    (``none``: no tool of ours), ``traps`` what is hard in it. ``understood`` are values by the
    names of the table of terms, ``shape`` keys of the model's ``config.json``, ``asked`` terms
    that the user must add, ``unknown`` options that must be listed as not understood. ``refused``
    is a pattern of the message where the file must be refused instead. ``file`` is the one that
    is read, where several stand together.
    """

    name: str
    source: str
    target: str
    traps: tuple[str, ...]
    file: str = ""
    understood: Mapping[str, Any] = field(default_factory=dict)
    shape: Mapping[str, Any] = field(default_factory=dict)
    asked: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    refused: str = ""

    @property
    def path(self) -> Path:
        """The file that is read."""
        folder = FOLDER / self.name
        names = [path.name for path in folder.iterdir() if path.name != EXPECTED]
        return folder / (self.file or sorted(names)[0])


def cases() -> Iterator[Case]:
    """Every case, by name."""
    for folder in sorted(path for path in FOLDER.iterdir() if path.is_dir()):
        told = tomllib.loads((folder / EXPECTED).read_text(encoding="utf-8"))
        lists = {name: tuple(value) for name, value in told.items() if isinstance(value, list)}
        yield Case(name=folder.name, **{**told, **lists})
