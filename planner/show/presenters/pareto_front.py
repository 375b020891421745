"""The Pareto front: its rows with their marks, as a table and as a chart of characters."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache, partial

import numpy as np

from planner.base.arrays import FloatArray
from planner.base.csv_cells import number_of_row
from planner.base.records import record
from planner.optimize.result import SearchResult
from planner.optimize.source import Columns, first_row
from planner.question.terms import glossary, parse_percentile, term_of_column, terms_of
from planner.show.output_blocks import (
    BEST,
    GAP,
    TIE,
    Block,
    Cell,
    Column,
    Table,
    TextChart,
    Title,
    make_lines,
)
from planner.show.presenters.format_results import (
    ends_in,
    format_in_common_unit,
    label,
    number_of,
    short_plan_of,
)
from planner.show.presenters.row_tables import PLACEMENT_COLUMNS, make_table, shown_columns
from planner.show.presenters.uncertainty import tie_text, ties
from planner.show.reports import ResultRow, SearchReport
from planner.workloads.make_plan import Plan
from planner.workloads.workload import ResultWording, Workload

RECOMMENDED, TIED = "<", "~"
"""Marks of the recommended plan, and of plans tied with it."""

# If these differ, the batches of a step differ.
_WORK = ("model", "adapter")


def search_goals(report: SearchReport) -> list[str]:
    """The columns of the objectives of a search."""
    row, wording = report.best_row, report.workload.wording
    names = report.manifest.get("objectives") or []
    return [objective_column(wording, report.comparisons, str(name), row) for name in names]


def is_lower_better(report: SearchReport) -> bool:
    """Whether low values of the column of the first objective are better."""
    (goal, *_), (column, *_) = report.manifest["objectives"], search_goals(report)
    term = term_of_column(column)
    better = (term.better if term is not None else "") or glossary()[str(goal)].better
    return better != "high"


def are_same_plan(workload: Workload, first: ResultRow, second: ResultRow) -> bool:
    """Whether two rows have the same hardware, software and parameters."""
    return all(first.get(name) == second.get(name) for name in _identity(workload.name))


@cache
def _identity(workload: str) -> tuple[str, ...]:
    """The columns in which different plans of a workload differ."""
    return *PLACEMENT_COLUMNS, *terms_of(workload, "parameter", "pool")


@record(kw_only=True)
class RankedRow:
    """A plan of a search: its row, and its rank on the front; None if it is not on it."""

    row: ResultRow
    rank: int | None
    is_recommended: bool
    is_tied: bool

    @property
    def mark(self) -> str:
        """The mark of the row in a table."""
        return BEST if self.is_recommended else TIE if self.is_tied else ""


def ranked_rows(report: SearchReport) -> list[RankedRow]:
    """Return the front with the recommended plan at its place, by the first objective.

    A file of all rows has no ranks, and keeps their order.
    """
    best, goals = report.recommended_row, search_goals(report)
    rows = [*report.rows]
    values = [number_of(row, goals[0] if goals else "") for row in rows]
    tied = ties(values, report.recommended_sure.tie_factor) if rows else []
    ranked = [
        RankedRow(
            row=row,
            rank=_rank_of(row),
            is_recommended=best is not None and are_same_plan(report.workload, row, best),
            is_tied=bool(row.get("tied", is_tied)),
        )
        for row, is_tied in zip(rows, tied, strict=True)
    ]
    chosen = next((row for row in ranked if row.is_recommended), None)
    if chosen is None and best is not None:
        chosen = RankedRow(row=best, rank=None, is_recommended=True, is_tied=False)
    others = [row for row in ranked if row is not chosen]
    if chosen is None:
        return others
    if all(row.rank is None for row in others):
        return [chosen, *others]
    if chosen.rank is not None:
        return sorted([chosen, *others], key=lambda row: row.rank or 0)
    value, sign = number_of(chosen.row, goals[0]), 1 if is_lower_better(report) else -1
    ahead = sum(sign * number_of(row.row, goals[0]) < sign * value for row in others)
    return [*others[:ahead], chosen, *others[ahead:]]


def _rank_of(row: ResultRow) -> int | None:
    rank = number_of(row, "rank")
    return int(rank) if np.isfinite(rank) else None


def front_size(report: SearchReport) -> int:
    """The number of plans on the front; 0 if the rows have no ranks."""
    return sum(_rank_of(row) is not None for row in report.rows)


def front_table(report: SearchReport, rows: Sequence[RankedRow]) -> Table:
    """Return a table of plans with the columns that differ, and the meaning of its marks."""
    workload, goals = report.workload, search_goals(report)
    plans = [row.row for row in rows]
    limited = percentile_columns(report.manifest.get("constraints") or (), plans[0])
    columns = shown_columns(workload, plans, [*goals, *limited])
    ranks = [
        Cell(
            text=f"{row.rank or '-'}{TIED * row.is_tied}{RECOMMENDED * row.is_recommended}",
            number=row.rank,
            mark=TIE if row.is_tied and not row.is_recommended else "",
        )
        for row in rows
    ]
    notes = [f"{RECOMMENDED} recommended"]
    if any(row.is_tied for row in rows):
        factor = report.recommended_sure.tie_factor
        notes.append(f"{TIED} tied with #1: {tie_text(factor)}")
    marks, first = [row.mark for row in rows], [Column("rank", ranks, "#")]
    return make_table("front", front_title(report, len(rows)), workload, plans, columns,
                      marks, ["; ".join(notes)], first=first, goals=goals)  # fmt: skip


def front_title(report: SearchReport, shown: int) -> str:
    """Return the title of the front: its objectives and how many of its plans are shown."""
    names = ", ".join(map(str, report.manifest.get("objectives") or ()))
    number = front_size(report)
    if not number:
        return f"All plans that keep the limits, with {names}"
    shown_text = f"{shown} of {number}" if shown < number else f"all {number}"
    return f"Pareto front by {names}: {shown_text}"


def front_blocks(report: SearchReport, top: int) -> Iterator[Block]:
    """Yield the Pareto front as a table of at most ``top`` plans, and as a chart."""
    rows = ranked_rows(report)
    if len(rows) < 2:
        return
    is_spread = report.workload.wording.from_end_to_end
    shown = _shown_rows(rows, top, is_spread=is_spread)
    order = "from one end to the other" if is_spread else "by the first objective"
    yield Title(text=f"{front_title(report, len(shown))}, {order}")
    plans = [row.row for row in shown]
    table = {name: [row.get(name) for row in plans] for name in plans[0]}
    if legend := report.workload.wording.legend(table):
        yield make_lines(legend, indent="")
    yield GAP
    yield replace(front_table(report, shown), caption="")
    yield from points_blocks(report)


def _shown_rows(rows: Sequence[RankedRow], top: int, *, is_spread: bool) -> list[RankedRow]:
    """Return the recommended and at most ``top`` other rows: the first, or spread evenly."""
    if len(rows) <= top:
        return [*rows]
    indexes = {*range(top)}
    if is_spread:
        indexes = {round(step * (len(rows) - 1) / max(top - 1, 1)) for step in range(top)}
    return [row for n, row in enumerate(rows) if n in indexes or row.is_recommended]


def percentile_limit_columns(plan: Plan, table: Iterable[str]) -> list[str]:
    """The columns of limits on percentiles."""
    return percentile_columns([limit.name for limit in plan.problem.constraints], table)


def percentile_columns(limits: Iterable[str], table: Iterable[str]) -> list[str]:
    """The columns of limits on percentiles, by the names of limits."""
    names = {name for name in limits if parse_percentile(name)}
    return [column for column in table if (term := term_of_column(column)) and term.term in names]


def plan_objective_column(plan: Plan, name: str, table: Iterable[str]) -> str:
    """The column of an objective: the workload's choice, or that of the term."""
    return objective_column(plan.workload.wording, plan.problem.axes, name, table)


