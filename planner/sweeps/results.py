"""The directory of a sweep, finished or not, as something to read."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from planner.base.cells import Row, Value, cell_value, number
from planner.base.reading import RESULT, read_csv, read_json, table_of
from planner.base.records import record
from planner.errors import SearchSpaceError, SpecError
from planner.optimize.pareto import front_of_many
from planner.question.inputs import cell_reader
from planner.question.terms import terms_of
from planner.sweeps.parts import AGAIN, Part, parts_of, read_head, read_rows
from planner.sweeps.plan import SweepPlan, work_columns
from planner.sweeps.store import FRONT, MANIFEST, PARTS, PLAN, SCENARIOS
from planner.workloads.registry import workload_names, workload_of

if TYPE_CHECKING:
    import pandas as pd

    from planner.sweeps.summary import Summary


class CsvRow(Mapping[str, Value]):
    """A line of a table, of which only the cells that somebody asks for are read.

    Raises
    ------
    SpecError
        There is no such column, or a cell is none of its column.
    """

    __slots__ = ("_at", "_cells", "_place")

    def __init__(
        self, at: Mapping[str, int], cells: Sequence[str], place: tuple[Path, int]
    ) -> None:
        self._at, self._cells, self._place = at, cells, place

    def __getitem__(self, name: str) -> Value:
        if name not in self._at:
            raise self._fault(f"there is no column {name}")
        return self.get(name)

    def get(self, name: str, default: Value = None) -> Value:  # type: ignore[override]
        """The value of a cell, the default where there is no such column."""
        at = self._at.get(name)
        if at is None:
            return default
        try:
            return cell_reader(name)(cell_value(self._cells[at]))
        except SearchSpaceError as error:
            raise self._fault(str(error).rstrip(".")) from error

    def __contains__(self, name: object) -> bool:
        return name in self._at

    def __iter__(self) -> Iterator[str]:
        return iter(self._at)

    def __len__(self) -> int:
        return len(self._at)

    def _fault(self, why: str) -> SpecError:
        path, line = self._place
        return SpecError(f"{path}:{line}: {why}. {AGAIN}")


class PartRow(dict[str, Value]):
    """A scenario of a sweep that is not finished; as `CsvRow` in what it raises."""

    def __init__(self, row: Mapping[str, object], path: Path) -> None:
        try:
            super().__init__({name: cell_reader(name)(value) for name, value in row.items()})
        except SearchSpaceError as error:
            raise SpecError(f"{path}: {error} {AGAIN}") from error
        self.path = path

    def __missing__(self, name: str) -> NoReturn:
        raise SpecError(f"{self.path}: a scenario has no {name}. {AGAIN}")


@record()
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
            return str(table_of(self._begun["identity"], "identity")["version"])
        except (KeyError, SpecError) as error:
            raise self._damaged(PLAN, error) from error

    @cached_property
    def _begun(self) -> dict[str, object]:
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
            _, names = next(read_csv(self._path(SCENARIOS)), (1, []))
            return tuple(names)
        heads = (read_head(path)["rows"] for _, path in self._parts())
        return tuple(dict.fromkeys(name for head in heads for name in head))

    def rows(self) -> Iterator[Row]:
        """The scenarios, one after the other; memory does not grow with their number."""
        parts = (PartRow(row, path) for _, path in self._parts() for row in read_rows(path))
        found = self._table(SCENARIOS) if self.is_complete else parts
        number = 0
        for number, row in enumerate(islice(found, self.done + 1), start=1):  # noqa: B007
            yield self._checked(row)
        if number != self.done:
            raise self._damaged(
                f"{SCENARIOS}.csv" if self.is_complete else PARTS,
                f"has {number:,} of {self.done:,} scenarios: it was changed",
            )

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

    def _checked(self, row: Row) -> Row:
        """The row of a scenario of the plan; one that has a plan has all of it."""
        number, workload = row["scenario"], row["workload"]
        if not isinstance(number, int) or not 0 <= number < self.plan.num_scenarios:
            raise self._damaged(f"{SCENARIOS}.csv", f"there is no scenario {number}")
        if workload not in workload_names():
            raise self._damaged(f"{SCENARIOS}.csv", f"there is no workload {workload}")
        if row["work"] not in self._works:
            raise self._damaged(f"{SCENARIOS}.csv", f"there is no work {row['work']}")
        if row["feasible"]:
            for name in self._parameters[str(workload)]:
                if row[name] is None:
                    words = f"scenario {number} has no {name}"
                    raise self._damaged(f"{SCENARIOS}.csv", words)
        return row

    @cached_property
    def _works(self) -> frozenset[str]:
        return frozenset(work.name for work in self.plan.works)

    @cached_property
    def _parameters(self) -> Mapping[str, Sequence[str]]:
        """What every plan of a workload has, as far as there are columns of it."""
        return {
            workload: [name for name in terms_of(workload, "parameter") if name in self.columns]
            for workload in workload_names()
        }

    def _table(self, name: str) -> Iterator[Row]:
        path = self._path(name)
        lines = read_csv(path)
        _, names = next(lines, (1, []))
        at = {column: place for place, column in enumerate(names)}
        for line, cells in lines:
            if len(cells) != len(names):
                words = f"line {line} has {len(cells)} cells, not {len(names)}"
                raise self._damaged(path.name, words)
            yield CsvRow(at, cells, (path, line))

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.csv"

    def _damaged(self, name: str, why: object) -> SpecError:
        return SpecError(f"{self.folder / name}: is not that of a sweep ({why}). {AGAIN}")


def _frame(rows: Iterator[Row], columns: Sequence[str]) -> pd.DataFrame:
    import pandas as pd

    values: dict[str, list[Value]] = {name: [] for name in columns}
    for row in rows:
        for name, column in values.items():
            column.append(row.get(name))
    return pd.DataFrame(values)


# Scenarios of one work and one model do the same; others cannot be weighed against each other.
_ALIKE = ("work", "model", "adapter")


def front_across(rows: Iterable[Row], plan: SweepPlan) -> set[int]:
    """The numbers of the scenarios that no other one that does the same is better than.

    Of each row a few numbers are kept. An unknown value loses against every known one.
    """
    alike = {work.name: (*_ALIKE, *work_columns(work)) for work in plan.works}
    groups: dict[tuple[Value, ...], tuple[list[int], list[tuple[float, ...]]]] = {}
    for row in rows:
        if row["feasible"]:
            key = tuple(row.get(name) for name in alike[str(row["work"])])
            numbers, values = groups.setdefault(key, ([], []))
            numbers.append(int(str(row["scenario"])))
            weighed = workload_of(str(row["workload"])).weighed
            values.append(
                tuple(
                    np.inf if row.get(name) is None else number(row.get(name)) for name in weighed
                )
            )
    return {
        numbers[at]
        for numbers, values in groups.values()
        for at in front_of_many(np.array(values)).tolist()
    }
