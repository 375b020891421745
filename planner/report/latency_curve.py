"""Latencies of served requests as a distribution: what each share of them does not exceed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from planner.base import text
from planner.optimize.collector import known_value
from planner.report.parts import first
from planner.report.told import label
from planner.show.page import Block, Title, grid

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


def latency_blocks(candidates: Any) -> Iterator[Block]:
    """Some points of the curves."""
    curves = [_curve(candidates, name, _SHOWN) for name in LATENCIES]
    rows = [
        (f"{percent} % within", *map(text.duration, times))
        for percent, *times in zip(_SHOWN, *curves, strict=True)
    ]
    yield Title(text="Latency of the requests, as a distribution")
    yield grid(("share of requests", *(label(f"{name}_s") for name in LATENCIES)), rows)
