"""The directory of a sweep, finished or not, as something to read."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from planner.cells import cell_value
from planner.errors import SearchSpaceError, SpecError
from planner.reading import RESULT, read_csv, read_json
from planner.sweeps.front import front_across
from planner.sweeps.parts import AGAIN, Part, parts_of, read_head, read_rows
from planner.sweeps.plan import SweepPlan
from planner.sweeps.store import FRONT, MANIFEST, PARTS, PLAN, SCENARIOS

if TYPE_CHECKING:
    import pandas as pd

    from planner.sweeps.summary import Summary

Row: TypeAlias = Mapping[str, Any]


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
        begun = self._begun
        try:
            return SweepPlan.of_dict(begun["plan"])
        except SearchSpaceError as error:
            raise self._damaged(PLAN, error) from error

    @property
    def version(self) -> str:
        """The version of planner that began it."""
        try:
            return str(self._begun["identity"]["version"])
        except (KeyError, TypeError) as error:
            raise self._damaged(PLAN, error) from error

    @cached_property
    def _begun(self) -> Mapping[str, Any]:
        """What the first file of a sweep says."""
        if not os.path.isdir(self.folder):
            raise SpecError(f"{self.folder}: there is no such directory.")
        if not os.path.lexists(self.folder / PLAN):
            raise SpecError(
                f"{self.folder}: is not the directory of a sweep, it has no {PLAN}: give the "
                "--output of planner sweep."
            )
        begun = read_json(self.folder / PLAN, RESULT)
        if not isinstance(begun, dict) or "plan" not in begun:
            raise self._damaged(PLAN, "it has no plan")
        return begun

    @cached_property
    def is_complete(self) -> bool:
        """Whether every scenario is done and in the tables."""
        return os.path.isfile(self.folder / MANIFEST)

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
            return tuple(next(self._lines(SCENARIOS), ()))
        heads = (read_head(path)["rows"] for _, path in self._parts())
        return tuple(dict.fromkeys(name for head in heads for name in head))

    def rows(self) -> Iterator[Row]:
        """The scenarios, one after the other; memory does not grow with their number."""
        found = self._table(SCENARIOS) if self.is_complete else self._done()
        number = 0
        for number, row in enumerate(islice(found, self.done + 1), start=1):  # noqa: B007
            yield row
        if number != self.done:
            raise self._damaged(
                f"{SCENARIOS}.csv" if self.is_complete else PARTS,
                f"has {number:,} of {self.done:,} scenarios: it was changed",
            )

    def _done(self) -> Iterator[Row]:
        for _, path in self._parts():
            yield from read_rows(path)

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
            if os.path.isfile(path):
                yield part, path

    def _lines(self, name: str) -> Iterator[list[str]]:
        return (cells for _, cells in read_csv(self.folder / f"{name}.csv"))

    def _table(self, name: str) -> Iterator[Row]:
        lines = self._lines(name)
        at = {column: place for place, column in enumerate(next(lines, []))}
        for cells in lines:
            if len(cells) != len(at):
                words = f"a row has {len(cells)} cells, not {len(at)}"
                raise self._damaged(f"{name}.csv", words)
            yield CsvRow(at, cells)

    def _damaged(self, name: str, why: object) -> SpecError:
        return SpecError(f"{self.folder / name}: is not that of a sweep ({why}). {AGAIN}")


def _frame(rows: Iterator[Row], columns: Sequence[str]) -> pd.DataFrame:
    import pandas as pd

    values: dict[str, list[Any]] = {name: [] for name in columns}
    for row in rows:
        for name, column in values.items():
            column.append(row.get(name))
    return pd.DataFrame(values)
