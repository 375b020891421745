"""Who published a run: all sources of one organisation or author are left out together."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from planner.confidence.profile_rules import read_table
from planner.validation.accuracy import ComparedRun

_FOLDER = Path(__file__).parent / "published"


def publisher(row: ComparedRun) -> str:
    """The organisation behind the source of a row; the source's own name where none is known."""
    named = row.run.text("publisher") or row.run.text("source")
    row_of_name = _organisations().get(named)
    return row_of_name["publisher"] if row_of_name else named


def publishes_tuned(named: str) -> bool:
    """Whether a name in the column publisher is a vendor that tunes its benchmarks."""
    return _organisations().get(named, {}).get("tuned") == "1"


@cache
def _organisations() -> dict[str, Mapping[str, str]]:
    return {row["named"]: row for row in read_table("publishers.csv", _FOLDER)}
