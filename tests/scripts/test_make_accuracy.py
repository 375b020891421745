"""The tables of errors are those of the predictions of the shipped runs."""

from __future__ import annotations

from pathlib import Path

from make_accuracy import accuracy_tables, shipped_rows

ROOT = Path(__file__).parents[2]
TABLES = (ROOT / "docs" / "accuracy_tables.md").read_text(encoding="utf-8")


def test_the_tables_are_made_by_their_script() -> None:
    assert accuracy_tables(shipped_rows()) == TABLES, "run scripts/make_accuracy.py"
