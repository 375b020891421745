"""GPUs that take time to start: what is paid before they serve, what waits where they are late."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from planner.base.arrays import FloatArray
from planner.base.records import record
from planner.base.units import HOUR

HOURS = 24.0
"""Hours of a day, which begins again where it ends."""

_INSTANT = 1e-9


@record(kw_only=True)
class Queue:
    """Requests of a day that find others waiting, and the most that wait at once."""

    late: float
    longest: float


@record(kw_only=True)
class Spans:
    """Parts of a day from ``starts`` to ``ends`` [h] with a value each."""

    starts: FloatArray
    ends: FloatArray
    values: FloatArray


def most_ahead(starts: Sequence[float], values: Sequence[float], hours: float) -> Spans:
    """The most of a value in each moment and the ``hours`` behind it (derived here).

    What serves then must start now; and what rests for less than that is kept.

    >>> spans = most_ahead([0, 8], [2, 5], 1)
    >>> list(zip(spans.starts.tolist(), spans.values.tolist()))
    [(0.0, 2.0), (7.0, 5.0), (8.0, 5.0), (23.0, 5.0)]
    """
    return _within(starts, np.asarray(values, dtype=float), hours)


def least_before(starts: Sequence[float], values: Sequence[float], hours: float) -> Spans:
    """The least of a value in each moment and the ``hours`` before it (derived here).

    What was asked for since then has not started.

    >>> spans = least_before([0, 8], [2, 5], 1)
    >>> list(zip(spans.starts.tolist(), spans.values.tolist()))
    [(0.0, 2.0), (1.0, 2.0), (8.0, 2.0), (9.0, 5.0)]
    """
    spans = _within(starts, -np.asarray(values, dtype=float), -hours)
    return Spans(starts=spans.starts, ends=spans.ends, values=-spans.values)


def _within(starts: Sequence[float], values: FloatArray, window: float) -> Spans:
    """The most of the values in a window that begins, or ends, in each moment of a day."""
    bends = sorted({0.0, HOURS, *starts, *((start - window) % HOURS for start in starts)})
    pairs = np.array([pair for pair in pairwise(bends) if pair[1] - pair[0] > _INSTANT])
    middle = pairs.mean(axis=1)[:, None]
    low, high = np.minimum(middle, middle + window), np.maximum(middle, middle + window)
    begins, ends = np.asarray(starts, dtype=float), np.asarray([*starts[1:], HOURS])
    seen = np.zeros((len(pairs), len(begins)), dtype=bool)
    for day in (-HOURS, 0.0, HOURS):
        seen |= (begins + day <= high) & (ends + day > low)
    most = np.where(seen, values, -np.inf).max(axis=1)
    return Spans(starts=pairs[:, 0], ends=pairs[:, 1], values=most)


def queue_of(
    starts: Sequence[float], rates: Sequence[float], capacities: Sequence[float], hours: float
) -> Queue:
    r"""What waits where GPUs are asked for when the load rises and serve ``hours`` later.

    .. math:: \dot q = \lambda - \mu

    while something waits or more comes than is served (a fluid queue, derived here). Requests are
    late that come meanwhile. The day is gone through twice: it begins with what the one before
    left.
    """
    spans = least_before(starts, capacities, hours)
    places = np.searchsorted(np.asarray(starts), spans.starts, side="right") - 1
    rate, seconds = np.asarray(rates)[places], (spans.ends - spans.starts) * HOUR
    late = longest = waiting = 0.0
    for _ in range(2):
        late = longest = 0.0
        for coming, served, time in zip(rate, spans.values, seconds, strict=True):
            excess = coming - served
            lasts = time if excess >= 0 else min(time, waiting / -excess)
            late += coming * lasts if excess > 0 or waiting else 0.0
            waiting = max(waiting + excess * time, 0.0)
            longest = max(longest, waiting)
    return Queue(late=float(late), longest=float(longest))
