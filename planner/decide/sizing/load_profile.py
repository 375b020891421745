"""Request rate over a day: load of a CSV file, or of a trace by the minute."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from planner.base.records import record
from planner.base.units import HOUR, MINUTE
from planner.errors import SearchSpaceError, SpecError
from planner.question.request import Request
from planner.specs.arrivals import LOADS
from planner.specs.spec_files import Column, Row, optional, read_records
from planner.specs.spec_files import number as cell_number
from planner.specs.spec_paths import load_file
from planner.workloads.build_request import OptionNamer
from planner.workloads.serving.measured_arrivals import measured_arrivals
from planner.workloads.serving.traffic import trace_of

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


def _start(row: Row) -> tuple[bool, float, float]:
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
            f"{option_name('trace')}: {trace.name} lasts {trace.seconds:.0f} s: a load by "
            "the minute "
            f"takes {_FEWEST_PERIODS} or more."
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
