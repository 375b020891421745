"""Who shares a front: all sources, or those of one GPU, each mode for itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from planner.arrays import IndexArray
from planner.optimize.collector import Collector, NearestMiss, in_order, stacked
from planner.optimize.pareto import pareto_front, useful
from planner.optimize.problem import MEMORIES, Problem
from planner.optimize.source import Columns, Source


@dataclass(frozen=True, kw_only=True)
class Group:
    """What was found on one GPU, or on all if they share a front, by mode."""

    gpu: str
    collectors: dict[str, Collector]

    @property
    def counts(self) -> IndexArray:
        """Rows by the number of their rejection."""
        counts: IndexArray = np.sum([one.counts for one in self.collectors.values()], axis=0)
        return counts

    @property
    def misses(self) -> list[NearestMiss]:
        """The nearest misses of all modes."""
        return [miss for one in self.collectors.values() for miss in one.misses]

    @property
    def has_front(self) -> bool:
        """Whether something is feasible and has all objectives."""
        return any(len(one.values) for one in self.collectors.values())

    @property
    def best(self) -> tuple[float, ...]:
        """The best row's objectives, minimized."""
        found = [tuple(one.values[0]) for one in self.collectors.values() if len(one.values)]
        return min(found, default=(np.inf,))

    def first(self) -> tuple[Source, Any]:
        """The source and the configuration of the best row."""
        found = [one for one in self.collectors.values() if len(one.values)]
        return min(found, key=lambda one: tuple(one.values[0])).place(0)

    def table(self, most: int | None, furthest: float) -> Columns:
        """The useful front of all modes, or its first rows."""
        found = list(self.collectors.values())
        values = np.concatenate([one.values for one in found])
        front = pareto_front(values)[:most]
        front = front[useful(values[front], furthest)]
        owners = np.repeat(np.arange(len(found)), [len(one.values) for one in found])
        starts = np.cumsum([0, *(len(one.values) for one in found)])
        return in_order(
            [
                (np.flatnonzero(owners[front] == number), one.table(mine - starts[number]))
                for number, one in enumerate(found)
                if (mine := front[owners[front] == number]).size
            ]
        )

    def best_of_modes(self) -> Columns:
        """The best row of each mode that has one, if there are several modes."""
        found = [one for one in self.collectors.values() if len(one.values)]
        return stacked([one.table(np.arange(1)) for one in found]) if len(found) > 1 else {}


def grouped(problem: Problem) -> tuple[list[Group], list[Collector]]:
    """The groups of a problem, and the collector of each source."""
    groups: list[Group] = []
    collectors = []
    for source in problem.sources:
        if not groups or (problem.best_per_gpu and groups[-1].gpu != source.gpu):
            groups.append(Group(gpu=source.gpu, collectors={}))
        mine = groups[-1].collectors
        collectors.append(mine.setdefault(source.mode, Collector(problem)))
    return groups, collectors


def by_value(groups: Sequence[Group]) -> list[Group]:
    """Groups with a front, the best first."""
    return sorted((group for group in groups if group.has_front), key=lambda group: group.best)


def nearest(groups: Sequence[Group]) -> Iterator[NearestMiss]:
    """The nearest miss of each limit, where nothing at all is feasible."""
    if any(group.counts[0] for group in groups):
        return
    misses = [miss for group in groups for miss in group.misses]
    for name in dict.fromkeys(miss.rejection for miss in misses):
        yield min((m for m in misses if m.rejection == name), key=lambda miss: miss.excess)


def why(problem: Problem, counts: IndexArray) -> str:
    """The limit that most plans missed; if none came so far, the memory, or a rule.

    Of feasible plans without a front the objective that is unknown.
    """
    if counts[0]:
        return problem.objectives[0].name
    soft = problem.first_soft
    limits = soft + len(MEMORIES)
    for part in (slice(limits, None), slice(soft, limits), slice(1, soft)):
        if counts[part].any():
            return problem.rejections[(part.start - 1) + int(np.argmax(counts[part]))]
    return problem.rejections[0]
