"""Every way to serve, aggregated and disaggregated, in one front or one plan per GPU."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np

from planner.arrays import IndexArray
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

    ``without_plan`` maps a GPU that cannot serve this to the rejection of most of its
    configurations. ``search_time`` is in seconds.
    """

    problem: ServingProblem
    table: Mapping[str, Sequence[Any]]
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
    collectors: list[tuple[str, ServingCollector]] = []
    for gpu, sources in groupby(problem.sources, key=lambda source: source.pool.gpu):
        if not collectors or problem.best_per_gpu:
            collectors.append((gpu, ServingCollector(problem)))
        for source in sources:
            _search_source(problem, source, collectors[-1][1], done, sink)
    counts = np.sum([collector.counts for _, collector in collectors], axis=0)
    misses = [miss for _, collector in collectors for miss in collector.misses]
    return ServingResult(
        problem=problem,
        table=_joined(problem, [collector for _, collector in collectors]),
        configurations_evaluated=int(counts.sum()),
        configurations_feasible=int(counts[0]),
        rejected_by={
            name: int(count)
            for name, count in zip(problem.rejections, counts[1:], strict=True)
            if count
        },
        nearest_misses=() if counts[0] else tuple(_nearest(misses)),
        without_plan={
            gpu: problem.rejections[int(np.argmax(collector.counts[1:]))]
            for gpu, collector in collectors
            if not collector.counts[0]
        },
        search_time=time.perf_counter() - started,
    )


class _Done:
    """Tells a progress bar how many rows are done."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress, self._rows = progress, 0

    def more(self, rows: int) -> None:
        self._rows += rows
        if self._progress is not None:
            self._progress(self._rows)


def _search_source(
    problem: ServingProblem,
    source: Source,
    collector: ServingCollector,
    done: _Done,
    sink: RowSink | None,
) -> None:
    blocks: Iterator[tuple[Candidates | None, IndexArray, int]]
    if source.mode == AGGREGATED:
        blocks = aggregated_candidates(source)
    else:
        blocks = disaggregated_candidates(source, problem.constraints)
    for candidates, dropped, rows in blocks:
        collector.skip(dropped)
        if candidates is not None:
            feasible = collector.add(candidates)
            if sink is not None:
                for start in range(0, feasible.size, _SINK_ROWS):
                    sink(candidates.rows(feasible[start : start + _SINK_ROWS]))
        if source.mode == AGGREGATED:
            done.more(rows)


def _joined(
    problem: ServingProblem, collectors: Sequence[ServingCollector]
) -> dict[str, list[Any]]:
    """One table of all fronts; the best of each GPU in the order of the first objective."""
    found = [collector for collector in collectors if collector.counts[0]]
    found.sort(key=lambda collector: collector.best)
    tables = [collector.table(1 if problem.best_per_gpu else None) for collector in found]
    tables = [table for table in tables if table]
    if not tables:
        return {}
    return {name: [value for table in tables for value in table[name]] for name in tables[0]}


def _nearest(misses: Sequence[ServingMiss]) -> Iterator[ServingMiss]:
    for name in dict.fromkeys(miss.rejection for miss in misses):
        yield min((m for m in misses if m.rejection == name), key=lambda miss: miss.excess)
