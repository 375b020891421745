"""Tables of CSV: a row of `Column` for each column says how a cell reads; all faults are told."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from planner.base.reading import TABLE, csv_of
from planner.errors import SpecError, did_you_mean
from planner.specs.load import read_text

Row = Mapping[str, Any]
Made = TypeVar("Made")

UNDATED = "undated"
_LARGEST = 1e15
_MONTHS = 12
_DATE = re.compile(r"(\d{4})(?:-(0[1-9]|1[0-2])(?:-(?:0[1-9]|[12]\d|3[01]))?)?")


def text(cell: str, _: str) -> str:
    """A cell as it is."""
    return cell


class Column(NamedTuple):
    """A column: what makes a value of a cell and of its name, and whether it must be there."""

    name: str
    read: Callable[[str, str], object] = text
    needed: bool = False


def records(
    path: Path,
    columns: Sequence[Column],
    make: Callable[[Row], Made],
    once: Sequence[str] = (),
) -> list[Made]:
    """What is made of each row of a file, in order; a column that it lacks has empty cells.

    What the columns ``once`` say together stands in one row.

    Raises
    ------
    SpecError
        It cannot be read, is no CSV, has a column that is unknown or lacks one that is needed, a
        row has more cells than there are columns, or something is wrong with one; one line each.
    """
    found: list[Made] = []
    faults: list[str] = []
    first: dict[str, int] = {}
    # Most cells of a column stand in many rows.
    reads = [(name, cache(read)) for name, read, _ in columns]
    for line, cells in _lines(path, columns):
        row: dict[str, object] = {}
        wrong: list[str] = []
        for name, read in reads:
            try:
                row[name] = read(cells.get(name, ""), name)
            except ValueError as error:
                wrong.append(str(error))
        if not wrong:
            try:
                found.append(make(row))
                told = [cells.get(name, "") for name in once]
                key = ", ".join(told).lower()
                if told and first.setdefault(key, line) != line:
                    words = ", ".join(cell for cell in told if cell)
                    raise ValueError(f"{words} stands on line {first[key]}, too")
            except ValueError as error:
                wrong.append(str(error))
        faults += [f"{path}:{line}: {fault}." for fault in wrong]
    if faults:
        raise SpecError("\n".join(faults))
    return found


def _lines(path: Path, columns: Sequence[Column]) -> list[tuple[int, Mapping[str, str]]]:
    """The rows of a file, each with its line number; cells that a row lacks are left out."""
    lines = [
        (number, [cell.strip() for cell in row])
        for number, row in csv_of(StringIO(read_text(path, TABLE)), path)
    ]
    head = [name.lower() for name in lines[0][1]] if lines else []
    known = [column.name for column in columns]
    faults = [
        f"1: column {name!r} is unknown.{did_you_mean(name, known)} Known: {', '.join(known)}."
        for name in head
        if name not in known
    ]
    missing = [name for name, _, needed in columns if needed and name not in head]
    faults += [f"1: there is no column {name}." for name in missing]
    twice = sorted({name for name in head if head.count(name) > 1})
    faults += [f"1: column {name} is there twice." for name in twice]
    faults += [
        f"{line}: has {len(cells)} fields, not {len(head)}."
        for line, cells in lines[1:]
        if len(cells) > len(head)
    ]
    if faults:
        raise SpecError("\n".join(f"{path}:{fault}" for fault in faults))
    return [(line, dict(zip(head, cells, strict=False))) for line, cells in lines[1:] if any(cells)]


def number(text: str, column: str) -> float:
    """A finite number that is not negative.

    Raises
    ------
    ValueError
        It is none.
    """
    try:
        found = float(text)
    except ValueError:
        raise ValueError(f"{column} {text!r} is not a number") from None
    if not 0 <= found <= _LARGEST:
        raise ValueError(f"{column} {text} is negative, or not finite")
    return found


def filled(cell: str, column: str) -> str:
    """Any text but an empty one.

    Raises
    ------
    ValueError
        It is empty.
    """
    if not cell:
        raise ValueError(f"{column} is empty")
    return cell


def optional(read: Callable[[str, str], Made]) -> Callable[[str, str], Made | None]:
    """What makes a value of a cell, and None of an empty one."""
    return lambda cell, column: read(cell, column) if cell else None


def one_of(words: Collection[str]) -> Callable[[str, str], str]:
    """What takes one of some words."""

    def read(cell: str, column: str) -> str:
        if cell not in words:
            hint = did_you_mean(cell, words)
            raise ValueError(f"{column} {cell!r} is not one of {', '.join(words)}{hint}")
        return cell

    return read


def dated(cell: str, _: str) -> str:
    """A date, or nothing; see `month`."""
    month(cell)
    return cell


def month(date: str) -> int | None:
    """The number of a date's month, that of January where only the year is known; None undated.

    Raises
    ------
    ValueError
        It is no date.

    >>> month("2026-01-31") - month("2025")
    12
    """
    if date in ("", UNDATED):
        return None
    match = _DATE.fullmatch(date)
    if match is None:
        raise ValueError(f"date {date!r} is not a year, a month or a day, as in 2026-10-24")
    return int(match[1]) * _MONTHS + int(match[2] or 1) - 1


def are_old(dates: Sequence[str]) -> list[bool]:
    """Whether each offer of a list is old: a year behind the newest, or undated.

    Today's date does not matter, so that answers do not change with it. A list without dates
    has no old offers.
    """
    number_of = {date: month(date) for date in set(dates)}
    newest = max((number for number in number_of.values() if number is not None), default=None)
    if newest is None:
        return [False] * len(dates)
    old = {date: number is None or number < newest - _MONTHS for date, number in number_of.items()}
    return [old[date] for date in dates]
