"""What a cache of prefixes keeps until it is used again."""

from __future__ import annotations

import numpy as np

from planner.base.arrays import FloatArray, IndexArray, Numeric


def earlier_uses(blocks: IndexArray) -> tuple[IndexArray, IndexArray]:
    """Where each block was used last before, -1 at its first use, and how often by then: a count,
    derived here.
    """
    order = np.argsort(blocks, kind="stable")
    again = np.zeros(blocks.size, dtype=bool)
    again[1:] = blocks[order[1:]] == blocks[order[:-1]]
    before = np.full(blocks.size, -1)
    before[order[1:][again[1:]]] = order[:-1][again[1:]]
    place = np.arange(blocks.size)
    number = np.empty(blocks.size, dtype=np.intp)
    number[order] = place - np.maximum.accumulate(np.where(again, 0, place))
    return before, number


def stack_distances(before: IndexArray) -> IndexArray:
    """Count distinct blocks used since each block's last use ``before`` (LRU distance) [1]_.

    Those used between the two: as many uses as lie between them, less those of a block that was
    used between them already. These are counted by merging halves that are sorted. 0 at the first
    use of a block.

    References
    ----------
    .. [1] R. Mattson et al., "Evaluation techniques for storage hierarchies," 1970, IBM Systems
       Journal 9(2).
    """
    number = before.size
    size = 1 << max(number - 1, 1).bit_length()
    values, places = np.full(size, -1), np.arange(size)
    values[:number] = before
    later = np.zeros(size, dtype=np.intp)
    width = 1
    while width < size:
        rows, owners = values.reshape(-1, 2 * width), places.reshape(-1, 2 * width)
        order = np.argsort(rows, axis=1, kind="stable")
        is_left = order < width
        above = width - np.cumsum(is_left, axis=1)
        owners = np.take_along_axis(owners, order, axis=1)
        later[owners[~is_left]] += above[~is_left]
        values, places = np.take_along_axis(rows, order, axis=1).ravel(), owners.ravel()
        width *= 2
    between = np.arange(number) - before - later[:number]
    return np.asarray(np.where(before < 0, 0, between))


def share_of_gaps_within(time: Numeric, *, mean: float, variation: float) -> FloatArray:
    r"""Return the share of lognormal gaps that are at most ``time``; 1 without a mean gap.

    .. math:: \Phi\left(\frac{\ln(t/m)}{\sigma} + \frac{\sigma}{2}\right), \quad
       \sigma^2 = \ln(1 + c^2)

    Derived here from the ``mean`` m and the ``variation`` c.
    """
    if mean <= 0:
        return np.ones_like(np.asarray(time, dtype=np.float64))
    spread = np.sqrt(np.log1p(max(variation, 1e-3) ** 2))
    place = np.log(np.asarray(time, dtype=np.float64) / mean) / spread + spread / 2
    return normal_upper_tail(-place)


def cache_filled(times: FloatArray, hits: FloatArray, prompt: float, written: float) -> FloatArray:
    r"""Return the tokens that a prefix cache stores if tokens stay for each of ``times``.

    .. math:: C(T) = \int_0^T (w - p\,h(t))\,dt

    A request leaves ``written`` tokens, each until it is used again or for T: by Little's law the
    cache of the characteristic time T has that size [1]_. ``hits``: the share of the ``prompt``
    that was used at most so long ago.

    References
    ----------
    .. [1] H. Che, Y. Tung and Z. Wang, "Hierarchical Web caching systems: modeling, design and
       experimental results," 2002, IEEE Journal on Selected Areas in Communications 20(7).
    """
    left = written - prompt * hits
    inner = np.cumsum(np.diff(times) * (left[1:] + left[:-1]) / 2)
    return np.asarray(times[0] * left[0] + np.concatenate([[0.0], inner]))


def random_routing_hit_probability(uses: IndexArray, caches: float) -> FloatArray:
    r"""Return the probability that a randomly chosen cache of ``caches`` has a block.

    .. math:: 1 - (1 - 1/R)^k

    Derived here: one that was ``uses`` k times in any of the R ``caches``.
    """
    return np.asarray(1 - (1 - 1 / caches) ** np.asarray(uses, dtype=np.float64))


def normal_upper_tail(score: FloatArray) -> FloatArray:
    r"""Return the probability that a normal variable exceeds ``score``, within 1e-7 [1]_.

    .. math:: 1 - \Phi(x)

    References
    ----------
    .. [1] M. Abramowitz and I. Stegun, "Handbook of mathematical functions," 1964, formula 26.2.17.
    """
    t = 1 / (1 + 0.2316419 * np.abs(score))
    series = np.polyval([1.330274429, -1.821255978, 1.781477937, -0.356563782, 0.319381530, 0.0], t)
    tail = np.exp(-np.square(score) / 2) / np.sqrt(2 * np.pi) * series
    return np.asarray(np.where(score >= 0, tail, 1 - tail))
