"""Interpolation in tables of measurements."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np

from planner.arrays import FloatArray, Numeric


def trilinear(
    axes: Sequence[FloatArray], values: FloatArray, point: Sequence[Numeric]
) -> FloatArray:
    """``values`` between the points of three ascending ``axes``, linear along each.

    Above the last point of an axis the value grows as much as the coordinate does; below the
    first it stays. ``point`` holds three coordinates of broadcastable shapes.
    """
    weights: list[tuple[FloatArray, FloatArray]] = []
    starts, beyond = [], []
    for axis, coordinate in zip(axes, point, strict=True):
        inside = np.clip(coordinate, axis[0], axis[-1])
        start = np.clip(np.searchsorted(axis, inside, side="right") - 1, 0, len(axis) - 2)
        share = (inside - axis[start]) / (axis[start + 1] - axis[start])
        starts.append(start)
        weights.append((1 - share, share))
        beyond.append(np.maximum(np.asarray(coordinate) - axis[-1], 0.0))
    found: Numeric = sum(beyond)
    for corner in product((0, 1), repeat=3):
        weight = weights[0][corner[0]] * weights[1][corner[1]] * weights[2][corner[2]]
        index = tuple(start + side for start, side in zip(starts, corner, strict=True))
        found = found + weight * values[index]
    return np.asarray(found)
