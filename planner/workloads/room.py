"""How many requests at once a configuration has room for: as many as are accepted when judged."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from planner.optimize.source import Candidates, Source

_GRID = 64
LARGEST_BATCH = _GRID**4


def most_at_once(source: Source, configurations: Any) -> int:
    """The most requests at once with which one configuration is accepted; 0 if not even one is.

    Found in ever narrower grids. Nothing but this counts as room: what a sequence takes, and what
    a step does, depend on how many there are.
    """
    fewest, step = 0, LARGEST_BATCH // _GRID
    while step:
        tried = fewest + step * np.arange(1.0, _GRID + 1)
        judged = source.without_waiting.judged(_with_concurrency(configurations, tried))
        accepted = tried[np.broadcast_to(judged.rejected_by == 0, tried.shape)]
        fewest = int(accepted[-1]) if accepted.size else fewest
        step //= _GRID
    return fewest


def as_many_as_fit(source: Source, configurations: Any) -> Candidates | None:
    """One configuration with the most requests at once that it has room for; None without any."""
    most = most_at_once(source, configurations)
    if not most:
        return None
    return source.without_waiting.judged(_with_concurrency(configurations, np.array([float(most)])))


def _with_concurrency(configurations: Any, numbers: Any) -> Any:
    rows = configurations.rows(np.zeros(numbers.size, dtype=np.intp))
    return replace(rows, concurrency=rows.cast("concurrency", numbers))
