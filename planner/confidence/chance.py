"""How likely what was predicted is, by the published runs behind its interval."""

from __future__ import annotations

import math
from statistics import NormalDist

from planner.confidence.quantiles import SUREST

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
