"""A search problem: sources, objectives, constraints and the confidence of constraints."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache, cached_property, partial
from statistics import NormalDist
from typing import Any, TypeAlias

import numpy as np

from planner.base.arrays import (
    BoolArray,
    CodeArray,
    FloatArray,
    IndexArray,
    Numeric,
    rank_values,
)
from planner.base.csv_cells import Value
from planner.base.records import record
from planner.confidence.intervals import (
    BAD_CASE,
    FIXED,
    MAX_CONFIDENCE,
    MEDIAN,
    Confidence,
    probability_below,
    quantile,
)
from planner.errors import SearchSpaceError, did_you_mean
from planner.formulas.normal import normal_upper_tail
from planner.optimize.goals import Constraint, Objective
from planner.optimize.result_columns import COLUMNS_BY_ERROR
from planner.optimize.source import Candidates, SearchInputs, Source, at_load, of_groups
from planner.question.names import REQUEST_LATENCY
from planner.question.terms import glossary, parse_percentile, term_of_column, terms_of

_LEAST_CHANCE = 0.5
"""Lowest weight of a probability: an unlikely fit doubles a minimized objective."""
_UNKNOWN_RISK = 10.0
"""What a plan without published runs like it counts worse by."""
_AT_END = NormalDist().inv_cdf(MAX_CONFIDENCE)
_PERCENTILE = re.compile(r"_p\d+$")
_SAME_ERRORS = {"calendar_time": "step_time"}
"""Measured quantities that err as others do: calendar time is steps and interruptions."""


def confidence_factor(
    source: Source, name: str, confidence: float, sign: int, group: int | None = None
) -> float | None:
    """The factor on a prediction ``name`` for a confidence; None: unknown for this source.

    ``group`` is one of the source's groups of evidence; None: the first. ``sign`` is 1 where the
    quantity must stay below a bound, -1 where above. The factor is 1 for quantities without
    published errors, such as free memory. None where errors are published, but not for runs like
    this source.
    """
    if confidence == MEDIAN or _without_percentile(name) not in _error_quantities():
        return 1.0
    return factor_at_confidence(
        source.confidence(max(source.counts, default=1), group), name, confidence, sign
    )


def confidence_factors(
    source: Source, configurations: Any, name: str, confidence: float, sign: int
) -> Numeric:
    """The factor on a prediction of each configuration for a confidence; 1 where it is unknown."""
    if confidence == MEDIAN or _without_percentile(name) not in _error_quantities():
        return 1.0
    of_configurations = source.evidence_groups(configurations)
    groups, of_row = rank_values(of_configurations)
    factors = [
        confidence_factor(source, name, confidence, sign, int(group)) or 1.0 for group in groups
    ]
    if len(factors) == 1:
        return factors[0]
    return np.array(factors)[of_row].reshape(of_configurations.shape)


def factor_at_confidence(
    confidence_intervals: Confidence | None, name: str, confidence: float, sign: int
) -> float | None:
    """The factor on a prediction ``name`` for a confidence, from intervals; None: unknown."""
    if confidence == MEDIAN or _without_percentile(name) not in _error_quantities():
        return 1.0
    ends = _interval_of(confidence_intervals, name)
    return None if ends is None else quantile(ends, confidence, sign)


def bad_case_factor(confidence_intervals: Confidence | None, name: str, sign: int) -> float | None:
    """The factor on a prediction in the bad case; errors that all plans share are excluded."""
    return (
        1.0
        if confidence_intervals is None
        else factor_at_confidence(
            _plan_specific_confidence(confidence_intervals), name, BAD_CASE, sign
        )
    )


def distinguishing_factors(
    confidence_intervals: Confidence | None, name: str
) -> tuple[float, float] | None:
    """Both factors of the 90 % interval without errors that all plans share; None: unknown."""
    return (
        None
        if confidence_intervals is None or name not in _error_quantities()
        else _interval_of(_plan_specific_confidence(confidence_intervals), name)
    )


def _plan_specific_confidence(confidence_intervals: Confidence) -> Confidence:
    """The intervals without errors that all plans share.

    Excludes the calendar time beyond the steps, which is the same in all plans, and the price range
    of sellers.
    """
    confidence_intervals, steps = (
        replace(confidence_intervals, price=FIXED),
        confidence_intervals.factors.get("step_time"),
    )
    if steps is None:
        return confidence_intervals
    return replace(
        confidence_intervals, factors={**confidence_intervals.factors, "calendar_time": steps}
    )


def value_at_confidence(
    candidates: Candidates, name: str, confidence: float, sign: int
) -> FloatArray:
    """The values of a limited quantity at a confidence, in SI units.

    The prediction itself if its errors are unknown. The errors of the parts of a sum are added.
    """
    if confidence == MEDIAN:
        return candidates.value(name)
    values = [
        part
        * confidence_factors(
            candidates.source, candidates.configurations, followed, confidence, sign
        )
        for followed, part in candidates.addends(name).items()
    ]
    return np.asarray(sum(values[1:], start=values[0]))


def limit_probability(candidates: Candidates, limit: Constraint) -> float:
    """The probability that the only candidate, at its load, meets a limit; NaN: unknown errors."""
    candidates = at_load(candidates)
    source = candidates.source
    group = int(np.ravel(source.evidence_groups(candidates.configurations))[0])
    confidence = source.confidence(float(np.ravel(candidates.value("num_gpus"))[0]), group)
    total, low, high = 0.0, 0.0, 0.0
    for followed, part in candidates.addends(limit.name).items():
        ends = _interval_of(confidence, followed)
        if ends is None:
            return math.nan
        value = float(np.ravel(part)[0])
        below, above = ends
        total, low, high = total + value, low + value * below, high + value * above
    share_below = probability_below(limit.bound, total, (low, high))
    return share_below if limit.sign > 0 else 1 - share_below


def limit_probability_or_none(candidates: Candidates, limit: Constraint) -> float | None:
    """The `limit_probability`; None: unknown errors."""
    probability = limit_probability(candidates, limit)
    return probability if np.isfinite(probability) else None


def joint_probability(chances: Mapping[str, Numeric]) -> FloatArray:
    """The probability to keep all limits, from that of each by name; NaN: all are unknown.

    It is the product over limits with different errors, and the least of limits with the same
    errors, such as a mean and its percentile. A lower bound if errors go together.
    """
    by_cause: dict[str, Numeric] = {}
    for name, chance in chances.items():
        cause = _cause_of_error(name) or name
        by_cause[cause] = np.fmin(by_cause.get(cause, np.nan), chance)
    each = np.array(np.broadcast_arrays(*by_cause.values()))
    return np.where(np.isnan(each).all(axis=0), np.nan, np.nanprod(each, axis=0))


def _cause_of_error(name: str) -> str | None:
    """What limits have in common whose errors are the same; None: the quantity does not err."""
    name = _without_percentile(name)
    if name == REQUEST_LATENCY:  # a sum of two quantities that err
        return name
    quantities = _error_quantities().get(name, ())
    return next((_SAME_ERRORS.get(quantity, quantity) for quantity, _ in quantities), None)


def limit_probabilities(
    candidates: Candidates, rows: IndexArray, limits: Iterable[Constraint]
) -> FloatArray:
    """The probability of rows at flat indices to keep all limits (`joint_probability`).

    Limits of quantities without published errors count as kept.
    """
    chances: dict[str, Numeric] = {"": np.ones(len(rows))}
    groups = candidates.evidence_groups_at(rows)
    for limit in limits:
        total, low, high = np.zeros(len(rows)), np.zeros(len(rows)), np.zeros(len(rows))
        for followed, part in candidates.addends(limit.name).items():
            value = candidates.at(part, rows)
            below, above = _ends_of_groups(candidates.source, groups, followed)
            total, low, high = total + value, low + value * below, high + value * above
        with np.errstate(divide="ignore", invalid="ignore"):
            away = np.log(limit.bound / total)
            spread = np.log(np.where(away > 0, high, low) / total) * np.sign(away)
            score = limit.sign * np.sign(away) * _AT_END * np.abs(away) / spread
        # Values that do not err are judged by the limit itself.
        chance = np.where(spread > 0, normal_upper_tail(-score), 1.0)
        chances[limit.name] = np.where(np.isfinite(chance), chance, 1.0)
    return joint_probability(chances)


def _ends_of_groups(source: Source, groups: IndexArray, name: str) -> tuple[FloatArray, FloatArray]:
    """Lower and upper factor of the 90 % interval of a quantity, per row; 1 where unknown."""
    number = max(source.counts, default=1)

    def end(group: int, place: int) -> float:
        return (_interval_of(source.confidence(number, group), name) or FIXED)[place]

    below, above = (of_groups(groups, partial(end, place=place)) for place in (0, 1))
    return below, above


def _interval_of(confidence_intervals: Confidence | None, name: str) -> tuple[float, float] | None:
    """Lower and upper factor of a quantity's 90 % interval; None: unknown."""
    for quantity, in_proportion in _error_quantities().get(_without_percentile(name), ()):
        ends = confidence_intervals.factors.get(quantity) if confidence_intervals else None
        if confidence_intervals is not None and ends is not None and ends[0] > 0:
            ends = ends if in_proportion else (1 / ends[1], 1 / ends[0])
            return (
                confidence_intervals.money_interval(ends)
                if glossary()[_without_percentile(name)].type == "usd"
                else ends
            )
    return None


