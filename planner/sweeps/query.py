"""``planner sweep show``: selects scenarios of a sweep and shows or writes them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypeGuard

from planner.base.atomic_write import write_atomically
from planner.base.csv_cells import Row, Value
from planner.base.formatting import format_count, format_parameter
from planner.base.records import record
from planner.errors import SearchSpaceError
from planner.question.conditions import WHERE, evaluate_condition, parse_condition
from planner.show.output_blocks import TOTAL, Block, Column, Title, fit_table, make_lines
from planner.show.presenters.format_results import format_in_common_unit, label
from planner.show.presenters.plots.curves import Curve, Curves, Matrix
from planner.show.presenters.plots.picture import Picture, draw
from planner.show.presenters.row_tables import csv_cell
from planner.show.theme import axis_label
from planner.sweeps.columns import (
    COST,
    MEASURES,
    TIME,
    VALUE,
    better,
    check_column,
    check_columns,
    check_measure,
    column_hint,
    only_column,
)
from planner.sweeps.differences import (
    compare,
    difference_columns,
    difference_rows,
    differences_blocks,
)
from planner.sweeps.plan import SweepPlan
from planner.sweeps.summary import Place, Spot, Summary, WorkloadGroup, summarize
from planner.sweeps.summary_blocks import (
    cells_of,
    column_of,
    group_title,
    marks_lines,
    matrix_blocks,
    matrix_title,
    unknown_line,
)
from planner.sweeps.summary_screen import summary_blocks
from planner.sweeps.sweep_folder import Sweep, front_across

if TYPE_CHECKING:
    import pandas as pd


SORT = "--sort"
_EXAMPLE = "gpu == 'h100-sxm-80gb' and num_gpus >= 512"
_REMOVED = (
    ". planner 0.1.0 was the last version that read conditions such as gpu=h100,num_gpus>=512"
)
_MAX_VALUES = 20


def select_scenarios(
    sweep: Sweep, where: Sequence[str] = (), order: Sequence[tuple[str, bool]] = ()
) -> list[int]:
    """Return the numbers of the scenarios that meet all conditions, sorted.

    Only the columns of the conditions and of the order are read into memory.
    Raises SearchSpaceError if an expression is invalid, a column does not exist, or no scenario
    meets the conditions.

    Parameters
    ----------
    where : pandas expressions over the columns of `Sweep.scenarios`
    order : columns and whether each ascends; unknown values come last
    """
    conditions = [
        parse_condition(text, sweep.columns, _EXAMPLE, column_hint, _REMOVED) for text in where
    ]
    names = [name for _, columns in conditions for name in columns]
    frame = _read_frame(sweep.rows(), ["scenario", *names, *(name for name, _ in order)])
    selected = frame
    for expression, _ in conditions:
        selected = selected[evaluate_condition(expression, selected, sweep.columns, _EXAMPLE)]
    if where and not len(selected):
        values = [
            f"{name} has {text}"
            for name in dict.fromkeys(names)
            if (text := _list_values(frame, name))
        ]
        raise SearchSpaceError(
            " ".join([f"No scenario meets {WHERE}.", *(f"{v}." for v in values)])
        )
    if order:
        selected = selected.sort_values(
            [name for name, _ in order],
            ascending=[ascends for _, ascends in order],
            kind="stable",
            key=lambda column: (
                column.map(str, na_action="ignore") if column.dtype == object else column
            ),
        )
    return [int(number) for number in selected["scenario"]]


def select_rows(sweep: Sweep, where: Sequence[str] = ()) -> Iterator[Row]:
    """Return the rows of the scenarios that meet all conditions, in the order of the sweep."""
    if not where:
        return sweep.rows()
    numbers = {*select_scenarios(sweep, where)}
    return (row for row in sweep.rows() if row["scenario"] in numbers)


def parse_order(text: str, columns: Sequence[str]) -> list[tuple[str, bool]]:
    """Parse columns to sort by, each with True for ascending; a minus sorts descending.

    >>> parse_order("cost_usd,-num_gpus", ["cost_usd", "num_gpus"])
    [('cost_usd', True), ('num_gpus', False)]
    """
    names = [name.strip() for name in text.split(",") if name.strip()]
    return [
        (check_column(name.removeprefix("-"), columns, SORT), not name.startswith("-"))
        for name in names
    ]


def _read_frame(rows: Iterable[Row], columns: Sequence[str]) -> pd.DataFrame:
    """Return columns of rows as a data frame; unknown values are NaN."""
    import pandas as pd

    values: dict[str, list[Value]] = {name: [] for name in columns}
    for row in rows:
        for name, column in values.items():
            value = row.get(name)
            column.append(math.nan if value is None else value)
    return pd.DataFrame(values)


def _list_values(frame: pd.DataFrame, column: str) -> str:
    """The first texts of a column; empty for numbers."""
    values = dict.fromkeys(value for value in frame[column] if isinstance(value, str))
    return ", ".join([*values][:_MAX_VALUES])


DEFAULT_ROWS = 20
_ALL = 10**6


@record(kw_only=True)
class SweepQuery:
    """A query of a sweep; texts are as on the command line.

    Parameters
    ----------
    where : pandas expressions that scenarios must meet
    sort, columns : names, separated by commas
    top : rows to show; None: a default on screen, all in files
    pivot : names of columns; the values of the last one become columns
    value : measure or column of the matrix, the pivot or the comparison
    against : the directory of another sweep
    csv, json : files to write instead of the screen
    """

    folder: Path
    where: Sequence[str] = ()
    sort: str = ""
    columns: str = ""
    top: int | None = None
    pivot: str = ""
    value: str = COST
    against: Path | None = None
    csv: Path | None = None
    json: Path | None = None
    full: bool = False

    @cached_property
    def sweep(self) -> Sweep:
        """The sweep of the directory."""
        return Sweep(self.folder)

    @property
    def is_written(self) -> bool:
        """Whether rows are written to files."""
        return self.csv is not None or self.json is not None

    @cached_property
    def measure(self) -> str:
        """The checked column or measure of ``value``."""
        return check_measure(self.value, self.sweep.columns)

    def rows(self) -> Iterator[Row]:
        """The scenarios that meet the conditions."""
        return select_rows(self.sweep, self.where)


def query_blocks(query: SweepQuery) -> Iterator[Block]:
    """Yield the output of a query of a sweep; nothing if rows are written to files.

    Raises SpecError, SearchSpaceError or OutputError if the directory has no sweep, a name or
    value is invalid, no scenario is selected, or a file cannot be written.
    """
    if query.against is not None:
        yield from _differences_of(query, Sweep(query.against))
    elif query.pivot:
        yield from _pivot_blocks(query)
    elif query.is_written or query.sort or query.columns or query.top is not None:
        yield from _listed_blocks(query)
    else:
        yield from requested_summary(query)


def requested_summary(query: SweepQuery) -> Iterator[Block]:
    """Yield the summary of the scenarios of a sweep that meet the conditions."""
    sweep = query.sweep
    summary = summarize(query.rows(), sweep.plan, query.measure)
    front = sweep.front_rows()
    if query.where:
        numbers = front_across(query.rows(), sweep.plan)
        front = (row for row in query.rows() if row["scenario"] in numbers)
    yield from summary_blocks(sweep, summary, front, is_full=query.full)


def _listed_blocks(query: SweepQuery) -> Iterator[Block]:
    """Yield the table of the selected scenarios, or write these to CSV or JSON."""
    sweep = query.sweep
    order = parse_order(query.sort, sweep.columns)
    columns = check_columns(query.columns, sweep.columns, "--columns")
    numbers = select_scenarios(sweep, query.where, order)
    if query.is_written:
        columns = columns or [*sweep.columns]
        rows = read_cells(sweep, numbers[: query.top], columns)
        write_rows(query.csv, query.json, columns, rows)
        return
    if not columns:
        columns = default_columns(sweep.plan, sweep.columns, [name for name, _ in order])
    top = query.top or (_ALL if query.full else DEFAULT_ROWS)
    yield from rows_blocks(columns, [*read_cells(sweep, numbers[:top], columns)], len(numbers))


def read_cells(
    sweep: Sweep, numbers: Sequence[int], columns: Sequence[str]
) -> Iterator[tuple[Value, ...]]:
    """Return the cells of ``columns`` for the scenarios with these numbers, in this order."""
    wanted = {*numbers}
    cells = (
        (row["scenario"], tuple(row.get(name) for name in columns))
        for row in sweep.rows()
        if row["scenario"] in wanted
    )
    if numbers == sorted(numbers):
        return (row for _, row in cells)
    by_number = dict(cells)
    return (by_number[number] for number in numbers)


def _pivot_blocks(query: SweepQuery) -> Iterator[Block]:
    """Yield a matrix of best values per workload, or write these to CSV or JSON."""
    sweep = query.sweep
    names = check_columns(query.pivot, sweep.columns, "--pivot")
    summary = summarize(query.rows(), sweep.plan, query.measure, names)
    groups = [group for group in summary.groups if group.feasible]
    if groups and not any(group.has_measure(group.metric) for group in groups):
        raise SearchSpaceError(f"--value {query.value}: no scenario has it as a number.")
    if query.is_written:
        _write_pivot(query, names)
        return
    for group in summary.groups:
        if len(summary.groups) > 1:
            yield Title(text=group_title(group))
        if group.feasible:
            yield from matrix_blocks(group, query.top or _ALL)
        else:
            yield make_lines("No plan at all.", indent="")
    for line in marks_lines(summary.groups):
        yield make_lines(line)


def _write_pivot(query: SweepQuery, names: Sequence[str]) -> None:
    """Write best values: a row per group and place (axis values), a column per last axis value.

    The CSV column ``of`` contains the name of the measure.
    """
    summary = summarize(query.rows(), query.sweep.plan, query.measure, names)
    across = [*dict.fromkeys(count for group in summary.groups for count in group.counts)]
    columns = ["work", "model", *names[:-1], "of", *(f"{names[-1]}={count}" for count in across)]
    rows: list[tuple[Value, ...]] = []
    for group in summary.groups:
        for place in group.places:
            spots = [group.spots.get((place, value)) for value in across]
            plans = [spot.best_by_measure.get(group.metric) if spot else None for spot in spots]
            values = (None if plan is None else plan.value for plan in plans)
            column = column_of(group.metric, group)
            rows.append((group.work, group.model, *place, column, *values))
    write_rows(query.csv, query.json, columns, rows)


def _differences_of(query: SweepQuery, other: Sweep) -> Iterator[Block]:
    """Yield the differences from another sweep in one measure, or write these to CSV or JSON."""
    sweep = query.sweep
    columns = [name for name in sweep.columns if name in other.columns]
    measure = only_column(check_measure(query.value, columns), columns)
    comparison = compare(other, sweep, measure, lambda side: select_rows(side, query.where))
    if query.is_written:
        write_rows(
            query.csv, query.json, difference_columns(comparison), difference_rows(comparison)
        )
        return
    top = query.top or (_ALL if query.full else DEFAULT_ROWS)
    yield from differences_blocks(other, sweep, comparison, measure, top)


Cells = Sequence[Value]

_MAX_CELL_CHARACTERS, _SMALL = 40, 0.1
_MORE = ("--columns", "--csv")


def default_columns(plan: SweepPlan, columns: Sequence[str], requested: Iterable[str]) -> list[str]:
    """Return the columns to list: varied questions, requested, cost, time and reason."""
    varied = [n if n in columns else f"{n}_limit" for n in plan.varied]
    measures = [name for measure in (COST, TIME) for name in MEASURES[measure] if name in columns]
    wanted = dict.fromkeys(("scenario", *varied, *requested, *measures, "reason"))
    return [name for name in wanted if name in columns]


def rows_blocks(columns: Sequence[str], rows: Sequence[Cells], matching: int) -> Iterator[Block]:
    """Yield a table of rows with as many columns as fit the screen."""
    shown_text = f"{format_count(len(rows))} of " if len(rows) < matching else ""
    yield make_lines(f"{shown_text}{format_count(matching)} scenarios", mark=TOTAL, indent="")
    table = {name: [row[index] for row in rows] for index, name in enumerate(columns)}
    shown = [
        _column(name, cells, _numbers_in_same_unit(name, table))
        for name, cells in table.items()
        if any(cell is not None for cell in cells)
    ]
    yield fit_table(
        shown, elsewhere=f"select columns with {_MORE[0]}, or write all with {_MORE[1]}"
    )
    if len(rows) < matching:
        yield make_lines("More: --top")


def _numbers_in_same_unit(name: str, table: Mapping[str, Cells]) -> list[float]:
    """Return the numbers of a column and of its interval, which share one unit."""
    return [
        float(cell)
        for other, cells in table.items()
        if _without_interval_suffix(other) == _without_interval_suffix(name)
        for cell in cells
        if _is_numeric(cell)
    ]


def _without_interval_suffix(name: str) -> str:
    return name.replace("_low", "").replace("_high", "")


def _column(name: str, cells: Cells, unit_numbers: Sequence[float]) -> Column:
    """Format the cells of a result column in one unit; ``unit_numbers`` also influence the unit."""
    head = label(name)
    if any(isinstance(cell, float) for cell in cells):
        numbers = [float(cell) for cell in cells if _is_numeric(cell)]
        numerals, unit = format_in_common_unit(
            _without_interval_suffix(name), [*numbers, *unit_numbers]
        )
        formatted = iter(numerals)
        texts = [next(formatted) if _is_numeric(cell) else _format_cell(cell) for cell in cells]
        head = head if unit in head.split() else f"{head} {unit}".strip()
        return Column(name, texts, head)
    is_numeric = all(cell is None or _is_numeric(cell) for cell in cells)
    return Column(name, [*map(_format_cell, cells)], head, is_numeric)


def _is_numeric(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _format_cell(cell: object) -> str:
    if cell is None:
        return "-"
    text = format_parameter(cell)
    return text if len(text) <= _MAX_CELL_CHARACTERS else f"{text[: _MAX_CELL_CHARACTERS - 3]}..."


def write_rows(
    csv: Path | None,
    json_file: Path | None,
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
) -> int:
    """Write rows to the CSV or JSON file (None: not written); return the number of rows.

    Raises OutputError if a file cannot be written.
    """
    number = 0
    if csv is not None and json_file is not None:
        rows = [*rows]
    for path, lines in ((csv, _csv_lines), (json_file, _json_lines)):
        if path is None:
            continue
        with write_atomically(path) as file:
            number = 0
            for number, line in enumerate(lines(columns, rows)):  # noqa: B007
                file.write(line)
    return number


def _csv_lines(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    yield ",".join(map(csv_cell, columns)) + "\n"
    for row in rows:
        yield ",".join(map(csv_cell, row)) + "\n"


def _json_lines(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    """Yield the text of a JSON list with one object per row."""
    prefix = "["
    for row in rows:
        yield prefix + "\n" + json.dumps(dict(zip(columns, row, strict=True)), allow_nan=False)
        prefix = ","
    yield ("[" if prefix == "[" else "") + "\n]\n"


COUNT, PLACE = "count", "place"
"""Quantities on the x axis, other than time."""


def draw_query(picture: Picture, query: SweepQuery) -> None:
    """Draw the picture of a query of a sweep.

    Raises SpecError, SearchSpaceError or OutputError if the directory has no sweep, a name is
    invalid, there is nothing to draw, or the file cannot be written.
    """
    sweep = query.sweep
    names = check_columns(query.pivot, sweep.columns, "--pivot")
    draw_sweep(picture, summarize(query.rows(), sweep.plan, query.measure, names), sweep.plan.name)


def draw_sweep(picture: Picture, summary: Summary, title: str) -> None:
    """Draw a matrix or curves of a summary.

    Raises SearchSpaceError if no scenario has the measure, OutputError if the file cannot be
    written.
    """
    groups = [group for group in summary.groups if group.has_measure(group.metric)]
    if not groups:
        feasible = [group for group in summary.groups if group.feasible]
        reason = unknown_line(feasible[0]) if feasible else "No scenario has a plan to draw."
        raise SearchSpaceError(f"--plot {picture.path}: {reason}")
    several = len(groups) > 1
    title = f"{title}: which GPUs, and how many?"
    if picture.name == "matrix":
        matrices = [_matrix(group, several=several) for group in groups]
        draw(picture, title, matrices, " ".join(marks_lines(groups)))
    else:
        draw(picture, title, [_curves(group, several=several) for group in groups])


def _curves(group: WorkloadGroup, *, several: bool) -> Curves:
    """Return curves of the measure over time, else over number of GPUs, else by place."""
    metric, across = group.metric, PLACE
    if metric != TIME and any(TIME in here.best_by_measure for here in group.spots.values()):
        across = TIME
    elif any(isinstance(count, int) for count in group.counts):
        across = COUNT
    best = group.best_spot(metric)
    ties = {*group.ties(metric, best)} if best is not None else set()
    chosen = _recommended_spot(group)
    curves = [_curve(group, place, across, ties) for place in group.places]
    labels = {TIME: axis_label(column_of(TIME, group)), COUNT: "GPUs"}
    return Curves(
        title=group_title(group) if several else "",
        x_label=labels.get(across, group.by[0]),
        y_label="cost x time" if metric == VALUE else axis_label(column_of(metric, group)),
        curves=[curve for curve in curves if curve.y],
        recommended=None if chosen is None else _point(group, chosen, across),
        recommended_label="" if chosen is None else _format_spot(chosen),
        sign=int(better(metric)),
        is_by_place=across == PLACE,
    )


def _curve(group: WorkloadGroup, place: Place, across: str, ties: set[Spot]) -> Curve:
    """Return the curve of the best plans of one place, such as a GPU and contract."""
    spots = [(place, count) for count in group.counts if (place, count) in group.spots]
    measured_spots = [spot for spot in spots if group.metric in group.spots[spot].best_by_measure]
    points = {spot: _point(group, spot, across) for spot in measured_spots}
    points = {spot: point for spot, point in points.items() if all(map(math.isfinite, point))}
    plans = [group.spots[spot].best_by_measure[group.metric] for spot in points]
    return Curve(
        name=" ".join(place) or "all",
        x=[x for x, _ in points.values()],
        y=[y for _, y in points.values()],
        ends=[(plan.low, plan.high) for plan in plans],
        counts=[spot[1] if isinstance(spot[1], int) else 1 for spot in points],
        ties=[spot in ties for spot in points],
    )


def _point(group: WorkloadGroup, spot: Spot, across: str) -> tuple[float, float]:
    """Return the x value and the measure of the best scenario at a spot; NaN: unknown."""
    place, count = spot
    plan = group.spots[spot].best_by_measure[group.metric]
    if across == PLACE:
        return float(group.places.index(place)), plan.value
    if across == COUNT:
        return float(count) if isinstance(count, int) else math.nan, plan.value
    return plan.time, plan.value


def _recommended_spot(group: WorkloadGroup) -> Spot | None:
    """The place and the number of GPUs of the recommended row; None if it lacks the measure."""
    spot = group.recommended_spot
    if spot is None or group.metric not in group.spots[spot].best_by_measure:
        return None
    return spot


def _format_spot(spot: Spot) -> str:
    place, count = spot
    number = f"{format_count(count)} x " if isinstance(count, int) else ""
    return number + ", ".join(place)


def _matrix(group: WorkloadGroup, *, several: bool) -> Matrix:
    """Return the matrix of best values: a row per place (GPU, contract), a column per GPU count."""
    metric = group.metric
    column = column_of(metric, group)
    cells, unit = cells_of(group, metric, column, group.places)
    heads = ["best" if count is None else format_parameter(count) for count in group.counts]

    def value(place: Place, count: Value) -> float:
        """Return the best value of a place on ``count`` GPUs; NaN if it has no plan."""
        here = group.spots.get((place, count))
        if here and metric in here.best_by_measure:
            return here.best_by_measure[metric].value
        return math.nan

    title = matrix_title(group, column, unit)
    rows = [" ".join(place) or label(column) for place in group.places]
    chosen = _recommended_spot(group)
    return Matrix(
        title=f"{group_title(group)}: {title}" if several else title,
        rows=rows,
        columns=heads,
        texts=[[cells[place, count].text for count in group.counts] for place in group.places],
        values=[[value(place, count) for count in group.counts] for place in group.places],
        best=[
            [cells[place, count].text.startswith(("*", "~")) for count in group.counts]
            for place in group.places
        ],
        sign=better(metric),
        recommended=None
        if chosen is None
        else (group.places.index(chosen[0]), group.counts.index(chosen[1])),
    )
