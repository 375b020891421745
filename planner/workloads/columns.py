"""Arrays as result columns: one value per row, in words where they are codes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import numpy as np

from planner.base.arrays import FloatArray, Numeric, Values, ranking
from planner.configurations.table import word

Item = TypeVar("Item")


def repeated(values: Mapping[str, Item], shape: tuple[int, ...]) -> dict[str, list[Item]]:
    """Columns of the same value in every row of a table of this shape."""
    number = int(np.prod(shape))
    return {name: [value] * number for name, value in values.items()}


def worded(
    name: str, values: Values, shape: tuple[int, ...], of: str | None = None
) -> list[str | float]:
    """The values of the parameter ``of``, or of this name, as they are shown."""
    flat = np.broadcast_to(values, shape).ravel()
    if flat.size == 1:
        return [word(of or name, flat[0])]
    each, which = ranking(flat)
    words = np.array([word(of or name, value) for value in each], dtype=object)
    shown: list[str | float] = words[which].tolist()
    return shown


def floats(value: object, shape: tuple[int, ...]) -> FloatArray:
    """Numbers, one per row."""
    return np.broadcast_to(np.asarray(value, dtype=np.float64), shape).ravel()


def counts(value: Numeric, shape: tuple[int, ...]) -> list[int]:
    """Whole numbers, one per row."""
    return [int(number) for number in np.broadcast_to(value, shape).ravel()]
