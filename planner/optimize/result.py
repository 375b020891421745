"""What a search returns."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
    """The Pareto front, best first objective first, as columns; empty if nothing is feasible.

    ``best`` is its first row, judged; ``best_of_modes`` holds the best row of each mode. Of the
    ``configurations_evaluated``, ``configurations_predicted`` break no rule: their memory and
    time are what had to be predicted. ``without_plan`` maps a GPU on which nothing is feasible
    to what came closest: a limit, the memory or a rule. ``search_time`` is in seconds.
    ``interrupted``: not all configurations were searched.
    """

    problem: Problem
    best: Candidates | None
    table: Mapping[str, Sequence[Any]]
    best_of_modes: Mapping[str, Sequence[Any]]
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
        found = by_value(groups)
        best = None
        if found:
            source, configuration = found[0].first()
            best = source.judged(configuration)
        return cls(
            problem=problem,
            best=best,
            table=stacked([group.table(1 if problem.best_per_gpu else None) for group in found]),
            best_of_modes={} if problem.best_per_gpu else groups[0].best_of_modes(),
            configurations_evaluated=int(counts.sum()),
            configurations_predicted=int(
                counts[0] + counts[problem.sources[0].num_rules + 1 :].sum()
            ),
            configurations_feasible=int(counts[0]),
            rejected_by={
                name: int(count)
                for name, count in zip(problem.rejections, counts[1:], strict=True)
                if count
            },
            nearest_misses=tuple(nearest(groups)),
            without_plan={
                group.gpu: why(problem, group.counts) for group in groups if not group.counts[0]
            },
            search_time=time.perf_counter() - started,
            interrupted=interrupted,
        )

    def to_frame(self) -> pd.DataFrame:
        """The front as a pandas frame, one row per configuration, units in the names."""
        import pandas as pd

        return pd.DataFrame(dict(self.table))
