"""Pareto fronts of one to three objectives, all minimized."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from planner.arrays import BoolArray, FloatArray

_PROBES = 8


def pareto_front(values: FloatArray) -> NDArray[np.intp]:
    """Indices of the rows that no other row dominates, sorted by the objectives.

    A row dominates another if it is nowhere larger and somewhere smaller. Of equal rows
    the first is kept. Rows with NaN are left out.

    Parameters
    ----------
    values : array of shape (rows, objectives), one to three objectives
    """
    known = np.flatnonzero(~np.isnan(values).any(axis=1))
    order = known[np.lexsort(values[known].T[::-1])]
    ranked = values[order]
    distinct = np.ones(len(ranked), dtype=np.bool_)
    distinct[1:] = (ranked[1:] != ranked[:-1]).any(axis=1)
    order, ranked = order[distinct], ranked[distinct]
    if ranked.shape[1] < 3:
        return order[_falls_below_all_before(ranked[:, -1], ranked.shape[1])]
    return order[_staircase(ranked)]


def undominated(values: FloatArray, front: FloatArray) -> BoolArray:
    """Rows that a few probes of a front do not dominate: a quick, incomplete filter."""
    kept = np.ones(len(values), dtype=np.bool_)
    step = max(1, len(front) // _PROBES)
    for probe in front[::step]:
        kept &= (values < probe).any(axis=1)
    return kept


def _falls_below_all_before(last: FloatArray, num_objectives: int) -> BoolArray:
    """Rows sorted by the first objective are on the front where the last one falls."""
    if num_objectives == 1:
        return np.asarray(np.arange(len(last)) == 0)
    lowest_before = np.concatenate([[np.inf], np.minimum.accumulate(last)[:-1]])
    return np.asarray(last < lowest_before)


def _staircase(ranked: FloatArray) -> BoolArray:
    """Three objectives: sweep by the first, keep the front of the other two sorted."""
    kept = np.zeros(len(ranked), dtype=np.bool_)
    second = np.array([-np.inf, np.inf])
    third = np.array([np.inf, -np.inf])
    for row, (_, y, z) in enumerate(ranked):
        at = int(np.searchsorted(second, y, side="right"))
        if third[at - 1] <= z:
            continue
        kept[row] = True
        end = at + int(np.searchsorted(-third[at:], -z, side="right"))
        start = at - 1 if second[at - 1] == y else at
        second = np.concatenate([second[:start], [y], second[end:]])
        third = np.concatenate([third[:start], [z], third[end:]])
    return kept
