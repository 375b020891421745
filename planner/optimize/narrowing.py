"""A mesh without what rules reject."""

from __future__ import annotations

import numpy as np

from planner.arrays import BoolArray, CodeArray, IndexArray
from planner.configurations.enumerate import Table


def possible_mesh(
    configurations: Table, codes: CodeArray, num_rejections: int
) -> tuple[Table, CodeArray, IndexArray]:
    """The mesh without the entries of its axes at which everything is rejected.

    Also returns the codes of what is left, and how many of the rows left out each rejection
    has: an array over their numbers, from 0 on.
    """
    codes = np.broadcast_to(codes, configurations.shape)
    kept = _kept(codes == 0)
    left = codes[np.ix_(*kept)]
    dropped = count_codes(codes, num_rejections) - count_codes(left, num_rejections)
    return configurations.narrowed(kept), left, dropped


def _kept(possible: BoolArray) -> list[IndexArray]:
    """For each axis, the indices at which anything is possible."""
    kept = []
    while possible.ndim:
        kept.append(np.flatnonzero(possible.any(axis=tuple(range(1, possible.ndim)))))
        possible = np.asarray(possible.any(axis=0))
    return kept


def count_codes(codes: CodeArray, num_rejections: int) -> IndexArray:
    """How many rows carry each code from 0 to ``num_rejections``."""
    counts = np.zeros(num_rejections + 1, dtype=np.intp)
    for number in range(len(counts)):
        counts[number] = np.count_nonzero(codes == number)
        if counts.sum() == codes.size:
            break
    return counts
