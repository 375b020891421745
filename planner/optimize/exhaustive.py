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
from typing import TypeAlias

import numpy as np

from planner.base.arrays import IndexArray
from planner.confidence.intervals import MEDIAN
from planner.configurations.enumerate import OpenMesh
from planner.optimize.collector import Collector, NearestMiss, group_by_cell
from planner.optimize.goals import Constraint
from planner.optimize.problem import Problem, judged_value
from planner.optimize.result import SearchResult
from planner.optimize.source import Block, Candidates, Columns, Source, rows_on

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
    try:
        with reuse_freed_pages():
            for places in _joinable_places(problems):
                takers: list[Taker] = []
                for problem, its_collectors in zip(problems, collectors, strict=True):
                    sources = problem.sources[places]
                    pairs = [*zip(sources, its_collectors[places], strict=True)]
                    takers.append((_join_sources(sources), pairs))
                done = search_source(problems[0], takers, progress, sink, done)
                for _, members in takers:
                    for _, collector in members:
                        collector.free_candidates()
    except StopSearch:
        interrupted = True
    return [
        SearchResult.of(problem, each, started, interrupted)
        for problem, each in zip(problems, groups, strict=True)
    ]


def _joinable_places(problems: Sequence[Problem]) -> Iterator[slice]:
    """Yield positions of sources that can be predicted together, in all problems."""
    start, number = 0, len(problems[0].sources)
    while start < number:
        end = start + 1
        while end < number and all(_can_join(problem, start, end) for problem in problems):
            end += 1
        yield slice(start, end)
        start = end


def _can_join(problem: Problem, start: int, end: int) -> bool:
    """True if two sources of a problem differ only in the number of GPUs.

    Not with limits at a confidence, which depends on that number.
    """
    first, other = problem.sources[start], problem.sources[end]
    return (
        first.joins_counts
        and isinstance(first.mesh, OpenMesh)
        and isinstance(other.mesh, OpenMesh)
        and all(limit.confidence == MEDIAN for limit in problem.constraints)
        and replace(other, mesh=first.mesh, counts=first.counts) == first
        and first.mesh.has_other_axes_of(other.mesh)
    )


def _join_sources(sources: Sequence[Source]) -> Source:
    """One source with the configurations of some that differ only in the number of GPUs."""
    first, *others = sources
    if not others or not isinstance(first.mesh, OpenMesh):
        return first
    mesh = first.mesh.joined([other.mesh for other in others if isinstance(other.mesh, OpenMesh)])
    counts = tuple(count for source in sources for count in source.counts)
    joined: Source = replace(first, mesh=mesh, counts=counts)
    return joined


Members: TypeAlias = Sequence[tuple[Source, Collector]]
Taker: TypeAlias = tuple[Source, Members]
"""A source to search, and the collector of each source whose configurations it has."""


def search_source(
    problem: Problem,
    takers: Sequence[Taker],
    progress: Progress | None = None,
    sink: Sink | None = None,
    done: int = 0,
) -> int:
    """Evaluate every configuration of one source; return the number of rows ``done`` so far.

    ``takers``: the source with its collectors, then sources that differ only in operating terms
    (prices, power), which reuse the predictions.
    """
    (source, members), *others = takers
    limits, in_order = problem.constraints, sink is not None
    for block in source.blocks(problem.objectives, limits, in_order=in_order):
        feasible = _collect_block(block, block.candidates, members)
        for other, its_members in others:
            moved = None if block.candidates is None else block.candidates.moved(other)
            _collect_block(block, moved, its_members)
        if sink is not None:
            _send_columns(block.candidates, feasible, sink)
        done += block.num_rows
        del block  # its arrays, before those of the next one are made
        if progress is not None:
            progress(done)
    return done


Feasible: TypeAlias = Sequence[tuple[Source, IndexArray]]
"""Flat indices of the feasible candidates of each source."""


def _collect_block(block: Block, candidates: Candidates | None, members: Members) -> Feasible:
    """Give each collector its rows of a block; return the feasible candidates of each source."""
    counts = [member.counts[0] if len(members) > 1 else None for member, _ in members]
    for (_, collector), count in zip(members, counts, strict=True):
        collector.skip(block.dropped_on(count))
    if candidates is None:
        return []
    codes = np.ravel(members[0][1].problem.codes(candidates))
    feasible = []
    for (member, collector), count in zip(members, counts, strict=True):
        rows = rows_on(candidates, count)
        indices = collector.add_part(candidates, member, codes[rows], rows.start)
        feasible.append((member, indices))
    return feasible


def _send_columns(candidates: Candidates | None, feasible: Feasible, sink: Sink) -> None:
    """Send the columns of feasible candidates to ``sink``, some thousand at a time."""
    if candidates is None:
        return
    for source, indices in feasible:
        for start in range(0, indices.size, _SINK_ROWS):
            table = candidates.configurations.rows(indices[start : start + _SINK_ROWS])
            sink(source.judged(table).columns())


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
            value = float(judged_value(miss.candidates, limit).ravel()[0])
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
