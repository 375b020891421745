"""Coarse sub-meshes of a space, and the rows next to a row; all as positions of values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations

import numpy as np

from planner.base.arrays import IndexArray

_LARGEST_SHARE = 1 / 16
_MOST_ROWS = 2**13
_CLOSE = 4


def coarse_mesh(sizes: Sequence[int]) -> IndexArray:
    """A sub-mesh with evenly spread values of each parameter, the ends first.

    Every parameter is refined in turn, while the rows stay few and a small share of the space.
    """
    most = min(_MOST_ROWS, max(1, int(_LARGEST_SHARE * math.prod(sizes))))
    counts = [1] * len(sizes)
    grown = True
    while grown:
        grown = False
        for place, size in enumerate(sizes):
            finer = math.prod(counts) // counts[place] * (counts[place] + 1)
            if counts[place] < size and finer <= most:
                counts[place] += 1
                grown = True
    spread = [
        np.unique(np.linspace(0, size - 1, count).round().astype(np.intp))
        for size, count in zip(sizes, counts, strict=True)
    ]
    # An array has fewer axes than a space may have parameters.
    varied = [place for place, values in enumerate(spread) if len(values) > 1]
    grids = np.meshgrid(*(spread[place] for place in varied), indexing="ij")
    mesh = np.zeros((grids[0].size if grids else 1, len(sizes)), dtype=np.intp)
    for place, grid in zip(varied, grids, strict=True):
        mesh[:, place] = grid.ravel()
    return mesh


def neighbours(row: IndexArray, sizes: Sequence[int], changes: int) -> IndexArray:
    """Rows that differ from ``row`` in exactly ``changes`` parameters."""
    moves = [_moves(int(here), size) for here, size in zip(row, sizes, strict=True)]
    tables = [np.empty((0, len(sizes)), dtype=np.intp)]
    for changed in combinations([p for p, move in enumerate(moves) if move.size], changes):
        grids = np.meshgrid(*(moves[place] for place in changed), indexing="ij")
        table = np.tile(row, (grids[0].size, 1))
        for place, grid in zip(changed, grids, strict=True):
            table[:, place] = grid.ravel()
        tables.append(table)
    return np.concatenate(tables)


def _moves(here: int, size: int) -> IndexArray:
    """Other positions of one parameter: the closest ones, then in steps that double, the ends."""
    steps = [*range(1, _CLOSE), *(2**power for power in range(2, max(size, 2).bit_length()))]
    near = {here + sign * step for step in steps for sign in (-1, 1)} | {0, size - 1}
    return np.array(sorted(p for p in near if 0 <= p < size and p != here), dtype=np.intp)
