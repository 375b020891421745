"""Interpolation in tables of measurements."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from planner.base.arrays import FloatArray, IndexArray, Numeric


def trilinear(
    axes: Sequence[FloatArray], values: FloatArray, point: Sequence[Numeric]
) -> FloatArray:
    """``values`` between the points of three ascending ``axes``, linear along each.

    Above the last point of an axis the value grows as much as the coordinate does; below the
    first it stays. ``point`` holds three coordinates of broadcastable shapes.
    """
    cells = [_cell(axis, np.asarray(x)) for axis, x in zip(axes, point, strict=True)]
    (first, _, _), (second, _, _), (third, _, _) = cells
    _, rows, columns = values.shape
    lowest = np.asarray((first * rows + second) * columns + third)
    beside = np.arange(2)
    corners = (beside[:, None, None] * rows + beside[:, None]) * columns + beside
    # The corners come first: numpy's inner loops are then as long as there are points.
    found = values.ravel()[corners.reshape(-1, *(1 for _ in lowest.shape)) + lowest]
    for half, (_, share, _) in zip((4, 2, 1), cells, strict=True):
        low, high = found[:half], found[half:]
        found = low + share * (high - low)
    return np.asarray(found[0] + sum(beyond for _, _, beyond in cells))


def _cell(axis: FloatArray, x: FloatArray) -> tuple[IndexArray, FloatArray, FloatArray]:
    """The point of the axis before ``x``, how far x is to the next, and how far beyond the last."""
    inside = np.minimum(np.maximum(x, axis[0]), axis[-1])
    start = axis[1:-1].searchsorted(inside, side="right")
    share = (inside - axis[start]) / (axis[start + 1] - axis[start])
    return start, share, np.maximum(x - inside, 0.0)
