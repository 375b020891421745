"""The load of a day, and autoscaling with GPU start-up time: GPU-hours and late requests."""

from __future__ import annotations

import math
import os
import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TypeAlias

import numpy as np

from planner.base.arrays import FloatArray
from planner.base.csv_cells import Row, number_or_nan
from planner.base.records import record
from planner.base.units import GIB, HOUR, MINUTE
from planner.errors import SearchSpaceError, SpecError
from planner.question.parse_values import format_input, parse_si
from planner.question.request import Request
from planner.specs.arrivals import LOADS
from planner.specs.spec_files import Column, optional, read_records
from planner.specs.spec_files import Row as FileRow
from planner.specs.spec_files import number as cell_number
from planner.specs.spec_paths import load_file
from planner.workloads.build_request import OptionNamer
from planner.workloads.serving.traffic import measured_arrivals, trace_of

HOURS = 24.0
"""Hours of a day, which begins again where it ends."""

_MOST_PERIODS = 24 * 60
_FEWEST_PERIODS = 3
# Where the variation of a trace's gaps is taken from: a usual utilization.
_USUAL_LOAD = 0.7
_MOST_VARIED = 100.0
_TIME = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)")


@record(kw_only=True)
class LoadPeriod:
    """A part of the day with constant request rate.

    Parameters
    ----------
    start : start after midnight [h]
    hours : duration [h]
    request_rate : request rate [1/s]
    """

    start: float
    hours: float
    request_rate: float

    @property
    def clock(self) -> str:
        """Return the start of the period as ``HH:MM``.

        >>> LoadPeriod(start=6.5, hours=1, request_rate=0).clock
        '06:30'
        """
        minutes = round(60 * self.start)
        return f"{minutes // 60:02d}:{minutes % 60:02d}"


@record(kw_only=True)
class LoadProfile:
    """Request rate over a day, or over a time that repeats.

    Parameters
    ----------
    name : name of the load
    periods : periods in order
    source : origin of the load, if it is not a file of a load
    """

    name: str
    periods: tuple[LoadPeriod, ...]
    source: str = ""

    @property
    def peak(self) -> float:
        """The greatest request rate [1/s]."""
        return max(period.request_rate for period in self.periods)

    @property
    def hours(self) -> float:
        """Duration of the load, after which it repeats [h]."""
        return self.periods[-1].start + self.periods[-1].hours

    @property
    def repeats(self) -> float:
        """Repetitions of the load in a day."""
        return HOURS / self.hours

    @property
    def mean(self) -> float:
        """Mean request rate [1/s]."""
        return self.requests / HOUR / HOURS

    @property
    def requests(self) -> float:
        """Requests of a day."""
        each = (HOUR * period.hours * period.request_rate for period in self.periods)
        return self.repeats * sum(each)


def read_load(path: Path) -> LoadProfile:
    """Read a load from a CSV file with ``request_rate`` [1/s] and ``hour`` or ``time`` (HH:MM).

    A row with ``time`` applies until the next row, the last until midnight. ``day.csv`` is a
    built-in file, unless the working directory has a file of this name.

    Raises SpecError if it cannot be read, or has faults: one line for each.
    """
    path = load_file(path)
    rows = read_records(path, _TABLE, _start, once=("hour", "time"))
    if fault := _table_error(rows):
        raise SpecError(f"{path}: {fault}.")
    rates = {start: rate for _, start, rate in rows}
    ordered = sorted(rates)
    return LoadProfile(
        name=path.name,
        periods=tuple(
            LoadPeriod(start=start, hours=end - start, request_rate=rates[start])
            for start, end in zip(ordered, [*ordered[1:], HOURS], strict=True)
        ),
    )


def _start(row: FileRow) -> tuple[bool, float, float]:
    """Return True if the row has ``hour``, its start [h] and its rate [requests/s]."""
    hour, time = row["hour"], row["time"]
    if (hour is None) == (time is None):
        raise ValueError("give one column of hour or time")
    return time is None, time if hour is None else hour, row["request_rate"]


