"""Runs the open scenarios of a sweep, in this process, on cores or on Dask; writes its tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TypeAlias

from planner.base.csv_cells import Row
from planner.base.formatting import format_count
from planner.base.signals import is_stop_requested
from planner.base.worker_processes import TRIES, WorkersEnded, run_on_workers
from planner.errors import OutputError, WorkersLost
from planner.optimize.exhaustive import StopSearch
from planner.optimize.result import FewestGpus
from planner.sweeps.plan import SweepPlan
from planner.sweeps.scenario_batches import ScenarioBatch, run_part
from planner.sweeps.sweep_folder import Store, differences, front_across, identity
from planner.sweeps.sweep_tables import Progress, rows_with_series, write_tables

Done: TypeAlias = tuple[ScenarioBatch, bytes]
IN_TABLES = "scenarios in tables"
"""Unit of the progress of the tables."""
Run: TypeAlias = Callable[[SweepPlan, Iterable[ScenarioBatch]], Iterator[Done]]
"""A function that runs parts of a plan, in any order."""


def in_this_process(plan: SweepPlan, parts: Iterable[ScenarioBatch]) -> Iterator[Done]:
    """Run one part after the other."""
    for part in parts:
        yield part, run_part(plan, part)


def on_cores(workers: int) -> Run:
    """Return a function that runs scenario batches in ``workers`` processes."""

    def run(plan: SweepPlan, parts: Iterable[ScenarioBatch]) -> Iterator[Done]:
        """Run the scenario batches of a sweep on local worker processes and yield each result."""
        try:
            yield from run_on_workers(partial(run_part, plan), parts, workers, _check_stop)
        except WorkersEnded as error:
            raise _workers_lost(error) from error

    return run


def _workers_lost(error: WorkersEnded) -> WorkersLost:
    """The error of a user for workers that ended: it names the first scenario without a result."""
    first = min(
        (part for part in error.tasks if isinstance(part, ScenarioBatch)),
        key=lambda part: part.number,
    )
    return WorkersLost(
        f"Workers ended {TRIES} times without a result, at scenario {first.first} "
        "or soon after it: give them more memory, or --workers 1. Finished scenarios "
        "are kept: run the same command to continue."
    )


def _check_stop() -> None:
    """Raise StopSearch if the user stopped the sweep."""
    if is_stop_requested():
        raise StopSearch


class Stopped(KeyboardInterrupt):
    """The user stopped the sweep; finished scenarios are kept."""


def run_sweep(
    plan: SweepPlan,
    folder: Path,
    *,
    run: Run = in_this_process,
    fresh: bool = False,
    progress: Progress | None = None,
    tables_bar: Callable[[], Progress | None] = lambda: None,
    table_workers: int = 1,
) -> None:
    """Run all scenarios that the folder lacks and write the tables.

    ``progress`` gets the number of finished scenarios, and what ``tables_bar`` returns that of
    scenarios in the tables; both may raise `StopSearch`. ``table_workers`` processes make tables.

    Raises OutputError if the directory cannot be written, or belongs to something else.
    """
    with Store.opened(folder, plan, fresh=fresh) as store:
        if store.is_complete:
            return
        try:
            _report_progress(progress, store.done)
            for part, content in run(plan, store.parts):
                store.write_part(part, content)
                store.done += part.end - part.first
                _report_progress(progress, store.done)
        except StopSearch as stop:
            raise Stopped(
                f"Interrupted after {format_count(store.done)} of "
                f"{format_count(plan.num_scenarios)} scenarios: "
                "run the same command to continue."
            ) from stop
        now = identity(plan)
        if changed := differences(now, store.identity):
            store.remove_parts()
            raise OutputError(
                f"{folder}: {changed} changed during the run: start again with --fresh."
            )
        try:
            results = write_results(store, workers=table_workers, progress=tables_bar())
        except StopSearch as stop:
            raise Stopped(
                "Interrupted while the tables were written: run the same command to continue."
            ) from stop
        except WorkersEnded as error:
            raise _workers_lost(error) from error
        store.finish({**now, **results})


def write_results(
    store: Store, *, workers: int = 1, progress: Progress | None = None
) -> dict[str, object]:
    """Write the tables of a finished sweep; return the entries of its manifest."""
    plan, fewest = store.plan, FewestGpus()
    counts: Counter[str] = Counter(scenarios=0, feasible=0)

    def counted_rows() -> Iterator[Row]:
        for key, row in rows_with_series(store):
            counts["scenarios"] += 1
            counts["feasible"] += bool(row["feasible"])
            fewest.add(key, row)
            yield row

    numbers = front_across(counted_rows(), plan)
    is_scaled = any("num_gpus" in work.varied for work in plan.works)
    scaling = fewest if is_scaled else None
    files = write_tables(store, numbers, scaling, workers=workers, progress=progress)
    return {**counts, "digest": plan.digest, "plan": plan.to_dict(), "files": files}


def _report_progress(progress: Progress | None, done: int) -> None:
    if progress is not None:
        progress(done)
