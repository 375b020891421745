"""Generation of a batch of answers: the longest of them, its tail, and the steady rate."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np

from planner.base.arrays import FloatArray, Numeric

_BISECTIONS = 60
_POINTS = 96
# Answers of a step are some thousands: the longest of them is within 1e-8 of the end.
_TAIL = -8.0
_NORMAL = NormalDist()


def answer_lengths(*, mean: float, variation: float, cap: float) -> tuple[FloatArray, FloatArray]:
    r"""Return answer lengths [tokens], ascending, and the share of longer answers for each.

    Lognormal ones that are cut off at a ``cap``: :math:`X = \min(e^{\mu + \sigma Z}, c)`,
    :math:`\sigma^2 = \ln(1 + v^2)`, with the :math:`\mu` with which the ``mean`` of what is cut
    off is as given [1]_,

    .. math:: E[X] = e^{\mu + \sigma^2/2} \Phi(z - \sigma) + c (1 - \Phi(z)),
        \quad z = (\ln c - \mu) / \sigma

    The points lie closer where fewer answers are longer.

    Parameters
    ----------
    mean, cap : float
        Tokens of an answer, and those at which it is cut off.
    variation : float
        Standard deviation over mean of answers that nothing cuts off.

    References
    ----------
    .. [1] S. Klugman, H. Panjer and G. Willmot, "Loss Models," 4th ed., Wiley, 2012, section 8.5
       and appendix A: limited expected value of the lognormal distribution.
    """
    sigma = max(float(np.sqrt(np.log1p(variation**2))), 1e-9)
    low, high = np.log(mean) - sigma**2 / 2, np.log(mean) + 8 * sigma + 8
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        is_short = _limited_mean(middle, sigma, cap) < mean
        low, high = (middle, high) if is_short else (low, middle)
    tail = np.logspace(-1, _TAIL, _POINTS)
    longer = np.concatenate([[1 - 1e-9], np.linspace(1, tail[0], _POINTS)[1:-1], tail])
    scores = np.array([_NORMAL.inv_cdf(float(1 - each)) for each in longer])
    lengths = np.minimum(np.exp((low + high) / 2 + sigma * scores), cap)
    return np.concatenate([[0.0], lengths, lengths[-1:]]), np.concatenate([[1.0], longer, [0.0]])


def _limited_mean(mu: float, sigma: float, cap: float) -> float:
    z = (np.log(cap) - mu) / sigma
    mean_below_cap = float(np.exp(mu + sigma**2 / 2)) * _NORMAL.cdf(z - sigma)
    return mean_below_cap + cap * (1 - _NORMAL.cdf(z))


def residual_lengths(*, lengths: FloatArray, longer: FloatArray) -> FloatArray:
    r"""Return the probability that more than each length remains of an answer in progress.

    .. math:: 1 - F_e(x) = \frac{1}{m} \int_x^\infty (1 - F(u)) du

    The residual life of a renewal process [1]_.

    References
    ----------
    .. [1] H. Tijms, "A First Course in Stochastic Models," Wiley, 2003, section 2.1.
    """
    pieces = np.diff(lengths) * (longer[1:] + longer[:-1]) / 2
    left = np.concatenate([np.cumsum(pieces[::-1])[::-1], [0.0]])
    return np.asarray(left / left[0])


def _any_longer(*, longer: FloatArray, number: Numeric) -> FloatArray:
    """Probability that one of a ``number`` of answers is longer, 1 - F^n, along a new last axis."""
    n = np.asarray(number, dtype=np.float64)[..., None]
    with np.errstate(divide="ignore"):
        return np.asarray(-np.expm1(n * np.log1p(-np.minimum(longer, 1.0))))


def expected_longest(*, lengths: FloatArray, longer: FloatArray, number: Numeric) -> FloatArray:
    r"""Return the mean length of the longest of ``number`` answers [tokens].

    .. math:: E[\max] = \int_0^\infty 1 - F(x)^n dx

    As of any order statistic [1]_.

    References
    ----------
    .. [1] H. David and H. Nagaraja, "Order Statistics," 3rd ed., Wiley, 2003, section 3.1.
    """
    return _integral(lengths, _any_longer(longer=longer, number=number))


def tail_time(
    *,
    lengths: FloatArray,
    longer: FloatArray,
    sequences: Numeric,
    replicas: Numeric,
    sizes: FloatArray,
    times: FloatArray,
) -> FloatArray:
    r"""Return seconds until all ``sequences`` that decode on each replica are done.

    .. math:: \int_0^\infty t(\max(B S(x), 1)) (1 - F(x)^{B R}) dx

    S is the share that is ``longer``: step x decodes :math:`B S(x)` of B sequences, and takes place
    as long as one of all R replicas is not done. t goes straight between steps of ``sizes`` [k]
    that take ``times`` [k, ...] seconds. Derived here.
    """
    b = np.asarray(sequences, dtype=np.float64)[..., None]
    decoding = np.maximum(b * longer, 1.0)
    seconds = _interpolated_times(
        sizes=sizes[..., None], times=times[..., None], target_sizes=decoding
    )
    alive = _any_longer(longer=longer, number=np.asarray(sequences) * replicas)
    return _integral(lengths, seconds * alive)


def _interpolated_times(
    *, sizes: FloatArray, times: FloatArray, target_sizes: FloatArray
) -> FloatArray:
    """Interpolate ``times`` at ``target_sizes`` linearly along the first axis; extrapolates."""
    interpolated = times[0] + 0.0 * target_sizes
    for lower, upper in zip(range(len(sizes) - 1), range(1, len(sizes)), strict=True):
        width = np.maximum(sizes[upper] - sizes[lower], 1e-9)
        slope = np.where(sizes[upper] > sizes[lower], (times[upper] - times[lower]) / width, 0.0)
        inside = target_sizes - sizes[lower]
        if upper + 1 < len(sizes):
            inside = np.minimum(inside, sizes[upper] - sizes[lower])
        interpolated = interpolated + slope * np.maximum(inside, 0.0)
    return np.asarray(interpolated)


def full_batch_steps(*, sequences: Numeric, slots: Numeric, mean: Numeric) -> FloatArray:
    r"""Return decode steps during which all slots of a replica are busy.

    .. math:: \frac{(N - C)^+ m}{C}

    N answers of mean length m through C slots, list scheduling [1]_ up to its last answers.

    References
    ----------
    .. [1] R. Graham, "Bounds on multiprocessing timing anomalies," 1969, SIAM Journal on Applied
       Mathematics 17(2).
    """
    waiting = np.maximum(np.asarray(sequences) - slots, 0.0)
    return np.asarray(waiting * mean / slots)


def steady_time(
    *, sequences: Numeric, slots: Numeric, mean: Numeric, step: Numeric, prompt: Numeric
) -> FloatArray:
    r"""Return seconds in which a replica with all C slots busy answers N prompts.

    .. math:: \frac{N}{X}, \quad X = \frac{C}{C q + m t}

    An answer takes m steps of t seconds, interrupted by C prompts of q seconds: Little's law [1]_.

    References
    ----------
    .. [1] J. Little, "A proof for the queuing formula L = lambda W," 1961, Operations Research
       9(3).
    """
    return np.asarray(sequences * (prompt + mean * np.asarray(step) / slots))


def weight_sync_time(*, num_bytes: Numeric, start: Numeric, rate: Numeric) -> FloatArray:
    r"""Return seconds to send new weights from trainer to generators; ``start``: latency.

    .. math:: t_0 + b / r

    Derived here from the published transfers of `planner.specs.training_workload`.
    """
    return np.asarray(start + np.asarray(num_bytes) / rate)


def balanced_training_share(
    *, generating: Numeric, training: Numeric, share: Numeric
) -> FloatArray:
    r"""Return the training share of GPUs with equally long generation and training.

    .. math:: \frac{t_u s}{t_u s + t_g (1 - s)}

    The work of each side, its seconds times its GPUs, stays the same. Derived here.
    """
    update = np.asarray(training) * share
    return np.asarray(update / (update + np.asarray(generating) * (1 - np.asarray(share))))


def _integral(lengths: FloatArray, values: FloatArray) -> FloatArray:
    """Of values at lengths, along the last axis, as straight lines between them."""
    return np.asarray(np.sum(np.diff(lengths) * (values[..., 1:] + values[..., :-1]) / 2, axis=-1))
