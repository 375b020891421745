"""Evaluate every configuration of a mesh, block by block, in flat memory."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace

from planner.estimators.estimate import Estimate
from planner.optimize.allocator import kept_pages
from planner.optimize.collector import Collector
from planner.optimize.problem import Evaluation, Problem, judge, without_impossible
from planner.optimize.result import SearchResult

_SINK_ROWS = 2**14
_MANY_ROWS = 2**19

Progress = Callable[[int], None]
Sink = Callable[[Estimate], None]


class StopSearch(Exception):
    """Raised by ``progress`` to end a search with what was found so far."""


def exhaustive_search(
    problem: Problem, progress: Progress | None = None, sink: Sink | None = None
) -> SearchResult:
    """Search the whole mesh.

    ``progress`` is told the rows done after each block and may raise `StopSearch`; ``sink`` is
    given every feasible row, evaluated as flat tables of some thousand rows.
    """
    pages = kept_pages() if problem.mesh.num_rows > _MANY_ROWS else nullcontext()
    collector = Collector(problem)
    try:
        with pages:
            _search(problem, collector, progress, sink)
    except StopSearch:
        return replace(collector.result(), interrupted=True)
    return collector.result()


def _search(
    problem: Problem, collector: Collector, progress: Progress | None, sink: Sink | None
) -> None:
    done = 0
    for block in problem.mesh.blocks():
        possible, broken, rejected = without_impossible(problem, block)
        collector.skip(rejected)
        if possible.size:
            _take_in(judge(problem, possible, broken), collector, sink)
        done += block.size
        if progress is not None:
            progress(done)


def _take_in(evaluation: Evaluation, collector: Collector, sink: Sink | None) -> None:
    collector.add(evaluation)
    if sink is not None:
        problem, feasible = evaluation.problem, evaluation.feasible
        possible = evaluation.estimate.configurations
        for start in range(0, feasible.size, _SINK_ROWS):
            rows = feasible[start : start + _SINK_ROWS]
            sink(judge(problem, possible.rows(rows)).estimate)
