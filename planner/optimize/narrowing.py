"""A mesh without what rules reject."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

from planner.base.arrays import BoolArray, CodeArray, IndexArray
from planner.configurations.enumerate import Table, steps_of

_MANY = 2**16


def possible_mesh(
    configurations: Table, codes: CodeArray, num_rejections: int
) -> tuple[Table, CodeArray, IndexArray]:
    """The mesh without the entries of its axes at which everything is rejected.

    Also returns the codes of what is left, and how many of the rows left out each rejection
    has: an array over their numbers, from 0 on.
    """
    codes = np.broadcast_to(codes, configurations.shape)
    kept = _kept(codes == 0)
    left = codes
    for axis, indices in enumerate(kept):
        left = np.take(left, indices, axis=axis)
    dropped = count_codes(codes, num_rejections) - count_codes(left, num_rejections)
    return configurations.narrowed(kept), left, dropped


def in_parts(
    configurations: Table, codes: CodeArray | None, most: int
) -> Iterator[tuple[Table, CodeArray | None]]:
    """A mesh with its codes in parts of at most about so many rows, in their order."""
    shape = configurations.shape
    if configurations.size <= most:
        if configurations.size:
            yield configurations, codes
        return
    steps = steps_of(shape, most)
    for starts in product(*(range(0, n, step) for n, step in zip(shape, steps, strict=True))):
        ends = (min(s + step, n) for s, step, n in zip(starts, steps, shape, strict=True))
        part = [slice(*both) for both in zip(starts, ends, strict=True)]
        table = configurations.narrowed([np.arange(one.start, one.stop) for one in part])
        yield table, None if codes is None else codes[tuple(part)]


def _kept(possible: BoolArray) -> list[IndexArray]:
    """For each axis, the indices at which anything is possible."""
    kept = []
    while possible.ndim:
        kept.append(np.flatnonzero(possible.any(axis=tuple(range(1, possible.ndim)))))
        possible = np.asarray(possible.any(axis=0))
    return kept


def count_codes(codes: CodeArray, num_rejections: int) -> IndexArray:
    """How many rows carry each code from 0 to ``num_rejections``."""
    flat = np.ravel(codes).astype(np.int8, copy=False).view(np.uint8)
    if flat.size < _MANY:
        return np.bincount(flat, minlength=num_rejections + 1)
    # Two codes at a time are one number of 16 bits, of which numpy counts as many a second.
    pairs = np.bincount(flat[: flat.size // 2 * 2].view(np.uint16), minlength=2**16)
    both = pairs.reshape(2**8, 2**8)
    counts = both.sum(axis=0) + both.sum(axis=1)
    if flat.size % 2:
        counts[flat[-1]] += 1
    return np.asarray(counts[: num_rejections + 1])
