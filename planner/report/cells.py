"""Cells of CSV and JSON: equal values of a column become text once."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.base.text import printable

# What a spreadsheet takes for a formula.
_FORMULA = ("=", "+", "-", "@")
# Where more than half of so many values differ, looking for equal ones takes longer.
_SAMPLE = 256
# Python writes no exponent between them.
_LEAST_PLAIN, _LEAST_SCALED = 1e-4, 1e16
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


def joined(columns: Sequence[tuple[Any, str]], cell: Cell, between: str) -> list[str]:
    """The rows of columns, each with a text before its cells, as one text a row.

    Neighbours that are the same in every row are put together once.
    """
    pieces: list[list[str]] = []
    same: list[str] = []
    for values, before in columns:
        if _is_constant(values):
            same.append(before + cell(values[:1].tolist()[0] if _is_array(values) else values[0]))
            continue
        pieces += _repeated(same, between, len(values))
        same = []
        pieces.append(texts(values, cell, before))
    pieces += _repeated(same, between, len(columns[0][0]))
    return [*map(between.join, zip(*pieces, strict=True))]


def _repeated(words: Sequence[str], between: str, number: int) -> list[list[str]]:
    return [[between.join(words)] * number] if words else []


def _is_array(values: Any) -> bool:
    return isinstance(values, np.ndarray)


def _is_constant(values: Any) -> bool:
    """Whether a column of at least one row is written the same in every row."""
    if _is_array(values):
        bits = _bits(values)
        return len(bits) > 0 and bool((bits == bits[:1]).all())
    if not values or values.count(values[0]) < len(values):
        return False
    # 1, 1.0 and True are equal, and so are 0.0 and -0.0.
    return isinstance(values[0], str | None) or (
        not isinstance(values[0], float) and len(set(map(type, values))) == 1
    )


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
    bits = _bits(values)
    if (bits == bits[:1]).all():
        return _written(values[:1], cell, before) * len(values)
    if np.unique(bits[:_SAMPLE]).size > _SAMPLE // 2:
        return _written(values, cell, before)
    _, first, which = np.unique(bits, return_index=True, return_inverse=True)
    words = np.array(_written(values[first], cell, before), dtype=object)
    found: list[str] = words[which].tolist()
    return found


def _bits(values: AnyArray) -> AnyArray:
    """Floats by their bits: 0.0 and -0.0 are equal and are written differently."""
    return values.astype(np.float64).view(np.int64) if values.dtype.kind == "f" else values


def _written(values: AnyArray, cell: Cell, before: str) -> list[str]:
    if values.dtype.kind != "f" or not np.isfinite(values).all():
        return [before + cell(value) for value in values.tolist()]
    words = _numbers(values)
    return [before + word for word in words] if before else words


def _numbers(values: AnyArray) -> list[str]:
    """Finite floats as Python writes them, several times as fast."""
    if not len(values):
        return []
    import pydantic_core

    listed = values.tolist()
    words = pydantic_core.to_json(listed).decode()[1:-1].split(",")
    sizes = np.abs(values)
    for at in np.flatnonzero(((sizes < _LEAST_PLAIN) & (sizes > 0)) | (sizes >= _LEAST_SCALED)):
        words[at] = repr(listed[at])  # with another exponent
    return words
