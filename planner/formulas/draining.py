"""Benchmarks with clients that all start at once: queueing delay, waves, and draining."""

from __future__ import annotations

import math

import numpy as np

from planner.base.arrays import FloatArray, Numeric
from planner.formulas.queueing import mean_residual, normal_tail

# The mean of the largest of N draws is near the quantile of 1 - 0.56 / N [Gumbel: e to the -gamma].
_ABOVE_LARGEST = math.exp(-0.5772156649)
_LEAST_SPREAD = 1e-3


def client_burst_wait(
    *, number: Numeric, clients: Numeric, places: Numeric, rate: Numeric, delay: Numeric
) -> FloatArray:
    r"""Return mean seconds that N requests of C simultaneous clients wait for one of R slots.

    .. math:: \frac{C - R}{\mu} \left(1 - \frac{C + R}{2 N}\right) + d \frac{C - R}{N}

    The first R have a slot. The i-th of the C that start together waits
    :math:`d + (i - R) / \mu`, each later one for the line that it finds. Derived here, of a fluid.
    """
    longest = np.maximum(np.asarray(clients) - places, 0.0) / rate
    later, before = _shares(number, clients, places)
    return np.asarray(later * longest + before * (delay + longest / 2))


def client_burst_wait_quantile(
    *,
    share: float,
    number: Numeric,
    clients: Numeric,
    places: Numeric,
    rate: Numeric,
    delay: Numeric,
) -> FloatArray:
    r"""Return the ``share`` quantile of the waits of `client_burst_wait` [s].

    .. math:: W_q = \begin{cases}
        0 & x \le 0 \\
        d + x L & d + x L \le L \\
        \max(L, d + (x - l / b) L) & \text{else}
        \end{cases}

    L is the longest wait, l the share of later requests, b the share of requests that start
    together without a slot, x = (q - 1 + l + b) / b. Derived here.
    """
    longest = np.maximum(np.asarray(clients) - places, 0.0) / rate
    later, before = _shares(number, clients, places)
    with np.errstate(divide="ignore", invalid="ignore"):
        order = (share - (1 - later - before)) / before
        ramp = delay + order * longest
        after = np.maximum(delay + (order - later / before) * longest, longest)
        wait = np.where(order > 0, np.where(ramp <= longest, ramp, after), 0.0)
    return np.asarray(np.where(before > 0, wait, longest * (later > 0)))


def client_burst_wait_variance(
    *, number: Numeric, clients: Numeric, places: Numeric, rate: Numeric, delay: Numeric
) -> FloatArray:
    r"""Return the variance of the waits of `client_burst_wait` [s^2].

    .. math:: l L^2 + b (d^2 + d L + L^2 / 3) - (l L + b (d + L / 2))^2

    L, l and b as in `client_burst_wait_quantile`. Derived here.
    """
    longest = np.maximum(np.asarray(clients) - places, 0.0) / rate
    later, before = _shares(number, clients, places)
    square = later * longest**2 + before * (delay**2 + delay * longest + longest**2 / 3)
    mean = later * longest + before * (delay + longest / 2)
    return np.asarray(np.maximum(square - mean**2, 0.0))


def _shares(number: Numeric, clients: Numeric, places: Numeric) -> tuple[FloatArray, FloatArray]:
    """Shares of the requests that come later, and that start together without a slot."""
    later = 1 - np.asarray(clients) / np.asarray(number)
    return later, np.maximum(np.asarray(clients) - places, 0.0) / np.asarray(number)


def mean_overlap_share(variation: float) -> float:
    r"""Return the mean share of simultaneously started answers that run during an answer.

    .. math:: \frac{E[\min(L_1, L_2)]}{E[L]} = 2 \Phi\left(-\frac{\sigma}{\sqrt 2}\right)

    Weighted by tokens; lengths are lognormal, :math:`\sigma^2 = \ln(1 + c^2)` of their
    ``variation`` c: 1 where they are equal, 0.56 of c = 1. Derived here.
    """
    return math.erfc(math.sqrt(math.log1p(variation**2)) / 2)


def synchronized_share(*, waves: Numeric, still_together: Numeric) -> FloatArray:
    r"""Return the share of requests that start together with all of their wave, over W waves.

    .. math:: \frac{1 - \rho^W}{W (1 - \rho)}

    A share rho is ``still_together`` in the wave after. Derived here.
    """
    return np.asarray(1 / waves * (1 - still_together**waves) / (1 - still_together))


def wave_quantization_ratio(*, waves: Numeric, full: Numeric, last: Numeric) -> FloatArray:
    r"""Return the rate of W waves until the last answer, relative to endless waves.

    .. math:: \frac{W t}{\lfloor W \rfloor t + t_r}

    ``full`` waves take t, the ``last`` one with the rest t_r. Derived here.
    """
    return np.asarray(waves * full / (np.floor(waves) * full + last))


def drain_steps(*, waves: Numeric, running: Numeric, variation: float) -> FloatArray:
    r"""Return steps to finish the last answers after W waves, in units of a mean answer's steps.

    .. math:: (E_R - r) (1 - 1 / R)

    When the last request has its slot, the R that run have r mean answers left, and the longest of
    them :math:`E_R`: gamma lengths of one wave, else their residuals at a random time. The largest
    of R is near the quantile of 1 - 0.56 / R. A share of lengths above x [1]_, k = 1 / c^2, and the
    share of residuals:

    .. math:: P = \Phi\left(-3 \sqrt k \left(x^{1/3} - 1 + \frac{1}{9 k}\right)\right),
        \quad \int_x^\infty P dx

    The longest answer of 10 public traces of 4,000 to 2 billion is 0.9 times that of gamma
    lengths, and 0.3 times that of lognormal ones (medians).

    References
    ----------
    .. [1] E. Wilson and M. Hilferty, "The distribution of chi-square," PNAS 17, 1931.
    """
    c = max(variation, _LEAST_SPREAD)
    spread = math.sqrt(math.log1p(c**2))
    x = np.concatenate([np.linspace(0.0, 1.0, 101), np.exp(np.linspace(1e-6, 9 * spread, 300))])
    above = normal_tail(3 / c * (np.cbrt(x) - 1 + c**2 / 9))
    parts = np.diff(x) * (above[1:] + above[:-1]) / 2
    longer = np.append(np.cumsum(parts[::-1])[::-1], 0.0)
    share = _ABOVE_LARGEST / np.maximum(np.asarray(running, dtype=np.float64), 1.0)

    def largest(shares: FloatArray) -> FloatArray:
        return np.asarray(np.interp(-np.log(share), -np.log(np.maximum(shares, 1e-300)), x))

    later = np.clip(1 - 1 / np.asarray(waves), 0.0, 1.0)
    fresh = largest(above) - 1
    left = largest(longer) - mean_residual(mean=1.0, variation=variation)
    others = np.maximum(1 - 1 / np.maximum(running, 1.0), 0.0)
    return np.asarray(np.maximum((1 - later) * fresh + later * left, 0.0) * others)


def longest_answer_ratio(variation: Numeric) -> FloatArray:
    r"""Return the length of the longest answer over the mean length.

    .. math:: 1 + \sqrt{3} c

    Lengths are taken as even between two bounds, c is their ``variation``. Derived here.
    """
    return np.asarray(1 + np.sqrt(3) * np.asarray(variation))
