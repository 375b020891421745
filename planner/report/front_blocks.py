"""The Pareto front as a few lines of blocks, for a terminal without pictures."""

from __future__ import annotations

import numpy as np
from rich.console import Console

from planner.base.arrays import FloatArray
from planner.optimize.result import SearchResult
from planner.plan.plan import Plan
from planner.report.console import print_folded, print_title
from planner.report.front_points import FrontPoints, front_points
from planner.report.told import label, told_alike

_HEIGHT = 6
_MOST_WIDTH = 64
_LEAST_WIDTH = 8
_WIDE = 6.0
_RECOMMENDED, _TIE, _OTHER, _PLAIN = "*", "=", "■", "o"


def print_blocks(console: Console, plan: Plan, result: SearchResult) -> None:
    """Where the plans of the front stand by two results; of one plan there is nothing to see."""
    found = front_points(plan, result)
    if len(found.first.values) < 2:
        return
    is_plain = not console.is_terminal or console.options.ascii_only
    print_title(console, f"The front: {_name(found, second=True)} over {_name(found)}")
    for line in block_lines(found, console.width, _PLAIN if is_plain else _OTHER):
        console.print(line, soft_wrap=True)
    marks = f"{_RECOMMENDED} recommended"
    if any(found.ties):
        marks += f"; {_TIE} published runs do not tell it from the first"
    print_folded(console, marks)


def block_lines(found: FrontPoints, width: int, other: str = _PLAIN) -> list[str]:
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
