"""Array types, and sums that touch the full grid last."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from operator import attrgetter
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

FloatArray: TypeAlias = NDArray[np.float64]
BoolArray: TypeAlias = NDArray[np.bool_]
IndexArray: TypeAlias = NDArray[np.intp]
CodeArray: TypeAlias = NDArray[np.int8]
Numeric: TypeAlias = float | FloatArray
Values: TypeAlias = NDArray[np.generic]
"""Numbers, codes or flags of configurations."""
Item = TypeVar("Item", bound=np.generic)

_FLOAT = np.dtype(np.float64)
_NO_POSITION = np.uint8(255)
_SMALL = 2**10  # where a new array costs less than to find out whether the old one has room


def add(parts: Iterable[Numeric | BoolArray]) -> FloatArray:
    """Sum arrays of broadcastable shapes, smallest first.

    Configurations are open meshes: adding the small arrays first leaves only one operation on the
    full grid per distinct large array. A single part is returned as it is.
    """
    by_size: list[Any] = [
        part if type(part) is np.ndarray and part.dtype is _FLOAT else np.asarray(part, _FLOAT)
        for part in parts
    ]
    if len(by_size) > 2:
        by_size.sort(key=attrgetter("size", "ndim"))
    total, is_writable = by_size[0] if by_size else np.zeros(()), False
    for array in by_size[1:]:
        if is_writable and _fits_in(array, total):
            np.add(total, array, out=total)
        else:
            total = total + array
            is_writable = total.size > _SMALL
    return np.asarray(total)


def _fits_in(array: FloatArray, total: FloatArray) -> bool:
    """Return whether ``array`` broadcasts to the shape of ``total``."""
    if array.shape == total.shape or array.ndim == 0:
        return True
    missing = total.ndim - array.ndim
    sizes = zip(array.shape, total.shape[missing:], strict=False)
    return missing >= 0 and all(size in (1, full) for size, full in sizes)


def first_true(conditions: Iterable[BoolArray]) -> CodeArray:
    """Return the one-based position of the first true condition per element; 0 if none is.

    Up to 126 conditions may have any broadcastable shapes. The result has the shape of the
    conditions that hold somewhere.
    """
    return lowest_code(first_true_by_shape(conditions))


def first_true_by_shape(conditions: Iterable[BoolArray]) -> list[CodeArray]:
    """Return `first_true` of the conditions of each shape; those that hold nowhere are left out."""
    by_shape: dict[tuple[int, ...], NDArray[np.uint8]] = {}
    for position, condition in enumerate(conditions):
        if not np.asarray(condition).any():
            continue
        codes = np.where(condition, np.uint8(position), _NO_POSITION)
        earlier = by_shape.get(codes.shape)
        by_shape[codes.shape] = codes if earlier is None else np.minimum(earlier, codes)
    # Zero-based positions become one-based, and 255 wraps to 0.
    return [np.add(codes, np.uint8(1)).view(np.int8) for codes in by_shape.values()]


def lowest_code(codes: Iterable[CodeArray]) -> CodeArray:
    """Return the lowest code above 0 per element of arrays that broadcast; 0 if there is none."""
    positions = (np.subtract(each.view(np.uint8), np.uint8(1)) for each in codes)
    first = reduce(np.minimum, sorted(positions, key=np.size), np.asarray(_NO_POSITION))
    return np.asarray(np.add(first, np.uint8(1))).view(np.int8)


def is_among(values: Numeric | CodeArray, few: Iterable[object]) -> BoolArray:
    """Return a mask: True where a value equals one of ``few`` (fast for short arrays)."""
    is_any = np.zeros(np.shape(values), dtype=np.bool_)
    for value in few:
        is_any = is_any | (values == value)
    return is_any


def largest(values: Iterable[Numeric]) -> FloatArray:
    """Return the elementwise maximum of arrays of broadcastable shapes."""
    first, *others = sorted(map(np.asarray, values), key=np.size)
    total, is_writable = first, False
    for array in others:
        if is_writable and _fits_in(array, total):
            np.maximum(total, array, out=total)
        else:
            total, is_writable = np.asarray(np.maximum(total, array)), True
    return total


def broadcast_flat(values: NDArray[Item], shape: tuple[int, ...]) -> NDArray[Item]:
    """Entries of an array that broadcasts to a shape, flattened."""
    return np.ravel(values if values.shape == shape else np.broadcast_to(values, shape))


def first(values: object) -> float:
    """The first element of an array as a Python float."""
    return float(np.ravel(np.asarray(values, dtype=np.float64))[0])


def sorted_unique(values: NDArray[Item]) -> NDArray[Item]:
    """Return the distinct values of an array in increasing order.

    As `numpy.unique`, which loads masked arrays: a tenth of what a search takes to start.
    """
    ordered = np.sort(values, axis=None)
    return ordered[_is_new(ordered)]


def rank_values(values: NDArray[Item]) -> tuple[NDArray[Item], IndexArray]:
    """Return the sorted distinct values of an array, and each element's index in them."""
    flat = np.ravel(values)
    order = np.argsort(flat, kind="stable")
    ordered = flat[order]
    is_new = _is_new(ordered)
    ranks = np.empty(flat.size, dtype=np.intp)
    ranks[order] = np.cumsum(is_new) - 1
    return ordered[is_new], ranks


def _is_new(ordered: NDArray[Item]) -> BoolArray:
    is_new = np.ones(ordered.size, dtype=np.bool_)
    both_nan = (ordered[1:] != ordered[1:]) & (ordered[:-1] != ordered[:-1])
    is_new[1:] = (ordered[1:] != ordered[:-1]) & ~both_nan
    return is_new
