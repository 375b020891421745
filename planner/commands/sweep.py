"""``sweep``: every combination of the lists in a plan."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from planner.base.records import record
from planner.base.worker_processes import num_cores
from planner.commands.command import Call, Command
from planner.errors import InfeasibleError, SearchSpaceError
from planner.question.parse_values import parse_int
from planner.show.output_blocks import Block
from planner.show.presenters.json_files import command_manifest
from planner.show.presenters.row_tables import RowFiles
from planner.sweeps.find_plan import make_sweep, read_plan
from planner.sweeps.plan import SweepPlan
from planner.sweeps.query import SweepQuery, draw_query, requested_summary
from planner.sweeps.run_sweep import IN_TABLES, Run, Stopped, in_this_process, on_cores, run_sweep
from planner.sweeps.sweep_folder import Sweep

if TYPE_CHECKING:
    from planner.show.presenters.plots.picture import Picture


@record(kw_only=True)
class SweepInputs:
    """A sweep, the folder of its results, what runs its scenarios, and the processes that make
    its tables."""

    call: Call
    plan: SweepPlan
    run: Run
    table_workers: int
    folder: Path | None


@record(kw_only=True)
class Swept:
    """The finished scenarios of a sweep; ``is_stopped``: its time was over before."""

    sweep: Sweep
    folder: Path
    is_stopped: bool

    @property
    def rows(self) -> list[dict[str, object]]:
        """The best plan of each scenario, or the reason for none."""
        return [dict(row.items()) for row in self.sweep.rows()]


def _read(call: Call) -> SweepInputs:
    """Return the sweep of a plan file, or of the values of a call.

    Raises SpecError or SearchSpaceError with one line for each error.
    """
    folder = call.extra.get("output")
    run, table_workers = _runner(call)
    return SweepInputs(
        call=call, run=run, table_workers=table_workers, plan=_plan(call),
        folder=None if folder is None else Path(os.fspath(folder)),  # type: ignore[call-overload]
    )  # fmt: skip


def _runner(call: Call) -> tuple[Run, int]:
    """Return the runner of scenarios, local processes, a Dask cluster or this process; and the
    number of processes that make the tables."""
    extra, name = call.extra, call.option_name
    workers, scheduler = extra.get("workers"), extra.get("dask")
    if scheduler is None:
        number = num_cores() if workers is None else parse_int(workers, name("workers"), 1)
        return (on_cores(number), number) if extra.get("uses_cores", True) else (in_this_process, 1)
    if workers is not None:
        raise SearchSpaceError(
            f"{name('workers')} sets local processes; the cluster of {name('dask')} has its own "
            "workers."
        )
    from planner.sweeps.dask_workers import on_dask

    return on_dask(str(scheduler), call.note), 1


def _plan(call: Call) -> SweepPlan:
    """Return the plan of a file or of tables, or the plan that the values of a call make."""
    source, name = call.extra.get("sweep_plan"), call.option_name
    table = {n: value for n, value in call.request.items() if n != "specs" and value is not None}
    limits = table.pop("constraints", {})
    table |= limits if isinstance(limits, Mapping) else {}
    if isinstance(source, Mapping):
        return make_sweep(source, call.specs)
    if source is not None:
        settings = table.pop("settings", {})
        for option in (*table, *(settings if isinstance(settings, Mapping) else ())):
            raise SearchSpaceError(
                f"The plan file sets the question: leave out {name(option)} or the plan."
            )
        return read_plan(os.fspath(source), call.specs)  # type: ignore[call-overload]
    return make_sweep(table, call.specs, option_name=name)


def _run(inputs: SweepInputs) -> Swept:
    """Run the scenarios that the folder does not have yet, as far as the time goes."""
    call, folder = inputs.call, inputs.folder
    if folder is None:
        raise SearchSpaceError("Give a directory for the results with --output.")
    is_fresh, is_stopped = bool(call.extra.get("fresh")), False
    total = inputs.plan.num_scenarios
    with ExitStack() as stack:
        progress = stack.enter_context(call.bar(total, "scenarios"))

        def write_bar() -> Callable[[int], None] | None:
            stack.close()  # a terminal shows one bar at a time
            return stack.enter_context(call.bar(total, IN_TABLES))

        try:
            run_sweep(
                inputs.plan,
                folder,
                run=inputs.run,
                fresh=is_fresh,
                progress=progress,
                tables_bar=write_bar,
                table_workers=inputs.table_workers,
            )
        except Stopped:
            if not call.extra.get("takes_part"):
                raise
            is_stopped = True
    return Swept(sweep=Sweep(folder), folder=folder, is_stopped=is_stopped)


def _problem(swept: Swept) -> InfeasibleError | None:
    """Return that no scenario has a plan; None if one has."""
    if any(row["feasible"] for row in swept.sweep.rows()):
        return None
    total = swept.sweep.plan.num_scenarios
    return InfeasibleError(
        f"None of {total:,} scenarios has a plan: {swept.folder} has the reasons."
    )


def _present(swept: Swept, is_full: bool) -> Iterable[Block]:
    return requested_summary(SweepQuery(folder=swept.folder))


def _write(files: RowFiles, swept: Swept, arguments: Sequence[str]) -> None:
    files.finish(command_manifest(arguments), rows=swept.rows)


def _draw(picture: Picture, swept: Swept) -> None:
    draw_query(picture, SweepQuery(folder=swept.folder))


SWEEP = Command(read=_read, run=_run, present=_present, write=_write, draw=_draw, problem=_problem)
