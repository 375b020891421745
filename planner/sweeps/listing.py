"""Scenarios as a table on screen, or as rows of a file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from planner.base import text
from planner.base.files import written_whole
from planner.report.cells import csv_cell
from planner.report.told import label, told, told_alike
from planner.show.page import TOTAL, Block, Column, fitted, said
from planner.sweeps.columns import COST, MEASURES, TIME, VALUE
from planner.sweeps.plan import SweepPlan

Cells = Sequence[Any]

_LONGEST, _SMALL = 40, 0.1
_MORE = ("--columns", "--csv")


def usual_columns(plan: SweepPlan, columns: Sequence[str], asked: Iterable[str]) -> list[str]:
    """What was varied, what is asked for, cost, time, and why there is no plan."""
    varied = [n if n in columns else f"{n}_limit" for n in plan.varied]
    measures = [name for one in (COST, TIME) for name in MEASURES[one] if name in columns]
    wanted = dict.fromkeys(("scenario", *varied, *asked, *measures, "reason"))
    return [name for name in wanted if name in columns or name == VALUE]


def rows_blocks(columns: Sequence[str], rows: Sequence[Cells], matching: int) -> Iterator[Block]:
    """Rows as a table of as many columns as there is room for."""
    some = f"{text.count(len(rows))} of " if len(rows) < matching else ""
    yield said(f"{some}{text.count(matching)} scenarios", mark=TOTAL, indent="")
    table = {name: [row[at] for row in rows] for at, name in enumerate(columns)}
    shown = [
        _column(name, cells, _alike(name, table))
        for name, cells in table.items()
        if any(cell is not None for cell in cells)
    ]
    yield fitted(shown, elsewhere=f"choose some with {_MORE[0]}, or write all with {_MORE[1]}")
    if len(rows) < matching:
        yield said("More: --top")


def _alike(name: str, table: Mapping[str, Cells]) -> list[float]:
    """The numbers of a column and of the ends of its interval, which are told in one unit."""
    return [
        float(cell)
        for other, cells in table.items()
        if _without_end(other) == _without_end(name)
        for cell in cells
        if _is_number(cell)
    ]


def _without_end(name: str) -> str:
    return name.replace("_low", "").replace("_high", "")


def _column(name: str, cells: Cells, alike: Sequence[float]) -> Column:
    head = label(name)
    if name in MEASURES or name == VALUE:  # of several works: a unit of all suits none of them
        words = ["-" if cell is None else _alone(name, cell) for cell in cells]
        return Column(name=name, header=head, cells=words, numeric=True)
    if any(isinstance(cell, float) for cell in cells):
        numbers = [float(cell) for cell in cells if _is_number(cell)]
        numerals, unit = told_alike(_without_end(name), [*numbers, *alike])
        found = iter(numerals)
        words = [next(found) if _is_number(cell) else _word(cell) for cell in cells]
        head = head if unit in head.split() else f"{head} {unit}".strip()
        return Column(name=name, header=head, cells=words, numeric=True)
    is_numeric = all(cell is None or _is_number(cell) for cell in cells)
    return Column(name=name, header=head, cells=[*map(_word, cells)], numeric=is_numeric)


def _alone(measure: str, value: float) -> str:
    if measure == VALUE:
        return text.significant(value) if value >= _SMALL else f"{value:.2g}"
    return told(MEASURES[measure][0], value)


def _is_number(cell: Any) -> bool:
    return isinstance(cell, int | float) and not isinstance(cell, bool)


def _word(cell: Any) -> str:
    if cell is None:
        return "-"
    words = text.value(cell)
    return words if len(words) <= _LONGEST else f"{words[: _LONGEST - 3]}..."


def write_rows(
    csv: Path | None, json_file: Path | None, columns: Sequence[str], rows: Iterable[Cells]
) -> int:
    """Write rows into the files that are given, as they come; how many there were.

    Raises
    ------
    OutputError
        A file cannot be written.
    """
    number = 0
    if csv is not None and json_file is not None:
        rows = [*rows]
    for path, lines in ((csv, _csv_lines), (json_file, _json_lines)):
        if path is None:
            continue
        with written_whole(path) as file:
            number = 0
            for number, line in enumerate(lines(columns, rows)):  # noqa: B007
                file.write(line)
    return number


def _csv_lines(columns: Sequence[str], rows: Iterable[Cells]) -> Iterator[str]:
    yield ",".join(map(csv_cell, columns)) + "\n"
    for row in rows:
        yield ",".join(map(csv_cell, row)) + "\n"


def _json_lines(columns: Sequence[str], rows: Iterable[Cells]) -> Iterator[str]:
    before = "["
    for row in rows:
        yield before + "\n" + json.dumps(dict(zip(columns, row, strict=True)), allow_nan=False)
        before = ","
    yield ("[" if before == "[" else "") + "\n]\n"
