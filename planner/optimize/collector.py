"""Collect candidates of each cell: Pareto front, counts of rejections and nearest misses."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from types import NoneType
from typing import Any, TypeAlias, TypeVar

import numpy as np

from planner.base.arrays import CodeArray, FloatArray, IndexArray, sorted_unique
from planner.base.csv_cells import Row, Value
from planner.base.records import record
from planner.configurations.configuration_tables import OUT_OF_HOST_MEMORY, ConfigurationTable
from planner.configurations.possible_parts import count_codes
from planner.optimize.pareto import filter_dominated, pareto_front, within_factor_of_best
from planner.optimize.problem import MEMORIES, Cell, Problem
from planner.optimize.result_columns import full_columns
from planner.optimize.source import Candidates, Column, Columns, Source, to_python_values
from planner.optimize.tie_breaking import ComplexityTieBreaker, RankedConfiguration

# Each merge costs a millisecond whatever its size: small pieces are merged together.
Item = TypeVar("Item")

_MERGED_ROWS = 2**16
# The front of so many rows rejects most others before any are sorted.
_SAMPLE = 2**10


@record(kw_only=True, repr=False)
class NearestMiss:
    """The configuration that comes closest to keeping the limit that rejected it.

    Parameters
    ----------
    rejection : name of the limit
    source : source of the configuration
    configuration : table of one configuration
    value : predicted value [SI unit]
    bound : bound [SI unit]
    """

    rejection: str
    source: Source
    configuration: ConfigurationTable
    value: float
    bound: float

    def __repr__(self) -> str:
        return f"<NearestMiss of {self.rejection}: {self.value:.6g} against {self.bound:.6g}>"

    @property
    def excess(self) -> float:
        """Distance of the value to the bound as a share of the bound."""
        return abs(self.value - self.bound) / max(abs(self.bound), 1e-300)

    @property
    def room(self) -> float:
        """The bytes up to which a prediction counts as fitting, at most the memory of the GPU.

        The bound can exceed the GPU's memory where published runs needed less than predicted.
        """
        if self.rejection == OUT_OF_HOST_MEMORY.name:
            return self.bound
        return min(self.bound, self.source.usable_memory(self.row))

    @cached_property
    def candidates(self) -> Candidates:
        """The configuration, judged again."""
        return self.source.judged(self.configuration)

    @property
    def row(self) -> Row:
        """Result columns of the configuration."""
        return self.candidates.row


class Collector:
    """Keeps the Pareto front, the counts and the nearest misses of all candidates so far.

    ``counts`` are those of the rows by the number of their rejection.
    """

    def __init__(self, problem: Problem) -> None:
        """Start with an empty front and zero counts."""
        self.problem = problem
        self.simplest = ComplexityTieBreaker()
        self._pieces: list[tuple[Source, ConfigurationTable]] = []
        self._positions: IndexArray = np.empty((0, 2), dtype=np.intp)
        self._misses: dict[int, NearestMiss] = {}
        self._values: FloatArray = np.empty((0, len(problem.objectives)))
        self._pending: list[tuple[Source, ConfigurationTable, IndexArray, FloatArray]] = []
        self._pending_rows = 0
        self.counts = np.zeros(len(problem.rejections) + 1, dtype=np.int64)

    def skip(self, counts: IndexArray) -> None:
        """Count configurations that rules rejected before prediction.

        Parameters
        ----------
        counts : number of configurations by rejection
        """
        self.counts[: len(counts)] += counts

    def add(self, candidates: Candidates) -> IndexArray:
        """Add candidates to front and counts; return the flat indices of feasible candidates.

        Parameters
        ----------
        candidates : judged configurations
        """
        codes = np.ravel(self.problem.codes(candidates))
        return self.add_part(candidates, candidates.source, codes)

    def add_part(
        self, candidates: Candidates, source: Source, codes: CodeArray, start: int = 0
    ) -> IndexArray:
        """Add the candidates of one source; return the flat indices of feasible candidates.

        Parameters
        ----------
        candidates : judged configurations
        source : the source of these candidates
        codes : numbers of the rejections of these candidates
        start : flat index of the first of them
        """
        counts = count_codes(codes, len(self.problem.rejections))
        self.counts += counts
        feasible = start + np.flatnonzero(codes == 0)
        if feasible.size:
            self._add_feasible(candidates, source, feasible)
            self._pending_rows += codes.size
            if self._pending_rows >= _MERGED_ROWS:
                self._merge()
        if not self.counts[0]:
            for place in np.flatnonzero(counts[self.problem.first_soft :]).tolist():
                number = self.problem.first_soft + place
                rows = start + np.flatnonzero(codes == number)
                self._record_miss(candidates, source, rows, number)
        return feasible

    @property
    def values(self) -> FloatArray:
        """The objectives of the front, minimized and sorted."""
        self._merge()
        return self._values

    @property
    def misses(self) -> tuple[NearestMiss, ...]:
        """The nearest miss of each limit among candidates before the first feasible one."""
        return tuple(self._misses[number] for number in sorted(self._misses))

    def configuration_at(self, row: int) -> tuple[Source, ConfigurationTable]:
        """The source and the configuration of one row of the front.

        Parameters
        ----------
        row : index in the front
        """
        self._merge()
        piece, offset = self._positions[row]
        source, table = self._pieces[piece]
        return source, table.rows(np.array([offset]))

    def pieces(self, rows: IndexArray) -> Iterator[tuple[IndexArray, Source, ConfigurationTable]]:
        """Yield rows of the front by source table: positions in ``rows``, source, table.

        Parameters
        ----------
        rows : indices in the front
        """
        self._merge()
        places = self._positions[rows]
        for piece in sorted_unique(places[:, 0]):
            positions = np.flatnonzero(places[:, 0] == piece)
            source, table = self._pieces[piece]
            yield positions, source, table.rows(places[positions, 1])

    def moved(self, problem: Problem, sources: Mapping[int, Source]) -> Collector:
        """The collector with each source replaced by another, without new predictions.

        Parameters
        ----------
        problem : problem of the new sources
        sources : new source by ``id`` of the present one
        """
        self._merge()
        collector = Collector(problem)
        collector.simplest = self.simplest.moved(sources)
        collector.counts = self.counts
        collector._values, collector._positions = self._values, self._positions
        collector._pieces = [(sources[id(source)], rows) for source, rows in self._pieces]
        collector._misses = {
            number: replace(miss, source=sources[id(miss.source)])
            for number, miss in self._misses.items()
        }
        return collector

    def free_candidates(self) -> None:
        """Free the judged candidates except the best."""
        self._merge()

    def _record_miss(
        self, candidates: Candidates, source: Source, rows: IndexArray, number: int
    ) -> None:
        """Record the row that misses limit ``number`` by least, if nearer than any before."""
        value, sign, bound = self.problem.value_and_bound(number, candidates)
        missed = candidates.at(value, rows)
        bounds = candidates.at(bound, rows)
        away = sign * (missed - bounds)
        nearest = 0 if np.isnan(away).all() else int(np.nanargmin(away))
        miss = NearestMiss(
            rejection=self.problem.rejections[number - 1],
            source=source,
            configuration=candidates.configurations.rows(rows[[nearest]]),
            value=float(missed[nearest]),
            bound=float(bounds[nearest]),
        )
        if number not in self._misses or miss.excess < self._misses[number].excess:
            self._misses[number] = miss

    def _add_feasible(self, candidates: Candidates, source: Source, feasible: IndexArray) -> None:
        """Add feasible rows that may be on the front; rows wait until there are enough to merge."""
        values = self.problem.values(candidates, feasible)
        self.simplest.add(candidates, feasible, values, source, self.problem.risks)
        front_so_far = self._values
        # Just beyond the front of a sample, which stays undominated itself.
        if not len(front_so_far):
            sample = values[:: len(values) // _SAMPLE + 1]
            front_so_far = np.nextafter(sample[pareto_front(sample)], np.inf)
        is_undominated = filter_dominated(values, front_so_far)
        waiting = source, candidates.configurations, feasible[is_undominated]
        self._pending.append((*waiting, values[is_undominated]))

    def _merge(self) -> None:
        """Merge the waiting rows into the front."""
        if not self._pending:
            return
        values = np.concatenate([values for *_, values in self._pending])
        lengths = [len(values) for *_, values in self._pending]
        owners = np.repeat(np.arange(len(self._pending)), lengths)
        flat = np.concatenate([rows for _, _, rows, _ in self._pending])
        best = pareto_front(values)
        places = [self._positions]
        for number in sorted_unique(owners[best]):
            (source, table, *_), rows = self._pending[number], flat[best[owners[best] == number]]
            places.append(
                np.stack([np.full(rows.size, len(self._pieces)), np.arange(rows.size)], axis=1)
            )
            self._pieces.append((source, table.rows(rows)))
        order = np.argsort(owners[best], kind="stable")
        merged = np.concatenate([self._values, values[best[order]]])
        front = pareto_front(merged)
        self._values, self._positions = merged[front], np.concatenate(places)[front]
        self._pending, self._pending_rows = [], 0


def joined_columns(pieces: Sequence[tuple[IndexArray, Columns]]) -> Columns:
    """Join tables into one; each comes with the positions of its rows in the result."""
    joined = concatenate_columns([columns for _, columns in pieces])
    order = np.argsort(np.concatenate([places for places, _ in pieces])) if pieces else ()
    return {name: [values[row] for row in order] for name, values in joined.items()}


def concatenate_columns(tables: Sequence[Columns]) -> Columns:
    """Concatenate tables of the same columns into lists; empty tables are left out."""
    full = [table for table in tables if table]
    names = full[0] if full else ()
    return {
        name: [value for table in full for value in to_python_values(table[name])] for name in names
    }


def value_or_none(value: object) -> Any:
    """A value of a column; None: an unknown number."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


