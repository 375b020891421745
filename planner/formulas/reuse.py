"""What a cache of prefixes keeps until it is used again."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np

from planner.base.arrays import FloatArray, IndexArray, Numeric


def earlier_uses(blocks: IndexArray) -> tuple[IndexArray, IndexArray]:
    """Where each block was used last before, -1 at its first use, and how often by then."""
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
    """Blocks that a cache must hold to find each again that was used last at ``before`` [1]_.

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


def share_within(time: Numeric, *, mean: float, variation: float) -> FloatArray:
    """Share of gaps that are at most a ``time``, of a lognormal distribution; all of none."""
    if mean <= 0:
        return np.ones_like(np.asarray(time, dtype=np.float64))
    spread = np.sqrt(np.log1p(max(variation, 1e-3) ** 2))
    place = np.log(np.asarray(time, dtype=np.float64) / mean) / spread + spread / 2
    return np.asarray(np.vectorize(NormalDist().cdf, otypes=[np.float64])(place))


def cache_filled(times: FloatArray, hits: FloatArray, prompt: float, written: float) -> FloatArray:
    r"""Tokens that a cache holds for each of the ``times``, of one request per unit of time.

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


def scattered(uses: IndexArray, caches: float) -> FloatArray:
    """The chance that the one of so many caches to which a request goes at random has a block.

    One that was ``uses`` times in any of them: :math:`1 - (1 - 1/R)^k`.
    """
    return np.asarray(1 - (1 - 1 / caches) ** np.asarray(uses, dtype=np.float64))
