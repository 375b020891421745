"""GPU-hours of a day, minute by minute: the twin of `planner.decide.sizing.daily_schedule`."""

from __future__ import annotations

from collections.abc import Sequence

MINUTES = 24 * 60


def paid_hours(gpus: Sequence[int], startup: int, held: int) -> float:
    """GPU-hours of a day with ``gpus`` serving in each minute, ``held`` of them all day.

    A GPU runs where it serves now or within the ``startup`` minutes ahead; the day repeats.
    """
    minutes = len(gpus)
    hours = 0.0
    for minute in range(minutes):
        needed = max(gpus[(minute + ahead) % minutes] for ahead in range(startup + 1))
        hours += max(needed, held) / 60
    return hours * MINUTES / minutes


def rises(gpus: Sequence[int]) -> int:
    """GPUs that start in a day, each as often as it does."""
    return sum(max(now - before, 0) for before, now in zip([gpus[-1], *gpus], gpus, strict=False))