_NEVER_UNKNOWN = {str, int, bool, NoneType}


def values_or_none(values: Column) -> list[Any]:
    """The values of a column as Python values; None: an unknown number."""
    listed: list[Any] = to_python_values(values)
    kinds = {*map(type, listed)}
    if kinds == {float} and math.isfinite(sum(listed)):
        return listed
    return [*map(value_or_none, listed)] if kinds - _NEVER_UNKNOWN else listed


def iterate_rows(table: Mapping[str, Iterable[Item]]) -> Iterator[dict[str, Item]]:
    """Yield the rows of a table as dicts by column."""
    for row in zip(*table.values(), strict=True):
        yield dict(zip(table, row, strict=True))


def full_rows(table: Columns, sources: Sequence[Source]) -> list[dict[str, Value]]:
    """The rows of `full_columns` as dicts by column; unknown numbers are None."""
    columns = full_columns(table, sources)
    return [
        *iterate_rows(
            {name: [*map(value_or_none, to_python_values(each))] for name, each in columns.items()}
        )
    ]


@record(kw_only=True)
class CellResult:
    """Feasible and rejected configurations of one cell.

    Parameters
    ----------
    cell : model, GPU, framework and so on
    collector : front, counts and nearest misses
    """

    cell: Cell
    collector: Collector


