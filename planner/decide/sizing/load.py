"""A load over a day: how many requests arrive per second, hour by hour."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from planner.base.records import record
from planner.base.units import HOUR
from planner.errors import SpecError
from planner.specs.csv_table import Rows, number, read_table
from planner.specs.paths import load_file

HOURS = 24.0
_TIME = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)")
_COLUMNS = ("hour", "time", "request_rate")


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
    rows = read_table(path, _COLUMNS, ("request_rate",))
    named = {name for _, row in rows[:1] for name in row}
    faults = []
    if not rows:
        faults.append(f"{path}: has no rows.")
    elif {"hour", "time"} <= named or not {"hour", "time"} & named:
        faults.append(f"{path}:1: give one column of hour or time.")
    if faults:
        raise SpecError("\n".join(faults))
    is_hourly = "hour" in named
    starts, rates = _read(path, rows, is_hourly, faults)
    if is_hourly and not faults:
        missing = [str(hour) for hour in range(int(HOURS)) if hour not in starts]
        faults += [f"{path}: hour {', '.join(missing)} is missing."] if missing else []
    if not is_hourly and not faults and 0.0 not in starts:
        faults.append(f"{path}: the first time is 00:00.")
    if not faults and max(rates.values()) <= 0:
        faults.append(f"{path}: there are no requests at any time.")
    if faults:
        raise SpecError("\n".join(faults))
    ordered = sorted(starts)
    return Load(
        name=path.name,
        periods=tuple(
            Period(start=start, hours=end - start, request_rate=rates[start])
            for start, end in zip(ordered, [*ordered[1:], HOURS], strict=True)
        ),
    )


def _read(
    path: Path, rows: Rows, is_hourly: bool, faults: list[str]
) -> tuple[set[float], Mapping[float, float]]:
    """When periods begin, and their rates; what is wrong goes into ``faults``."""
    seen: set[float] = set()
    rates: dict[float, float] = {}
    for line, row in rows:
        try:
            start = _hour(row["hour"]) if is_hourly else _time(row["time"])
        except ValueError as error:
            faults.append(f"{path}:{line}: {error}.")
            start = None
        try:
            rate = number(row["request_rate"], "request_rate")
        except ValueError as error:
            faults.append(f"{path}:{line}: {error}.")
            rate = 0.0
        if start is None:
            continue
        if start in seen:
            word = row["hour"] if is_hourly else row["time"]
            faults.append(f"{path}:{line}: {word} is there twice.")
        seen.add(start)
        rates[start] = rate
    return seen, rates


def _hour(words: str) -> float:
    if not words.isascii() or not words.isdigit() or int(words) >= HOURS:
        raise ValueError(f"hour {words!r} is not a whole number from 0 to 23")
    return float(words)


def _time(words: str) -> float:
    match = _TIME.fullmatch(words)
    if match is None:
        raise ValueError(f"time {words!r} is not HH:MM")
    return int(match[1]) + int(match[2]) / 60