def _without_percentile(name: str) -> str:
    """The name of the quantity without its percentile, whose errors a percentile shares."""
    return _PERCENTILE.sub("", name)


def is_unknown(source: Source, name: str, confidence: float, sign: int) -> bool:
    """True if errors of the quantity are published, but not for runs like this source."""
    return confidence_factor(source, name, confidence, sign) is None


@cache
def _error_quantities() -> Mapping[str, Sequence[tuple[str, bool]]]:
    """By limit or objective: measured quantities with its errors, True if in proportion.

    Of several quantities, one has known errors: in training a rate follows the step time.
    """
    of_column: dict[str, list[tuple[str, bool]]] = {}
    for quantity, groups in COLUMNS_BY_ERROR.items():
        for columns, in_proportion in zip(groups, (True, False), strict=True):
            for column in columns:
                of_column.setdefault(column, []).append((quantity, in_proportion))
    quantities: dict[str, list[tuple[str, bool]]] = {}
    for column, followed in of_column.items():
        term = term_of_column(column)
        quantities[term.term if term else column] = followed
    for name, term in glossary().items():
        if term.result:
            result_columns = dict.fromkeys((term.result, term.result.removeprefix("output_")))
            quantities[name] = [
                followed_quantity
                for column in result_columns
                for followed_quantity in of_column.get(column, ())
            ]
    # Percentiles have the errors of the mean.
    quantiles = ((name, parse_percentile(name)) for name in glossary())
    return quantities | {
        name: quantities[mean_term[0]]
        for name, mean_term in quantiles
        if mean_term and mean_term[0] in quantities
    }


