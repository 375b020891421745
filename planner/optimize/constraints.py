"""Limits that a feasible configuration must keep, and predictions at a confidence."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache

import numpy as np

from planner.base.arrays import BoolArray, FloatArray
from planner.base.records import record
from planner.confidence.intervals import BAD_CASE, FIXED, MEDIAN, Confidence, chance_below, quantile
from planner.errors import SearchSpaceError, did_you_mean
from planner.optimize.result_columns import FOLLOWING
from planner.optimize.source import Candidates, Source, at_load
from planner.question.terms import glossary, percentile_of, term_of_column, terms_of

_PERCENTILE = re.compile(r"_p\d+$")
# Limits that are called otherwise than their result column.
_COLUMN_OF = {"request_rate": "requests_per_s"}


def sure_factor(source: Source, name: str, confidence: float, sign: int) -> float | None:
    """The factor on a prediction ``name`` at which it is judged at a confidence.

    ``sign`` is 1 where the quantity must stay below a bound, -1 where above. 1 for what no
    published error is known of, such as memory that stays free; None where errors are known of
    it, but not for runs like those of this source.
    """
    if confidence == MEDIAN or _mean_of(name) not in _followed():
        return 1.0
    return factor_at(source.confidence(max(source.counts, default=1)), name, confidence, sign)


def factor_at(sure: Confidence | None, name: str, confidence: float, sign: int) -> float | None:
    """The same with the confidence in predictions known."""
    if confidence == MEDIAN or _mean_of(name) not in _followed():
        return 1.0
    ends = _ends(sure, name)
    return None if ends is None else quantile(ends, confidence, sign)


def bad_factor(sure: Confidence | None, name: str, sign: int) -> float | None:
    """The factor on a prediction in the bad case, by what tells plans apart.

    What a campaign takes beyond its steps is the same in all plans, and what other sellers ask is
    no risk of a plan at its price: neither counts.
    """
    if sure is None:
        return 1.0
    sure, steps = replace(sure, price=FIXED), sure.factors.get("step_time")
    if steps is not None:
        sure = replace(sure, factors={**sure.factors, "calendar_time": steps})
    return factor_at(sure, name, BAD_CASE, sign)


def sure_value(candidates: Candidates, name: str, confidence: float, sign: int) -> FloatArray:
    """A limited quantity at a confidence, in SI units; as predicted where no errors are known.

    The parts of a sum are taken to err together.
    """
    if confidence == MEDIAN:
        return candidates.value(name)
    values = [
        part * (sure_factor(candidates.source, followed, confidence, sign) or 1.0)
        for followed, part in candidates.addends(name).items()
    ]
    return np.asarray(sum(values[1:], start=values[0]))


def limit_chance(candidates: Candidates, name: str, bound: float, sign: int) -> float:
    """The share of published runs like the one candidate that would keep a limit.

    The bound is in SI units; NaN where no errors are known.
    """
    sure = candidates.source.confidence(float(np.ravel(candidates.value("num_gpus"))[0]))
    total, low, high = 0.0, 0.0, 0.0
    for followed, part in candidates.addends(name).items():
        ends = _ends(sure, followed)
        if ends is None:
            return math.nan
        value = float(np.ravel(part)[0])
        below, above = ends
        total, low, high = total + value, low + value * below, high + value * above
    kept = chance_below(bound, total, (low, high))
    return kept if sign > 0 else 1 - kept


def _ends(sure: Confidence | None, name: str) -> tuple[float, float] | None:
    """The factors on a limited quantity between which its errors lie; None where none are known."""
    quantity, in_proportion = _followed().get(_mean_of(name), ("", True))
    ends = sure.factors.get(quantity) if sure else None
    if sure is None or ends is None or not ends[0] > 0:
        return None
    ends = ends if in_proportion else (1 / ends[1], 1 / ends[0])
    return sure.of_money(ends) if glossary()[_mean_of(name)].type == "usd" else ends


def _mean_of(name: str) -> str:
    """The quantity that a percentile is of: it errs as that does."""
    return _PERCENTILE.sub("", name)


def is_unknown(source: Source, name: str, confidence: float, sign: int) -> bool:
    """Whether a limited quantity has errors, but none of runs like those of this source."""
    return sure_factor(source, name, confidence, sign) is None


@cache
def _followed() -> Mapping[str, tuple[str, bool]]:
    """The quantity that a limit follows, and whether in proportion to it or to its inverse."""
    found = {}
    for quantity, groups in FOLLOWING.items():
        for columns, in_proportion in zip(groups, (True, False), strict=True):
            for column in columns:
                term = term_of_column(column)
                found[term.term if term else column] = (quantity, in_proportion)
    of_limits = {limit: found[column] for limit, column in _COLUMN_OF.items()}
    # What a share of the requests does not exceed errs as the mean does.
    quantiles = ((name, percentile_of(name)) for name in glossary())
    return (
        found | of_limits | {name: found[of[0]] for name, of in quantiles if of and of[0] in found}
    )


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
