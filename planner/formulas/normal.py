"""The normal distribution."""

from __future__ import annotations

import numpy as np

from planner.base.arrays import FloatArray, Numeric

# From the highest power of t to the constant.
_SERIES = (
    0.17087277, -0.82215223, 1.48851587, -1.13520398, 0.27886807, -0.18628806, 0.09678418,
    0.37409196, 1.00002368, -1.26551223,
)  # fmt: skip


def normal_upper_tail(score: Numeric) -> FloatArray:
    r"""Return the probability that a standard normal variable exceeds ``score`` [1]_.

    .. math:: Q(x) = \frac{t}{2} e^{-x^2 / 2 + P(t)}, \quad t = \frac{1}{1 + x / \sqrt{8}}

    for x >= 0, and Q(-x) = 1 - Q(x). P is a polynomial. The relative error of Q(x) is below 1.2e-7.

    References
    ----------
    .. [1] W. Press et al., "Numerical recipes in C," 2nd ed., 1992, section 6.2: erfcc.
    """
    x = np.asarray(score, dtype=np.float64)
    t = 1 / (1 + np.abs(x) / np.sqrt(8))
    exponent = np.full_like(t, _SERIES[0])
    for coefficient in _SERIES[1:]:
        exponent *= t
        exponent += coefficient
    exponent -= 0.5 * x * x
    tail = 0.5 * t * np.exp(exponent)
    return np.asarray(np.where(x < 0, 1 - tail, tail))
