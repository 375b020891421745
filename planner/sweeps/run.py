"""Run a sweep: what is not done yet, in this process, on all cores or on Dask, then its tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TypeAlias

from planner.base.cells import Row
from planner.base.interrupts import is_asked_to_stop
from planner.base.processes import TRIES, Lost, on_workers
from planner.base.text import count
from planner.errors import OutputError, WorkersLost
from planner.optimize.exhaustive import StopSearch
from planner.sweeps.parts import Part, run_part
from planner.sweeps.plan import SweepPlan
from planner.sweeps.results import front_across
from planner.sweeps.store import Store, differences, identity
from planner.sweeps.tables import scenario_rows, write_tables

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
            first = min(
                (part for part in error.tasks if isinstance(part, Part)),
                key=lambda part: part.number,
            )
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


class Stopped(KeyboardInterrupt):
    """The user ended the sweep; what is done is kept."""


def run_sweep(
    plan: SweepPlan,
    folder: Path,
    *,
    run: Run = in_this_process,
    fresh: bool = False,
    progress: Callable[[int], None] | None = None,
) -> None:
    """Run all scenarios of a plan that the directory lacks, and write its tables.

    ``progress`` is told how many scenarios are done and may raise `StopSearch`.

    Raises
    ------
    OutputError
        The directory cannot be written, or belongs to something else.
    """
    with Store.opened(folder, plan, fresh=fresh) as store:
        if store.is_complete:
            return
        try:
            _tell(progress, store.done)
            for part, content in run(plan, store.parts):
                store.keep(part, content)
                store.done += part.end - part.first
                _tell(progress, store.done)
        except StopSearch as stop:
            raise Stopped(
                f"Interrupted after {count(store.done)} of {count(plan.num_scenarios)} scenarios: "
                "the same command goes on from there."
            ) from stop
        now = identity(plan)
        if changed := differences(now, store.identity):
            store.forget()
            raise OutputError(
                f"{folder}: {changed} changed while it ran: begin again with --fresh."
            )
        store.finish({**now, **write_results(store)})


def write_results(store: Store) -> dict[str, object]:
    """Write the tables of a sweep whose parts are done; returns what its manifest says of them."""
    counts: Counter[str] = Counter(scenarios=0, feasible=0)
    numbers = front_across(_counted(scenario_rows(store), counts), store.plan)
    files = write_tables(store, numbers)
    plan = store.plan
    return {**counts, "digest": plan.digest, "plan": plan.to_dict(), "files": files}


def _counted(rows: Iterator[Row], counts: Counter[str]) -> Iterator[Row]:
    for row in rows:
        counts["scenarios"] += 1
        counts["feasible"] += bool(row["feasible"])
        yield row


def _tell(progress: Callable[[int], None] | None, done: int) -> None:
    if progress is not None:
        progress(done)
