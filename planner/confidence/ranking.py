"""Rank plans and recommend one among ties: the best bad case, or a tied plan with more evidence."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from planner.base.arrays import FloatArray
from planner.confidence.intervals import BASES, MAX_CONFIDENCE, are_tied


class RankedPlan(NamedTuple):
    """A plan in a ranking by one positive quantity in any unit.

    Parameters
    ----------
    value : predicted value
    low : lower end of the 90 % interval, without errors common to all plans; NaN: unknown
    high : upper end of this interval; NaN: unknown
    bad : value that 9 of 10 published runs like the plan keep
    error_group : GPU, software and so on; plans with equal ``error_group`` differ only in layout
    tie_factor : factor between layouts beyond which published runs distinguish them
    time : time that decides first among plans of equal ``error_group``; NaN: unknown
    evidence_rank : lack of evidence, 0 for measured runs (`lack_of`)
    """

    value: float
    low: float = math.nan
    high: float = math.nan
    bad: float = math.nan
    error_group: tuple[object, ...] = ()
    tie_factor: float = 1.0
    time: float = math.nan
    evidence_rank: int = 0

    @property
    def is_proven(self) -> bool:
        """Whether a published run used its software on its GPU, or their number is unknown."""
        return self.evidence_rank < len(BASES)


def evidence_rank(basis: str, runs: float) -> int:
    """Return a rank of missing evidence: 0 for measured runs, higher without runs on the GPU.

    ``basis`` begins with one of `BASES`, ``runs`` are those on this very GPU, NaN unknown.

    >>> evidence_rank("measured", 3), evidence_rank("transferred, first run", 3)
    (0, 1)
    >>> evidence_rank("transferred", 0)
    5
    """
    code = basis.partition(",")[0]
    near = BASES.index(code) if code in BASES else len(BASES) - 1
    return near + len(BASES) * (runs == 0)


def are_plans_tied(plan: RankedPlan, other: RankedPlan) -> bool:
    """Return whether two plans differ by less than the error of published runs.

    Plans of the same GPU and software differ in layout, which published runs distinguish beyond a
    factor; if the time is the same too, the price decides. Other plans: errors on the sides that
    face each other are taken as independent.
    """
    best, worst = sorted((plan, other), key=lambda ranked: ranked.value)
    if best.value <= 0 or best.value == worst.value:
        return best.value == worst.value
    if plan.error_group == other.error_group:
        gap = math.log(worst.value / best.value)
        is_same_plan = plan.time == other.time
        return not is_same_plan and gap < math.log(max(plan.tie_factor, other.tie_factor))
    if not (best.high >= best.value and worst.low <= worst.value):  # unknown ends among them
        return False
    return are_tied((best.value, best.high), (worst.value, worst.low))


def recommended_index(ordered: Sequence[RankedPlan]) -> int:
    """Return the index of the plan to recommend among plans sorted by their bad case.

    Among plans that are tied with the first, the first with the most evidence. A plan must also be
    within the factor between layouts, in the bad case and as predicted: wide intervals alone do not
    justify a higher cost.
    """
    first, tied = ordered[0], [0]
    sign = 1 if first.bad >= first.value else -1
    for index, plan in enumerate(ordered[1:], 1):
        if not (plan.bad > 0 and first.bad > 0 and plan.value > 0):
            continue
        away = abs(math.log(plan.bad / first.bad))
        worse = sign * math.log(plan.value / first.value)
        if max(away, worse) <= math.log(first.tie_factor) and are_plans_tied(first, plan):
            tied.append(index)
    return min(tied, key=lambda index: (ordered[index].evidence_rank, index))


_POINTS = 400
_INTERVAL_END = NormalDist().inv_cdf(MAX_CONFIDENCE)
_MAX_DEVIATIONS, _MIN_SPREAD = 6.0, 1e-9
# Standard deviations of errors beyond which nothing counts, and the least of them.
_cdf = np.vectorize(NormalDist().cdf, otypes=[np.float64])


def expected_regrets(plans: Sequence[RankedPlan], sign: int = 1) -> FloatArray:
    r"""Return each plan's expected loss against the best plan, as a share of its value.

    ``sign`` is 1 where less is better; where more is, values count as their inverse: a rate as the
    time of a token. Derived here. With :math:`X_i` what plan i turns out to take, of the median
    :math:`x_i`, and :math:`Y_i` the least that any turns out to take,

    .. math:: \frac{E[X_i - Y_i]}{x_i} = \frac{1}{x_i} \int P(X_i > t) - P(Y_i > t) \, dt, \quad
              P(Y_i > t) = P(r_i X_i > t) \prod_j P(X_j > t)

    Logarithms of errors are normal on each side of the prediction, with the spread of the end of
    the 90 % interval on that side. Errors of different software or GPUs are taken as independent,
    as in `are_plans_tied`: j are the best plans of other groups. Errors within a group are common
    and cancel: the best plan of the group of plan i takes :math:`r_i \le 1` of its value. NaN where
    the errors of a plan are unknown; other plans are not compared with it.

    >>> two = [RankedPlan(1, 1 / 1.25, 1.25, error_group=(name,)) for name in ("a", "b")]
    >>> expected_regrets(two).round(3).tolist()
    [0.077, 0.077]
    """
    values, lows, highs = (
        np.array([getattr(standing, name) for standing in plans], dtype=np.float64)
        for name in ("value", "low", "high")
    )
    if sign < 0:
        values, lows, highs = 1 / values, 1 / highs, 1 / lows
    with np.errstate(invalid="ignore", divide="ignore"):
        logs = np.log(values)
        below = np.maximum(logs - np.log(np.minimum(lows, values)), _MIN_SPREAD) / _INTERVAL_END
        above = np.maximum(np.log(np.maximum(highs, values)) - logs, _MIN_SPREAD) / _INTERVAL_END
    finite = np.flatnonzero(np.isfinite(logs + below + above))
    loss_shares = np.full(len(values), np.nan)
    if not finite.size:
        return loss_shares
    logs, below, above = logs[finite], below[finite], above[finite]
    points = np.linspace(
        min(logs - _MAX_DEVIATIONS * below), max(logs + _MAX_DEVIATIONS * above), _POINTS
    )

    def beyond(center: FloatArray) -> FloatArray:
        """Probabilities to exceed each point, of shape (plans, points), around the medians."""
        away = points - center[:, None]
        return np.asarray(_cdf(-away / np.where(away < 0, below[:, None], above[:, None])))

    groups = [plans[place].error_group for place in finite.tolist()]
    best: dict[tuple[object, ...], int] = {}
    for place in np.argsort(logs, kind="stable").tolist():
        best.setdefault(groups[place], place)
    exceeds, group_best = beyond(logs), beyond(logs[[best[name] for name in groups]])
    others = [[place for other, place in best.items() if other != name] for name in groups]
    best_of_others = [np.prod(exceeds[places], axis=0) for places in others]
    lost = exceeds - group_best * np.array(best_of_others)
    loss_shares[finite] = np.trapezoid(lost * np.exp(points - logs[:, None]), points, axis=1)
    return loss_shares