def judged_value(candidates: Candidates, limit: Constraint) -> FloatArray:
    """The prediction at the limit's confidence, in SI units, which is compared with the bound."""
    return value_at_confidence(candidates, limit.name, limit.confidence, limit.sign)


def limit_on_predictions(limit: Constraint, source: Source) -> Constraint:
    """The same limit with its bound on what is predicted for a source."""
    factor = confidence_factor(source, limit.name, limit.confidence, limit.sign) or 1.0
    return replace(limit, bound=limit.bound / factor, confidence=MEDIAN)


def is_violated(candidates: Candidates, limit: Constraint) -> BoolArray:
    """True where the limit is not met or the value is unknown."""
    with np.errstate(invalid="ignore"):
        value = judged_value(candidates, limit)
        return np.asarray(~(limit.sign * value <= limit.sign * limit.bound))


def with_rate_limit(limits: Iterable[Constraint], rate: float | None) -> tuple[Constraint, ...]:
    """The limits, after a limit on the request ``rate`` [1/s]; None: no such limit."""
    if rate is None:
        return tuple(limits)
    requested = Constraint(name="request_rate", bound=rate, sign=-1, unit="1/s")
    return (requested, *(limit for limit in limits if limit.name != requested.name))


def limit_rows(
    candidates: Candidates, limits: Iterable[Constraint]
) -> list[dict[str, float | str | None]]:
    """Name, bound (SI units) and probability of each limit of the only candidate, as dicts."""
    return [
        {
            "name": limit.name,
            "bound": limit.bound,
            "probability": limit_probability_or_none(candidates, limit),
        }
        for limit in limits
    ]