def _table_error(rows: Sequence[tuple[bool, float, float]]) -> str:
    """Return what is wrong with the rows together; empty: no error."""
    starts = {start for _, start, _ in rows}
    if len({is_hourly for is_hourly, _, _ in rows}) != 1:
        return "give one column of hour or time" if rows else "has no rows"
    missing = [str(hour) for hour in range(int(HOURS)) if hour not in starts]
    if rows[0][0] and missing:
        return f"hour {', '.join(missing)} is missing"
    if 0.0 not in starts:
        return "the first time is 00:00"
    return "" if any(rate for _, _, rate in rows) else "there are no requests at any time"


def _parse_hour(text: str, _: str) -> float:
    if not text.isascii() or not text.isdigit() or int(text) >= HOURS:
        raise ValueError(f"hour {text!r} is not a whole number from 0 to 23")
    return float(text)


def _parse_time(text: str, _: str) -> float:
    match = _TIME.fullmatch(text)
    if match is None:
        raise ValueError(f"time {text!r} is not HH:MM")
    return int(match[1]) + int(match[2]) / 60


_TABLE = (
    Column("hour", optional(_parse_hour)),
    Column("time", optional(_parse_time)),
    Column("request_rate", cell_number, needed=True),
)


def traced_load(request: Request, option_name: OptionNamer = str) -> tuple[LoadProfile, Request]:
    """Return the rates of a trace minute by minute as a load, and the request without trace.

    For traces of over a day, periods are longer than a minute. ``request_rate`` of the request is
    the mean rate. Bursts within a period become ``arrival_variation``.

    Raises SpecError if the trace cannot be read; SearchSpaceError if it is shorter than three
    minutes.
    """
    trace = trace_of(Path(str(request.trace)), request.prompt_range)
    number = min(int(trace.seconds / MINUTE), _MOST_PERIODS)
    if number < _FEWEST_PERIODS:
        raise SearchSpaceError(
            f"{option_name('trace')}: {trace.name} lasts {trace.seconds:.0f} s: a load by the "
            f"minute takes {_FEWEST_PERIODS} or more."
        )
    edges = np.linspace(0.0, trace.seconds, number + 1)
    counts, _ = np.histogram(trace.times, edges)
    scale = (request.request_rate or 0.0) / trace.times.size * number
    width = trace.seconds / number / HOUR
    ranks = np.concatenate([[0.0], np.cumsum(counts)]) / trace.times.size * trace.seconds
    steady = np.interp(trace.times, edges, ranks)
    bursts = measured_arrivals(steady, trace.input_tokens, trace.output_tokens).bursts
    variation = min(math.sqrt(float(np.interp(_USUAL_LOAD, LOADS, bursts))), _MOST_VARIED)
    load = LoadProfile(
        name=trace.name,
        periods=tuple(
            LoadPeriod(start=place * width, hours=width, request_rate=float(count * scale))
            for place, count in enumerate(counts)
        ),
        source=f"{trace.format_summary()}, by {60 * width:.3g} min, within which gaps vary by "
        f"{variation:.2f}, again and again",
    )
    return load, request.changed(
        replay=False,
        request_rate=None,
        # What is not as usual takes the place of the trace's own.
        arrival_variation=round(variation, 2) + 1e-6,
    )


def read_load_or_trace(
    request: Request,
    path: str | os.PathLike[str] | None,
    startup: object,
    option_name: OptionNamer = str,
) -> tuple[Request, LoadProfile | None]:
    """Return the request and its load: from the file, or of its trace with ``startup``; else None.

    Raises SpecError or SearchSpaceError as `read_load` and `traced_load`.
    """
    if path is not None:
        return request, read_load(Path(path))
    if request.trace is None or startup is None:
        return request, None
    load, without_trace = traced_load(request, option_name)
    return without_trace, load


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
