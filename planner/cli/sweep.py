"""``planner sweep``: every combination of the lists in a plan; ``show``: its results."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from planner.cli import options
from planner.cli.app import TextOptionCommand, TextOptionGroup
from planner.cli.help import PlanningCommand
from planner.cli.options import OptionValues, picture_of, split_answers
from planner.question.parse_values import parse_int
from planner.workloads.build_request import parse_settings

if TYPE_CHECKING:
    from typer._click import Context, HelpFormatter

    from planner.show.presenters.plots.picture import Picture
    from planner.sweeps.plan import SweepPlan
    from planner.sweeps.run_sweep import Run


EPILOG = """Names are columns of DIR/scenarios.csv; --where is an expression of pandas over them,
with texts in quotes. --value also takes cost, time (calendar or training time, or the latency of
a request) and value (cost x time). Examples:
planner sweep show DIR --where "gpu == 'h100-sxm-80gb' and cost_usd < 2e6" --sort -num_gpus;
planner sweep show DIR --pivot gpu,num_gpus --value time; planner sweep show DIR --against OTHER."""


@options.with_command_options("sweep show")
def show(values: OptionValues) -> None:
    """Show the results of a sweep: a summary, or the requested rows, matrix or differences."""
    from planner.base.atomic_write import check_outputs
    from planner.errors import SearchSpaceError
    from planner.show.terminal import make_console, print_blocks
    from planner.sweeps.query import SweepQuery, query_blocks

    check_outputs(values["csv"], values["json"])
    picture = picture_of("sweep", values)
    if picture is not None and values["against"] is not None:
        raise SearchSpaceError("--plot draws one sweep: leave out --against.")
    names = (field.name for field in fields(SweepQuery))
    query = SweepQuery(**{name: values[name] for name in names if values[name] is not None})
    if picture is not None:
        from planner.sweeps.query import draw_query

        draw_query(picture, query)
    print_blocks(make_console(), query_blocks(query))


_DEFAULT = "run"


class _RunUnlessNamed(TextOptionGroup):
    """``planner sweep PLAN`` runs the sweep; a first word that names a command runs the command."""

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        if not args or args[0] not in self.commands:
            args = [_DEFAULT, *args]
        return super().parse_args(ctx, args)


class _Run(PlanningCommand):
    """Runs a sweep, under the name of the group."""

    @property
    def title(self) -> str:
        return "sweep"

    def format_usage(self, ctx: Context, formatter: HelpFormatter) -> None:
        formatter.write_usage(
            (ctx.parent or ctx).command_path, " ".join(self.collect_usage_pieces(ctx))
        )

    def format_epilog(self, ctx: Context, formatter: HelpFormatter) -> None:
        """Write the end of the help, with a reference to ``planner sweep show``."""
        super().format_epilog(ctx, formatter)
        formatter.write_paragraph()
        formatter.write_text(
            "planner sweep show DIR prints the results of a sweep; add -h for its options."
        )


sweep = typer.Typer(
    cls=_RunUnlessNamed,
    add_completion=False,
    rich_markup_mode=None,
    help="Run every combination of the lists in a plan.",
)
sweep.command("show", cls=TextOptionCommand, epilog=EPILOG)(show)


@sweep.command(_DEFAULT, cls=_Run, hidden=True)
@options.with_term_options(
    "question",
    "limit",
    how=(
        "sweep_plan", "num_gpus", "workload", "settings", "precision", "objective", "output",
        "save_sweep", "plot", "picture", "dark", "picture_width", "fresh", "workers", "dask",
        "specs", "quiet",
    ),
)  # fmt: skip
def run(values: options.OptionValues) -> None:
    """Run a search for every combination of the lists in a plan; continue an unfinished sweep."""
    from planner.base.atomic_write import check_path
    from planner.sweeps.run_sweep import run_sweep

    if values["save_sweep"] is not None:
        check_path(values["save_sweep"])
    picture = picture_of("sweep", values)
    workers = _workers(values)
    plan = _plan(values)
    if values["save_sweep"] is not None:
        from planner.base.atomic_write import write_atomically

        with write_atomically(values["save_sweep"]) as file:
            file.write(plan.to_toml())
        if values["output"] is None:
            return
    if values["output"] is None:
        raise _usage_error("Give a directory for the results with --output.")
    from planner.show.terminal import stoppable_bar

    with stoppable_bar(plan.num_scenarios, "scenarios", quiet=values["quiet"]) as progress:
        run_sweep(plan, values["output"], run=workers, fresh=values["fresh"], progress=progress)
    _show_result(values, picture)
    _require_plan(values["output"])


def _show_result(values: options.OptionValues, picture: Picture | None) -> None:
    """Draw the requested picture of the sweep and print its summary."""
    from planner.sweeps.query import SweepQuery, requested_summary

    query = SweepQuery(folder=values["output"])
    if picture is not None:
        from planner.sweeps.query import draw_query

        draw_query(picture, query)
    if not values["quiet"]:
        from planner.show.terminal import make_console, print_blocks

        print_blocks(make_console(), requested_summary(query))


def _require_plan(folder: Path) -> None:
    """Raise InfeasibleError if no scenario of the sweep has a plan."""
    from planner.errors import InfeasibleError
    from planner.sweeps.sweep_folder import Sweep

    sweep = Sweep(folder)
    if not any(row["feasible"] for row in sweep.rows()):
        raise InfeasibleError(
            f"None of {sweep.plan.num_scenarios:,} scenarios has a plan: {folder} has the reasons."
        )


def _workers(values: options.OptionValues) -> Run:
    """Return the runner of scenarios: local processes, or a Dask cluster."""
    from planner.base.worker_processes import num_cores
    from planner.sweeps.run_sweep import on_cores

    if values["dask"] is None:
        return on_cores(parse_int(values["workers"] or num_cores(), "--workers", 1))
    if values["workers"] is not None:
        raise _usage_error(
            "--workers sets local processes; the cluster of --dask has its own workers."
        )
    from planner.sweeps.dask_workers import on_dask

    return on_dask(values["dask"], None if values["quiet"] else _say)


def _say(line: str) -> None:
    typer.echo(line, err=True)


def _plan(values: options.OptionValues) -> SweepPlan:
    """Return the sweep plan of a file, or of the options."""
    from planner.sweeps.read_plan import make_sweep, read_plan

    answers = split_answers(values)
    objectives = values["objective"] or []
    settings = parse_settings(values["settings"] or [])
    answered = {**answers.questions, **answers.limits}
    requested = {**answered, **settings}
    if objectives or options.is_set(values, "workload"):
        requested["workload"] = values["workload"]
    if values["sweep_plan"] is not None:
        if requested:
            name = options.option_name(next(iter(requested)))
            raise _usage_error(f"The plan file sets the question: leave out {name} or the plan.")
        return read_plan(values["sweep_plan"], values["specs"])
    table: dict[str, object] = {"workload": values["workload"], **answered, "settings": settings}
    table |= {"objectives": ",".join(objectives)} if objectives else {}
    return make_sweep(table, values["specs"], option_name=options.option_name)


def _usage_error(message: str) -> Exception:
    from planner.errors import SearchSpaceError

    return SearchSpaceError(message)
