"""One-sided quantiles between a prediction and the ends of its 90 % interval."""

from __future__ import annotations

import math
from statistics import NormalDist

from planner.confidence.intervals import LEVEL
from planner.errors import SearchSpaceError

MEDIAN = 0.5
"""The confidence of a prediction as it is."""

SUREST = (1 + LEVEL) / 2
"""The confidence of an end of an interval: beyond it published runs tell nothing."""

_DEVIATION = NormalDist()


def checked_confidence(given: float, said: str = "confidence") -> float:
    """A confidence that the intervals tell of.

    Raises
    ------
    SearchSpaceError
        It is none.
    """
    if not MEDIAN <= given <= SUREST:
        raise SearchSpaceError(
            f"{said} is from {MEDIAN:g} (the prediction) to {SUREST:g} (the end of the {LEVEL:.0%} "
            f"interval; published runs tell no more), or {MEDIAN:.0%} to {SUREST:.0%}, not "
            f"{given:g}."
        )
    return given


def quantile(ends: tuple[float, float], confidence: float, side: int) -> float | None:
    r"""The factor on a prediction that a share ``confidence`` of runs stays within.

    ``ends`` are those of the 90 % interval, as factors; ``side`` is 1 for the factor that runs
    stay below, -1 for the one that they stay above. None where that end is unknown.

    Logarithms of errors are taken as normal on each side of the prediction, which is the median,
    with the spread that the end on this side tells:

    .. math:: f(q) = f_{0.95}^{z(q) / z(0.95)}

    An end on the other side of the prediction counts as the prediction: to be surer never helps.

    >>> quantile((0.5, 2.0), 0.95, 1), quantile((0.5, 2.0), 0.5, -1)
    (2.0, 1.0)
    """
    if confidence == MEDIAN:
        return 1.0
    end = max(ends[1], 1.0) if side > 0 else min(ends[0], 1.0)
    if not 0 < end < math.inf:
        return None
    if confidence == SUREST:
        return end
    share = _DEVIATION.inv_cdf(confidence) / _DEVIATION.inv_cdf(SUREST)
    return float(end**share)


_NORMAL = NormalDist()


def chance_below(bound: float, predicted: float, ends: tuple[float, float]) -> float:
    r"""The share of runs that stay below a bound; ``ends`` are those of the 90 % interval.

    All are in the same unit. The inverse of `planner.confidence.quantiles.quantile`: errors are
    log-normal on each side of the prediction, their median, as far as the end on this side tells:

    .. math:: P = \Phi\left(z_{0.95} \frac{|\ln(bound / predicted)|}{\ln(end / predicted)}\right)

    An end on the other side of the prediction counts as the prediction. NaN where a number is
    unknown.

    >>> round(chance_below(2.0, 1.0, (0.5, 2.0)), 3), chance_below(1.0, 1.0, (0.5, 2.0))
    (0.95, 0.5)
    """
    if not all(math.isfinite(one) and one > 0 for one in (bound, predicted, *ends)):
        return math.nan
    side = 1 if bound >= predicted else -1
    away = side * math.log(bound / predicted)
    spread = side * math.log(ends[side > 0] / predicted)
    if spread <= 0:
        return 0.5 if away == 0 else float(side > 0)
    return _NORMAL.cdf(side * _NORMAL.inv_cdf(SUREST) * away / spread)
