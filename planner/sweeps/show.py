"""``planner sweep show``: what is asked of the directory of a sweep."""

from __future__ import annotations

import heapq
import json
import math
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from pathlib import Path
from typing import TypeGuard

from planner.base import text
from planner.base.cells import Row, Value, number
from planner.base.files import written_whole
from planner.base.records import record
from planner.errors import PlannerError, SearchSpaceError
from planner.question.inputs import shown
from planner.show.page import TOTAL, Block, Column, Title, fitted, said
from planner.show.theme import axis_label
from planner.show.views.plots.curves import Curve, Curves, Matrix
from planner.show.views.plots.picture import Picture, draw
from planner.show.views.rows import csv_cell
from planner.show.views.told import label, told, told_alike
from planner.specs.catalogue import Catalogue
from planner.sweeps.columns import (
    COST,
    MEASURES,
    TIME,
    VALUE,
    better,
    find_column,
    find_columns,
    measured_alike,
    name_of,
    read_value,
)
from planner.sweeps.differences import (
    compare,
    difference_columns,
    difference_rows,
    differences_blocks,
)
from planner.sweeps.plan import SweepPlan
from planner.sweeps.screen import (
    cells_of,
    column_of,
    group_title,
    marks_lines,
    matrix_blocks,
    matrix_title,
    summary_blocks,
    unknown_line,
)
from planner.sweeps.store import Sweep, front_across
from planner.sweeps.summary import Group, Place, Spot, Summary, summarize

