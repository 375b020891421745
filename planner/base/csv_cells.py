"""Values of cells in CSV files that planner wrote."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any, TypeAlias

Value: TypeAlias = str | int | float | bool | None
"""What a cell, a setting or an entry of JSON is."""

Row: TypeAlias = Mapping[str, Value]
"""A row of a table by column."""

TypedRow: TypeAlias = Mapping[str, Any]
"""A row whose reader knows the type of each column that it takes."""

_WORDS: Mapping[str, Value] = {"": None, "True": True, "False": False}
_NUMBER = frozenset("0123456789-.")


def number_of_row(row: Mapping[str, object], name: str) -> float:
    """Return a number of a CSV row; raise TypeError if the cell is not a number."""
    value = row[name]
    value = value.item() if hasattr(value, "item") else value  # of numpy
    if not isinstance(value, int | float):
        raise TypeError(f"{name} is {value!r}, which is not a number")
    return value


def cell_value(cell: str) -> Value:
    """Convert a CSV cell to a number, flag or text; None if empty.

    >>> cell_value("8"), cell_value("0.5"), cell_value("True"), cell_value(""), cell_value("8x")
    (8, 0.5, True, None, '8x')
    """
    if cell in _WORDS:
        return _WORDS[cell]
    if cell[0] in _NUMBER and "_" not in cell:
        try:
            return int(cell) if cell.isdecimal() else float(cell)
        except ValueError:
            pass
    return cell[1:] if cell[0] == "'" and cell[1:2] in ("=", "+", "-", "@") else cell


def number_or_nan(value: object) -> float:
    """Return a value as a float; NaN if unknown or a text.

    >>> number_or_nan(8), number_or_nan(None)
    (8.0, nan)
    """
    return float(value) if isinstance(value, Real) else math.nan


def rows_to_columns(rows: Sequence[Mapping[str, Value]]) -> dict[str, list[Value]]:
    """Rows as columns, in order of first appearance; missing entries are None."""
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in names}
