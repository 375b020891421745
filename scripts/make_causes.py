"""Make docs/reference/causes.md: causes of errors, what became of them, their runs then and now.

Run it after a change of what is predicted; a test fails while the file is not what it makes:

    python scripts/make_causes.py

``published/causes.csv`` has a row for each cause and set of runs, chosen and measured as in
`accuracy_targets`; ``before`` is its figure at commit b899140e, on the same runs. Causes that are
not about tables of runs have words in ``before`` and ``after``, and the test that holds them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path

from accuracy_targets import reached_of
from dissecting import findings
from make_accuracy import shipped_rows
from spec_pages import table

import planner
from planner.base.formatting import format_count
from planner.confidence.profile_rules import read_table
from planner.validation.accuracy import ComparedRun

ROOT = Path(planner.__file__).parents[1]
FILE = ROOT / "docs" / "reference" / "causes.md"
FINDINGS = "tests/validation/test_dissecting_findings.py"

_HEAD = """# Causes of errors and what became of them

Made by `python scripts/make_causes.py` from `scripts/published/causes.csv` and from what
`planner validate` predicts for the published runs that ship with the package.

Each row is a cause of errors in published runs, with the runs that showed it. It has the figure
before (commit b899140e, or when the runs came) and now, and how the cause is modelled or why it
remains. Figures are means of |predicted / measured - 1| unless the row names another.
[Accuracy](../background/accuracy.md) has the errors of runs left out of the fits, [errors by
group](accuracy_tables.md) all others."""
_FINDINGS = """## Findings of arXiv:2311.03687

Llama-2 on 8 x A800, RTX 4090 and RTX 3090 in autumn 2023: samples of 350 tokens; 1,000 requests of
512 tokens, answered with as many, at once. Each is held by a test of
`{file}`; of one that is another here it holds the figure of the cause.
"""
_WORDS = {"median": ", median", "regret": ", regret"}


def causes() -> list[Mapping[str, str]]:
    """The rows of the table."""
    return [*read_table("causes.csv", Path(__file__).parent / "published")]


def page(tables: Sequence[Sequence[ComparedRun]]) -> str:
    """The text of the page, from the rows of each shipped table."""
    parts = [_HEAD]
    for field, rows in groupby(causes(), key=lambda row: row["field"]):
        lines = [_cells(row, tables) for row in rows]
        heads = ("cause", "runs", "before", "now", "how it is modelled, or why it remains")
        parts += [f"## {field}", table(heads, _without_repeats(lines))]
    parts.append(_FINDINGS.format(file=FINDINGS).rstrip())
    parts.append(table(("finding", "published", "here", "held by test"), _found()))
    return "\n\n".join(parts) + "\n"


def _cells(row: Mapping[str, str], tables: Sequence[Sequence[ComparedRun]]) -> tuple[str, ...]:
    if not row["table"]:
        held = f"{row['now']} (`{row['test']}`)"
        return row["cause"], row["runs"], row["before"], row["after"], held
    found = reached_of({"set": "", "target": "nan", "rated": "", **row}, tables)
    runs = f"{row['runs']}{_WORDS.get(row['figure'], '')} ({format_count(found.rows)})"
    return row["cause"], runs, _percent(float(row["before"])), _percent(found.reached), row["now"]


def _without_repeats(lines: Iterable[Sequence[str]]) -> Iterator[tuple[str, ...]]:
    """A cause is named in the first of its rows."""
    last = ""
    for cause, *rest in lines:
        yield ("" if cause == last else cause, *rest)
        last = cause


def _found() -> Iterator[tuple[str, ...]]:
    for name, published, here, test, cause in findings():
        yield name, published, here, f"`{test}`" + (f"; {cause}" if cause else "")


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %" if math.isfinite(share) else ""


if __name__ == "__main__":
    FILE.write_text(page(shipped_rows()), encoding="utf-8")
