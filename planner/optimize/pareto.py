"""Pareto fronts of one to three objectives, and of many."""

from __future__ import annotations

from functools import reduce

import numpy as np
from numpy.typing import NDArray

from planner.base.arrays import BoolArray, FloatArray, IndexArray, rank_values

_PROBES = 8
_CHUNK = 2**10
_FEW_LEVELS = 64
_FEW = 2**7  # each of so many is compared with each in less time than one sort takes


def pareto_front(values: FloatArray) -> NDArray[np.intp]:
    """Indices of the rows that no other row dominates, sorted by the objectives.

    A row dominates another if it is nowhere larger and somewhere smaller. Of equal rows
    the first is kept. Rows with NaN are left out.

    Parameters
    ----------
    values : array of shape (rows, objectives), one to three objectives
    """
    finite_rows = np.flatnonzero(~np.isnan(values).any(axis=1))
    order = finite_rows[np.lexsort(values[finite_rows].T[::-1])]
    ranked = values[order]
    distinct = np.ones(len(ranked), dtype=np.bool_)
    distinct[1:] = (ranked[1:] != ranked[:-1]).any(axis=1)
    order, ranked = order[distinct], ranked[distinct]
    if ranked.shape[1] < 3:
        return order[_falls_below_all_before(ranked[:, -1], ranked.shape[1])]
    if len(ranked) <= _FEW:
        columns = ranked.T
        nowhere_larger = reduce(np.logical_and, (column[:, None] <= column for column in columns))
        return np.asarray(order[nowhere_larger.sum(axis=0) == 1])
    levels, pairs = _levels(ranked)
    return order[_front_by_staircase(ranked) if levels is None else _front_by_levels(levels, pairs)]


def front_of_many(values: FloatArray) -> NDArray[np.intp]:
    """Indices of the rows that no other row dominates, for any number of objectives.

    Of equal rows all are kept. Meant for some thousand rows: `pareto_front` is for more.

    Parameters
    ----------
    values : array of shape (rows, objectives) without NaN
    """
    order = np.lexsort(values.T[::-1])
    front: list[int] = []
    for index in order.tolist():
        # Sorted by the first objective, a row can only be dominated by one before it.
        others = values[front]
        worse = (others <= values[index]).all(axis=1) & (others < values[index]).any(axis=1)
        if not worse.any():
            front.append(index)
    return np.array(front, dtype=np.intp)


def within_factor_of_best(ranked: FloatArray, max_factor: float) -> BoolArray:
    """True where the first objective is within ``max_factor`` of the best (first) row.

    True for all rows if the best objective is 0.
    """
    first = ranked[:, 0]
    best = first[0] if first.size else 0.0
    if best == 0 or not np.isfinite([best, max_factor]).all():
        return np.ones(len(first), dtype=np.bool_)
    return np.asarray(first <= (best * max_factor if best > 0 else best / max_factor))


def filter_dominated(values: FloatArray, front: FloatArray) -> BoolArray:
    """True where a row may be undominated by ``front``; a quick filter with a few probes."""
    is_undominated = np.ones(len(values), dtype=np.bool_)
    step = max(1, len(front) // _PROBES)
    for probe in front[::step]:
        # Column by column: numpy reduces a short last axis slowly.
        is_undominated &= reduce(
            np.logical_or, (column < p for column, p in zip(values.T, probe, strict=True))
        )
    return is_undominated


def _falls_below_all_before(last: FloatArray, num_objectives: int) -> BoolArray:
    """True where ``last`` is below all earlier values: rows on the front."""
    if num_objectives == 1:
        return np.asarray(np.arange(len(last)) == 0)
    is_on_front = np.ones(len(last), dtype=np.bool_)
    is_on_front[1:] = last[1:] < np.minimum.accumulate(last)[:-1]
    return is_on_front


def _levels(ranked: FloatArray) -> tuple[IndexArray | None, FloatArray]:
    """The ranks of a column with few distinct values (None: no such column), and the others."""
    for column in range(ranked.shape[1]):
        levels, ranks = rank_values(ranked[:, column])
        if len(levels) <= _FEW_LEVELS:
            return ranks, np.delete(ranked, column, axis=1)
    return None, ranked


def _front_by_levels(levels: IndexArray, pairs: FloatArray) -> BoolArray:
    """True where a row is on the front of three objectives, one with few distinct values."""
    is_on_front = np.zeros(len(levels), dtype=np.bool_)
    front = np.empty((0, 2))
    for level in range(levels.max(initial=-1) + 1):
        rows = np.flatnonzero(levels == level)
        # Without what is nowhere below the front so far, which is sorted by its first objective.
        level_pairs = pairs[rows]
        last = np.searchsorted(front[:, 0], level_pairs[:, 0], side="right")
        lowest = np.concatenate([[np.nan], front[:, 1]])[last]
        rows = rows[~(lowest <= level_pairs[:, 1])]
        rows = rows[_front_of_two(pairs[rows])]
        is_on_front[rows] = True
        merged = np.concatenate([front, pairs[rows]])
        front = merged[_front_of_two(merged)]
    return is_on_front


def _front_of_two(pairs: FloatArray) -> IndexArray:
    """Indices of the front of two objectives, sorted by the first; equal pairs do not occur."""
    order = np.lexsort(pairs.T[::-1])
    return order[_falls_below_all_before(pairs[order, 1], 2)]


def _front_by_staircase(ranked: FloatArray) -> BoolArray:
    """True where a row is on the front of three objectives; rows sorted by the first."""
    is_on_front = np.zeros(len(ranked), dtype=np.bool_)
    stairs = _StaircaseFront()
    for start in range(0, len(ranked), _CHUNK):
        chunk = ranked[start : start + _CHUNK, 1:]
        for row in np.flatnonzero(~stairs.cover(chunk)):
            is_on_front[start + row] = stairs.add(*chunk[row])
    return is_on_front


class _StaircaseFront:
    """A front of two objectives, ``y`` rising and ``rise``, the negated other, rising too."""

    def __init__(self) -> None:
        self._y = np.empty(0)
        self._rise = np.empty(0)

    def cover(self, points: FloatArray) -> BoolArray:
        """True where the front has a point that is equal to each point, or better."""
        last = np.searchsorted(self._y, points[:, 0], side="right")
        best = np.concatenate([[np.nan], self._rise])[last]
        return np.asarray(best >= -points[:, 1])

    def add(self, y: float, z: float) -> bool:
        """Add a point unless the front dominates it; True if it was added."""
        position = int(np.searchsorted(self._y, y, side="right"))
        if position and self._rise[position - 1] >= -z:
            return False
        start = position - 1 if position and self._y[position - 1] == y else position
        end = max(position, int(np.searchsorted(self._rise, -z, side="right")))
        self._y = np.concatenate([self._y[:start], [y], self._y[end:]])
        self._rise = np.concatenate([self._rise[:start], [-z], self._rise[end:]])
        return True
