"""A measure as a matrix of coloured cells with its numbers: of GPUs and numbers of GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from planner.base.records import record
from planner.show.theme import blended, readable_on
from planner.show.views.plots.canvas import Canvas, drawing
from planner.show.views.plots.picture import Picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_ROW, _HEAD, _SMALL_ROW = 30, 70, 24
_MOST_PANELS = 6
_STRONGEST = 0.85
"""Share of the colour that the best cell has; the ground is the rest."""


@record(kw_only=True)
class Matrix:
    """Cells in rows and columns.

    ``words`` are what stands in a cell, its mark before it; ``values`` are NaN where it has no
    number. ``sign``: 1 where less is better. ``best``: the best of its column, or a tie with it.
    """

    title: str
    rows: Sequence[str]
    columns: Sequence[str]
    words: Sequence[Sequence[str]]
    values: Sequence[Sequence[float]]
    best: Sequence[Sequence[bool]]
    sign: int
    column_title: str = ""


def draw_matrix(picture: Picture, title: str, matrices: Sequence[Matrix], marks: str) -> None:
    """Draw matrices below each other into a file, the first ones of many; ``marks`` explains them.

    Raises
    ------
    OutputError
        It cannot be written.
    """
    shown = matrices[:_MOST_PANELS]
    row = _SMALL_ROW if picture.is_narrow else _ROW
    heights = [_HEAD + row * len(one.rows) for one in shown]
    if len(shown) < len(matrices):
        title = f"{title}; {len(shown)} of {len(matrices)} works"
    with drawing(picture, height=sum(heights)) as canvas:
        canvas.title(title)
        grid = canvas.grid(len(shown), 1, height_ratios=heights)
        for (axes,), matrix in zip(grid, shown, strict=True):
            _draw(canvas, axes, matrix)
        canvas.note(marks)


def _draw(canvas: Canvas, axes: Axes, matrix: Matrix) -> None:
    colors = _colors(canvas, matrix)
    letters = canvas.letters() / (len(matrix.columns) + 2.5)
    longest = max(len(cell) for cells in matrix.words for cell in cells)
    size = min(canvas.size, canvas.size * letters / max(longest + 1, 1))
    for row, cells in enumerate(matrix.words):
        for column, words in enumerate(cells):
            color, is_best = colors[row][column], matrix.best[row][column]
            axes.bar(
                column,
                1,
                width=1,
                bottom=row - 0.5,
                color=color,
                edgecolor=canvas.theme.background,
                linewidth=2,
            )
            axes.text(
                column,
                row,
                words,
                ha="center",
                va="center",
                fontsize=size,
                color=readable_on(color),
                fontweight="bold" if is_best else "normal",
            )
    axes.set(xlim=(-0.5, len(matrix.columns) - 0.5), ylim=(len(matrix.rows) - 0.5, -0.5))
    axes.set_xticks(range(len(matrix.columns)), matrix.columns, fontsize=size)
    axes.set_yticks(range(len(matrix.rows)), matrix.rows, fontsize=size)
    axes.tick_params(length=0)
    axes.xaxis.tick_top()
    axes.grid(visible=False)
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.set_title(canvas.folded(matrix.title), loc="left")


def _colors(canvas: Canvas, matrix: Matrix) -> list[list[str]]:
    """From the ground, the worst, to a colour, the best, by the logarithm where all are above 0."""
    values = np.asarray(matrix.values, dtype=np.float64)
    known = values[np.isfinite(values)]
    theme = canvas.theme
    if not known.size:
        return [[theme.panel] * len(row) for row in matrix.values]
    scaled = np.log(values) if known.min() > 0 else values
    low, high = np.nanmin(scaled), np.nanmax(scaled)
    shares = (scaled - low) / max(high - low, 1e-12)
    good = 1 - shares if matrix.sign > 0 else shares

    def color(share: float) -> str:
        if not np.isfinite(share):
            return theme.panel
        return blended(theme.background, theme.series[2], 0.08 + (_STRONGEST - 0.08) * share)

    return [[color(float(share)) for share in row] for row in good]