_OPERATORS: Mapping[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_CONDITION = re.compile(r"\s*([^<>=!]+?)\s*(<=|>=|!=|==|=|<|>)\s*(.*?)\s*")
_MOST_SEEN = 20
_WHERE = "--where"


@record(kw_only=True)
class Condition:
    """What a column must be: one of ``values`` (=, !=), or less or more than the one."""

    column: str
    operator: str
    values: tuple[Value, ...]

    def holds(self, row: Row) -> bool:
        """Whether a scenario is asked for; what is unknown is only ever equal to none."""
        value = cell(self.column, row)
        if self.operator in ("=", "!="):
            return any(_equal(value, one) for one in self.values) == (self.operator == "=")
        return _is_numeric(value) and _OPERATORS[self.operator](value, number(self.values[0]))


@record(kw_only=True)
class Where:
    """Conditions that all hold; ``seen`` are values that a scenario had where one did not."""

    conditions: tuple[Condition, ...]
    seen: dict[str, dict[str, None]] = field(default_factory=dict)

    def rows(self, rows: Iterable[Row]) -> Iterator[Row]:
        """Those that are asked for.

        Raises SearchSpaceError if there is none; it tells what the columns have.
        """
        found = False
        for row in rows:
            if all(self._holds(condition, row) for condition in self.conditions):
                found = True
                yield row
        if self.conditions and not found:
            known = [f"{name} has {', '.join(values)}" for name, values in self.seen.items()]
            more = f" {'; '.join(known)}." if known else ""
            raise SearchSpaceError(f"No scenario is as {_WHERE} says.{more}")

    def _holds(self, one: Condition, row: Row) -> bool:
        holds = one.holds(row)
        if not holds and one.operator == "=":
            seen = self.seen.setdefault(one.column, {})
            if len(seen) < _MOST_SEEN:
                seen[str(cell(one.column, row))] = None
        return holds


def read_where(texts: Sequence[str], columns: Sequence[str], specs: Path | None = None) -> Where:
    """Conditions such as ``gpu=h100,b200,num_gpus>=512,cost<2M``.

    A text without a sign is another value of the column before it.

    Raises SearchSpaceError if a column is unknown, or a value is none of that column.
    """
    found: list[Condition] = []
    for given in ",".join(texts).split(","):
        if not given.strip():
            continue
        match = _CONDITION.fullmatch(given)
        if match is None:
            if not found or found[-1].operator not in ("=", "!="):
                raise SearchSpaceError(
                    f"{_WHERE} {shown(given)}: write NAME=VALUE, NAME<VALUE and so on."
                )
            more = _values(found[-1].column, given.strip(), specs)
            found[-1] = replace(found[-1], values=(*found[-1].values, *more))
            continue
        name, sign, value = match.groups()
        column, sign = find_column(name, columns, _WHERE), "=" if sign == "==" else sign
        read = _values(column, value, specs)
        if sign not in ("=", "!=") and not _is_numeric(read[0]):
            raise SearchSpaceError(f"{_WHERE} {given.strip()}: {shown(value)} is not a number.")
        found.append(Condition(column=column, operator=sign, values=read))
    return Where(conditions=tuple(found))


def read_order(text: str, columns: Sequence[str]) -> list[tuple[str, int]]:
    """Columns to sort by, each with 1 for the least first or -1 for the most first.

    >>> read_order("cost,-num_gpus", ["cost_usd", "num_gpus"])
    [('cost_usd', 1), ('num_gpus', -1)]
    """
    words = [word.strip() for word in text.split(",") if word.strip()]
    return [
        (find_column(word.lstrip("-+"), columns, "--sort"), -1 if word.startswith("-") else 1)
        for word in words
    ]


def ordered(
    rows: Iterable[Row], order: Sequence[tuple[str, int]], columns: Sequence[str], top: int | None
) -> Iterator[tuple[Value, ...]]:
    """The cells of ``columns`` of the first ``top`` rows, of all where it is None.

    Of rows no more than these cells and what they are sorted by is held. What is unknown comes
    last; equal rows keep their order.
    """
    found = (
        (
            tuple(_key(cell(column, row), sign) for column, sign in order),
            number,
            tuple(cell(column, row) for column in columns),
        )
        for number, row in enumerate(rows)
    )
    if not order:
        for number, (_, _, cells) in enumerate(found):
            if number == top:
                return
            yield cells
        return
    best = sorted(found) if top is None else heapq.nsmallest(top, found)
    yield from (cells for _, _, cells in best)


def cell(column: str, row: Row) -> Value:
    """A column or measure of a row; None where it is unknown."""
    if column in MEASURES or column == VALUE:
        found = measured_alike(column, row)
        return None if found != found else found
    return row.get(column)


def _key(value: object, sign: int) -> tuple[int, float, str | tuple[int, ...]]:
    """What is unknown behind texts behind numbers."""
    if isinstance(value, bool | int | float):
        return (0, sign * value, "")
    if value is None:
        return (2, 0, "")
    text = str(value)
    return (1, 0, text if sign > 0 else (*(-ord(letter) for letter in text), 1))


def _values(column: str, text: str, specs: Path | None) -> tuple[Value, ...]:
    """A value; of what specs describe its own name and the one that was written."""
    try:
        name = name_of(Catalogue(specs), column, text)
    except PlannerError:
        return (text,)
    return (read_value(column, text, _WHERE),) if name is None else (text, name)


def _equal(value: object, other: object) -> bool:
    if value is None or other is None:
        return value is other
    if _is_numeric(value) and _is_numeric(other):
        return bool(value == other)
    return str(value).casefold() == str(other).casefold()


def _is_numeric(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


USUAL_ROWS = 20
_ALL = 10**6


@record(kw_only=True)
class Shown:
    """What of a sweep is to be shown; texts as they stand on the command line.

    Parameters
    ----------
    where : conditions that scenarios must meet
    sort, columns : names with commas between them
    top : rows to show; of files all where it is None
    pivot : names of columns, the last one across
    value : a measure or column: of the matrix, the pivot or the comparison
    against : the directory of another sweep
    csv, json : files to write instead of the screen
    """

    folder: Path
    where: Sequence[str] | None = None
    sort: str = ""
    columns: str = ""
    top: int | None = None
    pivot: str = ""
    value: str = COST
    against: Path | None = None
    csv: Path | None = None
    json: Path | None = None
    full: bool = False
    specs: Path | None = None

    @cached_property
    def sweep(self) -> Sweep:
        """The sweep of the directory."""
        return Sweep(self.folder)

    @property
    def is_written(self) -> bool:
        """Whether rows go into files."""
        return self.csv is not None or self.json is not None

    @cached_property
    def measure(self) -> str:
        """The column or measure of ``value``."""
        if self.value in (*MEASURES, VALUE):
            return self.value
        return find_column(self.value, self.sweep.columns, "--value")

    def chosen(self, columns: Sequence[str]) -> Where:
        """The conditions, on a sweep of these columns."""
        return read_where(self.where or (), columns, self.specs)

    def rows(self) -> Iterator[Row]:
        """The scenarios that meet the conditions."""
        return self.chosen(self.sweep.columns).rows(self.sweep.rows())


def shown_blocks(asked: Shown) -> Iterator[Block]:
    """What is asked of a sweep; nothing where it is written into files.

    Raises SpecError, SearchSpaceError or OutputError if it is no sweep, a name or value is wrong,
    no scenario is meant, or a file cannot be written.
    """
    if asked.against is not None:
        yield from _differences_of(asked, Sweep(asked.against))
    elif asked.pivot:
        yield from _pivot_blocks(asked)
    elif asked.is_written or asked.sort or asked.columns or asked.top is not None:
        yield from _listed_blocks(asked)
    else:
        yield from asked_summary(asked)


def asked_summary(asked: Shown) -> Iterator[Block]:
    """The summary of a sweep."""
    sweep = asked.sweep
    summary = summarize(asked.rows(), sweep.plan, asked.measure)
    front = sweep.front_rows()
    if asked.where:
        numbers = front_across(asked.rows(), sweep.plan)
        front = (row for row in asked.rows() if row["scenario"] in numbers)
    yield from summary_blocks(sweep, summary, front, is_full=asked.full)


def _listed_blocks(asked: Shown) -> Iterator[Block]:
    sweep = asked.sweep
    order = read_order(asked.sort, sweep.columns)
    columns = find_columns(asked.columns, sweep.columns, "--columns")
    if asked.is_written:
        columns = columns or [*sweep.columns]
        write_rows(asked.csv, asked.json, columns, ordered(asked.rows(), order, columns, asked.top))
        return
    where = [condition.column for condition in asked.chosen(sweep.columns).conditions]
    if not columns:
        columns = usual_columns(sweep.plan, sweep.columns, [*(name for name, _ in order), *where])
    number = 0

    def counted(rows: Iterable[Row]) -> Iterator[Row]:
        nonlocal number
        for row in rows:
            number += 1
            yield row

    rows = counted(asked.rows())
    top = asked.top or (_ALL if asked.full else USUAL_ROWS)
    found = [*ordered(rows, order, columns, top)]
    for _ in rows:  # those beyond the ones that are shown
        pass
    yield from rows_blocks(columns, found, number)


def _pivot_blocks(asked: Shown) -> Iterator[Block]:
    sweep = asked.sweep
    names = find_columns(asked.pivot, sweep.columns, "--pivot")
    summary = summarize(asked.rows(), sweep.plan, asked.measure, names)
    groups = [group for group in summary.groups if group.feasible]
    if groups and not any(group.knows(group.metric) for group in groups):
        raise SearchSpaceError(f"--value {asked.value}: no scenario has it as a number.")
    if asked.is_written:
        _write_pivot(asked, names)
        return
    for group in summary.groups:
        if len(summary.groups) > 1:
            yield Title(text=group_title(group))
        if group.feasible:
            yield from matrix_blocks(group, asked.top or _ALL)
        else:
            yield said("No plan at all.", indent="")
    for line in marks_lines(summary.groups):
        yield said(line)


def _write_pivot(asked: Shown, names: Sequence[str]) -> None:
    """A row for every group and place, a column for every value across; ``of`` says of what."""
    summary = summarize(asked.rows(), asked.sweep.plan, asked.measure, names)
    across = [*dict.fromkeys(count for group in summary.groups for count in group.counts)]
    columns = ["work", "model", *names[:-1], "of", *(f"{names[-1]}={one}" for one in across)]
    rows: list[tuple[Value, ...]] = []
    for group in summary.groups:
        for place in group.places:
            known = [group.spots.get((place, value)) for value in across]
            found = [one.found.get(group.metric) if one else None for one in known]
            values = (None if one is None else one.value for one in found)
            of = column_of(group.metric, group)
            rows.append((group.work, group.model, *place, of, *values))
    write_rows(asked.csv, asked.json, columns, rows)


def _differences_of(asked: Shown, other: Sweep) -> Iterator[Block]:
    sweep = asked.sweep
    columns = [name for name in sweep.columns if name in other.columns]

    def chosen(rows: Iterable[Row]) -> Iterator[Row]:
        return asked.chosen(columns).rows(rows)

    measure = find_column(asked.value, columns, "--value")
    found = compare(other, sweep, measure, chosen)
    if asked.is_written:
        write_rows(asked.csv, asked.json, difference_columns(found), difference_rows(found))
        return
    top = asked.top or (_ALL if asked.full else USUAL_ROWS)
    yield from differences_blocks(other, sweep, found, measure, top)


Cells = Sequence[Value]

_LONGEST, _SMALL = 40, 0.1
_MORE = ("--columns", "--csv")


def usual_columns(plan: SweepPlan, columns: Sequence[str], asked: Iterable[str]) -> list[str]:
    """What was varied, what is asked for, cost, time, and why there is no plan."""
    varied = [n if n in columns else f"{n}_limit" for n in plan.varied]
    measures = [name for one in (COST, TIME) for name in MEASURES[one] if name in columns]
    wanted = dict.fromkeys(("scenario", *varied, *asked, *measures, "reason"))
    return [name for name in wanted if name in columns or name == VALUE]


def rows_blocks(columns: Sequence[str], rows: Sequence[Cells], matching: int) -> Iterator[Block]:
    """Rows as a table of as many columns as there is room for."""
    some = f"{text.count(len(rows))} of " if len(rows) < matching else ""
    yield said(f"{some}{text.count(matching)} scenarios", mark=TOTAL, indent="")
    table = {name: [row[at] for row in rows] for at, name in enumerate(columns)}
    shown = [
        _column(name, cells, _alike(name, table))
        for name, cells in table.items()
        if any(cell is not None for cell in cells)
    ]
    yield fitted(shown, elsewhere=f"choose some with {_MORE[0]}, or write all with {_MORE[1]}")
    if len(rows) < matching:
        yield said("More: --top")


def _alike(name: str, table: Mapping[str, Cells]) -> list[float]:
    """The numbers of a column and of the ends of its interval, which are told in one unit."""
    return [
        float(cell)
        for other, cells in table.items()
        if _without_end(other) == _without_end(name)
        for cell in cells
        if _is_numeric(cell)
    ]


def _without_end(name: str) -> str:
    return name.replace("_low", "").replace("_high", "")


def _column(name: str, cells: Cells, alike: Sequence[float]) -> Column:
    head = label(name)
    if name in MEASURES or name == VALUE:  # of several works: a unit of all suits none of them
        words = ["-" if cell is None else _alone(name, number(cell)) for cell in cells]
        return Column(name, words, head)
    if any(isinstance(cell, float) for cell in cells):
        numbers = [float(cell) for cell in cells if _is_numeric(cell)]
        numerals, unit = told_alike(_without_end(name), [*numbers, *alike])
        found = iter(numerals)
        words = [next(found) if _is_numeric(cell) else _word(cell) for cell in cells]
        head = head if unit in head.split() else f"{head} {unit}".strip()
        return Column(name, words, head)
    is_numeric = all(cell is None or _is_numeric(cell) for cell in cells)
    return Column(name, [*map(_word, cells)], head, is_numeric)


def _alone(measure: str, value: float) -> str:
    if measure == VALUE:
        return text.significant(value) if value >= _SMALL else f"{value:.2g}"
    return told(MEASURES[measure][0], value)


def _word(cell: object) -> str:
    if cell is None:
        return "-"
    words = text.value(cell)
    return words if len(words) <= _LONGEST else f"{words[: _LONGEST - 3]}..."


def write_rows(
    csv: Path | None,
    json_file: Path | None,
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
) -> int:
    """Write rows into the files that are given, as they come; how many there were.

    Raises OutputError if a file cannot be written.
    """
    number = 0
    if csv is not None and json_file is not None:
        rows = [*rows]
    for path, lines in ((csv, _csv_lines), (json_file, _json_lines)):
        if path is None:
            continue
        with written_whole(path) as file:
            number = 0
            for number, line in enumerate(lines(columns, rows)):  # noqa: B007
                file.write(line)
    return number


def _csv_lines(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    yield ",".join(map(csv_cell, columns)) + "\n"
    for row in rows:
        yield ",".join(map(csv_cell, row)) + "\n"


def _json_lines(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    before = "["
    for row in rows:
        yield before + "\n" + json.dumps(dict(zip(columns, row, strict=True)), allow_nan=False)
        before = ","
    yield ("[" if before == "[" else "") + "\n]\n"


COUNT, PLACE = "count", "place"
"""What may go across, beside time."""


def draw_shown(picture: Picture, asked: Shown) -> None:
    """Draw what is asked of a sweep: of a pivot its matrix.

    Raises SpecError, SearchSpaceError or OutputError if it is no sweep, a name is wrong, nothing is
    to be drawn, or the file cannot be written.
    """
    sweep = asked.sweep
    names = find_columns(asked.pivot, sweep.columns, "--pivot")
    draw_sweep(picture, summarize(asked.rows(), sweep.plan, asked.measure, names), sweep.plan.name)


def draw_sweep(picture: Picture, summary: Summary, title: str) -> None:
    """Draw the picture that was asked for of a sweep.

    Raises OutputError if the file cannot be written.
    """
    groups = [group for group in summary.groups if group.knows(group.metric)]
    if not groups:
        feasible = [group for group in summary.groups if group.feasible]
        why = unknown_line(feasible[0]) if feasible else "No scenario has a plan to draw."
        raise SearchSpaceError(f"--plot {picture.path}: {why}")
    several = len(groups) > 1
    if picture.name == "matrix":
        matrices = [_matrix(group, several=several) for group in groups]
        draw(picture, title, matrices, " ".join(marks_lines(groups)))
    else:
        draw(picture, title, [_curves(group, several=several) for group in groups])


def _curves(group: Group, *, several: bool) -> Curves:
    """The measure against time; of no known time against the number of GPUs, or beside others."""
    metric, across = group.metric, PLACE
    if metric != TIME and any(TIME in here.found for here in group.spots.values()):
        across = TIME
    elif any(isinstance(count, int) for count in group.counts):
        across = COUNT
    best = group.best_spot(metric)
    ties = {*group.ties(metric, best)} if best is not None else set()
    curves = [_curve(group, place, across, ties) for place in group.places]
    labels = {TIME: axis_label(column_of(TIME, group)), COUNT: "GPUs"}
    return Curves(
        title=group_title(group) if several else "",
        x_label=labels.get(across, group.by[0]),
        y_label="cost x time" if metric == VALUE else axis_label(column_of(metric, group)),
        curves=[curve for curve in curves if curve.y],
        best=None if best is None else _point(group, best, across),
        best_words="" if best is None else _words(best),
        is_by_place=across == PLACE,
    )


def _curve(group: Group, place: Place, across: str, ties: set[Spot]) -> Curve:
    spots = [(place, count) for count in group.counts if (place, count) in group.spots]
    known = [spot for spot in spots if group.metric in group.spots[spot].found]
    points = {spot: _point(group, spot, across) for spot in known}
    points = {spot: point for spot, point in points.items() if all(map(math.isfinite, point))}
    found = [group.spots[spot].found[group.metric] for spot in points]
    return Curve(
        name=" ".join(place) or "all",
        x=[x for x, _ in points.values()],
        y=[y for _, y in points.values()],
        ends=[(one.low, one.high) for one in found],
        counts=[spot[1] if isinstance(spot[1], int) else 1 for spot in points],
        ties=[spot in ties for spot in points],
    )


def _point(group: Group, spot: Spot, across: str) -> tuple[float, float]:
    """What goes across, and the measure of the best scenario of a place; NaN where unknown."""
    place, count = spot
    found = group.spots[spot].found[group.metric]
    if across == PLACE:
        return float(group.places.index(place)), found.value
    if across == COUNT:
        return float(count) if isinstance(count, int) else math.nan, found.value
    return found.time, found.value


def _words(spot: Spot) -> str:
    place, count = spot
    number = f"{text.count(count)} x " if isinstance(count, int) else ""
    return number + ", ".join(place)


def _matrix(group: Group, *, several: bool) -> Matrix:
    metric = group.metric
    column = column_of(metric, group)
    cells, unit = cells_of(group, metric, column, group.places)
    heads = ["best" if count is None else text.value(count) for count in group.counts]

    def value(place: Place, count: Value) -> float:
        here = group.spots.get((place, count))
        return here.found[metric].value if here and metric in here.found else math.nan

    title = matrix_title(group, column, unit)
    rows = [" ".join(place) or label(column) for place in group.places]
    return Matrix(
        title=f"{group_title(group)}: {title}" if several else title,
        rows=rows,
        columns=heads,
        words=[[cells[place, count].text for count in group.counts] for place in group.places],
        values=[[value(place, count) for count in group.counts] for place in group.places],
        best=[
            [cells[place, count].text.startswith(("*", "=")) for count in group.counts]
            for place in group.places
        ],
        sign=better(metric),
    )
