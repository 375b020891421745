"""A load over a day: how many requests arrive per second, hour by hour."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from planner.base.records import record
from planner.base.units import HOUR
from planner.errors import SpecError
from planner.specs.csv_table import Column, Row, number, optional, records
from planner.specs.paths import load_file

HOURS = 24.0
_TIME = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)")


@record(kw_only=True)
class Period:
    """A part of the day that begins at ``start`` and lasts ``hours``, with its requests per s."""

    start: float
    hours: float
    request_rate: float

    @property
    def clock(self) -> str:
        """When it begins.

        >>> Period(start=6.5, hours=1, request_rate=0).clock
        '06:30'
        """
        minutes = round(60 * self.start)
        return f"{minutes // 60:02d}:{minutes % 60:02d}"


@record(kw_only=True)
class Load:
    """The periods of a day, from midnight to midnight."""

    name: str
    periods: tuple[Period, ...]

    @property
    def peak(self) -> float:
        """The most requests per second."""
        return max(period.request_rate for period in self.periods)

    @property
    def requests(self) -> float:
        """Requests of a day."""
        return sum(HOUR * period.hours * period.request_rate for period in self.periods)


def read_load(path: Path) -> Load:
    """The load of a CSV file with ``request_rate`` and ``hour`` (0 to 23) or ``time`` (HH:MM).

    A row of ``time`` holds until the next one, the last until midnight. ``day.csv`` is one that
    is shipped, where the working directory has none of that name.

    Raises
    ------
    SpecError
        It cannot be read, or has faults: one line for each.
    """
    path = load_file(path)
    rows = records(path, _TABLE, _start, once=("hour", "time"))
    if fault := _fault(rows):
        raise SpecError(f"{path}: {fault}.")
    rates = {start: rate for _, start, rate in rows}
    ordered = sorted(rates)
    return Load(
        name=path.name,
        periods=tuple(
            Period(start=start, hours=end - start, request_rate=rates[start])
            for start, end in zip(ordered, [*ordered[1:], HOURS], strict=True)
        ),
    )


def _start(row: Row) -> tuple[bool, float, float]:
    """Whether a row is of an hour, when it begins, and its rate."""
    hour, time = row["hour"], row["time"]
    if (hour is None) == (time is None):
        raise ValueError("give one column of hour or time")
    return time is None, time if hour is None else hour, row["request_rate"]


def _fault(rows: Sequence[tuple[bool, float, float]]) -> str:
    """What is wrong with the rows together; nothing is empty."""
    starts = {start for _, start, _ in rows}
    if len({is_hourly for is_hourly, _, _ in rows}) != 1:
        return "give one column of hour or time" if rows else "has no rows"
    missing = [str(hour) for hour in range(int(HOURS)) if hour not in starts]
    if rows[0][0] and missing:
        return f"hour {', '.join(missing)} is missing"
    if 0.0 not in starts:
        return "the first time is 00:00"
    return "" if any(rate for _, _, rate in rows) else "there are no requests at any time"


def _hour(words: str, _: str) -> float:
    if not words.isascii() or not words.isdigit() or int(words) >= HOURS:
        raise ValueError(f"hour {words!r} is not a whole number from 0 to 23")
    return float(words)


def _time(words: str, _: str) -> float:
    match = _TIME.fullmatch(words)
    if match is None:
        raise ValueError(f"time {words!r} is not HH:MM")
    return int(match[1]) + int(match[2]) / 60


_TABLE = (
    Column("hour", optional(_hour)),
    Column("time", optional(_time)),
    Column("request_rate", number, needed=True),
)
