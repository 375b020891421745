"""Limits that a feasible configuration must keep."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from planner.base.arrays import BoolArray, FloatArray
from planner.base.records import record
from planner.confidence.intervals import MEDIAN
from planner.errors import SearchSpaceError, did_you_mean
from planner.optimize.source import Candidates, Source, at_load
from planner.optimize.sureness import limit_chance, sure_factor, sure_value
from planner.question.terms import terms_of


@record(kw_only=True)
class Constraint:
    """``bound`` in SI units on an attribute of candidates: from above (``sign`` 1) or below (-1).

    ``unit`` as the table of terms has it. ``assumed``: nobody gave it, see
    `planner.optimize.exhaustive`. ``confidence``: the share of published runs like these that
    would keep it.
    """

    name: str
    bound: float
    sign: int
    unit: str
    assumed: bool = False
    confidence: float = MEDIAN

    def judged(self, candidates: Candidates) -> FloatArray:
        """What the bound is compared with: the prediction at the confidence, in SI units."""
        return sure_value(candidates, self.name, self.confidence, self.sign)

    def of_predictions(self, source: Source) -> Constraint:
        """The same limit with its bound on what is predicted for a source."""
        factor = sure_factor(source, self.name, self.confidence, self.sign) or 1.0
        return replace(self, bound=self.bound / factor, confidence=MEDIAN)

    @property
    def told_confidence(self) -> str:
        """`` at 90 %``; empty where predictions are judged as they are."""
        return "" if self.confidence == MEDIAN else f" at {100 * self.confidence:g} %"

    def chance(self, candidates: Candidates) -> float:
        """The share of published runs like the one candidate that would keep it; NaN if unknown."""
        return limit_chance(at_load(candidates), self.name, self.bound, self.sign)

    def violated(self, candidates: Candidates) -> BoolArray:
        """Where the bound does not hold; an unknown value does not hold it."""
        with np.errstate(invalid="ignore"):
            value = self.judged(candidates)
            return np.asarray(~(self.sign * value <= self.sign * self.bound))


def with_rate(limits: Iterable[Constraint], rate: float | None) -> tuple[Constraint, ...]:
    """The limits of a plan, after the ``rate`` [1/s] that it must serve where one is asked for."""
    if rate is None:
        return tuple(limits)
    asked = Constraint(name="request_rate", bound=rate, sign=-1, unit="1/s")
    return (asked, *(limit for limit in limits if limit.name != asked.name))


def limit_rows(
    candidates: Candidates, limits: Iterable[Constraint]
) -> list[dict[str, float | str | None]]:
    """Each limit of the one candidate: name, bound in SI units, the probability that it is kept."""
    chances = ((limit, limit.chance(candidates)) for limit in limits)
    return [
        {
            "name": limit.name,
            "bound": limit.bound,
            "probability": chance if np.isfinite(chance) else None,
        }
        for limit, chance in chances
    ]


def constraints(
    workload: str,
    bounds: Mapping[str, float],
    assumed: Mapping[str, float] | None = None,
    confidence: float = MEDIAN,
) -> tuple[Constraint, ...]:
    """Constraints from bounds in SI units by name; those that are ``assumed`` come last.

    All are judged at the ``confidence``.

    Raises
    ------
    SearchSpaceError
        A name is unknown or a bound is negative or not a number.
    """
    known, defaults = terms_of(workload, "limit"), dict(assumed or {})
    for name, bound in bounds.items():
        if name not in known:
            hint = did_you_mean(name, known)
            raise SearchSpaceError(f"Unknown constraint {name!r}.{hint} Known: {', '.join(known)}.")
        if not (np.isfinite(bound) and bound >= 0):
            raise SearchSpaceError(f"The limit of {name} must be a number of at least 0.")
    return tuple(
        Constraint(
            name=name,
            bound=bound,
            sign=known[name].sign,
            unit=known[name].type,
            assumed=name in defaults,
            confidence=confidence,
        )
        for name, bound in {**bounds, **defaults}.items()
    )
