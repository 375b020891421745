"""How likely what was predicted is, by the published runs behind its interval."""

from __future__ import annotations

import math
from statistics import NormalDist

from planner.confidence.intervals import LEVEL

_NORMAL = NormalDist()
# From the median of a normal distribution to either end of the interval.
_DEVIATIONS = _NORMAL.inv_cdf((1 + LEVEL) / 2)


def chance_below(bound: float, low: float, high: float) -> float:
    """The share of runs that stay below a bound, from the ends of the 90 % interval.

    Between and beyond its ends the quantity is taken as log-normal: 5 % of runs are below
    ``low``, 5 % above ``high``. All three are in the same unit. NaN where an end is unknown.

    >>> round(chance_below(2.0, 1.0, 2.0), 3)
    0.95
    """
    ends = (bound, low, high)
    if not all(math.isfinite(end) and end > 0 for end in ends) or high < low:
        return math.nan
    if high == low:
        return float(bound >= low)
    middle = (math.log(low) + math.log(high)) / 2
    spread = (math.log(high) - math.log(low)) / (2 * _DEVIATIONS)
    return _NORMAL.cdf((math.log(bound) - middle) / spread)
