"""The tables of errors are those of the predictions of the shipped runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from make_accuracy import accuracy_tables, accuracy_with

from planner.validation.accuracy import ComparedRun

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "background" / "accuracy.md").read_text(encoding="utf-8")
TABLES = (ROOT / "docs" / "reference" / "accuracy_tables.md").read_text(encoding="utf-8")


def test_the_tables_are_made_by_their_script(
    shipped_tables: Sequence[Sequence[ComparedRun]],
) -> None:
    assert accuracy_tables(shipped_tables) == TABLES, "run scripts/make_accuracy.py"


def test_the_slices_of_the_page_are_those_of_the_tables() -> None:
    assert accuracy_with(TABLES, PAGE) == PAGE, "run scripts/make_accuracy.py"
    changed = PAGE.replace("| MoE on AMD | serving: time per output token | 28 |", "| MoE | 27 |")
    assert changed != PAGE
    assert accuracy_with(TABLES, changed) == PAGE
