"""Pieces of a sweep: some scenarios run together, kept as one compressed file."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from planner.base.reading import TABLE, json_of, lines, opened
from planner.base.records import record
from planner.errors import SpecError
from planner.sweeps.plan import SweepPlan
from planner.sweeps.scenario import Outcome, run_scenarios

AGAIN = "Run the sweep again with --fresh."
"""What to do where a file of a sweep is damaged."""

SCENARIOS_OF_A_PART = 16
"""A task of 2 to 5 ms of its own is then a hundredth of the work, and little is lost by a kill."""

_LEVEL = 3
_KINDS: Mapping[type, str] = {bool: "flag", int: "count", float: "number", str: "text"}


@record()
class Part:
    """The scenarios ``first`` to ``end`` - 1 of a plan."""

    number: int
    first: int
    end: int

    @property
    def name(self) -> str:
        """Of its file."""
        return f"{self.number:06d}.jsonl.gz"


def parts_of(num_scenarios: int, size: int = SCENARIOS_OF_A_PART) -> Iterator[Part]:
    """All parts of a sweep, in order."""
    for number, first in enumerate(range(0, num_scenarios, size)):
        yield Part(number, first, min(first + size, num_scenarios))


def run_part(plan: SweepPlan, part: Part) -> bytes:
    """The content of a part's file: the kinds of its columns, then a row and a front in turn."""
    found = [*run_scenarios(plan.scenarios(range(part.first, part.end)), plan.specs)]
    head = {"rows": _kinds(found, front=False), "fronts": _kinds(found, front=True)}
    lines = [head, *(line for one in found for line in (one.row, one.front))]
    text = "".join(
        json.dumps(line, allow_nan=False, separators=(",", ":")) + "\n" for line in lines
    )
    return gzip.compress(text.encode(), _LEVEL, mtime=0)


def read_head(path: Path) -> dict[str, dict[str, str]]:
    """The kinds of the columns of rows and of fronts.

    Raises
    ------
    SpecError
        It cannot be read, or is no part, as of the next two.
    """
    head = next(_read(path, 0), {})
    if not all(isinstance(head.get(name), dict) for name in ("rows", "fronts")):
        raise SpecError(f"{path}: does not begin with the kinds of its columns. {AGAIN}")
    return head


def read_rows(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of the scenarios of a part, in order."""
    return _read(path, 1)


def read_fronts(path: Path) -> Iterator[dict[str, list[Any]]]:
    """The columns of the fronts of the scenarios of a part, in order."""
    return _read(path, 2)


def _read(path: Path, first: int) -> Iterator[dict[str, Any]]:
    with opened(path) as file, gzip.GzipFile(fileobj=file) as unpacked:
        try:
            for text in islice(lines(unpacked, path, most=TABLE), first, None, 2):
                line = json_of(text, str(path))
                if not isinstance(line, dict):
                    raise SpecError(f"{path}: has a line that is no object. {AGAIN}")
                yield line
        except (EOFError, zlib.error) as error:
            raise SpecError(f"{path}: is cut off or damaged ({error}). {AGAIN}") from error


def is_whole(path: Path, part: Part) -> bool:
    """Whether a file is there with every scenario of the part.

    Its checksum tells whether what it says is what was written.
    """
    try:
        with opened(path) as file, gzip.GzipFile(fileobj=file) as unpacked:
            return sum(1 for _ in unpacked) == 1 + 2 * (part.end - part.first)
    except (SpecError, OSError, EOFError, zlib.error):
        return False


def _kinds(outcomes: list[Outcome], *, front: bool) -> dict[str, str]:
    kinds: dict[str, str] = {}
    for one in outcomes:
        values = one.front.items() if front else ((n, [v]) for n, v in one.row.items())
        for name, column in values:
            for kind in {type(value) for value in column} - {type(None)}:
                kinds[name] = joint_kind(kinds.get(name, ""), _KINDS[kind])
            kinds.setdefault(name, "")
    return kinds


def joint_kind(one: str, other: str) -> str:
    """The kind of a column that has values of both kinds; empty: none is known."""
    if not one or not other or one == other:
        return one or other
    return "number" if {one, other} == {"count", "number"} else "text"
