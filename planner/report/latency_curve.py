"""Latencies of served requests as a distribution: what each share of them does not exceed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console

from planner.base import text
from planner.optimize.collector import known_value
from planner.report.console import make_table, print_title
from planner.report.parts import first

LATENCIES = ("time_to_first_token", "time_per_output_token", "request_latency")
"""The three times of a request that have a distribution."""
PERCENTS = tuple(range(1, 100))
_SHOWN = (1, 5, 10, 25, 50, 75, 90, 95, 99)


def latency_distribution(candidates: Any) -> Mapping[str, Sequence[Any]]:
    """The curve of each time [s] at 1 to 99 percent of the requests, of the first row.

    None where it has no end.
    """
    found: dict[str, Sequence[Any]] = {"percent": PERCENTS}
    for name in LATENCIES:
        found[f"{name}_s"] = [known_value(value) for value in _curve(candidates, name, PERCENTS)]
    return found


def _curve(candidates: Any, name: str, percents: Sequence[int]) -> list[float]:
    at_load = candidates.at_load
    return [first(at_load.percentile(name, percent / 100)) for percent in percents]


def print_latency_distribution(console: Console, candidates: Any) -> None:
    """Some points of the curves."""
    curves = [_curve(candidates, name, _SHOWN) for name in LATENCIES]
    print_title(console, "Latency of the requests, as a distribution")
    table = make_table(console)
    table.add_column("share of requests", no_wrap=True)
    for name in LATENCIES:
        table.add_column(name.replace("_", " "), justify="right", overflow="fold")
    for percent, *times in zip(_SHOWN, *curves, strict=True):
        table.add_row(f"{percent} % within", *map(text.duration, times))
    console.print(table)
