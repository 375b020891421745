"""What a sweep found as pictures: cost against time, and the matrix of its places."""

from __future__ import annotations

import math

from planner import text
from planner.errors import SearchSpaceError
from planner.report.plots.curves import Curve, Curves
from planner.report.plots.drawn import draw
from planner.report.plots.matrix import Matrix
from planner.report.plots.picture import Picture
from planner.report.theme import axis_label
from planner.report.told import label
from planner.sweeps.columns import TIME, VALUE, better, column_of_measure, find_columns
from planner.sweeps.matrix import cells_of, column_of, marks_lines, matrix_title
from planner.sweeps.sentences import group_title
from planner.sweeps.show import Shown
from planner.sweeps.summary import Found, Group, Place, Spot, Summary, summarize


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
    groups = [group for group in summary.groups if group.feasible]
    if not groups:
        raise SearchSpaceError(f"--plot {picture.path}: no scenario has a plan to draw.")
    several = len(groups) > 1
    if picture.name == "matrix":
        matrices = [_matrix(group, several=several) for group in groups]
        draw(picture, title, matrices, " ".join(marks_lines(groups)))
    else:
        draw(picture, title, [_curves(group, several=several) for group in groups])


def _curves(group: Group, *, several: bool) -> Curves:
    """The measure against time, or against the number of GPUs where no time is known."""
    metric = group.metric
    by_time = metric != TIME and any(TIME in here.found for here in group.spots.values())
    best = group.best_spot(metric)
    ties = {*group.ties(metric, best)} if best is not None else set()
    curves = [_curve(group, place, metric, by_time, ties) for place in group.places]
    return Curves(
        title=group_title(group) if several else "",
        x_label=axis_label(_column(TIME, group)) if by_time else "GPUs",
        y_label="cost x time" if metric == VALUE else axis_label(column_of(metric, group)),
        curves=[curve for curve in curves if curve.y],
        best=None if best is None else _point(group, best, metric, by_time),
        best_words="" if best is None else _words(best),
    )


def _curve(group: Group, place: Place, metric: str, by_time: bool, ties: set[Spot]) -> Curve:
    spots = [(place, count) for count in group.counts if (place, count) in group.spots]
    known = [spot for spot in spots if _is_known(group, spot, metric, by_time)]
    points = [_point(group, spot, metric, by_time) for spot in known]
    found = [group.spots[spot].found[metric] for spot in known]
    return Curve(
        name=" ".join(place) or "all",
        x=[x for x, _ in points],
        y=[y for _, y in points],
        ends=[(one.low, one.high) for one in found],
        counts=[spot[1] if isinstance(spot[1], int) else 1 for spot in known],
        ties=[spot in ties for spot in known],
    )


def _is_known(group: Group, spot: Spot, metric: str, by_time: bool) -> bool:
    here = group.spots[spot].found
    return metric in here and (TIME in here if by_time else isinstance(spot[1], int))


def _point(group: Group, spot: Spot, metric: str, by_time: bool) -> tuple[float, float]:
    """Time and measure of the best scenario of a place, or its number of GPUs and the measure."""
    found: Found = group.spots[spot].found[metric]
    x = found.time if by_time else float(spot[1])
    return (x if math.isfinite(x) else group.spots[spot].found[TIME].value), found.value


def _column(measure: str, group: Group) -> str:
    return next(found for row in group.best.values() if (found := column_of_measure(measure, row)))


def _words(spot: Spot) -> str:
    place, count = spot
    number = f"{text.count(count)} x " if isinstance(count, int) else ""
    return number + ", ".join(place)


def _matrix(group: Group, *, several: bool) -> Matrix:
    metric = group.metric
    column = column_of(metric, group)
    cells, unit = cells_of(group, metric, column, group.places)
    heads = ["best" if count is None else text.value(count) for count in group.counts]

    def value(place: Place, count: object) -> float:
        here = group.spots.get((place, count))
        return here.found[metric].value if here and metric in here.found else math.nan

    title = matrix_title(group, column, unit)
    rows = [" ".join(place) or label(column) for place in group.places]
    return Matrix(
        title=f"{group_title(group)}: {title}" if several else title,
        rows=rows,
        columns=heads,
        words=[[cells[place, count][0] for count in group.counts] for place in group.places],
        values=[[value(place, count) for count in group.counts] for place in group.places],
        best=[
            [cells[place, count][0].startswith(("*", "=")) for count in group.counts]
            for place in group.places
        ],
        sign=better(metric),
    )
