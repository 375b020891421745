"""Run a sweep: what is not done yet, then its tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from planner.base.text import count
from planner.errors import OutputError
from planner.optimize.exhaustive import StopSearch
from planner.sweeps.front import front_across
from planner.sweeps.identity import differences, identity
from planner.sweeps.plan import SweepPlan
from planner.sweeps.store import Store
from planner.sweeps.tables import scenario_rows, write_tables
from planner.sweeps.workers import Run, in_this_process


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


def write_results(store: Store) -> dict[str, Any]:
    """Write the tables of a sweep whose parts are done; returns what its manifest says of them."""
    counts: Counter[str] = Counter(scenarios=0, feasible=0)
    numbers = front_across(_counted(scenario_rows(store), counts), store.plan)
    files = write_tables(store, numbers)
    plan = store.plan
    return {**counts, "digest": plan.digest, "plan": plan.to_dict(), "files": files}


def _counted(
    rows: Iterator[Mapping[str, Any]], counts: Counter[str]
) -> Iterator[Mapping[str, Any]]:
    for row in rows:
        counts["scenarios"] += 1
        counts["feasible"] += bool(row["feasible"])
        yield row


def _tell(progress: Callable[[int], None] | None, done: int) -> None:
    if progress is not None:
        progress(done)
