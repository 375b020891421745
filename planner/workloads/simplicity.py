"""How unusual a plan is, as one number: what is unusual in order of its weight."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TypeAlias

import numpy as np

from planner.base.arrays import BoolArray, IndexArray

Step: TypeAlias = tuple[int, IndexArray | BoolArray]
"""A number of levels, and the level of every plan, 0 for the plainest."""


def packed(steps: Sequence[Step]) -> IndexArray:
    """A number that orders plans by the first step, then by the second, and so on."""
    weight = math.prod(levels for levels, _ in steps)
    weighted = []
    for levels, values in steps:
        weight //= levels
        weighted.append(weight * np.asarray(values, dtype=np.intp))
    # Small arrays first: most depend on a few axes, the memory on all.
    weighted.sort(key=lambda values: values.size)
    return total(weighted)


def total(levels: Iterable[IndexArray | BoolArray]) -> IndexArray:
    """Levels or flags added up."""
    found: IndexArray = sum(
        (np.asarray(one, dtype=np.intp) for one in levels), start=np.zeros((), dtype=np.intp)
    )
    return found