def constraints(
    workload: str,
    bounds: Mapping[str, float],
    assumed: Mapping[str, float] | None = None,
    confidence: float = MEDIAN,
) -> tuple[Constraint, ...]:
    """Constraints from bounds in SI units by name; assumed bounds come last.

    Each is judged at the ``confidence``.

    Raises SearchSpaceError if a name is unknown or a bound is negative or not a number.
    """
    terms, defaults = terms_of(workload, "limit"), dict(assumed or {})
    for name, bound in bounds.items():
        if name not in terms:
            hint = did_you_mean(name, terms)
            raise SearchSpaceError(f"Unknown constraint {name!r}.{hint} Known: {', '.join(terms)}.")
        if not (np.isfinite(bound) and bound >= 0):
            raise SearchSpaceError(f"The limit of {name} must be a number of at least 0.")
    return tuple(
        Constraint(
            name=name,
            bound=bound,
            sign=terms[name].sign,
            unit=terms[name].type,
            assumed=name in defaults,
            confidence=confidence,
        )
        for name, bound in {**bounds, **defaults}.items()
    )


MAX_OBJECTIVES = 3


def objectives(workload: str, names: Iterable[str]) -> tuple[Objective, ...]:
    """The objectives of a workload with these names, one to three.

    Raises SearchSpaceError if a name is unknown or repeated, or there are none or too many.
    """
    terms, requested = terms_of(workload, "objective"), list(names)
    for name in requested:
        if name not in terms:
            hint = did_you_mean(name, terms)
            raise SearchSpaceError(f"Unknown objective {name!r}.{hint} Known: {', '.join(terms)}.")
    if not 1 <= len(requested) <= MAX_OBJECTIVES or len(set(requested)) < len(requested):
        listed = ", ".join(requested) or "none"
        raise SearchSpaceError(f"Give one to {MAX_OBJECTIVES} different objectives, not {listed}.")
    return tuple(Objective(name=name, sign=terms[name].sign) for name in requested)


Cell: TypeAlias = Mapping[str, Value]
"""A value of each outer axis: model, GPU, framework or engine, adapter, and so on."""

MEMORIES = ("host", "gpu")
"""Memories whose out-of-memory rejections are the last rules of a source, in order."""


