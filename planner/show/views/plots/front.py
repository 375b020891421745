"""The Pareto front: two results of its plans, with intervals, ties and the plan to launch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from planner.base.arrays import BoolArray, FloatArray
from planner.optimize.result import SearchResult
from planner.show.theme import axis_label
from planner.show.views.front import FrontPoints, Points, front_points
from planner.show.views.overview import question_title
from planner.show.views.plots.picture import Canvas, Picture, drawing, log_where_wide
from planner.workloads.plan import Plan

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_INTERVALS = 24
"""More of them hide the points."""


def draw_front(picture: Picture, plan: Plan, result: SearchResult) -> None:
    """Draw the front of a search into a file.

    Raises
    ------
    OutputError
        It cannot be written.
    """
    found = front_points(plan, result)
    with drawing(picture, height=min(max(0.5 * picture.width, 320), 640)) as canvas:
        ((axes,),) = canvas.grid(1, 1)
        canvas.title(question_title(plan))
        canvas.legend(*_marks(canvas, axes, found))
        axes.set_xlabel(axis_label(found.first.column))
        axes.set_ylabel(axis_label(found.second.column))
        log_where_wide(axes.xaxis, found.first.values)
        log_where_wide(axes.yaxis, found.second.values)


def _marks(canvas: Canvas, axes: Axes, found: FrontPoints) -> tuple[list[Any], list[str]]:
    """Draw every kind of point; their handles and what they mean."""
    theme, ties = canvas.theme, np.asarray(found.ties, dtype=bool)
    x, y = found.first, found.second
    shown = _spread(len(x.values))
    whiskers = _intervals(axes, x, y, shown, theme.muted)
    size, number = 5.0 if canvas.picture.is_narrow else 7.0, len(x.values)
    drawn: list[tuple[Any, str]] = []

    def points(which: BoolArray, label: str, **style: Any) -> None:
        if np.any(which):
            line = axes.plot(x.values[which], y.values[which], "o", markersize=size, **style)
            drawn.append((line[0], label))

    blue = theme.series[0]
    points(~ties, f"on the front ({number:,})", color=blue)
    tie = "tied with #1"
    points(ties, tie, markerfacecolor=theme.background, markeredgecolor=blue, markeredgewidth=1.6)
    mine, best, last = found.words
    ends = {"^": (0, best, f"first by {_name(x)}"), "v": (number - 1, last, "last")}
    for mark, (at, words, what) in ends.items() if number > 1 else ():
        line = axes.plot(
            x.values[at], y.values[at], mark, color=theme.series[2], markersize=1.5 * size
        )
        drawn.append((line[0], f"{what}: {words}"))
    drawn.append((_recommended(canvas, axes, found, size), f"recommended: {mine}"))
    if whiskers is not None:
        drawn.append((whiskers, "90 % interval"))
    drawn.sort(key=lambda one: not one[1].startswith("recommended"))
    handles, labels = zip(*drawn, strict=True)
    return list(handles), list(labels)


def _recommended(canvas: Canvas, axes: Axes, found: FrontPoints, size: float) -> Any:
    theme, (x, y) = canvas.theme, found.recommended
    _intervals(axes, x, y, np.array([0]), theme.recommended, strong=True)
    return axes.plot(
        x.values,
        y.values,
        "*",
        color=theme.recommended,
        markeredgecolor=theme.background,
        markersize=2.4 * size,
        zorder=5,
    )[0]


def _intervals(
    axes: Axes, x: Points, y: Points, rows: Any, color: str, *, strong: bool = False
) -> Any:
    """Whiskers of some points in both directions; None where no interval is known."""
    style: dict[str, Any] = {"fmt": "none", "ecolor": color, "elinewidth": 1.6 if strong else 0.7}
    drawn = None
    for points, name in ((x, "xerr"), (y, "yerr")):
        values, ends = points.values[rows], points.ends[:, rows]
        known = np.isfinite(ends).all(axis=0)
        if not np.any(known):
            continue
        lengths = np.maximum(np.abs(ends - values)[:, known], 0.0)
        places = {"x": x.values[rows][known], "y": y.values[rows][known]}
        alpha = 1.0 if strong else 0.55
        drawn = axes.errorbar(alpha=alpha, **places, **{name: lengths}, **style)
    return drawn


def _spread(number: int) -> FloatArray:
    """Places of all rows, or of some from the first to the last."""
    most = min(number, _MOST_INTERVALS)
    return np.unique(np.round(np.linspace(0, number - 1, most)).astype(int))


def _name(points: Points) -> str:
    return axis_label(points.column).partition(" [")[0]
