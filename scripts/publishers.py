"""Who published a run: all sources of one organisation or author are left out together."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from planner.confidence.profile_rules import read_table
from planner.validation.accuracy import ComparedRun

_FOLDER = Path(__file__).parent / "published"


def publisher(row: ComparedRun) -> str:
    """The organisation behind the source of a row; the source's own name where none is known."""
    named = row.run.text("publisher") or row.run.text("source")
    return _organisations().get(named, named)


@cache
def _organisations() -> dict[str, str]:
    return {row["named"]: row["publisher"] for row in read_table("publishers.csv", _FOLDER)}
