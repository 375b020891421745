"""Cells of results that planner wrote, checked by the terms that their columns are of."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from planner.base.cells import Value
from planner.errors import SearchSpaceError
from planner.question.inputs import read, shown
from planner.question.terms import Term, term_of_column

# Columns of sweeps, and the clock of a day's hours, that are no terms.
_OWN: dict[str, type] = {
    "scenario": int, "feasible": bool, "work": str, "workload": str, "time": str,
}  # fmt: skip
_SETTINGS = {"parameter", "pool", "derived"}


@cache
def cell_reader(column: str) -> Callable[[object], Value]:
    """What makes of a cell's value that of its column; an unknown one, None, stays so.

    It raises `SearchSpaceError` where the value is none of the column's.
    """
    if column in _OWN:
        return lambda value: _of_type(column, _OWN[column], value)
    term = term_of_column(column)
    if term is None or column == limit_column(term.term):
        return lambda value: _plain(column, value)
    if is_result(column):
        return lambda value: _number(column, value)
    if _SETTINGS & set(term.kind) and "result" not in term.kind:
        return lambda value: _setting(term, column, value)
    return lambda value: _plain(column, value)


@cache
def is_result(column: str) -> bool:
    """Whether a column is a number that was predicted."""
    term = None if column in _OWN else term_of_column(column)
    if term is None or "pool" in term.kind or term.is_word or column == limit_column(term.term):
        return False
    return "result" in term.kind


def limit_column(name: str) -> str:
    """The column of a limit, beside that of what it limits."""
    return f"{name}_limit"


def _plain(column: str, value: object) -> Value:
    if not isinstance(value, bool | int | float | str | None):
        raise SearchSpaceError(f"{column} of a row is no word or number.")
    return value


def _of_type(column: str, kind: type, value: object) -> Value:
    if type(value) is not kind and value is not None:
        raise SearchSpaceError(f"{column} of a row cannot be {shown(value)}.")
    return _plain(column, value)


def _number(column: str, value: object) -> Value:
    if type(value) not in (float, int) and value is not None:
        raise SearchSpaceError(f"{column} of a row is no number: {shown(value)}.")
    return _plain(column, value)


def _setting(term: Term, column: str, value: object) -> Value:
    if value is None or column != term.term:
        return _plain(column, value)
    return read(term, _plain(column, value), f"{column} of a row")