@record(kw_only=True, repr=False)
class Problem:
    """Everything a driver needs.

    Parameters
    ----------
    cells : for each source, its model, GPU, framework and so on; sources of one cell have the same
    refused : cells without a source, and why
    max_front_factor : factor of the best first objective at which the front ends
    has_ties : published runs show which differences in the first objective are significant
    """

    sources: tuple[Source, ...]
    objectives: tuple[Objective, ...]
    constraints: tuple[Constraint, ...] = ()
    cells: tuple[Cell, ...] = ()
    refused: tuple[tuple[Cell, str], ...] = ()
    max_front_factor: float = np.inf
    has_ties: bool = False

    def __post_init__(self) -> None:
        if not self.cells:
            object.__setattr__(self, "cells", tuple(source.named for source in self.sources))

    def __repr__(self) -> str:
        goals = ", ".join(objective.name for objective in self.objectives)
        number = len(self.sources)
        where = self.sources[0].description if number == 1 else f"{number} cells"
        return f"<Problem: {self.num_rows:,} configurations of {where} by {goals}>"

    @cached_property
    def axes(self) -> Mapping[str, tuple[Value, ...]]:
        """The values of each axis in which cells differ (GPU, framework, ...), by axis."""
        values: dict[str, dict[Value, None]] = {}
        for cell in (*self.cells, *(cell for cell, _ in self.refused)):
            for name, value in cell.items():
                values.setdefault(name, {})[value] = None
        return {name: tuple(several) for name, several in values.items() if len(several) > 1}

    @property
    def inputs(self) -> SearchInputs:
        """The inputs of the first source; all sources share model and question."""
        return self.sources[0].inputs

    @property
    def rejections(self) -> tuple[str, ...]:
        """The names of rules, memory reasons and constraints, in order of their numbers."""
        return (*self.sources[0].rejections, *(constraint.name for constraint in self.constraints))

    @property
    def first_soft(self) -> int:
        """The number of the first rejection with a distance to its bound: host memory."""
        return self.sources[0].num_rules + 1

    @property
    def num_rows(self) -> int:
        """Configurations of all sources."""
        return sum(source.num_rows for source in self.sources)

    def codes(self, candidates: Candidates) -> CodeArray:
        """The one-based number of the rule or limit that rejects each row; 0: feasible."""
        codes = np.broadcast_to(candidates.rejected_by, candidates.shape)
        first = self.first_soft + len(MEMORIES)
        for number, constraint in enumerate(self.constraints, start=first):
            is_feasible = codes == 0
            if not is_feasible.any():
                break
            codes = np.where(
                is_feasible & is_violated(candidates, constraint), np.int8(number), codes
            )
        return codes

    def risks(self, candidates: Candidates, rows: IndexArray) -> FloatArray:
        """What the first objective of some rows is worse by in the bad case, at least 1.

        The bad case is what 9 of 10 published runs like the plan keep, over the probability that it
        fits in memory and the probability that it keeps all limits of the user.
        """
        objective, source = self.objectives[0], candidates.source
        number = max(source.counts, default=1)

        def factor(group: int) -> float:
            confidence = source.confidence(number, group)
            return bad_case_factor(confidence, objective.name, objective.sign) or _UNKNOWN_RISK

        worse = of_groups(candidates.evidence_groups_at(rows), factor)
        worse = worse if objective.sign > 0 else 1 / worse
        fits = np.nan_to_num(candidates.fit_probability_at(rows), nan=1.0)
        limits = (limit for limit in self.constraints if not limit.assumed)
        keeps = limit_probabilities(candidates, rows, limits)
        chances = np.clip(fits, _LEAST_CHANCE, 1.0) * np.clip(keeps, _LEAST_CHANCE, 1.0)
        return np.asarray(np.maximum(worse, 1.0) / chances)

    def values(self, candidates: Candidates, rows: IndexArray) -> FloatArray:
        """The objectives of some rows, shape (rows, objectives), negated where high is better.

        Each column is contiguous.
        """
        return np.stack(
            [o.sign * candidates.at(candidates.value(o.name), rows) for o in self.objectives]
        ).T

    def value_and_bound(
        self, number: int, candidates: Candidates
    ) -> tuple[FloatArray, int, Numeric]:
        """Values, sign (1: upper bound, -1: lower) and bound of rejection ``number``, in SI units.

        Values of limits are those at the confidence of the limit; memory is as predicted.
        """
        place = number - self.first_soft
        if place < len(MEMORIES):
            needed, usable = candidates.memory[place]
            return needed, 1, usable
        constraint = self.constraints[place - len(MEMORIES)]
        return judged_value(candidates, constraint), constraint.sign, constraint.bound
