"""What sizing found as curves: cost against the time of a run, or against the GPUs of a service."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from planner.base.units import UNITS
from planner.decide.sizing.fleet import Size
from planner.decide.sizing.size import Sizes
from planner.optimize.result_columns import ends_of
from planner.question.terms import glossary
from planner.show.theme import axis_label
from planner.show.views.plots.curves import Curve, Curves
from planner.show.views.sizes import best_lines, question_lines

_TIMES = ("calendar_time_days", "time_to_train_days")
_COSTS = ("cost_usd", "cost_per_hour_usd")


def size_title(sizes: Sizes) -> str:
    """The question, its limits and how surely they are kept."""
    return "; ".join(question_lines(sizes))


def size_curves(sizes: Sizes) -> Curves:
    """A curve for each GPU and contract, the fleets that are best at something its points."""
    if sizes.load is not None:
        return _day_curves(sizes)
    rows = [fleet.row for size in sizes.found for fleet in size.choices.values()]
    x_column, y_column = (_known_column(rows, names) for names in (_TIMES, _COSTS))
    best = sizes.best
    cheapest = None if best is None else best.cheapest or best.fewest
    point = None if cheapest is None else _point(cheapest.row, x_column, y_column)
    return Curves(
        title="",
        x_label=axis_label(x_column),
        y_label=axis_label(y_column),
        curves=[_curve(size, x_column, y_column) for size in sizes.found],
        best=point if point and all(map(math.isfinite, point)) else None,
        best_words=best_lines(sizes)[0].partition(": ")[2].partition(";")[0],
        limits=_limits(sizes, x_column, y_column),
    )


def _known_column(rows: Sequence[Mapping[str, object]], names: Sequence[str]) -> str:
    """The first column that any row has a number in, else the number of GPUs."""
    known = (name for name in names if any(map(math.isfinite, (_value(r, name) for r in rows))))
    return next(known, "num_gpus")


def _value(row: Mapping[str, Any], name: str) -> float:
    value = row.get(name)
    return math.nan if value is None else float(value)


def _day_curves(sizes: Sizes) -> Curves:
    """What a day of each GPU costs against the GPUs that its peak takes."""
    curves, points = [], {}
    for size in sizes.found:
        if size.day is None or not math.isfinite(size.day.cost):
            continue
        x, y = float(max(hour.num_gpus for hour in size.day.hours)), size.day.cost
        points[size.gpu] = (x, y)
        nothing = (math.nan, math.nan)
        curves.append(
            Curve(name=size.gpu, x=[x], y=[y], ends=[nothing], counts=[int(x)], ties=[False])
        )
    best = "" if sizes.best is None else sizes.best.gpu
    return Curves(
        title="",
        x_label="GPUs at the peak",
        y_label="cost of a day [USD]",
        curves=curves,
        best=points.get(best),
        best_words=best,
    )


def _curve(size: Size, x_column: str, y_column: str) -> Curve:
    placed = [(one, _point(one.row, x_column, y_column)) for one in size.choices.values()]
    known = [(fleet, point) for fleet, point in placed if all(map(math.isfinite, point))]
    fleets, points = [fleet for fleet, _ in known], [point for _, point in known]
    return Curve(
        name=f"{size.gpu} {size.contract}".strip(),
        x=[x for x, _ in points],
        y=[y for _, y in points],
        ends=[_point(fleet.row, *ends_of(y_column)) for fleet in fleets],
        counts=[fleet.num_gpus for fleet in fleets],
        ties=[False] * len(fleets),
    )


def _limits(sizes: Sizes, x_column: str, y_column: str) -> dict[str, float]:
    """The bounds of the two axes, in their units."""
    fleet = None if sizes.best is None else sizes.best.fewest
    found = {}
    for margin in () if fleet is None else fleet.margins:
        for axis, column in (("x", x_column), ("y", y_column)):
            if column.startswith(margin.name):
                units = UNITS[glossary()[margin.name].type]
                found[axis] = margin.bound / units[margin.unit]
    return found


def _point(row: Mapping[str, object], x_column: str, y_column: str) -> tuple[float, float]:
    return _value(row, x_column), _value(row, y_column)
