"""A measure against another, a curve for each kind of GPU: cost against time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

import numpy as np

from planner.base import text
from planner.base.records import record
from planner.show.views.plots.canvas import Canvas, drawing, log_where_wide
from planner.show.views.plots.picture import Picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MARKS = "osD^vPX"
_MOST_CURVES = 14
_MOST_PANELS = 6
_SMALLEST, _LARGEST = 22.0, 95.0
"""Areas of points in square points: the more GPUs, the larger."""


@record(kw_only=True)
class Curve:
    """Points of one kind of GPU: their values, ends of intervals, numbers of GPUs, ties.

    ``ends`` are those of the second value, NaN where there is no interval. ``ties``: published
    runs do not tell the point from the best one.
    """

    name: str
    x: Sequence[float]
    y: Sequence[float]
    ends: Sequence[tuple[float, float]]
    counts: Sequence[int]
    ties: Sequence[bool]


@record(kw_only=True)
class Curves:
    """What stands in one panel.

    ``best`` is a point of the curves, told in ``best_words``; ``limits`` are bounds of the axes
    ``x`` and ``y`` that plans keep. ``is_by_place``: curves stand beside each other, and their
    names alone tell what goes across.
    """

    title: str
    x_label: str
    y_label: str
    curves: Sequence[Curve]
    best: tuple[float, float] | None = None
    best_words: str = ""
    limits: Mapping[str, float] = field(default_factory=dict)
    is_by_place: bool = False

    @property
    def is_by_count(self) -> bool:
        """Whether numbers of GPUs go across."""
        return self.x_label.startswith("GPUs")


def draw_curves(picture: Picture, title: str, panels: Sequence[Curves]) -> None:
    """Draw panels of curves into a file, the first ones of many.

    Raises
    ------
    OutputError
        It cannot be written.
    """
    shown = panels[:_MOST_PANELS]
    across = 1 if picture.is_narrow or len(shown) == 1 else 2
    rows = -(-len(shown) // across)
    each = min(max(0.5 * picture.width / across, 300), 620)
    if len(shown) < len(panels):
        title = f"{title}; {len(shown)} of {len(panels)} works"
    with drawing(picture, height=rows * each) as canvas:
        canvas.title(title)
        grid = [axes for row in canvas.grid(rows, across) for axes in row]
        styles = _styles(canvas, shown)
        drawn: dict[str, Any] = {}
        for axes, panel in zip(grid, shown, strict=False):
            drawn |= _draw_panel(canvas, axes, panel, styles, alone=len(shown) == 1)
        for axes in grid[len(shown) :]:
            axes.set_visible(False)
        canvas.legend([*drawn.values()], [*drawn])


def _styles(canvas: Canvas, panels: Sequence[Curves]) -> dict[str, tuple[str, str]]:
    """A colour and a mark for each curve, the same in all panels."""
    series = canvas.theme.series
    names = dict.fromkeys(curve.name for panel in panels for curve in panel.curves)
    return {
        name: (series[at % len(series)], _MARKS[(at + at // len(series)) % len(_MARKS)])
        for at, name in enumerate(names)
    }


def _draw_panel(
    canvas: Canvas,
    axes: Axes,
    panel: Curves,
    styles: Mapping[str, tuple[str, str]],
    *,
    alone: bool,
) -> dict[str, Any]:
    """A panel; the handles of what it shows by their labels."""
    curves = _best_curves(panel.curves)
    counts = [count for curve in curves for count in curve.counts]
    drawn: dict[str, Any] = {}
    for curve in curves:
        words = curve.name
        if alone and not panel.is_by_place and curve.counts:
            words += f", {_numbers(curve.counts)}"
        drawn[words] = _draw_curve(canvas, axes, curve, *styles[curve.name], counts)
    drawn |= _draw_marks(canvas, axes, panel, alone=alone)
    if len(curves) < len(panel.curves):
        more = f"{len(curves)} of {len(panel.curves)} curves"
        axes.set_title(canvas.folded(f"{panel.title} {more}".strip()), loc="left")
    elif panel.title:
        axes.set_title(canvas.folded(panel.title), loc="left")
    axes.set(xlabel=panel.x_label, ylabel=panel.y_label)
    if panel.is_by_place:
        axes.set_xticks([])
        axes.margins(x=0.15)
    else:
        x = [value for curve in curves for value in curve.x]
        log_where_wide(axes.xaxis, x, whole=panel.is_by_count)
    log_where_wide(axes.yaxis, [value for curve in curves for value in curve.y])
    return drawn


def _draw_marks(canvas: Canvas, axes: Axes, panel: Curves, *, alone: bool) -> dict[str, Any]:
    """The best point and the limits; what hollow points are, where there are any."""
    theme, drawn = canvas.theme, dict[str, Any]()
    if any(tie for curve in panel.curves for tie in curve.ties):
        style: dict[str, Any] = {
            "markerfacecolor": theme.background,
            "markeredgecolor": theme.muted,
        }
        (drawn["hollow: published runs do not tell it from the best"],) = axes.plot(
            [], [], "o", **style
        )
    if panel.best is not None:
        words = f"best: {panel.best_words}" if alone else "best"
        (drawn[words],) = axes.plot(
            *panel.best,
            "*",
            color=theme.recommended,
            markeredgecolor=theme.background,
            markersize=16,
            zorder=6,
        )
    for axis, bound in panel.limits.items():
        line = (axes.axvline if axis == "x" else axes.axhline)(
            bound, color=theme.bad, linewidth=1.4, linestyle=(0, (4, 2))
        )
        drawn["limit"] = line
    return drawn


def _draw_curve(
    canvas: Canvas, axes: Axes, curve: Curve, color: str, mark: str, counts: Sequence[int]
) -> Any:
    x, y = np.asarray(curve.x, dtype=np.float64), np.asarray(curve.y, dtype=np.float64)
    order = np.argsort(curve.counts, kind="stable")
    axes.plot(x[order], y[order], color=color, linewidth=1.2, alpha=0.8)
    ends = np.asarray(curve.ends, dtype=np.float64).reshape(-1, 2).T
    known = np.isfinite(ends).all(axis=0)
    if np.any(known):
        lengths = np.maximum(np.abs(ends - y)[:, known], 0.0)
        axes.errorbar(
            x[known], y[known], yerr=lengths, fmt="none", ecolor=color, elinewidth=0.8, alpha=0.45
        )
    ties = np.asarray(curve.ties, dtype=bool)
    low, high = np.log(max(min(counts, default=1), 1)), np.log(max(max(counts, default=1), 1))
    share = (np.log(np.maximum(curve.counts, 1)) - low) / max(high - low, 1e-9)
    sizes = _SMALLEST + share * (_LARGEST - _SMALLEST)
    faces = [canvas.theme.background if tie else color for tie in ties]
    axes.scatter(x, y, s=sizes, marker=mark, facecolors=faces, edgecolors=color, zorder=3)
    (handle,) = axes.plot([], [], mark, color=color, linestyle="-", linewidth=1.2)
    return handle


def _best_curves(curves: Sequence[Curve]) -> Sequence[Curve]:
    """Those that reach the least, in their order, where there are too many."""
    if len(curves) <= _MOST_CURVES:
        return curves
    least = sorted(curves, key=lambda curve: min(curve.y, default=np.inf))[:_MOST_CURVES]
    return [curve for curve in curves if curve in least]


def _numbers(counts: Sequence[int]) -> str:
    least, most = min(counts), max(counts)
    words = text.count(least) if least == most else f"{text.count(least)} to {text.count(most)}"
    return f"{words} GPUs"
