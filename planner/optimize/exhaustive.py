"""Judge every configuration of all sources, block by block, in flat memory.

Assumed limits hold if some plan keeps them; else they are widened until one does.
"""

from __future__ import annotations

import ctypes
import math
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from planner.optimize.collector import Collector, NearestMiss, group_by_cell
from planner.optimize.problem import Constraint, Problem
from planner.optimize.result import SearchResult
from planner.optimize.source import Columns, Source

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # M_TRIM_THRESHOLD, M_MMAP_THRESHOLD of <malloc.h>
_LARGEST_MMAP_THRESHOLD = 32 * 2**20
_NEVER = 2**31 - 1


@contextmanager
def reuse_freed_pages() -> Iterator[None]:
    """Let glibc reuse the pages of freed arrays in this context, which saves page faults.

    Every block of a search frees and asks for the same arrays of some MiB; glibc maps each anew,
    and the faults of its first touch cost as much as the arithmetic. Afterwards glibc has
    the largest thresholds it would choose for itself, and gives back what is beyond them.
    Nothing happens with other C libraries.
    """
    if platform.libc_ver()[0] != "glibc":
        yield
        return
    library = ctypes.CDLL(None)
    library.mallopt(_MMAP_THRESHOLD, _LARGEST_MMAP_THRESHOLD)
    library.mallopt(_TRIM_THRESHOLD, _NEVER)
    try:
        yield
    finally:
        library.mallopt(_TRIM_THRESHOLD, 2 * _LARGEST_MMAP_THRESHOLD)


_SINK_ROWS = 2**14

Progress = Callable[[int], None]
Sink = Callable[[Columns], None]


class StopSearch(Exception):
    """Raised by ``progress`` to end a search with what was found so far."""


def exhaustive_search(
    problem: Problem, progress: Progress | None = None, sink: Sink | None = None
) -> SearchResult:
    """Evaluate every configuration of all sources.

    ``progress`` receives the number of rows done after each block and may raise `StopSearch`;
    ``sink`` receives the columns of every feasible row, some thousand at a time. Assumed limits
    are widened if no plan keeps them.
    """
    return search_with_relaxed_limits(
        problem, lambda relaxed: _search_all_cells((relaxed,), progress, sink)[0]
    )


def search_together(problems: Sequence[Problem]) -> list[SearchResult]:
    """Search problems that differ only in prices and other operating terms; predict once."""
    results = dict(zip(map(id, problems), _search_all_cells(problems), strict=True))

    def search(relaxed: Problem) -> SearchResult:
        return results[id(relaxed)] if id(relaxed) in results else _search_all_cells((relaxed,))[0]

    return [search_with_relaxed_limits(problem, search) for problem in problems]


def _search_all_cells(
    problems: Sequence[Problem], progress: Progress | None = None, sink: Sink | None = None
) -> list[SearchResult]:
    """Evaluate every configuration of all sources, with the limits unchanged."""
    started, done, interrupted = time.perf_counter(), 0, False
    groups, collectors = zip(*map(group_by_cell, problems), strict=True)
    sources = zip(*(problem.sources for problem in problems), strict=True)
    try:
        with reuse_freed_pages():
            for several in zip(sources, zip(*collectors, strict=True), strict=True):
                takers: list[tuple[Source, Collector]] = [*zip(*several, strict=True)]
                done = search_source(problems[0], takers, progress, sink, done)
                for _, collector in takers:
                    collector.free_candidates()
    except StopSearch:
        interrupted = True
    return [
        SearchResult.of(problem, each, started, interrupted)
        for problem, each in zip(problems, groups, strict=True)
    ]


def search_source(
    problem: Problem,
    sources_and_collectors: Sequence[tuple[Source, Collector]],
    progress: Progress | None = None,
    sink: Sink | None = None,
    done: int = 0,
) -> int:
    """Evaluate every configuration of one source; return the number of rows ``done`` so far.

    ``sources_and_collectors``: the source with its collector, then sources that differ only in
    operating terms (prices, power), which reuse the predictions.
    """
    (source, collector), *others = sources_and_collectors
    for block in source.blocks(problem.objectives, problem.constraints, in_order=sink is not None):
        for _, each_collector in sources_and_collectors:
            each_collector.skip(block.dropped.sum(axis=0))
        if block.candidates is not None:
            feasible = collector.add(block.candidates)
            for other_source, each_collector in others:
                each_collector.add(block.candidates.moved(other_source))
            if sink is not None:
                for start in range(0, feasible.size, _SINK_ROWS):
                    rows = feasible[start : start + _SINK_ROWS]
                    sink(source.judged(block.candidates.configurations.rows(rows)).columns())
        done += block.num_rows
        if progress is not None:
            progress(done)
    return done


_MAX_DOUBLINGS = 64
# Beyond the nearest plan, so that there is something to choose among.
_MARGIN = 1.5


def search_with_relaxed_limits(
    problem: Problem, search: Callable[[Problem], SearchResult]
) -> SearchResult:
    """Search with the assumed limits, and with wider limits while no plan meets them.

    The problem of the result has the limits of the last search. Limits of the user are unchanged.
    """
    result = search(problem)
    while not result.configurations_feasible and not result.interrupted:
        wider = _relaxed_problem(problem, result)
        if wider is None:
            break
        problem = wider
        result = search(problem)
    return result


def without_assumed(problem: Problem) -> Problem:
    """The problem without assumed limits."""
    requested = tuple(limit for limit in problem.constraints if not limit.assumed)
    return replace(problem, constraints=requested)


def _relaxed_problem(problem: Problem, result: SearchResult) -> Problem | None:
    """The problem with assumed limits doubled until the nearest plan meets them.

    None if no such limits are known.
    """
    assumed = {limit.name for limit in problem.constraints if limit.assumed}
    misses = [
        _relaxed_limits(problem, miss)
        for miss in result.nearest_misses
        if miss.rejection in assumed
    ]
    finite = [relaxed for relaxed in misses if relaxed is not None]
    if not finite:
        return None
    _, limits = min(finite, key=lambda relaxed: relaxed[0])
    return replace(problem, constraints=limits)


def _relaxed_limits(
    problem: Problem, miss: NearestMiss
) -> tuple[int, tuple[Constraint, ...]] | None:
    """The most doublings that a limit needs so that a missed plan meets all, and the limits.

    None if a value is unknown.
    """
    limits, max_doublings = [], 0
    for limit in problem.constraints:
        doublings = 0
        if limit.assumed:
            value = float(limit.judged(miss.candidates).ravel()[0])
            value *= 1.0 if _keeps_limit(limit, value) else _MARGIN**limit.sign
            while doublings < _MAX_DOUBLINGS and not _keeps_limit(
                double_limit(limit, doublings), value
            ):
                doublings += 1
        if doublings == _MAX_DOUBLINGS:
            return None
        limits.append(double_limit(limit, doublings))
        max_doublings = max(max_doublings, doublings)
    return max_doublings, tuple(limits)


def _keeps_limit(limit: Constraint, value: float) -> bool:
    return not math.isnan(value) and limit.sign * value <= limit.sign * limit.bound


def double_limit(limit: Constraint, times: int) -> Constraint:
    """The limit, widened by doubling (or halving) its bound ``times`` times."""
    return replace(limit, bound=limit.bound * 2.0 ** (limit.sign * times))