def group_by_cell(problem: Problem) -> tuple[list[CellResult], list[Collector]]:
    """An empty result for each cell of a problem, and the collector of each source."""
    groups: dict[tuple[Value, ...], CellResult] = {}
    collectors = []
    for cell in problem.cells:
        key = tuple(cell.values())
        if key not in groups:
            groups[key] = CellResult(cell=cell, collector=Collector(problem))
        collectors.append(groups[key].collector)
    return list(groups.values()), collectors


def best_row(groups: Sequence[CellResult]) -> tuple[Source, ConfigurationTable] | None:
    """The source and the configuration with the best objectives; None: nothing is feasible."""
    collectors = [group.collector for group in groups if len(group.collector.values)]
    if not collectors:
        return None
    return min(collectors, key=lambda collector: tuple(collector.values[0])).configuration_at(0)


IndexedCandidates: TypeAlias = Sequence[tuple[IndexArray, Candidates]]
"""Candidates of several sources, each with the positions of its rows in one table."""


def joint_front(
    groups: Sequence[CellResult], max_front_factor: float, ahead: RankedConfiguration | None = None
) -> IndexedCandidates:
    """The front over all groups, predicted again, within a factor of the best first objective.

    The plan ``ahead`` gets the first position, before the front.
    """
    collectors = [group.collector for group in groups]
    values = [collector.values for collector in collectors]
    together = np.concatenate(values)
    front = pareto_front(together)
    front = front[within_factor_of_best(together[front], max_front_factor)]
    sizes = [len(objectives) for objectives in values]
    owners = np.repeat(np.arange(len(collectors)), sizes)[front]
    starts = np.cumsum([0, *map(len, values)])
    tables: dict[int, list[tuple[IndexArray, ConfigurationTable]]] = {}
    sources: dict[int, Source] = {}
    if ahead is not None:
        sources[id(ahead.source)] = ahead.source
        tables[id(ahead.source)] = [(np.zeros(1, dtype=np.intp), ahead.configuration)]
    for number in sorted_unique(owners).tolist():
        places = np.flatnonzero(owners == number)
        for indices, source, table in collectors[number].pieces(front[places] - starts[number]):
            sources[id(source)] = source
            piece = (places[indices] + (ahead is not None), table)
            tables.setdefault(id(source), []).append(piece)
    # Each prediction costs the same milliseconds, whatever the number of rows.
    return [
        (
            np.concatenate([places for places, _ in several]),
            sources[key].judged(type(several[0][1]).stacked([table for _, table in several])),
        )
        for key, several in tables.items()
    ]


def group_by_axis_value(
    problem: Problem, groups: Sequence[CellResult], axis: str
) -> Mapping[Value, list[CellResult]]:
    """The groups of each value of an axis, by value; an empty list for a refused value."""
    return {
        value: [group for group in groups if group.cell.get(axis) == value]
        for value in problem.axes[axis]
    }


def nearest_misses(groups: Sequence[CellResult]) -> Iterator[NearestMiss]:
    """Yield the nearest miss of each limit, if no configuration is feasible; else nothing."""
    if any(group.collector.counts[0] for group in groups):
        return
    misses = [miss for group in groups for miss in group.collector.misses]
    for name in dict.fromkeys(miss.rejection for miss in misses):
        yield min((m for m in misses if m.rejection == name), key=lambda miss: miss.excess)


def main_rejection(problem: Problem, groups: Sequence[CellResult]) -> str:
    """The name of the limit that most configurations missed, else of a memory or a rule.

    The memory counts if no configuration reached the limits, and the last broken rule if none
    reached the memory. The first objective if plans are feasible but its value is unknown; empty
    if there are no configurations.
    """
    counts = np.sum([group.collector.counts for group in groups], axis=0, initial=0)
    if not np.any(counts):
        return ""
    if counts[0]:
        return problem.objectives[0].name
    soft = problem.first_soft
    limits = soft + len(MEMORIES)
    for part in (slice(limits, None), slice(soft, limits)):
        if counts[part].any():
            return problem.rejections[(part.start - 1) + int(np.argmax(counts[part]))]
    return problem.rejections[int(np.flatnonzero(counts)[-1]) - 1]
