"""Tables of rows of results: the columns that differ, each with one unit."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from planner.base import formatting
from planner.base.csv_cells import Row
from planner.optimize.result_columns import ends_of
from planner.question.parse_values import limit_column
from planner.question.terms import term_of_column, terms_about, terms_of
from planner.show.output_blocks import Cell, Column, Table, fit_table
from planner.show.presenters.format_results import (
    SHORT_WORDS,
    description_of,
    label,
    layout_of,
    number_of,
)
from planner.workloads.workload import Workload

Rows = Sequence[Row]

MOST_ROWS = 1000
"""Maximum rows of a table on a page: few browsers can sort more."""

PLAN = "plan"
"""The column with a short description of the layout."""

PLACEMENT_COLUMNS = tuple(dict.fromkeys(["mode", *terms_about("system"), "num_gpus"]))
"""Columns of the hardware and software of a row."""

AXES = {"gpu": "GPU", "num_gpus": "number of GPUs"}
"""Labels of columns that differ from their names."""

_MEMORY, _FITS = "peak_memory_gib", "fit_probability"
_UTILIZATION = "model_flops_utilization"
_MAX_CHARACTERS = 60
# Columns that only differ if others differ.
_REDUNDANT = ("gradient_accumulation_steps", "pipeline_schedule")
# A narrow terminal omits columns of high rank first.
_NO_RANK, _OF_OBJECTIVES = "30", 3


def shown_columns(
    workload: Workload,
    rows: Rows,
    goals: Iterable[str] = (),
    among: Iterable[str] = PLACEMENT_COLUMNS,
) -> list[str]:
    """Return the columns that differ between rows, and those of results and memory."""
    wording, places = workload.wording, [*among]
    table = {
        name: [row.get(name) for row in rows]
        for name in dict.fromkeys(n for row in rows for n in row)
    }
    hidden = {*wording.degrees, "layout"} - {*places}
    differing = [
        name
        for name in settings_of(workload, places, table)
        if name not in hidden and len({*table[name]}) > 1
    ]
    settings = [name for name in differing if name not in places]
    reached = [*goals, *wording.results(()), *wording.shown_columns, _MEMORY, _FITS]
    results = [name for name in dict.fromkeys(reached) if any(map(_has_value, table.get(name, ())))]
    return [*(name for name in differing if name in places), PLAN, *settings, *results]


def make_table(
    name: str,
    caption: str,
    workload: Workload,
    rows: Rows,
    columns: Iterable[str],
    marked: Sequence[str] = (),
    notes: Sequence[str] = (),
    is_small: bool = False,
    first: Sequence[Column] = (),
    goals: Iterable[str] = (),
) -> Table:
    """Return a table of at most `MOST_ROWS` rows; a note has the number of all rows.

    ``first`` are further columns before ``columns``; ``goals`` stay longest on a narrow terminal.
    """
    all_notes = [*notes]
    if len(rows) > MOST_ROWS:
        all_notes.append(
            f"The first {formatting.format_count(MOST_ROWS)} of "
            f"{formatting.format_count(len(rows))} "
            "rows; the file of the "
            "result has all."
        )
        rows, marked = rows[:MOST_ROWS], marked[:MOST_ROWS]
    shown = [
        *(replace(column, cells=column.cells[: len(rows)]) for column in first),
        *(
            _plan_column(workload, rows) if column == PLAN else row_column(column, rows)
            for column in columns
        ),
    ]
    goal_names = [*goals]
    table = fit_table(shown, lambda name: _rank(name, goal_names), marked)
    heads = [
        replace(head, title=description_of(head.name) or head.name.replace("_", " "))
        for head in table.heads
    ]
    return replace(
        table, name=name, caption=caption, heads=heads, notes=all_notes, is_small=is_small
    )


def _plan_column(workload: Workload, rows: Rows) -> Column:
    texts = [layout_of(workload, row) if row.get("feasible", True) else "-" for row in rows]
    return Column(PLAN, texts, numeric=False)


def _has_value(value: object) -> bool:
    return value not in (None, "") and not (isinstance(value, float) and not math.isfinite(value))


def settings_of(
    workload: Workload, hardware_columns: Iterable[str], table: Mapping[str, Sequence[object]]
) -> list[str]:
    """Return the settings columns of a table: hardware first, then in the order of the terms.

    Columns that follow from others are omitted.
    """
    place_names = [*hardware_columns]
    hidden = {*_REDUNDANT, *workload.wording.in_layout} - {*place_names}
    parameters = terms_of(workload.name, "parameter", "derived")
    names = dict.fromkeys([*place_names, "num_gpus", "layout", *parameters])
    return [
        name
        for name in names
        if name in table
        and name not in hidden
        and ((other := name.removeprefix("expert_")) not in {*table} - {name}
             or list(table[name]) != list(table[other]))
    ]  # fmt: skip


def row_column(name: str, rows: Sequence[Row]) -> Column:
    """Return the column of a result or setting of rows, with numbers to sort by and intervals."""
    term = term_of_column(name)
    if term is not None and name == limit_column(term.term):
        header = f"{label(term.term)} limit"
    else:
        header = (term.short or term.column_header) if term else name.replace("_", " ")
    cells = [_row_cell(name, row) for row in rows]
    return Column(
        name, cells, header, numeric=all(c.number is not None or c.text == "-" for c in cells)
    )


def _row_cell(name: str, row: Row) -> Cell:
    """Return the cell of a row in a column; ``-`` if the row has no value."""
    value = row.get(name)
    if value in (None, ""):
        return Cell(text="-")
    text = _cell(name, value)
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        return Cell(text=text if len(text) <= _MAX_CHARACTERS else f"{text[:_MAX_CHARACTERS]}...")
    scale = _scale_of(name)
    ends = [number_of(row, end) for end in ends_of(name)]
    if not all(map(math.isfinite, ends)):
        return Cell(text=text, number=scale * value)
    low, high = ends
    between = f"{_cell(name, low)} to {_cell(name, high)}"
    return Cell(text=text, more=between, number=scale * value, ends=(scale * low, scale * high))


def _scale_of(name: str) -> float:
    """The factor from a column's values to the numbers shown under its head."""
    term = term_of_column(name)
    if name == _UTILIZATION:
        return 100.0
    return 1e3 if term is not None and term.column_header.endswith(" ms") else 1.0


def _cell(name: str, value: object) -> str:
    """Return a value of the column ``name`` as text without unit; ``-`` if it is not finite."""
    if not isinstance(value, float):
        text = formatting.format_parameter(value)
        return SHORT_WORDS.get(text, text)
    if not math.isfinite(value):
        return "-"
    if name == _UTILIZATION:
        return f"{100 * value:.1f}%"
    if name == _FITS:
        return formatting.format_probability(value)
    if name == "cost_usd":
        return formatting.format_count(value)
    if name.endswith("_usd") and 0 < value < 0.01:
        return f"{value:.2g}"
    if name == "peak_memory_gib":
        return f"{value:.1f}"
    return formatting.format_significant(_scale_of(name) * value)


def _rank(name: str, goals: Iterable[str]) -> int:
    """Return the rank of a column; columns of high rank are omitted first if space is short."""
    if name in ("rank", PLAN, "gpu"):
        return 0
    term = term_of_column(name)
    rank = int((term.rank if term is not None else "") or _NO_RANK)
    return min(rank, _OF_OBJECTIVES) if name in goals else rank
