"""Predictions at a confidence: the errors of published runs on the side that hurts."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache

import numpy as np

from planner.base.arrays import FloatArray
from planner.confidence.intervals import BAD_CASE, FIXED, MEDIAN, Confidence, chance_below, quantile
from planner.optimize.result_columns import FOLLOWING
from planner.optimize.source import Candidates, Source
from planner.question.terms import glossary, percentile_of, term_of_column

_PERCENTILE = re.compile(r"_p\d+$")


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
    """The factor on a prediction in the bad case, by what tells plans apart."""
    return 1.0 if sure is None else factor_at(_apart(sure), name, BAD_CASE, sign)


def factors_apart(sure: Confidence | None, name: str) -> tuple[float, float] | None:
    """The factors of the 90 % interval by what tells plans apart; None where none are known."""
    return None if sure is None or name not in _followed() else _ends(_apart(sure), name)


def _apart(sure: Confidence) -> Confidence:
    """Without what a campaign takes beyond its steps, which is the same in all plans, and what
    other sellers ask, which is no risk of a plan at its price.
    """
    sure, steps = replace(sure, price=FIXED), sure.factors.get("step_time")
    if steps is None:
        return sure
    return replace(sure, factors={**sure.factors, "calendar_time": steps})


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
    """The factors on a quantity between which its errors lie; None where none are known."""
    for quantity, in_proportion in _followed().get(_mean_of(name), ()):
        ends = sure.factors.get(quantity) if sure else None
        if sure is not None and ends is not None and ends[0] > 0:
            ends = ends if in_proportion else (1 / ends[1], 1 / ends[0])
            return sure.of_money(ends) if glossary()[_mean_of(name)].type == "usd" else ends
    return None


def _mean_of(name: str) -> str:
    """The quantity that a percentile is of: it errs as that does."""
    return _PERCENTILE.sub("", name)


def is_unknown(source: Source, name: str, confidence: float, sign: int) -> bool:
    """Whether a limited quantity has errors, but none of runs like those of this source."""
    return sure_factor(source, name, confidence, sign) is None


@cache
def _followed() -> Mapping[str, Sequence[tuple[str, bool]]]:
    """The quantities that a limit or an objective follows, and whether in proportion or inversely.

    Errors of one of several are known: a rate follows the time of a step in training.
    """
    of_column: dict[str, list[tuple[str, bool]]] = {}
    for quantity, groups in FOLLOWING.items():
        for columns, in_proportion in zip(groups, (True, False), strict=True):
            for column in columns:
                of_column.setdefault(column, []).append((quantity, in_proportion))
    found: dict[str, list[tuple[str, bool]]] = {}
    for column, followed in of_column.items():
        term = term_of_column(column)
        found[term.term if term else column] = followed
    for name, term in glossary().items():
        if term.tells:
            told = dict.fromkeys((term.tells, term.tells.removeprefix("output_")))
            found[name] = [one for column in told for one in of_column.get(column, ())]
    # What a share of the requests does not exceed errs as the mean does.
    quantiles = ((name, percentile_of(name)) for name in glossary())
    return found | {name: found[of[0]] for name, of in quantiles if of and of[0] in found}