def objective_column(
    wording: ResultWording, axes: Collection[str], name: str, table: Iterable[str]
) -> str:
    """Return the name of an objective's column for rows that vary along ``axes``."""
    chosen = wording.of_objective.get(name)
    if set(_WORK) & set(axes):
        chosen = wording.of_unlike.get(name, chosen)
    matching = (
        column for column in table if (term := term_of_column(column)) and term.term == name
    )
    return chosen or next(matching, name)


def tied_with_first(plan: Plan, table: Columns) -> tuple[list[bool], float]:
    """Return whether each row ties with the first in the first objective, and the factor."""
    goal = plan.problem.objectives[0].name
    row = first_row(table)
    confidence = plan.source_of(row).confidence_of(row)
    if confidence is None or not plan.problem.has_ties:
        return [False] * len(table["num_gpus"]), 1.0
    values = np.asarray(table[plan_objective_column(plan, goal, table)], dtype=np.float64)
    return ties(values.tolist(), confidence.layout_tie_factor), confidence.layout_tie_factor


def marked_rows(plan: Plan, result: SearchResult) -> Columns:
    """Return the recommended plan, then the front, with its marks as first columns.

    The columns are ``recommended``, ``rank`` and ``tied`` with the first plan.

    The rank is the position on the front; None if the recommended plan is not on it.
    """
    front, best = result.table, result.recommended_row
    number = len(front["num_gpus"])
    ranks: list[int | None] = [*range(1, number + 1)]
    tied, factor = tied_with_first(plan, front)
    identity = {*plan.problem.sources[0].named, *terms_of(plan.workload.name, "parameter", "pool")}
    matching_indexes = [*range(number)]
    for name in identity & {*front}:
        matching_indexes = [index for index in matching_indexes if front[name][index] == best[name]]
    order = [
        *matching_indexes[:1],
        *(index for index in range(number) if index not in matching_indexes[:1]),
    ]
    table = {name: [values[index] for index in order] for name, values in front.items()}
    marks = {"rank": [ranks[index] for index in order], "tied": [tied[index] for index in order]}
    if not matching_indexes:
        goal = plan_objective_column(plan, plan.problem.objectives[0].name, front)
        values = [number_of_row(row, goal) for row in (first_row(front), best)]
        is_tied = ties(values, factor)[1] or result.better_tied is not None
        table = {name: [best[name], *values] for name, values in table.items()}
        marks = {"rank": [None, *marks["rank"]], "tied": [is_tied, *marks["tied"]]}
    recommended = [index == 0 for index in range(len(table["num_gpus"]))]
    return {"recommended": recommended, **marks, **result.scaled(table)}


