"""Cells of CSV and JSON: equal values of a column become text once."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.text import printable

# What a spreadsheet takes for a formula.
_FORMULA = ("=", "+", "-", "@")
# Where more than half of so many values differ, looking for equal ones takes longer.
_SAMPLE = 256
_QUOTED = frozenset(',"\n')

AnyArray = NDArray[Any]
Cell = Callable[[Any], str]


def csv_cell(value: Any) -> str:
    """A value in CSV: numbers as Python writes them, what is unknown empty.

    A text loses its control characters; before a leading ``=``, ``+``, ``-`` or ``@`` it gets
    an apostrophe, with which a spreadsheet shows it and does not compute it.

    >>> csv_cell(0.5), csv_cell("=1+1"), csv_cell("a,b"), csv_cell(None)
    ('0.5', "'=1+1", '"a,b"', '')
    """
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return ""
    if not isinstance(value, str):
        return repr(value)
    words = printable(value)
    if words.startswith(_FORMULA):
        words = "'" + words
    return '"' + words.replace('"', '""') + '"' if _QUOTED.intersection(words) else words


def json_cell(value: Any) -> str:
    """A value in JSON; what is unknown is null."""
    if isinstance(value, float) and not math.isfinite(value):
        return "null"
    return json.dumps(value)


def texts(values: Any, cell: Cell, before: str = "") -> list[str]:
    """The cells of a column, an array or a list, each with ``before`` before it."""
    if isinstance(values, np.ndarray):
        return _of_array(values, cell, before)
    kinds = set(map(type, values))
    if kinds == {float}:
        return _of_array(np.asarray(values), cell, before)
    if len(kinds - {type(None)}) > 1 or float in kinds:  # 1, 1.0 and True are equal
        return [before + cell(value) for value in values]
    known = {value: before + cell(value) for value in set(values)}
    return [known[value] for value in values] if len(known) > 1 else [*known.values()] * len(values)


def _of_array(values: AnyArray, cell: Cell, before: str) -> list[str]:
    # By their bits: 0.0 and -0.0 are equal and are written differently.
    bits = values.astype(np.float64).view(np.int64) if values.dtype.kind == "f" else values
    if (bits == bits[:1]).all():
        return _written(values[:1], cell, before) * len(values)
    if np.unique(bits[:_SAMPLE]).size > _SAMPLE // 2:
        return _written(values, cell, before)
    _, first, which = np.unique(bits, return_index=True, return_inverse=True)
    words = np.array(_written(values[first], cell, before), dtype=object)
    found: list[str] = words[which].tolist()
    return found


def _written(values: AnyArray, cell: Cell, before: str) -> list[str]:
    if values.dtype.kind != "f" or not np.isfinite(values).all():
        return [before + cell(value) for value in values.tolist()]
    words = [*map(repr, values.tolist())]  # as every cell writes it
    return [before + word for word in words] if before else words
