"""What a search returns."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from planner.optimize.collector import NearestMiss, first_row, stacked
from planner.optimize.groups import (
    Group,
    best_choice,
    by_value,
    first,
    joint_front,
    nearest,
    why,
)
from planner.optimize.problem import Problem
from planner.optimize.recommendation import Choice
from planner.optimize.source import Candidates, Columns

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The values of one outer axis beside each other.

    ``table`` has the recommended plan of every value that has one, the best first; ``losses``
    how far its first objective is from that of the first row, as a share of that. ``without_plan``
    maps the other values to what came closest: a limit, the memory, a rule, or why there is nothing
    to search.
    """

    axis: str
    table: Columns
    losses: Sequence[float]
    without_plan: Mapping[Any, str]


@dataclass(frozen=True, kw_only=True)
class SearchResult:
    """The Pareto front, best first objective first, and what became of all the others.

    Of the ``configurations_evaluated``, ``configurations_predicted`` break no rule: their memory
    and time are what had to be predicted. ``search_time`` is in seconds. ``interrupted``: not all
    configurations were searched.
    """

    problem: Problem
    groups: Sequence[Group]
    configurations_evaluated: int
    configurations_predicted: int
    configurations_feasible: int
    rejected_by: Mapping[str, int]
    nearest_misses: tuple[NearestMiss, ...]
    search_time: float
    interrupted: bool = False

    @classmethod
    def of(
        cls, problem: Problem, groups: Sequence[Group], started: float, interrupted: bool = False
    ) -> SearchResult:
        """What groups found since ``started``, a time of the performance counter."""
        counts = np.sum([group.collector.counts for group in groups], axis=0)
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
            search_time=time.perf_counter() - started,
            interrupted=interrupted,
        )

    @cached_property
    def fastest(self) -> Candidates | None:
        """The best by the first objective, judged; None if nothing is feasible."""
        found = first(self.groups)
        return None if found is None else found[0].judged(found[1])

    @cached_property
    def recommended(self) -> Candidates | None:
        """The plan one would launch, judged; None if nothing is feasible.

        Of each cell the simplest of the plans that published runs do not tell from its fastest; of
        these the best.
        """
        found = best_choice(self.groups)
        return None if found is None else found.source.judged(found.configuration)

    @cached_property
    def table(self) -> Mapping[str, Sequence[Any]]:
        """The front as columns, predicted again; empty if nothing is feasible."""
        return joint_front(self.groups)

    @cached_property
    def comparisons(self) -> Mapping[str, Comparison]:
        """The best plan of every value of each outer axis that has several."""
        return {axis: self._comparison(axis) for axis in self.problem.axes}

    def to_frame(self) -> pd.DataFrame:
        """The front as a pandas frame, one row per configuration, units in the names."""
        import pandas as pd

        return pd.DataFrame(dict(self.table))

    def _comparison(self, axis: str) -> Comparison:
        found: list[Choice] = []
        without: dict[Any, str] = {}
        for value, groups in by_value(self.problem, self.groups, axis).items():
            best = best_choice(groups)
            if best is not None:
                found.append(best)
            elif reason := why(self.problem, groups) or self._refusal(axis, value):
                without[value] = reason
        found.sort(key=lambda one: tuple(one.values))
        rows = [one.source.judged(one.configuration).columns() for one in found]
        losses = [abs(one.values[0] / found[0].values[0] - 1) for one in found]
        return Comparison(
            axis=axis,
            table=stacked(rows),
            losses=[float(loss) for loss in losses],
            without_plan=without,
        )

    def _refusal(self, axis: str, value: Any) -> str:
        """Why nothing was to be searched for a value of an axis; empty where something was."""
        reasons = (why for cell, why in self.problem.refused if cell.get(axis) == value)
        return next(reasons, "")


def row_of(candidates: Candidates) -> Mapping[str, Any]:
    """The result columns of the first of these."""
    return first_row(candidates.columns())
