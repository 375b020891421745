"""The tables of errors are those of the predictions of the shipped runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from make_accuracy import accuracy_tables

from planner.validation.accuracy import ComparedRun

ROOT = Path(__file__).parents[2]
TABLES = (ROOT / "docs" / "reference" / "accuracy_tables.md").read_text(encoding="utf-8")


def test_the_tables_are_made_by_their_script(
    shipped_tables: Sequence[Sequence[ComparedRun]],
) -> None:
    assert accuracy_tables(shipped_tables) == TABLES, "run scripts/make_accuracy.py"
