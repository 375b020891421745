"""Where parts of a sweep are run: in this process, on all cores, or on a Dask cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TypeAlias

from planner.base.interrupts import is_asked_to_stop
from planner.base.processes import TRIES, Lost, on_workers
from planner.errors import WorkersLost
from planner.optimize.exhaustive import StopSearch
from planner.sweeps.parts import Part, run_part
from planner.sweeps.plan import SweepPlan

Done: TypeAlias = tuple[Part, bytes]
Run: TypeAlias = Callable[[SweepPlan, Iterable[Part]], Iterator[Done]]
"""Runs parts of a plan, in any order."""


def in_this_process(plan: SweepPlan, parts: Iterable[Part]) -> Iterator[Done]:
    """One part after the other."""
    for part in parts:
        yield part, run_part(plan, part)


def on_cores(workers: int) -> Run:
    """One process for each of so many cores."""

    def run(plan: SweepPlan, parts: Iterable[Part]) -> Iterator[Done]:
        try:
            yield from on_workers(partial(run_part, plan), parts, workers, _look)
        except Lost as error:
            first = min(error.tasks, key=lambda part: part.number)
            raise WorkersLost(
                f"Workers ended {TRIES} times without a result, at scenario {first.first} "
                "or soon behind it: give them more memory, or --workers 1. What is done "
                "is kept: the same command goes on."
            ) from error

    return run


def _look() -> None:
    """The user may have asked for an end."""
    if is_asked_to_stop():
        raise StopSearch
