"""Array types, and sums that touch the full grid last."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

FloatArray: TypeAlias = NDArray[np.float64]
BoolArray: TypeAlias = NDArray[np.bool_]
IndexArray: TypeAlias = NDArray[np.intp]
CodeArray: TypeAlias = NDArray[np.int8]
Numeric: TypeAlias = float | FloatArray


def add(parts: Iterable[Numeric]) -> FloatArray:
    """Sum of arrays of broadcastable shapes, smallest first.

    Configurations are open meshes: adding the small arrays first leaves only one
    operation on the full grid per distinct large array.
    """
    arrays = (np.asarray(part, dtype=np.float64) for part in parts)
    by_size = sorted(arrays, key=lambda array: (array.size, array.ndim))
    return reduce(np.add, by_size, np.zeros(()))


def first_true(conditions: Iterable[BoolArray]) -> CodeArray:
    """One-based position of the first condition that holds, 0 where none does.

    Conditions may have any broadcastable shapes, up to 126 of them.
    """
    none = np.int8(127)
    codes = [
        np.where(condition, np.int8(position), none)
        for position, condition in enumerate(conditions, start=1)
    ]
    first = reduce(np.minimum, sorted(codes, key=np.size), np.asarray(none))
    return np.where(first == none, np.int8(0), first)


def largest(values: Iterable[Numeric]) -> FloatArray:
    """Elementwise maximum of arrays of broadcastable shapes."""
    return np.asarray(reduce(np.maximum, sorted(values, key=np.size)))