_MEMORY = "peak_memory_gib"
_HEIGHT = 6
_MOST_WIDTH = 64
_LEAST_WIDTH = 8
_WIDE = 6.0
_OTHER, _ASCII_MARKS = "■", "o"


@record(kw_only=True)
class Points:
    """Values of a column for each plan, with the ends of their 90 % intervals.

    ``ends`` has shape ``(2, plans)``, NaN where there is no interval.
    """

    column: str
    values: FloatArray
    ends: FloatArray


@record(kw_only=True)
class FrontPoints:
    """The front and the recommended plan, which may not be on it.

    ``first`` has the first objective. ``ties``: whether each plan is tied with the first one.
    ``texts`` are texts of the recommended plan, the first and the last of the front.
    """

    first: Points
    second: Points
    ties: Sequence[bool]
    recommended: tuple[Points, Points]
    texts: tuple[str, str, str]


def front_points(report: SearchReport) -> FrontPoints:
    """Return the points of a search's front by its first two objectives, for a chart.

    With one objective the second column is the memory, or the workload's first shown column.
    Raises ValueError if the search has no plan.
    """
    best, workload = report.recommended_row, report.workload
    if best is None:
        raise ValueError("The search found no plan.")
    front = [row for row in ranked_rows(report) if row.rank is not None or len(report.rows) == 1]
    rows = [row.row for row in front]
    names = dict.fromkeys((*search_goals(report), _MEMORY, *workload.wording.shown_columns))
    first, second = [name for name in names if name in best][:2]
    recommended_text, best_text, last_text = (
        short_plan_of(workload, report.comparisons, row) for row in (best, rows[0], rows[-1])
    )
    return FrontPoints(
        first=_points(first, rows),
        second=_points(second, rows),
        ties=[row.is_tied for row in front],
        recommended=(_points(first, [best]), _points(second, [best])),
        texts=(recommended_text, best_text, last_text),
    )


