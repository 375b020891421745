"""Every way to serve, aggregated and disaggregated, in one front or one plan per GPU."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from planner.arrays import IndexArray
from planner.estimators.inference.estimate import SERVING_REJECTIONS
from planner.optimize.pareto import pareto_front
from planner.optimize.serving.aggregated import aggregated_candidates
from planner.optimize.serving.collector import ServingCollector, ServingMiss
from planner.optimize.serving.deployments import Candidates
from planner.optimize.serving.disaggregated import disaggregated_candidates
from planner.optimize.serving.problem import AGGREGATED, ServingProblem, Source

if TYPE_CHECKING:
    import pandas as pd

_SINK_ROWS = 2**14

Progress = Callable[[int], None]
RowSink = Callable[[Mapping[str, Sequence[Any]]], None]


@dataclass(frozen=True, kw_only=True)
class ServingResult:
    """The Pareto front, best first objective first, as columns; empty if nothing is feasible.

    ``best_of_modes`` holds the best row of each mode. ``without_plan`` maps a GPU that cannot
    serve this to what came closest: a limit, the memory or a rule. ``search_time`` in seconds.
    """

    problem: ServingProblem
    table: Mapping[str, Sequence[Any]]
    best_of_modes: Mapping[str, Sequence[Any]]
    configurations_evaluated: int
    configurations_feasible: int
    rejected_by: Mapping[str, int]
    nearest_misses: tuple[ServingMiss, ...]
    without_plan: Mapping[str, str]
    search_time: float

    def to_frame(self) -> pd.DataFrame:
        """The front as a pandas frame, one row per plan, units in the names."""
        import pandas as pd

        return pd.DataFrame(dict(self.table))


def serving_search(
    problem: ServingProblem, progress: Progress | None = None, sink: RowSink | None = None
) -> ServingResult:
    """Search all sources; ``sink`` is given every feasible row, some thousand at a time."""
    started = time.perf_counter()
    done = _Done(progress)
    groups, collectors = grouped(problem)
    for source, collector in zip(problem.sources, collectors, strict=True):
        search_source(problem, source, collector, done, sink)
    return gathered(problem, groups, started)


def grouped(problem: ServingProblem) -> tuple[list[_Group], list[ServingCollector]]:
    """Who shares a front, and the collector of each source."""
    groups: list[_Group] = []
    collectors = []
    for source in problem.sources:
        gpu = source.pool.gpu
        if not groups or (problem.best_per_gpu and groups[-1].gpu != gpu):
            groups.append(_Group(gpu=gpu, collectors={}))
        mine = groups[-1].collectors
        collectors.append(mine.setdefault(source.mode, ServingCollector(problem)))
    return groups, collectors


def gathered(problem: ServingProblem, groups: Sequence[_Group], started: float) -> ServingResult:
    """What was found; ``started`` is the time of the performance counter."""
    counts = np.sum([group.counts for group in groups], axis=0)
    tables = [group.table(1 if problem.best_per_gpu else None) for group in _by_value(groups)]
    misses = [] if counts[0] else [miss for group in groups for miss in group.misses]
    return ServingResult(
        problem=problem,
        table=stacked(tables),
        best_of_modes={} if problem.best_per_gpu else groups[0].best_of_modes(),
        configurations_evaluated=int(counts.sum()),
        configurations_feasible=int(counts[0]),
        rejected_by={
            name: int(count)
            for name, count in zip(problem.rejections, counts[1:], strict=True)
            if count
        },
        nearest_misses=tuple(_nearest(misses)),
        without_plan={
            group.gpu: _why(problem, group.counts) for group in groups if not group.counts[0]
        },
        search_time=time.perf_counter() - started,
    )


@dataclass(frozen=True, kw_only=True)
class _Group:
    """What was found on one GPU, or on all if they share a front, by mode."""

    gpu: str
    collectors: dict[str, ServingCollector]

    @property
    def counts(self) -> IndexArray:
        counts: IndexArray = np.sum([one.counts for one in self.collectors.values()], axis=0)
        return counts

    @property
    def misses(self) -> list[ServingMiss]:
        return [miss for one in self.collectors.values() for miss in one.misses]

    @property
    def best(self) -> tuple[float, ...]:
        """The best row's objectives, minimized."""
        return min((one.best for one in self.collectors.values()), default=())

    def table(self, most: int | None) -> dict[str, list[Any]]:
        """The front of all modes, or its first rows."""
        found = list(self.collectors.values())
        front = pareto_front(np.concatenate([one.values for one in found]))[:most]
        owners = np.repeat(np.arange(len(found)), [len(one.values) for one in found])
        starts = np.cumsum([0, *(len(one.values) for one in found)])
        pieces = [
            (np.flatnonzero(owners[front] == number), one.table(mine - starts[number]))
            for number, one in enumerate(found)
            if (mine := front[owners[front] == number]).size
        ]
        order = np.argsort(np.concatenate([places for places, _ in pieces] or [front]))
        joined = stacked([table for _, table in pieces])
        return {name: [values[row] for row in order] for name, values in joined.items()}

    def best_of_modes(self) -> dict[str, list[Any]]:
        """The best row of each mode that has one, if there are several modes."""
        found = [one for one in self.collectors.values() if len(one.values)]
        return stacked([one.table(np.arange(1)) for one in found]) if len(found) > 1 else {}


def stacked(tables: Sequence[Mapping[str, Sequence[Any]]]) -> dict[str, list[Any]]:
    """Tables of the same columns below each other; empty ones are left out."""
    full = [table for table in tables if table]
    names = full[0] if full else ()
    return {name: [value for table in full for value in table[name]] for name in names}


def _why(problem: ServingProblem, counts: IndexArray) -> str:
    """The limit that most plans missed; if none came so far, the memory, or a rule."""
    rules = len(SERVING_REJECTIONS)
    for part in (slice(rules + 1, None), slice(rules, rules + 1), slice(1, rules)):
        if counts[part].any():
            return problem.rejections[(part.start - 1) + int(np.argmax(counts[part]))]
    return problem.rejections[0]


def _by_value(groups: Sequence[_Group]) -> list[_Group]:
    """Groups with something feasible, the best first."""
    return sorted((group for group in groups if group.counts[0]), key=lambda group: group.best)


class _Done:
    """Tells a progress bar how many rows are done."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress, self._rows = progress, 0

    def more(self, rows: int) -> None:
        self._rows += rows
        if self._progress is not None:
            self._progress(self._rows)


def search_source(
    problem: ServingProblem,
    source: Source,
    collector: ServingCollector,
    done: _Done | None = None,
    sink: RowSink | None = None,
) -> None:
    """Search one source whole."""
    blocks: Iterator[tuple[Candidates | None, IndexArray, int]]
    if source.mode == AGGREGATED:
        blocks = aggregated_candidates(source)
    else:
        blocks = disaggregated_candidates(source, problem)
    for candidates, dropped, rows in blocks:
        collector.skip(dropped)
        if candidates is not None:
            feasible = collector.add(candidates)
            if sink is not None:
                for start in range(0, feasible.size, _SINK_ROWS):
                    sink(candidates.rows(feasible[start : start + _SINK_ROWS]))
        if done is not None and source.mode == AGGREGATED:
            done.more(rows)


def _nearest(misses: Sequence[ServingMiss]) -> Iterator[ServingMiss]:
    for name in dict.fromkeys(miss.rejection for miss in misses):
        yield min((m for m in misses if m.rejection == name), key=lambda miss: miss.excess)
