"""What a search returns."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from planner.optimize.collector import NearestMiss, stacked
from planner.optimize.groups import Group, by_value, nearest, why
from planner.optimize.problem import Problem
from planner.optimize.source import Candidates

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, kw_only=True)
class SearchResult:
    """The Pareto front, best first objective first, and what became of all the others.

    Of the ``configurations_evaluated``, ``configurations_predicted`` break no rule: their memory
    and time are what had to be predicted. ``without_plan`` maps a GPU on which nothing is feasible
    to what came closest: a limit, the memory or a rule. ``search_time`` is in seconds.
    ``interrupted``: not all configurations were searched.
    """

    problem: Problem
    groups: Sequence[Group]
    configurations_evaluated: int
    configurations_predicted: int
    configurations_feasible: int
    rejected_by: Mapping[str, int]
    nearest_misses: tuple[NearestMiss, ...]
    without_plan: Mapping[str, str]
    search_time: float
    interrupted: bool = False

    @classmethod
    def of(
        cls, problem: Problem, groups: Sequence[Group], started: float, interrupted: bool = False
    ) -> SearchResult:
        """What groups found since ``started``, a time of the performance counter."""
        counts = np.sum([group.counts for group in groups], axis=0)
        first_beyond_rules = problem.sources[0].num_rules + 1
        return cls(
            problem=problem,
            groups=groups,
            configurations_evaluated=int(counts.sum()),
            configurations_predicted=int(counts[0] + counts[first_beyond_rules:].sum()),
            configurations_feasible=int(counts[0]),
            rejected_by={
                name: int(count)
                for name, count in zip(problem.rejections, counts[1:], strict=True)
                if count
            },
            nearest_misses=tuple(nearest(groups)),
            without_plan={
                group.gpu: why(problem, group.counts)
                for group in groups
                if group.counts.any() and not group.has_front
            },
            search_time=time.perf_counter() - started,
            interrupted=interrupted,
        )

    @cached_property
    def best(self) -> Candidates | None:
        """The first row of the front, judged; None if nothing is feasible."""
        for group in by_value(self.groups):
            source, configuration = group.first()
            return source.judged(configuration)
        return None

    @cached_property
    def table(self) -> Mapping[str, Sequence[Any]]:
        """The front as columns, predicted again; empty if nothing is feasible."""
        most = 1 if self.problem.best_per_gpu else None
        return stacked(
            [group.table(most, self.problem.furthest) for group in by_value(self.groups)]
        )

    @cached_property
    def best_of_modes(self) -> Mapping[str, Sequence[Any]]:
        """The best row of each mode as columns, where several modes are compared."""
        return {} if self.problem.best_per_gpu else self.groups[0].best_of_modes()

    def to_frame(self) -> pd.DataFrame:
        """The front as a pandas frame, one row per configuration, units in the names."""
        import pandas as pd

        return pd.DataFrame(dict(self.table))
