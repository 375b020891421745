"""The page of a size: the fewest and the cheapest GPUs of each type that keep limits."""

from __future__ import annotations

from collections.abc import Sequence

from planner.pages.assumptions import Rests, assumptions, specs_of_rows
from planner.pages.document import Document, Row
from planner.pages.manifest import manifest_section
from planner.pages.parts import breakdowns
from planner.pages.searched import front_chart
from planner.pages.table import PLACES, make_table, shown_columns
from planner.report.short import layout_of, plan_of
from planner.report.told import label, told
from planner.show.page import BEST, Lines, Page, Section
from planner.specs.catalogue import Catalogue

_COSTS = ("cost_usd", "cost_per_hour_usd", "cost_per_million_tokens_usd")
_MOST_BARS = 6
_HOUR = "time"
_TOLD_ELSEWHERE = ("basis", "assumed")
_AMONG = ("gpu", "contract", "choice", "num_gpus")


def sizes_page(document: Document, catalogue: Catalogue) -> Page:
    """The page of what a size wrote.

    Raises
    ------
    SpecError
        It lacks a column.
    """
    rows, others = (
        sorted(filter(_is_found, document.rows), key=lambda row: (_cost(row), row["num_gpus"])),
        [row for row in document.rows if not _is_found(row)],
    )
    manifest = document.manifest
    answer = [*map(str, document.part("answer", list))]
    notes = [*map(str, document.part("notes", list))]
    rests = Rests(defaults={}, assumed=(), specs=specs_of_rows(rows[:1]))
    is_day = bool(rows) and _HOUR in rows[0]
    sections = [(_day if is_day else _choices)(document, rows)] if rows else []
    return Page(
        title=str(manifest.get("model") or "Size"),
        question=[*map(str, document.part("question", list)), *document.notes],
        answer=answer or [_cheapest(document, row) for row in rows[:1]] or ["No GPU does."],
        sections=[
            *sections,
            *([_impossible(others)] if others else []),
            *([Section(title="Notes", blocks=[Lines(lines=notes)])] if notes else []),
            assumptions(rests, catalogue),
            manifest_section(manifest),
        ],
    )


def _is_found(row: Row) -> bool:
    return bool(row.get("feasible", True))


def _cost(row: Row) -> float:
    known = (row[name] for name in _COSTS if row.get(name) is not None)
    cost = float(next(known, float("inf")))
    return cost if cost == cost else float("inf")


def _cheapest(document: Document, row: Row) -> str:
    costs = [f"{label(n)} {told(n, row[n])}" for n in _COSTS if row.get(n) is not None]
    where = f"{row['num_gpus']:,} x {row['gpu']}"
    return "; ".join([f"Cheapest: {where}", plan_of(document.workload, row), *costs]) + "."


def _choices(document: Document, rows: Sequence[Row]) -> Section:
    """Every choice as a table, and cost against what else matters as a chart."""
    workload = document.workload
    margins = [name for name in rows[0] if name.startswith(("sure_", "spare_"))]
    costs = [name for name in _COSTS if name in rows[0]]
    among = dict.fromkeys([*_AMONG, *PLACES])
    columns = shown_columns(workload, rows, costs, among)
    columns = [*dict.fromkeys(["gpu", "num_gpus", *columns, *margins])]
    marks = [BEST if number == 0 else "" for number in range(len(rows))]
    table = make_table("choices", "By cost, then GPUs", workload, rows, columns, marks)
    labels = [f"{row['num_gpus']:,} x {_named(row)}: {layout_of(workload, row)}" for row in rows]
    bars = breakdowns(labels[:_MOST_BARS], rows[:_MOST_BARS])
    goals = [*costs[:1], "num_gpus"]
    return Section(title="The choices", blocks=[*front_chart("choices", columns, goals), table,
                                                *bars])  # fmt: skip


def _day(document: Document, rows: Sequence[Row]) -> Section:
    """The fleet of every hour on each GPU."""
    hours = [row for row in document.rows if _is_found(row)]
    columns = [name for name in rows[0] if name not in _TOLD_ELSEWHERE]
    table = make_table("hours", "Hour by hour", document.workload, hours, columns)
    return Section(title="The day", blocks=[table])


def _impossible(rows: Sequence[Row]) -> Section:
    """Why others cannot."""
    lines = [f"{_named(row)}: {row.get('reason') or 'no plan'}" for row in rows]
    return Section(title="Not possible", blocks=[Lines(lines=lines)])


def _named(row: Row) -> str:
    """The GPU of a row and on what terms it is had."""
    return f"{row.get('gpu', '')} {row.get('contract') or ''}".strip()
