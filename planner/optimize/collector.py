"""Takes in candidates from any source and keeps what the result needs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from planner.base.arrays import CodeArray, FloatArray, IndexArray, distinct
from planner.base.cells import Row, Value
from planner.base.records import record
from planner.configurations.table import OUT_OF_HOST_MEMORY, ConfigurationTable
from planner.optimize.pareto import pareto_front, undominated
from planner.optimize.problem import Problem
from planner.optimize.recommendation import Simplest
from planner.optimize.result_columns import full_columns
from planner.optimize.source import Candidates, Columns, Source, count_codes, plain

# Each merge costs a millisecond whatever its size: small pieces are merged together.
Item = TypeVar("Item")

_MERGED_ROWS = 2**16
# The front of so many rows rejects most others before any are sorted.
_SAMPLE = 2**10


@record(kw_only=True, repr=False)
class NearestMiss:
    """The configuration that comes closest to keeping the limit that rejected it.

    ``value`` and ``bound`` are in SI units; ``excess`` is their relative distance.
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
        """How far beyond the bound, as a fraction of it."""
        return abs(self.value - self.bound) / max(abs(self.bound), 1e-300)

    @property
    def room(self) -> float:
        """The bound of memory [bytes], which is no more than a GPU has.

        Where published runs took less than was predicted, a plan may be predicted to take more.
        """
        if self.rejection == OUT_OF_HOST_MEMORY.name:
            return self.bound
        return min(self.bound, float(self.source.setting.machine.gpu.allocatable_memory))

    @cached_property
    def candidates(self) -> Candidates:
        """The configuration, judged again."""
        return self.source.judged(self.configuration)

    @property
    def row(self) -> Row:
        """Its result columns."""
        return self.candidates.row


