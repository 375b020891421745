"""The page of causes is that of the predictions; the tests that it names are there."""

from __future__ import annotations

from pathlib import Path

from make_accuracy import shipped_rows
from make_causes import FILE, FINDINGS, causes, missed, page
from rows import each

ROOT = Path(__file__).parents[2]


def test_the_page_is_made_by_its_script() -> None:
    made = page(shipped_rows())
    assert made == FILE.read_text(encoding="utf-8"), "run scripts/make_causes.py"


@each("row", causes())
def test_a_cause_has_a_figure_of_runs_or_a_test(row) -> None:
    assert row["now"]
    if row["table"]:
        assert float(row["before"]) >= 0
        assert not row["after"]
        assert not row["test"]
        return
    assert row["after"]
    path, _, name = row["test"].partition("::")
    assert f"def {name}(" in (ROOT / path).read_text(encoding="utf-8")


def test_findings_that_do_not_hold_have_their_reason() -> None:
    text = (ROOT / FINDINGS).read_text(encoding="utf-8")
    assert len(missed()) == 4
    assert all(f"def {name}(" in text and len(why) > 20 for name, why in missed().items())
