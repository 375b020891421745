"""The page of causes is that of the predictions; the tests that it names are there."""

from __future__ import annotations

from pathlib import Path

from dissecting import findings
from make_accuracy import shipped_rows
from make_causes import FILE, FINDINGS, causes, page
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


def test_each_finding_is_held_and_another_figure_has_its_cause() -> None:
    text = (ROOT / FINDINGS).read_text(encoding="utf-8")
    rows = [*findings()]
    assert all(f"def {test}(" in text for *_, test, _ in rows)
    causes_of = [cause for *_, cause in rows if cause]
    assert len(causes_of) == 2
    assert all(any(letter.isdigit() for letter in cause) for cause in causes_of)
