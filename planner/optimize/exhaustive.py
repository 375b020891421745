"""Judge every configuration of all sources, block by block, in flat memory."""

from __future__ import annotations

import ctypes
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from planner.optimize.collector import Collector
from planner.optimize.groups import grouped
from planner.optimize.problem import Problem
from planner.optimize.relaxing import relaxing
from planner.optimize.result import SearchResult
from planner.optimize.source import Columns, Source

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # M_TRIM_THRESHOLD, M_MMAP_THRESHOLD of <malloc.h>
_LARGEST_MMAP_THRESHOLD = 32 * 2**20
_NEVER = 2**31 - 1


@contextmanager
def kept_pages() -> Iterator[None]:
    """Reuse the pages of freed arrays inside, instead of handing them to the system and back.

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
    """Search all sources.

    ``progress`` is told the rows done after each block and may raise `StopSearch`; ``sink`` is
    given the columns of every feasible row, some thousand at a time. Limits that are assumed
    are widened where no plan keeps them.
    """
    return relaxing(problem, lambda given: _searched((given,), progress, sink)[0])


def search_together(problems: Sequence[Problem]) -> list[SearchResult]:
    """Search problems that differ in the sites of their sources alone, predicting all once."""
    found = dict(zip(map(id, problems), _searched(problems), strict=True))

    def search(given: Problem) -> SearchResult:
        return found[id(given)] if id(given) in found else _searched((given,))[0]

    return [relaxing(problem, search) for problem in problems]


def _searched(
    problems: Sequence[Problem], progress: Progress | None = None, sink: Sink | None = None
) -> list[SearchResult]:
    """Search all sources with the limits as they are."""
    started, done, interrupted = time.perf_counter(), 0, False
    groups, collectors = zip(*map(grouped, problems), strict=True)
    sources = zip(*(problem.sources for problem in problems), strict=True)
    try:
        with kept_pages():
            for several in zip(sources, zip(*collectors, strict=True), strict=True):
                takers = [*zip(*several, strict=True)]
                done = search_source(problems[0], takers, progress, sink, done)
                for _, collector in takers:
                    collector.settle()
    except StopSearch:
        interrupted = True
    return [
        SearchResult.of(problem, each, started, interrupted)
        for problem, each in zip(problems, groups, strict=True)
    ]


def search_source(
    problem: Problem,
    takers: Sequence[tuple[Source, Collector]],
    progress: Progress | None = None,
    sink: Sink | None = None,
    done: int = 0,
) -> int:
    """Search one source whole; returns the rows ``done``, those before it included.

    ``takers``: the source and its collector, then others that differ from it in their sites alone.
    """
    (source, collector), *others = takers
    for block in source.blocks(problem.objectives, problem.constraints):
        for _, one in takers:
            one.skip(block.dropped)
        if block.candidates is not None:
            feasible = collector.add(block.candidates)
            for other, one in others:
                one.add(block.candidates.moved(other))
            if sink is not None:
                for start in range(0, feasible.size, _SINK_ROWS):
                    rows = feasible[start : start + _SINK_ROWS]
                    sink(source.judged(block.candidates.configurations.rows(rows)).columns())
        done += block.num_rows
        if progress is not None:
            progress(done)
    return done
