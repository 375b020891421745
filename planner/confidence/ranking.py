"""Which of several plans to take: the best in a bad case; of those tied with it the best known."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from planner.base.arrays import FloatArray
from planner.confidence.intervals import BASES, SUREST, are_tied


class RankedPlan(NamedTuple):
    """A plan in a ranking by one positive quantity in any unit.

    Parameters
    ----------
    value : predicted value
    low : lower end of the 90 % interval, without errors common to all plans; NaN: unknown
    high : upper end of this interval; NaN: unknown
    bad : value that 9 of 10 published runs like the plan keep
    kin : GPU, software and so on; plans with equal ``kin`` differ only in layout
    tie_factor : factor between layouts beyond which published runs distinguish them
    time : time that decides first among plans of equal ``kin``; NaN: unknown
    lack : lack of evidence, 0 for measured runs (`lack_of`)
    """

    value: float
    low: float = math.nan
    high: float = math.nan
    bad: float = math.nan
    kin: tuple[object, ...] = ()
    tie_factor: float = 1.0
    time: float = math.nan
    lack: int = 0

    @property
    def is_proven(self) -> bool:
        """Whether any published run is of its software on its GPU, or nobody counted them."""
        return self.lack < len(BASES)


def evidence_rank(basis: str, runs: float) -> int:
    """How little evidence there is: 0 for measured runs; what has no run on its GPU comes last.

    ``basis`` begins with one of `BASES`, ``runs`` are those on this very GPU, NaN unknown.

    >>> (evidence_rank("measured", 3), evidence_rank("transferred, first run", 3),
    ... evidence_rank("transferred", 0))
    (0, 1, 5)
    """
    code = basis.partition(",")[0]
    near = BASES.index(code) if code in BASES else len(BASES) - 1
    return near + len(BASES) * (runs == 0)


def are_plans_tied(plan: RankedPlan, other: RankedPlan) -> bool:
    """Whether published runs do not tell which of two is better.

    Of the same GPU and software they differ in layout, which runs tell apart beyond a factor;
    where the time is the same, too, the price decides. Of others, the errors on the sides that
    face each other are taken as independent.
    """
    best, worst = sorted((plan, other), key=lambda found: found.value)
    if best.value <= 0 or best.value == worst.value:
        return best.value == worst.value
    if plan.kin == other.kin:
        gap = math.log(worst.value / best.value)
        is_same_plan = plan.time == other.time
        return not is_same_plan and gap < math.log(max(plan.tie_factor, other.tie_factor))
    if not (best.high >= best.value and worst.low <= worst.value):  # unknown ends among them
        return False
    return are_tied((best.value, best.high), (worst.value, worst.low))


def best_supported(ordered: Sequence[RankedPlan]) -> int:
    """The place of the plan to take among those ordered by their bad case, the best first.

    It is the first of those with the most evidence that are tied with the first, and no more than
    the factor between layouts from it in the bad case: a tie of wide intervals alone is no reason
    to pay more.
    """
    first = ordered[0]
    places = [at for at, one in enumerate(ordered) if at == 0 or _is_as_good(first, one)]
    return min(places, key=lambda at: (ordered[at].lack, at))


def _is_as_good(first: RankedPlan, plan: RankedPlan) -> bool:
    away = abs(math.log(plan.bad / first.bad)) if plan.bad > 0 and first.bad > 0 else math.inf
    return away <= math.log(first.tie_factor) and are_plans_tied(first, plan)


_POINTS = 400
_SURE_END = NormalDist().inv_cdf(SUREST)
_FARTHEST, _LEAST = 6.0, 1e-9
# Standard deviations of errors beyond which nothing counts, and the least of them.
_cdf = np.vectorize(NormalDist().cdf, otypes=[np.float64])


def regrets(standings: Sequence[RankedPlan], sign: int = 1) -> FloatArray:
    r"""What each plan is expected to lose against the best of all, as a share of its value.

    ``sign`` is 1 where less is better; where more is, values count as their inverse: a rate as the
    time of a token. Derived here. With :math:`X_i` what plan i turns out to take, of the median
    :math:`x_i`, and :math:`Y_i` the least that any turns out to take,

    .. math:: \frac{E[X_i - Y_i]}{x_i} = \frac{1}{x_i} \int P(X_i > t) - P(Y_i > t) \, dt, \quad
              P(Y_i > t) = P(r_i X_i > t) \prod_j P(X_j > t)

    Logarithms of errors are normal on each side of the prediction, as far as the end of the 90 %
    interval on that side tells. Errors of different software or GPUs are taken as independent, as
    `tied` takes them: j are the best of each other ``kin``. Those of the same kin are common and
    cancel: the best of plan i's own takes :math:`r_i \le 1` of what it takes. NaN where the errors
    of a plan are unknown, which is none of the others either.

    >>> two = [RankedPlan(1, 1 / 1.25, 1.25, kin=(name,)) for name in ("a", "b")]
    >>> regrets(two).round(3).tolist()
    [0.077, 0.077]
    """
    values, lows, highs = (
        np.array([getattr(standing, name) for standing in standings], dtype=np.float64)
        for name in ("value", "low", "high")
    )
    if sign < 0:
        values, lows, highs = 1 / values, 1 / highs, 1 / lows
    with np.errstate(invalid="ignore", divide="ignore"):
        logs = np.log(values)
        below = np.maximum(logs - np.log(np.minimum(lows, values)), _LEAST) / _SURE_END
        above = np.maximum(np.log(np.maximum(highs, values)) - logs, _LEAST) / _SURE_END
    known = np.flatnonzero(np.isfinite(logs + below + above))
    found = np.full(len(values), np.nan)
    if not known.size:
        return found
    logs, below, above = logs[known], below[known], above[known]
    at = np.linspace(min(logs - _FARTHEST * below), max(logs + _FARTHEST * above), _POINTS)

    def beyond(center: FloatArray) -> FloatArray:
        """The probabilities to take more, of shape (plans, points), around some medians."""
        away = at - center[:, None]
        return np.asarray(_cdf(-away / np.where(away < 0, below[:, None], above[:, None])))

    kin = [standings[place].kin for place in known.tolist()]
    best: dict[tuple[object, ...], int] = {}
    for place in np.argsort(logs, kind="stable").tolist():
        best.setdefault(kin[place], place)
    more, own = beyond(logs), beyond(logs[[best[name] for name in kin]])
    least = [np.prod(more[[p for n, p in best.items() if n != name]], axis=0) for name in kin]
    lost = more - own * np.array(least)
    found[known] = np.trapezoid(lost * np.exp(at - logs[:, None]), at, axis=1)
    return found
