"""Predicted against measured, a panel for each quantity, with the intervals of the predictions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from planner.base.arrays import BoolArray, FloatArray
from planner.base.records import record
from planner.base.units import ceil_div
from planner.confidence.intervals import LEVEL
from planner.show.presenters.plots.picture import Canvas, Picture, decades, drawing
from planner.show.theme import axis_label
from planner.validation.accuracy import ComparedRun

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_WHISKERS = 60
_BAND_BINS = 12
_RASTERIZED = 500
"""Number of points from which they are rasterized in an SVG file."""


@record(kw_only=True)
class MeasuredPairs:
    """Measured and predicted values of a quantity, and the ends of the predictions' intervals."""

    quantity: str
    measured: FloatArray
    predicted: FloatArray
    low: FloatArray
    high: FloatArray

    @property
    def inside(self) -> BoolArray:
        """Whether each measurement lies in its interval."""
        return np.asarray((self.low <= self.measured) & (self.measured <= self.high))

    @property
    def errors(self) -> FloatArray:
        """\\|predicted / measured - 1\\|."""
        return np.abs(self.predicted / self.measured - 1)


def compared_quantities(tables: Sequence[Sequence[ComparedRun]]) -> list[MeasuredPairs]:
    """Return each quantity that is both measured and predicted, with all its runs.

    Noisy rows and impossible layouts are left out.

    A row counts with its first measured of equivalent quantities.
    """
    quantities: dict[str, list[tuple[float, float, float, float]]] = {}
    for rows in tables:
        for row in rows:
            for quantity, values in _of_row(row):
                quantities.setdefault(quantity, []).append(values)
    return [
        MeasuredPairs(
            quantity=quantity,
            **dict(zip(("measured", "predicted", "low", "high"), np.array(v).T, strict=True)),
        )
        for quantity, v in quantities.items()
    ]


def _of_row(row: ComparedRun) -> Iterator[tuple[str, tuple[float, float, float, float]]]:
    """Yield each compared quantity of a run: measured, predicted, and its interval ends."""
    for compared in row.kind.compared:
        quantity = row.first_measured(compared.names)
        predicted = row.ranges.get(quantity or "")
        if quantity is None or predicted is None or not row.counts(compared):
            continue
        measured = row.measured[quantity]
        if measured > 0 and predicted.value > 0:
            yield quantity, (measured, predicted.value, predicted.low, predicted.high)


def draw_predicted(picture: Picture, title: str, tables: Sequence[Sequence[ComparedRun]]) -> None:
    """Draw predictions of measured runs into a file.

    Raises OutputError if the file cannot be written.
    """
    panels = compared_quantities(tables)
    num_columns = min(len(panels), max(picture.width // 330, 1))
    rows = ceil_div(len(panels), num_columns)
    with drawing(picture, height=rows * min(picture.width / num_columns + 30, 490)) as canvas:
        canvas.title(title)
        canvas.source = "the runs, each with its source in the table"
        grid = [axes for row in canvas.grid(rows, num_columns) for axes in row]
        for axes, panel in zip(grid, panels, strict=False):
            _draw_panel(canvas, axes, panel)
        for axes in grid[len(panels) :]:
            axes.set_visible(False)
        theme = canvas.theme
        marks = [(theme.series[0], "inside its interval"), (theme.bad, "outside")]
        handles = [grid[0].plot([], [], "o", markersize=5, color=color)[0] for color, _ in marks]
        band = grid[0].fill_between([], [], [], color=theme.series[0], alpha=0.22, linewidth=0)
        band_label = f"interval that {LEVEL:.0%} of runs lie in (of many runs its median)"
        canvas.legend([*handles, band], [*(label for _, label in marks), band_label])


def _draw_panel(canvas: Canvas, axes: Axes, panel: MeasuredPairs) -> None:
    """Draw predicted against measured values of a quantity, with intervals and diagonal."""
    theme, number = canvas.theme, len(panel.measured)
    all_values = np.concatenate([panel.measured, panel.predicted])
    low, high = all_values.min() / 1.25, all_values.max() * 1.25
    for axis in (axes.xaxis, axes.yaxis):
        decades(axis, high / low)
    axes.set(xlim=(low, high), ylim=(low, high))
    axes.plot([low, high], [low, high], color=theme.muted, linewidth=1.0)
    has_interval = np.isfinite(panel.low) & np.isfinite(panel.high) & (panel.low > 0)
    if number <= _MOST_WHISKERS:
        ends = np.abs(np.stack([panel.low, panel.high]) - panel.predicted)[:, has_interval]
        positions = panel.measured[has_interval], panel.predicted[has_interval]
        axes.errorbar(*positions, yerr=ends, fmt="none", ecolor=theme.muted, elinewidth=0.9)
    elif np.any(has_interval):
        axes.fill_between(
            *_band(panel, has_interval), color=theme.series[0], alpha=0.22, linewidth=0
        )
    inside = panel.inside
    size = 22.0 if number <= _MOST_WHISKERS else 5.0
    for mask, color in ((inside, theme.series[0]), (~inside, theme.bad)):
        axes.scatter(
            panel.measured[mask],
            panel.predicted[mask],
            s=size,
            color=color,
            alpha=1.0 if number <= _MOST_WHISKERS else 0.45,
            linewidths=0,
            rasterized=number > _RASTERIZED,
        )
    name = axis_label(panel.quantity)
    share = 100 * float(np.mean(inside[has_interval])) if np.any(has_interval) else float("nan")
    median = 100 * float(np.median(panel.errors))
    text = f"{number:,} runs, {share:.0f} % inside,\nmedian error {median:.1f} %"
    axes.set_title(f"{name}\n{text}", loc="left")
    axes.set(xlabel="measured", ylabel="predicted")
    axes.set_aspect("equal", adjustable="box")


def _band(
    panel: MeasuredPairs, has_interval: BoolArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the median interval of neighbouring predictions along the diagonal, as x and ends.

    A run with the measurement x is inside where the prediction is between x / high and x / low.
    """
    predicted = panel.predicted[has_interval]
    order = np.argsort(predicted)
    parts = np.array_split(order, min(_BAND_BINS, len(order)))
    low, high = panel.low[has_interval] / predicted, panel.high[has_interval] / predicted
    middle = np.array([np.median(predicted[part]) for part in parts])
    below = np.array([1 / np.median(high[part]) for part in parts])
    above = np.array([1 / np.median(low[part]) for part in parts])
    x = np.array([predicted.min(), *middle, predicted.max()])
    padded = [np.array([ends[0], *ends, ends[-1]]) for ends in (below, above)]
    return x, x * padded[0], x * padded[1]
