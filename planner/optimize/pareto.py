"""Pareto fronts of one to three objectives, and tie-breaking by complexity and fit probability."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cached_property, reduce

import numpy as np
from numpy.typing import NDArray

from planner.base.arrays import BoolArray, FloatArray, IndexArray, rank_values
from planner.base.records import record
from planner.configurations.configuration_tables import ConfigurationTable
from planner.optimize.source import Candidates, Source

_PROBES = 8
_CHUNK = 2**10
_FEW_LEVELS = 64
_FEW = 2**7  # each of so many is compared with each in less time than one sort takes


def pareto_front(values: FloatArray) -> NDArray[np.intp]:
    """Indices of the rows that no other row dominates, sorted by the objectives.

    A row dominates another if it is nowhere larger and somewhere smaller. Of equal rows
    the first is kept. Rows with NaN are left out.

    Parameters
    ----------
    values : array of shape (rows, objectives), one to three objectives
    """
    finite_rows = np.flatnonzero(~np.isnan(values).any(axis=1))
    order = finite_rows[np.lexsort(values[finite_rows].T[::-1])]
    ranked = values[order]
    distinct = np.ones(len(ranked), dtype=np.bool_)
    distinct[1:] = (ranked[1:] != ranked[:-1]).any(axis=1)
    order, ranked = order[distinct], ranked[distinct]
    if ranked.shape[1] < 3:
        return order[_falls_below_all_before(ranked[:, -1], ranked.shape[1])]
    if len(ranked) <= _FEW:
        columns = ranked.T
        nowhere_larger = reduce(np.logical_and, (column[:, None] <= column for column in columns))
        return np.asarray(order[nowhere_larger.sum(axis=0) == 1])
    levels, pairs = _levels(ranked)
    return order[_staircase(ranked) if levels is None else _by_levels(levels, pairs)]


def front_of_many(values: FloatArray) -> NDArray[np.intp]:
    """Indices of the rows that no other row dominates, of any number of minimized objectives.

    Of equal rows all are kept. Meant for some thousand rows: `pareto_front` is for more.

    Parameters
    ----------
    values : array of shape (rows, objectives) without NaN
    """
    order = np.lexsort(values.T[::-1])
    front: list[int] = []
    for index in order.tolist():
        # Sorted by the first objective, a row can only be dominated by one before it.
        others = values[front]
        worse = (others <= values[index]).all(axis=1) & (others < values[index]).any(axis=1)
        if not worse.any():
            front.append(index)
    return np.array(front, dtype=np.intp)


def useful(ranked: FloatArray, furthest: float) -> BoolArray:
    """Rows of a sorted front whose first objective is within a factor of the best one's.

    Of objectives around 0, which no factor compares, all rows.
    """
    first = ranked[:, 0]
    best = first[0] if first.size else 0.0
    if best == 0 or not np.isfinite([best, furthest]).all():
        return np.ones(len(first), dtype=np.bool_)
    return np.asarray(first <= (best * furthest if best > 0 else best / furthest))


def undominated(values: FloatArray, front: FloatArray) -> BoolArray:
    """Rows that a few probes of a front do not dominate: a quick, incomplete filter."""
    is_undominated = np.ones(len(values), dtype=np.bool_)
    step = max(1, len(front) // _PROBES)
    for probe in front[::step]:
        # Column by column: numpy reduces a short last axis slowly.
        is_undominated &= reduce(
            np.logical_or, (column < p for column, p in zip(values.T, probe, strict=True))
        )
    return is_undominated


def _falls_below_all_before(last: FloatArray, num_objectives: int) -> BoolArray:
    """Rows sorted by the first objective are on the front where the last one falls."""
    if num_objectives == 1:
        return np.asarray(np.arange(len(last)) == 0)
    is_on_front = np.ones(len(last), dtype=np.bool_)
    is_on_front[1:] = last[1:] < np.minimum.accumulate(last)[:-1]
    return is_on_front


def _levels(ranked: FloatArray) -> tuple[IndexArray | None, FloatArray]:
    """The ranks of a column of few values, if there is one, and the other two columns."""
    for column in range(ranked.shape[1]):
        levels, ranks = rank_values(ranked[:, column])
        if len(levels) <= _FEW_LEVELS:
            return ranks, np.delete(ranked, column, axis=1)
    return None, ranked


def _by_levels(levels: IndexArray, pairs: FloatArray) -> BoolArray:
    """Three objectives, one of them of few values: a front of the other two for each, in turn."""
    is_on_front = np.zeros(len(levels), dtype=np.bool_)
    front = np.empty((0, 2))
    for level in range(levels.max(initial=-1) + 1):
        rows = np.flatnonzero(levels == level)
        # Without what is nowhere below the front so far, which is sorted by its first objective.
        level_pairs = pairs[rows]
        last = np.searchsorted(front[:, 0], level_pairs[:, 0], side="right")
        lowest = np.concatenate([[np.nan], front[:, 1]])[last]
        rows = rows[~(lowest <= level_pairs[:, 1])]
        rows = rows[_front_of_two(pairs[rows])]
        is_on_front[rows] = True
        merged = np.concatenate([front, pairs[rows]])
        front = merged[_front_of_two(merged)]
    return is_on_front


def _front_of_two(pairs: FloatArray) -> IndexArray:
    """Indices of the front of two objectives, sorted by the first; equal pairs do not occur."""
    order = np.lexsort(pairs.T[::-1])
    return order[_falls_below_all_before(pairs[order, 1], 2)]


def _staircase(ranked: FloatArray) -> BoolArray:
    """Three objectives: sweep by the first, keep the front of the other two sorted."""
    is_on_front = np.zeros(len(ranked), dtype=np.bool_)
    stairs = _StaircaseFront()
    for start in range(0, len(ranked), _CHUNK):
        chunk = ranked[start : start + _CHUNK, 1:]
        for row in np.flatnonzero(~stairs.cover(chunk)):
            is_on_front[start + row] = stairs.add(*chunk[row])
    return is_on_front


class _StaircaseFront:
    """A front of two objectives, ``y`` rising and ``rise``, the negated other, rising too."""

    def __init__(self) -> None:
        self._y = np.empty(0)
        self._rise = np.empty(0)

    def cover(self, points: FloatArray) -> BoolArray:
        """Which points are nowhere below the front."""
        last = np.searchsorted(self._y, points[:, 0], side="right")
        best = np.concatenate([[np.nan], self._rise])[last]
        return np.asarray(best >= -points[:, 1])

    def add(self, y: float, z: float) -> bool:
        """Add a point unless it is nowhere below the front; tells whether it was added."""
        position = int(np.searchsorted(self._y, y, side="right"))
        if position and self._rise[position - 1] >= -z:
            return False
        start = position - 1 if position and self._y[position - 1] == y else position
        end = max(position, int(np.searchsorted(self._rise, -z, side="right")))
        self._y = np.concatenate([self._y[:start], [y], self._y[end:]])
        self._rise = np.concatenate([self._rise[:start], [-z], self._rise[end:]])
        return True


_LEAST_SURE = 0.5
"""Lowest weight of a fit probability: an unlikely fit doubles a minimized objective."""

FURTHEST = 1.25
"""Largest factor of a tie: beyond it no plan is as good, however wide the errors are."""


@record(kw_only=True)
class RankedConfiguration:
    """A configuration of a source with its objectives, minimized.

    ``weighed`` is the first objective divided by the fit probability: a plan that fits in half of
    all cases is worth half as much.
    """

    source: Source
    configuration: ConfigurationTable
    values: FloatArray
    weighed: float
    complexity: int
    num_gpus: float

    @cached_property
    def judged(self) -> Candidates:
        """Predictions of the one configuration."""
        judged: Candidates = self.source.judged(self.configuration)
        return judged

    @property
    def tie_factor(self) -> float:
        """Plans within this factor of it are tied with it."""
        confidence = self.source.confidence(self.num_gpus)
        return 1.0 if confidence is None else min(confidence.layout, FURTHEST)


class ComplexityTieBreaker:
    """Breaks ties by complexity: keeps the best row of each complexity near the best objective.

    The first objective is weighted by the fit probability. A row stays only if no simpler one is
    as good.
    """

    def __init__(self) -> None:
        self._kept: list[RankedConfiguration] = []

    @classmethod
    def joined(cls, tie_breakers: Iterable[ComplexityTieBreaker]) -> ComplexityTieBreaker:
        """One tie breaker with the rows of several."""
        configurations = [configuration for each in tie_breakers for configuration in each._kept]
        best = min((configuration.weighed for configuration in configurations), default=np.inf)
        tie_breaker = cls()
        tie_breaker._kept = _stairs(configurations, best)
        return tie_breaker

    def moved(self, sources: Mapping[int, Source]) -> ComplexityTieBreaker:
        """The same rows of other sources, by the identity of the source that they replace."""
        tie_breaker = ComplexityTieBreaker()
        tie_breaker._kept = [
            replace(configuration, source=sources[id(configuration.source)])
            for configuration in self._kept
        ]
        return tie_breaker

    def add(self, candidates: Candidates, rows: IndexArray, values: FloatArray) -> None:
        """Take in feasible rows, at flat indices, with their minimized objectives."""
        predicted = np.where(np.isnan(values).any(axis=1), np.inf, values[:, 0])
        first = _weighed(candidates, rows, predicted, self._best)
        best = min(float(first.min(initial=np.inf)), self._best)
        near = np.flatnonzero((first <= reach(best, FURTHEST)) & np.isfinite(first))
        complexity: IndexArray = candidates.complexity_at(rows[near])
        # The first objective of the best kept row that is no more complex.
        steps = np.array([configuration.complexity for configuration in self._kept])
        bounds = np.array([np.inf, *(configuration.weighed for configuration in self._kept)])
        better = first[near] < bounds[np.searchsorted(steps, complexity, side="right")]
        near, complexity = near[better], complexity[better]
        if not near.size:
            return
        order = np.lexsort((*values[near].T[::-1], first[near], complexity))
        ordered = first[near][order]
        steps = np.flatnonzero(ordered < np.minimum.accumulate([np.inf, *ordered[:-1]]))
        gpus = candidates.at(candidates.value("num_gpus"), rows[near])
        improvements = [
            RankedConfiguration(
                source=candidates.source,
                configuration=candidates.configurations.rows(rows[near[[place]]]),
                values=values[near[place]],
                weighed=float(first[near[place]]),
                complexity=int(complexity[place]),
                num_gpus=float(gpus[place]),
            )
            for place in order[steps].tolist()
        ]
        self._kept = _stairs([*self._kept, *improvements], best)

    def choice(self, factor: float) -> RankedConfiguration | None:
        """The simplest plan within this factor of the best; None: there is none."""
        within = (
            configuration
            for configuration in self._kept
            if configuration.weighed <= reach(self._best, factor)
        )
        return next(within, None)

    @property
    def best(self) -> RankedConfiguration | None:
        """The plan with the best weighted first objective."""
        return self._kept[-1] if self._kept else None

    @property
    def _best(self) -> float:
        return self._kept[-1].weighed if self._kept else np.inf


def reach(best: float, factor: float) -> float:
    """The largest minimized value that is within a factor of the best one."""
    return best * factor if best > 0 else best / factor


def _weighed(
    candidates: Candidates, rows: IndexArray, predicted: FloatArray, best: float
) -> FloatArray:
    """The first objective weighted by fit probability; infinite for rows far from the best."""
    weighted = np.full(predicted.shape, np.inf)
    # Weighting makes no row better: the weighted value of the fastest row bounds useful rows.
    fastest = np.array([np.argmin(predicted)])
    best_weighted = min(best, float(_by_chance(candidates, rows[fastest], predicted[fastest])[0]))
    near = np.flatnonzero(predicted <= reach(best_weighted, FURTHEST))
    weighted[near] = _by_chance(candidates, rows[near], predicted[near])
    return weighted


def _by_chance(candidates: Candidates, rows: IndexArray, predicted: FloatArray) -> FloatArray:
    fit_probability = np.nan_to_num(candidates.fit_probability_at(rows), nan=1.0)
    weight = np.clip(fit_probability, _LEAST_SURE, 1.0)
    return np.where(predicted > 0, predicted / weight, predicted * weight)


def _stairs(choices: list[RankedConfiguration], best: float) -> list[RankedConfiguration]:
    """Configurations near the best that are better than all simpler ones, the simplest first."""
    stairs: list[RankedConfiguration] = []
    for choice in sorted(
        choices, key=lambda choice: (choice.complexity, choice.weighed, *choice.values)
    ):
        is_near = choice.weighed <= reach(best, FURTHEST)
        if is_near and (not stairs or choice.weighed < stairs[-1].weighed):
            stairs.append(choice)
    return stairs
