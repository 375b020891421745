"""The plan one would launch: of plans that are as good as the best, the simplest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cached_property

import numpy as np

from planner.base.arrays import FloatArray, IndexArray
from planner.base.records import record
from planner.configurations.table import ConfigurationTable
from planner.optimize.source import Candidates, Source

_LEAST_SURE = 0.5
"""Plans that fit less surely are not worth more than half of what they are predicted to be."""

FURTHEST = 1.25
"""Beyond this factor of the best no plan is as good, however little published runs tell."""


@record(kw_only=True)
class Choice:
    """A configuration of a source with its objectives, minimized.

    ``weighed`` is the first of them by how surely the plan fits: one that fits in half of all
    cases is worth half as much.
    """

    source: Source
    configuration: ConfigurationTable
    values: FloatArray
    weighed: float
    complexity: int
    num_gpus: float

    @cached_property
    def judged(self) -> Candidates:
        """The configuration alone, predicted."""
        judged: Candidates = self.source.judged(self.configuration)
        return judged

    @property
    def tie_factor(self) -> float:
        """Within this factor of it published runs do not tell plans from it."""
        sure = self.source.confidence(self.num_gpus)
        return 1.0 if sure is None else min(sure.layout, FURTHEST)


class Simplest:
    """Keeps, among rows near the best first objective, the best one of each complexity.

    The first objective is weighed by how surely a row fits. A row stays only where no simpler
    one is as good.
    """

    def __init__(self) -> None:
        self._kept: list[Choice] = []

    @classmethod
    def joined(cls, several: Iterable[Simplest]) -> Simplest:
        """What several have kept, together."""
        found, kept = cls(), [one for each in several for one in each._kept]
        found._kept = _stairs(kept, min((one.weighed for one in kept), default=np.inf))
        return found

    def moved(self, sources: Mapping[int, Source]) -> Simplest:
        """The same rows of other sources, by the identity of the source that they replace."""
        found = Simplest()
        found._kept = [replace(one, source=sources[id(one.source)]) for one in self._kept]
        return found

    def add(self, candidates: Candidates, rows: IndexArray, values: FloatArray) -> None:
        """Take in feasible rows, at flat indices, with their minimized objectives."""
        predicted = np.where(np.isnan(values).any(axis=1), np.inf, values[:, 0])
        first = _weighed(candidates, rows, predicted, self._best)
        best = min(float(first.min(initial=np.inf)), self._best)
        near = np.flatnonzero((first <= reach(best, FURTHEST)) & np.isfinite(first))
        complexity: IndexArray = candidates.complexity_at(rows[near])
        better = first[near] < self._bounds(complexity)
        near, complexity = near[better], complexity[better]
        if not near.size:
            return
        order = np.lexsort((*values[near].T[::-1], first[near], complexity))
        ordered = first[near][order]
        steps = np.flatnonzero(ordered < np.minimum.accumulate([np.inf, *ordered[:-1]]))
        gpus = candidates.at(candidates.value("num_gpus"), rows[near])
        found = [
            Choice(
                source=candidates.source,
                configuration=candidates.configurations.rows(rows[near[[place]]]),
                values=values[near[place]],
                weighed=float(first[near[place]]),
                complexity=int(complexity[place]),
                num_gpus=float(gpus[place]),
            )
            for place in order[steps].tolist()
        ]
        self._kept = _stairs([*self._kept, *found], best)

    def choice(self, factor: float) -> Choice | None:
        """The simplest within this factor of the best; None where there is nothing."""
        within = (one for one in self._kept if one.weighed <= reach(self._best, factor))
        return next(within, None)

    @property
    def best(self) -> Choice | None:
        """The one with the best first objective, weighed."""
        return self._kept[-1] if self._kept else None

    def _bounds(self, complexity: IndexArray) -> FloatArray:
        """The first objective of the best that is kept and no more complex."""
        steps = np.array([one.complexity for one in self._kept])
        bounds = np.array([np.inf, *(one.weighed for one in self._kept)])
        found: FloatArray = bounds[np.searchsorted(steps, complexity, side="right")]
        return found

    @property
    def _best(self) -> float:
        return self._kept[-1].weighed if self._kept else np.inf


def reach(best: float, factor: float) -> float:
    """The largest minimized value that is within a factor of the best one."""
    return best * factor if best > 0 else best / factor


def _weighed(
    candidates: Candidates, rows: IndexArray, predicted: FloatArray, best: float
) -> FloatArray:
    """The first objective by how surely each row fits; infinite where it is far from the best."""
    found = np.full(predicted.shape, np.inf)
    # To weigh makes no row better: what the fastest row is worth tells which others matter.
    fastest = np.array([np.argmin(predicted)])
    most = min(best, float(_by_chance(candidates, rows[fastest], predicted[fastest])[0]))
    near = np.flatnonzero(predicted <= reach(most, FURTHEST))
    found[near] = _by_chance(candidates, rows[near], predicted[near])
    return found


def _by_chance(candidates: Candidates, rows: IndexArray, predicted: FloatArray) -> FloatArray:
    chance = np.nan_to_num(candidates.fit_probability_at(rows), nan=1.0)
    sure = np.clip(chance, _LEAST_SURE, 1.0)
    return np.where(predicted > 0, predicted / sure, predicted * sure)


def _stairs(choices: list[Choice], best: float) -> list[Choice]:
    """Those near the best that are better than all simpler ones, the simplest first."""
    found: list[Choice] = []
    for one in sorted(choices, key=lambda one: (one.complexity, one.weighed, *one.values)):
        is_near = one.weighed <= reach(best, FURTHEST)
        if is_near and (not found or one.weighed < found[-1].weighed):
            found.append(one)
    return found