class Collector:
    """Keeps the Pareto front, the counts and the nearest misses of all candidates so far.

    ``counts`` are those of the rows by the number of their rejection.
    """

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self.simplest = Simplest()
        self._pieces: list[tuple[Source, ConfigurationTable]] = []
        self._places: IndexArray = np.empty((0, 2), dtype=np.intp)
        self._misses: dict[int, NearestMiss] = {}
        self._values: FloatArray = np.empty((0, len(problem.objectives)))
        self._pending: list[tuple[Candidates, IndexArray, FloatArray]] = []
        self._pending_rows = 0
        self.counts = np.zeros(len(problem.rejections) + 1, dtype=np.int64)

    def skip(self, counts: IndexArray) -> None:
        """Count what rules rejected, by the number of the rejection."""
        self.counts[: len(counts)] += counts

    def add(self, candidates: Candidates) -> IndexArray:
        """Take in candidates; returns the flat indices of the feasible ones."""
        codes = self._problem.codes(candidates)
        counts = count_codes(codes, len(self._problem.rejections))
        self.counts += counts
        feasible = np.flatnonzero(codes == 0)
        if feasible.size:
            self._take(candidates, feasible)
        if not self.counts[0]:
            for number in np.flatnonzero(counts[self._problem.first_soft :]).tolist():
                self._miss(candidates, codes, self._problem.first_soft + number)
        return feasible

    @property
    def values(self) -> FloatArray:
        """The objectives of the front, minimized and sorted."""
        self._merge()
        return self._values

    @property
    def misses(self) -> tuple[NearestMiss, ...]:
        """The nearest miss of each limit, of what came before anything feasible."""
        return tuple(self._misses[number] for number in sorted(self._misses))

    def place(self, row: int) -> tuple[Source, ConfigurationTable]:
        """The source and the configuration of a row of the front."""
        self._merge()
        piece, at = self._places[row]
        source, table = self._pieces[piece]
        return source, table.rows(np.array([at]))

    def pieces(self, rows: IndexArray) -> Iterator[tuple[IndexArray, Source, ConfigurationTable]]:
        """Some rows of the front by piece: their places among these, the source, the table."""
        self._merge()
        places = self._places[rows]
        for piece in distinct(places[:, 0]):
            mine = np.flatnonzero(places[:, 0] == piece)
            source, table = self._pieces[piece]
            yield mine, source, table.rows(places[mine, 1])

    def moved(self, problem: Problem, sources: Mapping[int, Source]) -> Collector:
        """The same rows of other sources, by the identity of the source that they replace."""
        self._merge()
        found = Collector(problem)
        found.simplest = self.simplest.moved(sources)
        found.counts, found._values, found._places = self.counts, self._values, self._places
        found._pieces = [(sources[id(source)], rows) for source, rows in self._pieces]
        found._misses = {
            number: replace(miss, source=sources[id(miss.source)])
            for number, miss in self._misses.items()
        }
        return found

    def settle(self) -> None:
        """Let go of what was judged, but for the best."""
        self._merge()

    def _miss(self, candidates: Candidates, codes: CodeArray, number: int) -> None:
        """Remember the row that comes closest to keeping a limit."""
        rows = np.flatnonzero(codes == number)
        value, sign, bound = self._problem.limited(number, candidates)
        missed = candidates.at(value, rows)
        bounds = candidates.at(bound, rows)
        away = sign * (missed - bounds)
        nearest = 0 if np.isnan(away).all() else int(np.nanargmin(away))
        miss = NearestMiss(
            rejection=self._problem.rejections[number - 1],
            source=candidates.source,
            configuration=candidates.configurations.rows(rows[[nearest]]),
            value=float(missed[nearest]),
            bound=float(bounds[nearest]),
        )
        if number not in self._misses or miss.excess < self._misses[number].excess:
            self._misses[number] = miss

    def _take(self, candidates: Candidates, feasible: IndexArray) -> None:
        """Keep what may be on the front; small pieces wait for others, large ones do not."""
        values = self._problem.values(candidates, feasible)
        self.simplest.add(candidates, feasible, values)
        known = self._values
        if not len(known):  # just beyond the front of a sample, which stays undominated itself
            sample = values[:: len(values) // _SAMPLE + 1]
            known = np.nextafter(sample[pareto_front(sample)], np.inf)
        kept = undominated(values, known)
        self._pending.append((candidates, feasible[kept], values[kept]))
        self._pending_rows += candidates.configurations.size
        if self._pending_rows >= _MERGED_ROWS:
            self._merge()

    def _merge(self) -> None:
        """Put what waits into the front."""
        if not self._pending:
            return
        values = np.concatenate([values for _, _, values in self._pending])
        owners = np.repeat(np.arange(len(self._pending)), [len(v) for _, _, v in self._pending])
        flat = np.concatenate([rows for _, rows, _ in self._pending])
        best = pareto_front(values)
        places = [self._places]
        for number in distinct(owners[best]):
            candidates, rows = self._pending[number][0], flat[best[owners[best] == number]]
            places.append(_numbered(len(self._pieces), rows.size))
            self._pieces.append((candidates.source, candidates.configurations.rows(rows)))
        order = np.argsort(owners[best], kind="stable")
        merged = np.concatenate([self._values, values[best[order]]])
        front = pareto_front(merged)
        self._values, self._places = merged[front], np.concatenate(places)[front]
        self._pending, self._pending_rows = [], 0


def _numbered(piece: int, rows: int) -> IndexArray:
    """The places of all rows of a piece."""
    return np.stack([np.full(rows, piece), np.arange(rows)], axis=1)


def in_order(pieces: Sequence[tuple[IndexArray, Columns]]) -> Columns:
    """One table of plain lists out of tables and the places of their rows in it."""
    joined = stacked([columns for _, columns in pieces])
    order = np.argsort(np.concatenate([places for places, _ in pieces])) if pieces else ()
    return {name: [values[row] for row in order] for name, values in joined.items()}


def stacked(tables: Sequence[Columns]) -> Columns:
    """Tables of the same columns below each other, as plain lists; empty ones are left out."""
    full = [table for table in tables if table]
    names = full[0] if full else ()
    return {name: [value for table in full for value in plain(table[name])] for name in names}


def known_value(value: object) -> Any:
    """A value of a column, None where it is a number that is not known."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def rows_of(table: Mapping[str, Iterable[Item]]) -> Iterator[dict[str, Item]]:
    """The rows of columns, one after the other."""
    for row in zip(*table.values(), strict=True):
        yield dict(zip(table, row, strict=True))


def full_rows(table: Columns, sources: Sequence[Source]) -> list[dict[str, Value]]:
    """The rows of `full_columns`, each by column; a number that is not known is None."""
    columns = full_columns(table, sources)
    return [*rows_of({name: [*map(known_value, plain(each))] for name, each in columns.items()})]
