"""Rows of a CSV file by the names of its columns, with every fault of its first line."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from io import StringIO
from pathlib import Path

from planner.base.reading import TABLE, csv_of
from planner.errors import SpecError, did_you_mean
from planner.specs.load import read_text

Rows = list[tuple[int, Mapping[str, str]]]


def read_table(path: Path, known: Collection[str], needed: Collection[str]) -> Rows:
    """The rows of a file, each with its line number; cells that a row lacks are empty.

    Raises
    ------
    SpecError
        It cannot be read, is no CSV, has a column that is not among ``known`` or lacks one that
        is ``needed``, or a row has more cells than there are columns; one line per fault.
    """
    text = read_text(path, TABLE)
    lines = [
        (number, [cell.strip() for cell in row]) for number, row in csv_of(StringIO(text), path)
    ]
    head = [name.lower() for name in lines[0][1]] if lines else []
    faults = [
        f"{path}:1: column {name!r} is unknown.{did_you_mean(name, known)} "
        f"Known: {', '.join(known)}."
        for name in head
        if name not in known
    ]
    faults += [f"{path}:1: there is no column {name}." for name in needed if name not in head]
    faults += [f"{path}:1: column {name} is there twice." for name in _twice(head)]
    rows: Rows = []
    for line, cells in lines[1:]:
        if not any(cells):
            continue
        if len(cells) > len(head):
            faults.append(f"{path}:{line}: has {len(cells)} fields, not {len(head)}.")
        filled = [*cells, *[""] * (len(head) - len(cells))]
        rows.append((line, dict(zip(head, filled, strict=False))))
    if faults:
        raise SpecError("\n".join(faults))
    return rows


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


_LARGEST = 1e15


def _twice(names: list[str]) -> list[str]:
    return sorted({name for name in names if names.count(name) > 1})