def _points(column: str, rows: Sequence[ResultRow]) -> Points:
    unknown = (np.nan, np.nan)
    ends = np.array([ends_in(column, row) or unknown for row in rows], dtype=np.float64)
    return Points(
        column=column, values=np.array([number_of(row, column) for row in rows]), ends=ends.T
    )


def points_blocks(report: SearchReport) -> Iterator[Block]:
    """Yield a text chart of the front by two results; nothing for a single plan."""
    front = front_points(report)
    if len(front.first.values) < 2:
        return
    yield Title(text=f"The front: {_name(front, second=True)} over {_name(front)}")
    yield TextChart(lines=partial(block_lines, front))
    marks = f"{RECOMMENDED} recommended"
    if any(front.ties):
        marks += f"; {TIED} tied with #1"
    yield make_lines(marks)


def block_lines(front: FrontPoints, width: int, is_plain: bool = True) -> list[str]:
    """Return the lines of the text chart, and the smallest and largest value of each axis.

    The recommended plan hides ties, and ties hide others.
    """
    x, y = (
        np.append(points.values, recommended.values)
        for points, recommended in zip((front.first, front.second), front.recommended, strict=True)
    )
    across_ends, across_unit = format_in_common_unit(front.first.column, [x.min(), x.max()])
    down_ends, down_unit = format_in_common_unit(front.second.column, [y.min(), y.max()])
    end_texts = [f"{value} {down_unit}".strip() for value in down_ends]
    margin = max(map(len, end_texts))
    columns = max(min(width - margin - 3, _MOST_WIDTH), _LEAST_WIDTH)
    grid = [[" "] * columns for _ in range(_HEIGHT)]
    other = _ASCII_MARKS if is_plain else _OTHER
    marks = [TIED if tie else other for tie in front.ties] + [RECOMMENDED]
    rank = {other: 0, TIED: 1, RECOMMENDED: 2, " ": -1}
    positions = zip(_cell_indexes(x, columns), _cell_indexes(y, _HEIGHT), marks, strict=True)
    for column, row, mark in positions:
        line = grid[_HEIGHT - 1 - row]
        if rank[mark] > rank[line[column]]:
            line[column] = mark
    labels = [end_texts[1], *[""] * (_HEIGHT - 2), end_texts[0]]
    lines = [
        f"{label:>{margin}} |{''.join(cells)}".rstrip()
        for label, cells in zip(labels, grid, strict=True)
    ]
    ends = [f"{value} {across_unit}".strip() for value in across_ends]
    between = max(columns - len(ends[0]) - len(ends[1]), 1)
    return [
        *lines,
        f"{'':>{margin}} +{'-' * columns}",
        f"{'':>{margin}}  {ends[0]}{' ' * between}{ends[1]}",
    ]


def _cell_indexes(values: FloatArray, cells: int) -> list[int]:
    """Return the chart cell of each value on an axis, logarithmic for a wide range."""
    numbers = np.asarray(values, dtype=np.float64)
    if numbers.min() > 0 and numbers.max() > _WIDE * numbers.min():
        numbers = np.log(numbers)
    span = numbers.max() - numbers.min()
    shares = (numbers - numbers.min()) / span if span > 0 else np.zeros(numbers.shape)
    return [int(cell) for cell in np.round(shares * (cells - 1))]


def _name(front: FrontPoints, *, second: bool = False) -> str:
    return label((front.second if second else front.first).column)
