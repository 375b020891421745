"""What a sweep found as pictures: cost against time, and the matrix of its places."""

from __future__ import annotations

import math

from planner.base import text
from planner.base.cells import Value
from planner.errors import SearchSpaceError
from planner.show.theme import axis_label
from planner.show.views.plots.curves import Curve, Curves, Matrix
from planner.show.views.plots.picture import Picture, draw
from planner.show.views.told import label
from planner.sweeps.columns import TIME, VALUE, better, find_columns
from planner.sweeps.screen import (
    cells_of,
    column_of,
    group_title,
    marks_lines,
    matrix_title,
    unknown_line,
)
from planner.sweeps.show import Shown
from planner.sweeps.summary import Group, Place, Spot, Summary, summarize

COUNT, PLACE = "count", "place"
"""What may go across, beside time."""


def draw_shown(picture: Picture, asked: Shown) -> None:
    """Draw what is asked of a sweep: of a pivot its matrix.

    Raises
    ------
    SpecError, SearchSpaceError, OutputError
        It is no sweep, a name is wrong, nothing is to be drawn, or the file cannot be written.
    """
    sweep = asked.sweep
    names = find_columns(asked.pivot, sweep.columns, "--pivot")
    draw_sweep(picture, summarize(asked.rows(), sweep.plan, asked.measure, names), sweep.plan.name)


def draw_sweep(picture: Picture, summary: Summary, title: str) -> None:
    """Draw the picture that was asked for of a sweep.

    Raises
    ------
    OutputError
        The file cannot be written.
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
