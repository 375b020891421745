"""The directory of a sweep, finished or not, as something to read."""

from __future__ import annotations

import csv
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from planner.cells import cell_value
from planner.errors import SpecError
from planner.sweeps.front import front_across
from planner.sweeps.parts import Part, parts_of, read_head, read_rows
from planner.sweeps.plan import SweepPlan
from planner.sweeps.store import FRONT, MANIFEST, PARTS, PLAN, SCENARIOS

if TYPE_CHECKING:
    import pandas as pd

    from planner.sweeps.summary import Summary

Row: TypeAlias = Mapping[str, Any]

_LARGEST_CELL = 2**20
_UNREADABLE = (OSError, EOFError, ValueError, KeyError, StopIteration, zlib.error, csv.Error)


class CsvRow(Mapping[str, Any]):
    """A line of a table, of which only the cells that somebody asks for are read."""

    __slots__ = ("_at", "_cells")

    def __init__(self, at: Mapping[str, int], cells: Sequence[str]) -> None:
        self._at, self._cells = at, cells

    def __getitem__(self, name: str) -> Any:
        return cell_value(self._cells[self._at[name]])

    def get(self, name: str, default: Any = None) -> Any:
        """The value of a cell, the default where there is no such column."""
        at = self._at.get(name)
        return default if at is None else cell_value(self._cells[at])

    def __iter__(self) -> Iterator[str]:
        return iter(self._at)

    def __len__(self) -> int:
        return len(self._at)


@dataclass(frozen=True)
class Sweep:
    """What ``planner sweep`` wrote into a directory; of one that was ended early what is done.

    Raises
    ------
    SpecError
        There is no such directory, no sweep in it, or it cannot be read.
    """

    folder: Path

    def __post_init__(self) -> None:
        object.__setattr__(self, "folder", Path(self.folder))
        _ = self.plan

    @cached_property
    def plan(self) -> SweepPlan:
        """What was asked."""
        path = self.folder / PLAN
        if not self.folder.is_dir():
            raise SpecError(f"{self.folder}: there is no such directory.")
        try:
            return SweepPlan.of_dict(json.loads(path.read_text(encoding="utf-8"))["plan"])
        except FileNotFoundError:
            raise SpecError(
                f"{self.folder}: is not the directory of a sweep, it has no {PLAN}: give the "
                "--output of planner sweep."
            ) from None
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise SpecError(f"{path}: is not that of a sweep ({error}).") from error

    @cached_property
    def version(self) -> str:
        """The version of planner that began it."""
        try:
            begun = json.loads((self.folder / PLAN).read_text(encoding="utf-8"))
            return str(begun["identity"]["version"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise self._damaged(self.folder / PLAN, error) from error

    @cached_property
    def is_complete(self) -> bool:
        """Whether every scenario is done and in the tables."""
        return (self.folder / MANIFEST).is_file()

    @cached_property
    def done(self) -> int:
        """The scenarios that there are results of."""
        if self.is_complete:
            return self.plan.num_scenarios
        return sum(part.end - part.first for part, _ in self._parts())

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The columns of the scenarios, in order."""
        if self.is_complete:
            with self._opened(SCENARIOS) as file:
                return tuple(next(csv.reader(file), ()))
        found: dict[str, None] = {}
        for _, path in self._parts():
            try:
                found |= dict.fromkeys(read_head(path)["rows"])
            except _UNREADABLE as error:
                raise self._damaged(path, error) from error
        return tuple(found)

    def rows(self) -> Iterator[Row]:
        """The scenarios, one after the other; memory does not grow with their number."""
        if self.is_complete:
            number = 0
            for number, row in enumerate(self._table(SCENARIOS), start=1):  # noqa: B007
                yield row
            if number != self.plan.num_scenarios:
                path = self.folder / f"{SCENARIOS}.csv"
                raise SpecError(
                    f"{path}: has {number:,} of {self.plan.num_scenarios:,} scenarios: it was "
                    "changed. Run the sweep again with --fresh."
                )
            return
        for _, path in self._parts():
            try:
                yield from read_rows(path)
            except _UNREADABLE as error:
                raise self._damaged(path, error) from error

    def front_rows(self) -> Iterator[Row]:
        """The scenarios that no other beats in everything, for each work and model."""
        if self.is_complete:
            yield from self._table(FRONT)
            return
        numbers = front_across(self.rows(), self.plan)
        yield from (row for row in self.rows() if row["scenario"] in numbers)

    def scenarios(self) -> pd.DataFrame:
        """All scenarios as a frame; units are in the names of its columns."""
        return _frame(self.rows(), self.columns)

    def front(self) -> pd.DataFrame:
        """The front across scenarios as a frame."""
        return _frame(self.front_rows(), self.columns)

    def summary(self) -> Summary:
        """What the scenarios say together: the cheapest, the fastest, what does not fit."""
        from planner.sweeps.summary import summarize

        return summarize(self.rows(), self.plan)

    def _parts(self) -> Iterator[tuple[Part, Path]]:
        for part in parts_of(self.plan.num_scenarios):
            path = self.folder / PARTS / part.name
            if path.is_file():
                yield part, path

    def _opened(self, name: str) -> Any:
        path = self.folder / f"{name}.csv"
        try:
            return path.open(encoding="utf-8", newline="")
        except OSError as error:
            raise self._damaged(path, error) from error

    def _table(self, name: str) -> Iterator[Row]:
        csv.field_size_limit(_LARGEST_CELL)
        with self._opened(name) as file:
            try:
                lines = csv.reader(file)
                at = {column: place for place, column in enumerate(next(lines, []))}
                for cells in lines:
                    if len(cells) != len(at):
                        raise ValueError(f"line {lines.line_num} has {len(cells)} cells")
                    yield CsvRow(at, cells)
            except _UNREADABLE as error:
                raise self._damaged(self.folder / f"{name}.csv", error) from error

    def _damaged(self, path: Path, error: BaseException) -> SpecError:
        return SpecError(f"{path}: cannot be read ({error}). Run the sweep again with --fresh.")


def _frame(rows: Iterator[Row], columns: Sequence[str]) -> pd.DataFrame:
    import pandas as pd

    values: dict[str, list[Any]] = {name: [] for name in columns}
    for row in rows:
        for name, column in values.items():
            column.append(row.get(name))
    return pd.DataFrame(values)
