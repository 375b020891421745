"""Autoscaling with GPU start-up time: GPU-hours paid before serving, and late requests."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TypeAlias

import numpy as np

from planner.base.arrays import FloatArray
from planner.base.csv_cells import Row, number_or_nan
from planner.base.records import record
from planner.base.units import GIB, HOUR, MINUTE
from planner.decide.sizing.load_profile import HOURS, LoadProfile
from planner.errors import SearchSpaceError
from planner.question.parse_values import format_input, parse_si

_INSTANT = 1e-9
SCALE_DOWN_DELAY = 5 * MINUTE
"""For how long an autoscaler keeps what was needed [s]: Kubernetes' default for scaling down [1]_.

.. [1] HorizontalPodAutoscaler, ``scaleDown.stabilizationWindowSeconds``: 300.
"""
MAX_LATE_SHARE = 0.01
"""The share of late requests up to which a spare is enough."""
SPARE_SHARES = (0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0)
"""Shares beyond what comes that are tried."""


@record(kw_only=True)
class Startup:
    """Start-up time from the request of a replica to its first request.

    ``provision`` until a machine is there [s], the weights of a replica at a ``bandwidth`` from
    disk or network [bytes/s], ``engine`` for compiling, CUDA graphs and warming up [s].
    """

    provision: float = 0.0
    bandwidth: float = math.inf
    engine: float = 0.0

    def seconds(self, row: Row) -> float:
        """Return the start-up time of a replica or worker of a plan [s]."""
        replicas = sum(
            number_or_nan(row.get(name) or 0) for name in ("replicas", "prefill_replicas")
        )
        gpus = number_or_nan(row["num_gpus"]) / max(replicas, 1.0)
        weights = number_or_nan(row.get("memory_weights_gib") or 0) * GIB * gpus
        return self.provision + weights / self.bandwidth + self.engine


AT_ONCE = Startup()
# Without a source: clouds answer within one to five minutes, node disks and object stores read
# one to five GB/s, engines compile and capture graphs in 20 to 60 s.
DEFAULT_STARTUP = Startup(provision=120.0, bandwidth=2e9, engine=40.0)
_PARTS = {"provision": "second", "weights": "byte/s", "engine": "second"}


def read_startup(startup: object, option_name: str = "startup_time") -> Startup:
    """Parse a start-up time, ``auto``, or its parts: ``provision=90s,weights=5GB/s,engine=30s``.

    A part that is not stated has its value in `DEFAULT_STARTUP`.

    Raises SearchSpaceError if it is none of these.
    """
    if isinstance(startup, Startup):
        return startup
    text = str(startup).strip()
    if text != "auto" and "=" not in text:
        return Startup(provision=parse_si(startup, "second", option_name))
    parts = {
        "provision": DEFAULT_STARTUP.provision,
        "weights": DEFAULT_STARTUP.bandwidth,
        "engine": DEFAULT_STARTUP.engine,
    }
    for part in text.split(",") if text != "auto" else ():
        name, _, value = (text_part.strip() for text_part in part.partition("="))
        if name not in _PARTS:
            raise SearchSpaceError(
                f"{option_name} is a time, auto, or parts of {', '.join(_PARTS)}, such as "
                f"provision=90s,weights=5GB/s,engine=30s, not {format_input(startup)}."
            )
        parts[name] = parse_si(value, _PARTS[name], f"{option_name} {name}")
    if min(parts.values()) < 0 or not parts["weights"]:
        raise SearchSpaceError(
            f"{option_name}: its parts are at least 0, weights more, not {format_input(startup)}."
        )
    return Startup(provision=parts["provision"], bandwidth=parts["weights"], engine=parts["engine"])


@record(kw_only=True)
class Backlog:
    """Late requests, and the largest queue."""

    late: float
    longest: float


@record(kw_only=True)
class ValueSpans:
    """Piecewise constant values over a load.

    Parameters
    ----------
    starts : start of each part [h]
    ends : end of each part [h]
    values : value of each part
    """

    starts: FloatArray
    ends: FloatArray
    values: FloatArray

    def map_indices_to_values(self, values: FloatArray) -> ValueSpans:
        """Return the spans with each value replaced by ``values`` at that index.

        Parameters
        ----------
        values : new values, indexed by the present values
        """
        each = values[self.values.astype(np.intp)]
        return ValueSpans(starts=self.starts, ends=self.ends, values=each)

    def split(self, places: Sequence[float]) -> ValueSpans:
        """Return the spans, cut additionally at the times ``places`` [h].

        Parameters
        ----------
        places : times at which parts are split [h]
        """
        bends = np.unique([*self.starts, *places])
        bends = bends[np.diff(bends, prepend=-math.inf) > _INSTANT]
        each = self.values[np.searchsorted(self.starts, bends + _INSTANT, side="right") - 1]
        return ValueSpans(starts=bends, ends=np.append(bends[1:], self.ends[-1]), values=each)

    def parts(self) -> Iterator[tuple[float, float, float]]:
        """Start [h], end [h] and value of each part."""
        yield from zip(*map(np.ndarray.tolist, (self.starts, self.ends, self.values)), strict=True)


@record(kw_only=True)
class ScaledFleet:
    """Result of an autoscaler that follows the load.

    Parameters
    ----------
    spare : capacity beyond the current load, as a share of the load
    gpu_hours : GPU-hours of a day, paid from the request for a GPU
    late : share of the day's requests that wait for GPUs to start
    longest : most requests that wait at once
    """

    spare: float
    gpu_hours: float
    late: float
    longest: float


Fleets: TypeAlias = Sequence[tuple[float, int, float]]
"""Rate [1/s], GPUs and capacity [1/s] of fleets, by rate; the last serves the peak."""


def autoscaled_counts(
    load: LoadProfile, fleets: Fleets, spare: float, startup_time: float
) -> tuple[ValueSpans, ValueSpans]:
    r"""Return the GPUs that an autoscaler requests over time, and the rate served by these [1/s].

    The autoscaler requests :math:`n(\max_{t - h \le u \le t} (1 + s) \lambda(u))` GPUs, at most
    those of the peak, with h = `SCALE_DOWN_DELAY` and s = ``spare``; they serve ``startup_time``
    seconds later (derived here).
    """
    starts = [period.start for period in load.periods]
    rates, last = [rate for rate, _, _ in fleets], len(fleets) - 1
    wanted = [
        min(bisect_left(rates, (1 + spare) * period.request_rate * (1 - 1e-12)), last)
        for period in load.periods
    ]
    held = min(SCALE_DOWN_DELAY / HOUR, load.hours / 2)
    requested = _max_in_window(starts, np.asarray(wanted, dtype=float), -held, load.hours)
    begins, wants = requested.starts.tolist(), requested.values.tolist()
    serving = rolling_minimum(begins, wants, startup_time / HOUR, load.hours)
    gpus = np.array([float(num_gpus) for _, num_gpus, _ in fleets])
    could = np.array([capacity for _, _, capacity in fleets])
    return requested.map_indices_to_values(gpus), serving.map_indices_to_values(could)


def size_autoscaled(
    load: LoadProfile, fleets: Fleets, spare: float, startup_time: float
) -> ScaledFleet:
    """Return the GPU-hours per day of an autoscaler, and how many requests wait for GPUs."""
    requested, served = autoscaled_counts(load, fleets, spare, startup_time)
    starts = [period.start for period in load.periods]
    queue = backlog_over_time(starts, [period.request_rate for period in load.periods], served)
    return ScaledFleet(
        spare=spare,
        gpu_hours=float(requested.values @ (requested.ends - requested.starts)) * load.repeats,
        late=queue.late * load.repeats / load.requests,
        longest=queue.longest,
    )


def rolling_maximum(
    starts: Sequence[float], values: Sequence[float], hours: float, total: float = HOURS
) -> ValueSpans:
    """Return at each time the largest value from then to ``hours`` later (derived here).

    GPUs that serve within ``hours`` must start now, and GPUs idle for less time keep running.

    >>> spans = rolling_maximum([0, 8], [2, 5], 1)
    >>> list(zip(spans.starts.tolist(), spans.values.tolist()))
    [(0.0, 2.0), (7.0, 5.0), (8.0, 5.0), (23.0, 5.0)]
    """
    return _max_in_window(starts, np.asarray(values, dtype=float), hours, total)


def rolling_minimum(
    starts: Sequence[float], values: Sequence[float], hours: float, total: float = HOURS
) -> ValueSpans:
    """Return at each time the smallest value in the ``hours`` before it (derived here).

    GPUs requested within these hours have not started yet.

    >>> spans = rolling_minimum([0, 8], [2, 5], 1)
    >>> list(zip(spans.starts.tolist(), spans.values.tolist()))
    [(0.0, 2.0), (1.0, 2.0), (8.0, 2.0), (9.0, 5.0)]
    """
    spans = _max_in_window(starts, -np.asarray(values, dtype=float), -hours, total)
    return ValueSpans(starts=spans.starts, ends=spans.ends, values=-spans.values)


def _max_in_window(
    starts: Sequence[float], values: FloatArray, window: float, total: float
) -> ValueSpans:
    """Return at each time the largest value within ``window`` hours after it, or before if < 0."""
    changes = np.concatenate([[True], values[1:] != values[:-1]])
    values, first = values[changes], np.asarray(starts, dtype=float)[changes].tolist()
    bends = sorted({0.0, total, *first, *((start - window) % total for start in first)})
    pairs = np.array([pair for pair in pairwise(bends) if pair[1] - pair[0] > _INSTANT])
    middle = pairs.mean(axis=1)[:, None]
    low, high = np.minimum(middle, middle + window), np.maximum(middle, middle + window)
    begins, ends = np.asarray(first), np.asarray([*first[1:], total])
    seen = np.zeros((len(pairs), len(begins)), dtype=bool)
    for shift in (-total, 0.0, total):
        seen |= (begins + shift <= high) & (ends + shift > low)
    largest = np.where(seen, values, -np.inf).max(axis=1)
    return ValueSpans(starts=pairs[:, 0], ends=pairs[:, 1], values=largest)


def backlog_over_time(
    starts: Sequence[float], rates: Sequence[float], served: ValueSpans
) -> Backlog:
    r"""Compute late and waiting requests at ``rates`` [1/s] from times ``starts`` [h] on.

    .. math:: \dot q = \lambda - \mu

    while requests wait or arrive faster than served (a fluid queue, derived here). Requests
    that arrive meanwhile are late. The load is run twice, so that the second run begins with the
    requests that wait at the end of the first.
    """
    total = float(served.ends[-1])
    bends = np.unique(np.concatenate([starts, served.starts, [total]]))
    bends = bends[np.concatenate([[True], np.diff(bends) > _INSTANT])]
    rate = np.asarray(rates)[np.searchsorted(np.asarray(starts), bends[:-1], side="right") - 1]
    could = served.values[np.searchsorted(served.starts, bends[:-1], side="right") - 1]
    each = [*zip(rate.tolist(), could.tolist(), (np.diff(bends) * HOUR).tolist(), strict=True)]
    late = longest = waiting = 0.0
    for _ in range(2):
        late = longest = 0.0
        for coming, capacity, time in each:
            excess = coming - capacity
            lasts = time if excess >= 0 else min(time, waiting / -excess)
            late += coming * lasts if excess > 0 or waiting else 0.0
            waiting = max(waiting + excess * time, 0.0)
            longest = max(longest, waiting)
    return Backlog(late=float(late), longest=float(longest))
