"""The plans of a front as points of two results, for pictures and terminals without them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from planner.base.arrays import FloatArray
from planner.base.records import record
from planner.optimize.result import SearchResult, row_of
from planner.optimize.result_columns import ends_of, full_columns
from planner.plan.plan import Plan
from planner.show.page import Block, Drawn, Title, said
from planner.show.views.front import of_objective, tied_with_first
from planner.show.views.short import short_plan
from planner.show.views.sure import told_ends
from planner.show.views.told import label, told_alike

_MEMORY = "peak_memory_gib"
_HEIGHT = 6
_MOST_WIDTH = 64
_LEAST_WIDTH = 8
_WIDE = 6.0
_RECOMMENDED, _TIE, _OTHER, _PLAIN = "*", "=", "■", "o"


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
    """The front, and in ``recommended`` the plan to launch, which may not be on it.

    ``first`` is what plans are chosen by before all else. ``ties``: published runs do not tell the
    plan from the first one. ``words`` tell the recommended plan, the first and the last of the
    front.
    """

    first: Points
    second: Points
    ties: Sequence[bool]
    recommended: tuple[Points, Points]
    words: tuple[str, str, str]


def front_points(plan: Plan, result: SearchResult) -> FrontPoints:
    """The front of a search that found something, by its first two objectives.

    With one objective the second column is the memory, or what the workload tells first.
    """
    if result.recommended is None:
        raise ValueError("The search found no plan.")
    table = full_columns(result.table, plan.problem.sources)
    one = row_of(result.recommended)
    first, second = _columns(plan, table)
    number = len(table["num_gpus"])
    rows = [{name: values[at] for name, values in table.items()} for at in (0, number - 1)]
    ends = told_ends(plan, result.recommended)
    mine, best, last = (short_plan(plan, row) for row in (one, *rows))
    return FrontPoints(
        first=_points(first, table),
        second=_points(second, table),
        ties=tied_with_first(plan, result.table)[0],
        recommended=(_point(first, one, ends), _point(second, one, ends)),
        words=(mine, best, last),
    )


def _columns(plan: Plan, table: Mapping[str, object]) -> tuple[str, str]:
    goals = [of_objective(plan, goal.name, table) for goal in plan.problem.objectives]
    others = (_MEMORY, *plan.workload.wording.told)
    first, second = [*dict.fromkeys(name for name in (*goals, *others) if name in table)][:2]
    return first, second


def _points(column: str, table: Mapping[str, object]) -> Points:
    values = np.asarray(table[column], dtype=np.float64)
    ends = [np.asarray(table[name], float) for name in ends_of(column) if name in table]
    known = ends if len(ends) == 2 else [np.full(values.shape, np.nan)] * 2
    return Points(column=column, values=values, ends=np.stack(known))


def _point(column: str, row: Mapping[str, Any], ends: Mapping[str, tuple[float, float]]) -> Points:
    known = np.asarray(ends.get(column, (np.nan, np.nan)), dtype=np.float64)
    return Points(column=column, values=np.array([float(row[column])]), ends=known[:, None])


def points_blocks(plan: Plan, result: SearchResult) -> Iterator[Block]:
    """Where the plans of the front stand by two results; of one plan there is nothing to see."""
    found = front_points(plan, result)
    if len(found.first.values) < 2:
        return
    yield Title(text=f"The front: {_name(found, second=True)} over {_name(found)}")
    yield Drawn(lines=partial(block_lines, found))
    marks = f"{_RECOMMENDED} recommended"
    if any(found.ties):
        marks += f"; {_TIE} published runs do not tell it from the first"
    yield said(marks)


def block_lines(found: FrontPoints, width: int, is_plain: bool = True) -> list[str]:
    """The grid with its marks and the least and the largest value of each axis.

    A cell shows the recommended plan before ties, and these before others.
    """
    x, y = (
        np.append(points.values, own.values)
        for points, own in zip((found.first, found.second), found.recommended, strict=True)
    )
    across_ends, across_unit = told_alike(found.first.column, [x.min(), x.max()])
    down_ends, down_unit = told_alike(found.second.column, [y.min(), y.max()])
    words = [f"{value} {down_unit}".strip() for value in down_ends]
    margin = max(map(len, words))
    columns = max(min(width - margin - 3, _MOST_WIDTH), _LEAST_WIDTH)
    grid = [[" "] * columns for _ in range(_HEIGHT)]
    other = _PLAIN if is_plain else _OTHER
    marks = [_TIE if tie else other for tie in found.ties] + [_RECOMMENDED]
    rank = {other: 0, _TIE: 1, _RECOMMENDED: 2, " ": -1}
    places = zip(_places(x, columns), _places(y, _HEIGHT), marks, strict=True)
    for column, row, mark in places:
        line = grid[_HEIGHT - 1 - row]
        if rank[mark] > rank[line[column]]:
            line[column] = mark
    labels = [words[1], *[""] * (_HEIGHT - 2), words[0]]
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


def _places(values: FloatArray, cells: int) -> list[int]:
    """The cell of each value; by the logarithm where they span more than a little."""
    known = np.asarray(values, dtype=np.float64)
    if known.min() > 0 and known.max() > _WIDE * known.min():
        known = np.log(known)
    span = known.max() - known.min()
    shares = (known - known.min()) / span if span > 0 else np.zeros(known.shape)
    return [int(cell) for cell in np.round(shares * (cells - 1))]


def _name(found: FrontPoints, *, second: bool = False) -> str:
    return label((found.second if second else found.first).column)
