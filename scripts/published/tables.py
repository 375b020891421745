"""The small tables beside this module, and what the texts of a run say by them."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from planner.validation.run_tables import Run, Runs

_FOLDER = Path(__file__).parent
_TEXTS = ("framework", "notes", "gpu", "mode", "framework_version")
_DATE = re.compile(r"measured=(\d{4}-\d\d-\d\d)")
AS_PUBLISHED = "as_published"
DETAILS = "source_details"
"""The column of what tells the rows of a file of runs apart."""


@cache
def read_table(name: str) -> tuple[Mapping[str, str], ...]:
    """The rows of a CSV file beside this module."""
    with (_FOLDER / name).open(encoding="utf-8", newline="") as file:
        return tuple(csv.DictReader(file))


def source_text(run: Run) -> str:
    """The source of a run with all that it says of it, in lower case."""
    return run.word(DETAILS) or run.word("source")


def convention(run: Run, field: str) -> str:
    """What the texts of a run say, or are known to mean, of a field; empty if nothing."""
    text = " | ".join((source_text(run), *(run.word(column) for column in _TEXTS)))
    for pattern, value in _conventions(field):
        if found := pattern.search(text):
            return found.expand(value)
    return ""


@cache
def _conventions(field: str) -> list[tuple[re.Pattern[str], str]]:
    """What texts of a field look like, and the value that each means."""
    rows = (row for row in read_table("conventions.csv") if row["field"] == field)
    return [(re.compile(row["pattern"]), row["value"]) for row in rows]


def measuring_day(run: Run) -> str:
    """The day on which a run was measured, as 2025-12-31; empty where its source has none."""
    found = _DATE.search(run.text(DETAILS))
    return found[1] if found else ""


def measured_by(run: Run, last: str) -> bool:
    """Whether a run was measured on a day or before it; any is where there is no last day."""
    day = measuring_day(run)
    return not last or bool(day and day <= last)


def original(run: Run, source: Sequence[str]) -> Run:
    """A run with the columns and cells of its source alone."""
    were = dict(part.split("=", 1) for part in run.text(AS_PUBLISHED).split("; ") if part)
    cells = {name: were.get(name, run.cells[name]) for name in source}
    return Run(line=run.line, cells=cells)


def source_columns(runs: Runs) -> tuple[str, ...]:
    """The columns of a table that its sources fill."""
    names = runs.columns
    return names[: names.index(AS_PUBLISHED)] if AS_PUBLISHED in names else names


def changed(run: Run, cells: Mapping[str, str]) -> dict[str, str]:
    """Those of the cells that say something else than the run; 8 and 8.0 are the same."""
    return {name: cell for name, cell in cells.items() if not _same(run.text(name), cell)}


def _same(one: str, other: str) -> bool:
    try:
        return float(one) == float(other)
    except ValueError:
        return one == other
