"""Break ties between plans by complexity, with objectives weighted by fit probability."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import TypeAlias

import numpy as np

from planner.base.arrays import FloatArray, IndexArray
from planner.base.records import record
from planner.confidence.intervals import MAX_TIE_FACTOR, Confidence
from planner.configurations.configuration_tables import ConfigurationTable
from planner.optimize.source import Candidates, Source

Risks: TypeAlias = Callable[[Candidates, IndexArray], FloatArray]
"""What the first objective of rows at flat indices is worse by in the bad case."""

_FASTEST = 64
"""Rows whose bad cases bound those of all rows: more take hardly longer than one."""
_UNPROVEN = 2**40
"""Added to the complexity of a layout that no published run has: more than any complexity."""


@record(kw_only=True)
class RankedConfiguration:
    """A configuration of a source with its objectives, minimized.

    ``bad_case`` is the first objective in the bad case, made worse by the probability that the plan
    fits and keeps its limits: one that does so in half of all cases is worth half as much.
    """

    source: Source
    configuration: ConfigurationTable
    values: FloatArray
    bad_case: float
    complexity: int
    num_gpus: float

    @cached_property
    def judged(self) -> Candidates:
        """The configuration with its predictions."""
        judged: Candidates = self.source.judged(self.configuration)
        return judged

    @property
    def risk(self) -> float:
        """What its first objective is worse by in the bad case, at least 1."""
        value = float(self.values[0])
        return self.bad_case / value if value > 0 else value / self.bad_case

    @cached_property
    def confidence(self) -> Confidence | None:
        """The 90 % intervals of its predictions; None: unknown."""
        groups = self.source.evidence_groups(self.configuration)
        return self.source.confidence(self.num_gpus, int(np.ravel(groups)[0]))

    @property
    def tie_factor(self) -> float:
        """The factor on the objective within which another plan counts as tied."""
        confidence = self.confidence
        return 1.0 if confidence is None else confidence.layout_tie_factor


class ComplexityTieBreaker:
    """Breaks ties: keeps the best row of each complexity near the best objective.

    A layout that published runs have counts as simpler than all others. The first objective counts
    in the bad case. A row stays only if no simpler one is as good.
    """

    def __init__(self) -> None:
        self._configurations: list[RankedConfiguration] = []

    @classmethod
    def join(cls, tie_breakers: Iterable[ComplexityTieBreaker]) -> ComplexityTieBreaker:
        """Merge several tie breakers into one."""
        configurations = [
            configuration for each in tie_breakers for configuration in each._configurations
        ]
        best = min(
            (configuration.bad_case for configuration in configurations),
            default=np.inf,
        )
        tie_breaker = cls()
        tie_breaker._configurations = _best_by_complexity(configurations, best)
        return tie_breaker

    def moved(self, sources: Mapping[int, Source]) -> ComplexityTieBreaker:
        """The tie breaker with other sources, by ``id`` of the source that each replaces."""
        tie_breaker = ComplexityTieBreaker()
        tie_breaker._configurations = [
            replace(configuration, source=sources[id(configuration.source)])
            for configuration in self._configurations
        ]
        return tie_breaker

    def add(
        self,
        candidates: Candidates,
        rows: IndexArray,
        values: FloatArray,
        source: Source,
        risks: Risks,
    ) -> None:
        """Add feasible candidates of a source at flat ``rows``, with their minimized objectives.

        ``risks`` returns what the first objective is worse by in the bad case, at least 1.
        """
        predicted = np.where(np.isnan(values).any(axis=1), np.inf, values[:, 0])
        first = _bad_cases(candidates, rows, predicted, self._best, risks)
        best = min(float(first.min(initial=np.inf)), self._best)
        near = np.flatnonzero(
            (first <= largest_within_factor(best, MAX_TIE_FACTOR)) & np.isfinite(first)
        )
        if not near.size:
            return
        complexity: IndexArray = candidates.complexity_at(rows[near])
        complexity = complexity + _UNPROVEN * candidates.unproven_at(rows[near])
        # The first objective of the best kept row that is no more complex.
        steps = np.array([configuration.complexity for configuration in self._configurations])
        bounds = np.array(
            [
                np.inf,
                *(configuration.bad_case for configuration in self._configurations),
            ]
        )
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
                source=source,
                configuration=candidates.configurations.rows(rows[near[[place]]]),
                values=values[near[place]],
                bad_case=float(first[near[place]]),
                complexity=int(complexity[place]),
                num_gpus=float(gpus[place]),
            )
            for place in order[steps].tolist()
        ]
        self._configurations = _best_by_complexity([*self._configurations, *improvements], best)

    def simplest_within(self, factor: float) -> RankedConfiguration | None:
        """The simplest plan within a factor of the best bad case and of its plan's prediction.

        None: there is no plan.
        """
        best = self.best
        within = (
            configuration
            for configuration in self._configurations
            if best is not None
            and configuration.bad_case <= largest_within_factor(best.bad_case, factor)
            and configuration.values[0] <= largest_within_factor(float(best.values[0]), factor)
        )
        return next(within, None)

    @property
    def best(self) -> RankedConfiguration | None:
        """The plan with the best bad case."""
        return self._configurations[-1] if self._configurations else None

    @property
    def _best(self) -> float:
        return self._configurations[-1].bad_case if self._configurations else np.inf


def largest_within_factor(best: float, factor: float) -> float:
    """The largest minimized value that is within a factor of the best one."""
    return best * factor if best > 0 else best / factor


def _bad_cases(
    candidates: Candidates, rows: IndexArray, predicted: FloatArray, best: float, risks: Risks
) -> FloatArray:
    """The first objective in the bad case; infinite for rows far from the best."""
    bad_cases = np.full(predicted.shape, np.inf)
    # No risk makes a row better: a bad case of any row bounds useful rows.
    if not np.isfinite(best):
        fastest = np.argpartition(predicted, min(_FASTEST, len(rows)) - 1)[:_FASTEST]
        best = float(_worsened(predicted[fastest], risks(candidates, rows[fastest])).min())
    near = np.flatnonzero(predicted <= largest_within_factor(best, MAX_TIE_FACTOR))
    bad_cases[near] = _worsened(predicted[near], risks(candidates, rows[near]))
    return bad_cases


def _worsened(minimized: FloatArray, factor: FloatArray) -> FloatArray:
    """Minimized values, worse by a factor; maximized ones are negative."""
    return np.where(minimized > 0, minimized * factor, minimized / factor)


def _best_by_complexity(
    choices: list[RankedConfiguration], best: float
) -> list[RankedConfiguration]:
    """Plans near the best that beat all simpler plans, the simplest first."""
    stairs: list[RankedConfiguration] = []
    for choice in sorted(
        choices,
        key=lambda choice: (choice.complexity, choice.bad_case, *choice.values),
    ):
        is_near = choice.bad_case <= largest_within_factor(best, MAX_TIE_FACTOR)
        if is_near and (not stairs or choice.bad_case < stairs[-1].bad_case):
            stairs.append(choice)
    return stairs
