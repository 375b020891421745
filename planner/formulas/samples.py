"""Samples of a training set whose lengths differ: what a micro-batch of them is computed with.

Lengths are lognormal with mean m and standard deviation d, and cut off at L tokens.
"""

from __future__ import annotations

import math

import numpy as np

from planner.base.arrays import FloatArray, Numeric

_POINTS = 2049


def longest_sample(
    *, samples: Numeric, mean: float, deviation: float, longest: float
) -> FloatArray:
    r"""Expected tokens of the longest of n samples; of one, the mean of what is cut off.

    .. math:: \int_0^L 1 - F(x)^n\, dx

    F is the distribution of the lengths before they are cut off [1]_.

    References
    ----------
    .. [1] H. A. David and H. N. Nagaraja, "Order Statistics," 2003, section 3.1: the mean of a
       maximum that is not negative.
    """
    x, below = _distribution(mean, deviation, longest)
    n = np.asarray(samples, dtype=np.float64)
    return np.asarray(np.trapezoid(1.0 - below ** n[..., None], x, axis=-1))


def mean_square_length(*, mean: float, deviation: float, longest: float) -> float:
    r"""Mean of the squared tokens of a sample that is cut off.

    .. math:: \int_0^L 2 x (1 - F(x))\, dx
    """
    x, below = _distribution(mean, deviation, longest)
    return float(np.trapezoid(2.0 * x * (1.0 - below), x))


def _distribution(mean: float, deviation: float, longest: float) -> tuple[FloatArray, FloatArray]:
    """Lengths up to the longest, and the share of samples that are shorter."""
    x = np.linspace(0.0, longest, _POINTS)
    if deviation <= 0:
        return x, np.where(x >= mean, 1.0, 0.0)
    variance = math.log1p((deviation / mean) ** 2)
    centre, width = math.log(mean) - variance / 2, math.sqrt(2 * variance)
    logs = (np.log(np.maximum(x, 1e-12)) - centre) / width
    return x, 0.5 * (1.0 + np.array([math.erf(value) for value in logs]))
