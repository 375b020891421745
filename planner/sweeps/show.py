"""``planner sweep show``: what is asked of the directory of a sweep."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from planner.base.records import record
from planner.errors import SearchSpaceError
from planner.show.page import Block, Title, said
from planner.sweeps import screen
from planner.sweeps.columns import COST, MEASURES, VALUE, Row, find_column, find_columns
from planner.sweeps.differences import (
    compare,
    difference_columns,
    difference_rows,
    differences_blocks,
)
from planner.sweeps.front import front_across
from planner.sweeps.listing import rows_blocks, usual_columns, write_rows
from planner.sweeps.matrix import column_of, marks_lines, matrix_blocks
from planner.sweeps.query import Where, ordered, read_order, read_where
from planner.sweeps.results import Sweep
from planner.sweeps.sentences import group_title
from planner.sweeps.summary import summarize

USUAL_ROWS = 20
_ALL = 10**6


@record(kw_only=True)
class Shown:
    """What of a sweep is to be shown; texts as they stand on the command line.

    Parameters
    ----------
    where : conditions that scenarios must meet
    sort, columns : names with commas between them
    top : rows to show; of files all where it is None
    pivot : names of columns, the last one across
    value : a measure or column: of the matrix, the pivot or the comparison
    against : the directory of another sweep
    csv, json : files to write instead of the screen
    """

    folder: Path
    where: Sequence[str] = ()
    sort: str = ""
    columns: str = ""
    top: int | None = None
    pivot: str = ""
    value: str = COST
    against: Path | None = None
    csv: Path | None = None
    json: Path | None = None
    full: bool = False
    specs: Path | None = None

    @cached_property
    def sweep(self) -> Sweep:
        """The sweep of the directory."""
        return Sweep(self.folder)

    @property
    def is_written(self) -> bool:
        """Whether rows go into files."""
        return self.csv is not None or self.json is not None

    @cached_property
    def measure(self) -> str:
        """The column or measure of ``value``."""
        if self.value in (*MEASURES, VALUE):
            return self.value
        return find_column(self.value, self.sweep.columns, "--value")

    def chosen(self, columns: Sequence[str]) -> Where:
        """The conditions, on a sweep of these columns."""
        return read_where(self.where, columns, self.specs)

    def rows(self) -> Iterator[Row]:
        """The scenarios that meet the conditions."""
        return self.chosen(self.sweep.columns).rows(self.sweep.rows())


def shown_blocks(asked: Shown) -> Iterator[Block]:
    """What is asked of a sweep; nothing where it is written into files.

    Raises
    ------
    SpecError, SearchSpaceError, OutputError
        It is no sweep, a name or value is wrong, no scenario is meant, or a file cannot be written.
    """
    if asked.against is not None:
        yield from _differences_of(asked, Sweep(asked.against))
    elif asked.pivot:
        yield from _pivot_blocks(asked)
    elif asked.is_written or asked.sort or asked.columns or asked.top is not None:
        yield from _listed_blocks(asked)
    else:
        yield from summary_blocks(asked)


def summary_blocks(asked: Shown) -> Iterator[Block]:
    """The summary of a sweep."""
    sweep = asked.sweep
    summary = summarize(asked.rows(), sweep.plan, asked.measure)
    front = sweep.front_rows()
    if asked.where:
        numbers = front_across(asked.rows(), sweep.plan)
        front = (row for row in asked.rows() if row["scenario"] in numbers)
    yield from screen.summary_blocks(sweep, summary, front, is_full=asked.full)


def _listed_blocks(asked: Shown) -> Iterator[Block]:
    sweep = asked.sweep
    order = read_order(asked.sort, sweep.columns)
    columns = find_columns(asked.columns, sweep.columns, "--columns")
    if asked.is_written:
        columns = columns or [*sweep.columns]
        write_rows(asked.csv, asked.json, columns, ordered(asked.rows(), order, columns, asked.top))
        return
    where = [one.column for one in asked.chosen(sweep.columns).conditions]
    if not columns:
        columns = usual_columns(sweep.plan, sweep.columns, [*(name for name, _ in order), *where])
    number = 0

    def counted(rows: Iterable[Row]) -> Iterator[Row]:
        nonlocal number
        for row in rows:
            number += 1
            yield row

    rows = counted(asked.rows())
    top = asked.top or (_ALL if asked.full else USUAL_ROWS)
    found = [*ordered(rows, order, columns, top)]
    for _ in rows:  # those beyond the ones that are shown
        pass
    yield from rows_blocks(columns, found, number)


def _pivot_blocks(asked: Shown) -> Iterator[Block]:
    sweep = asked.sweep
    names = find_columns(asked.pivot, sweep.columns, "--pivot")
    summary = summarize(asked.rows(), sweep.plan, asked.measure, names)
    groups = [group for group in summary.groups if group.feasible]
    if groups and not any(group.knows(group.metric) for group in groups):
        raise SearchSpaceError(f"--value {asked.value}: is known of no scenario, or is no number.")
    if asked.is_written:
        _write_pivot(asked, names)
        return
    for group in summary.groups:
        if len(summary.groups) > 1:
            yield Title(text=group_title(group))
        if group.feasible:
            yield from matrix_blocks(group, asked.top or _ALL)
        else:
            yield said("No plan at all.", indent="")
    for line in marks_lines(summary.groups):
        yield said(line)


def _write_pivot(asked: Shown, names: Sequence[str]) -> None:
    """A row for every group and place, a column for every value across; ``of`` says of what."""
    summary = summarize(asked.rows(), asked.sweep.plan, asked.measure, names)
    across = [*dict.fromkeys(count for group in summary.groups for count in group.counts)]
    columns = ["work", "model", *names[:-1], "of", *(f"{names[-1]}={one}" for one in across)]
    rows: list[tuple[Any, ...]] = []
    for group in summary.groups:
        for place in group.places:
            known = [group.spots.get((place, value)) for value in across]
            found = [one.found.get(group.metric) if one else None for one in known]
            values = (None if one is None else one.value for one in found)
            of = column_of(group.metric, group)
            rows.append((group.work, group.model, *place, of, *values))
    write_rows(asked.csv, asked.json, columns, rows)


def _differences_of(asked: Shown, other: Sweep) -> Iterator[Block]:
    sweep = asked.sweep
    columns = [name for name in sweep.columns if name in other.columns]

    def chosen(rows: Iterable[Row]) -> Iterator[Row]:
        return asked.chosen(columns).rows(rows)

    measure = find_column(asked.value, columns, "--value")
    found = compare(other, sweep, measure, chosen)
    if asked.is_written:
        write_rows(asked.csv, asked.json, difference_columns(found), difference_rows(found))
        return
    top = asked.top or (_ALL if asked.full else USUAL_ROWS)
    yield from differences_blocks(other, sweep, found, measure, top)
