"""``planner sweep``: every combination of what a plan lists; ``show``: what it found."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from planner.cli import options
from planner.cli.app import PlainCommand, PlainGroup
from planner.cli.help import PlanningCommand
from planner.cli.options import Given, given_answers, picture_of
from planner.question.inputs import whole
from planner.workloads.given import parse_settings

if TYPE_CHECKING:
    from typer._click import Context, HelpFormatter

    from planner.show.views.plots.picture import Picture
    from planner.sweeps.plan import SweepPlan
    from planner.sweeps.run import Run


EPILOG = """Names are columns of DIR/scenarios.csv; --where is an expression of pandas over them,
with texts in quotes. --value also takes cost, time (calendar or training time, or the latency of
a request) and value (cost x time). Examples:
planner sweep show DIR --where "gpu == 'h100-sxm-80gb' and cost_usd < 2e6" --sort -num_gpus;
planner sweep show DIR --pivot gpu,num_gpus --value time; planner sweep show DIR --against OTHER."""


@options.own("sweep show")
def show(given: Given) -> None:
    """Show what a sweep found: a summary, or the rows, matrix or differences asked for."""
    from planner.base.files import check_outputs
    from planner.errors import SearchSpaceError
    from planner.show.terminal import make_console, write
    from planner.sweeps.show import Shown, shown_blocks

    check_outputs(given["csv"], given["json"])
    drawn = picture_of("sweep", given)
    if drawn is not None and given["against"] is not None:
        raise SearchSpaceError("--plot draws one sweep: leave out --against.")
    names = (field.name for field in fields(Shown))
    asked = Shown(**{name: given[name] for name in names if given[name] is not None})
    if drawn is not None:
        from planner.sweeps.show import draw_shown

        draw_shown(drawn, asked)
    write(make_console(), shown_blocks(asked))


_DEFAULT = "run"


class _RunUnlessNamed(PlainGroup):
    """``planner sweep PLAN`` runs it; words that name a command are that command."""

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
        super().format_epilog(ctx, formatter)
        formatter.write_paragraph()
        formatter.write_text("planner sweep show DIR prints what a sweep found; -h behind it, how.")


sweep = typer.Typer(
    cls=_RunUnlessNamed,
    add_completion=False,
    rich_markup_mode=None,
    help="Run every combination of the lists in a plan.",
)
sweep.command("show", cls=PlainCommand, epilog=EPILOG)(show)


@sweep.command(_DEFAULT, cls=_Run, hidden=True)
@options.taking(
    "question",
    "limit",
    how=(
        "sweep_plan", "num_gpus", "workload", "settings", "precision", "objective", "output",
        "save_sweep", "plot", "picture", "dark", "picture_width", "fresh", "workers", "dask",
        "specs", "quiet",
    ),
)  # fmt: skip
def run(given: options.Given) -> None:
    """Run every combination of what a plan lists, each one search; go on where one was ended."""
    from planner.base.files import check_path
    from planner.sweeps.run import run_sweep

    if given["save_sweep"] is not None:
        check_path(given["save_sweep"])
    picture = picture_of("sweep", given)
    workers = _workers(given)
    plan = _plan(given)
    if given["save_sweep"] is not None:
        from planner.base.files import written_whole

        with written_whole(given["save_sweep"]) as file:
            file.write(plan.to_toml())
        if given["output"] is None:
            return
    if given["output"] is None:
        raise _usage("Give a directory for the results with --output.")
    from planner.show.terminal import stoppable_bar

    with stoppable_bar(plan.num_scenarios, "scenarios", quiet=given["quiet"]) as progress:
        run_sweep(plan, given["output"], run=workers, fresh=given["fresh"], progress=progress)
    _tell(given, picture)
    _refuse_none(given["output"])


def _tell(given: options.Given, picture: Picture | None) -> None:
    """What the sweep found: a picture, and in words."""
    from planner.sweeps.show import Shown, asked_summary

    asked = Shown(folder=given["output"])
    if picture is not None:
        from planner.sweeps.show import draw_shown

        draw_shown(picture, asked)
    if not given["quiet"]:
        from planner.show.terminal import make_console, write

        write(make_console(), asked_summary(asked))


def _refuse_none(folder: Path) -> None:
    """A sweep without a single plan ends as a search without one does."""
    from planner.errors import InfeasibleError
    from planner.sweeps.store import Sweep

    sweep = Sweep(folder)
    if not any(row["feasible"] for row in sweep.rows()):
        raise InfeasibleError(
            f"None of {sweep.plan.num_scenarios:,} scenarios has a plan: {folder} has the reasons."
        )


def _workers(given: options.Given) -> Run:
    """Where the work is done: on the cores here, or on a cluster."""
    from planner.base.processes import num_cores
    from planner.sweeps.run import on_cores

    if given["dask"] is None:
        return on_cores(whole(given["workers"] or num_cores(), "--workers", 1))
    if given["workers"] is not None:
        raise _usage("--workers are processes here; those of --dask are what its cluster has.")
    from planner.sweeps.dask_workers import on_dask

    return on_dask(given["dask"], None if given["quiet"] else _say)


def _say(line: str) -> None:
    typer.echo(line, err=True)


def _plan(given: options.Given) -> SweepPlan:
    """The plan of a file, or the one that the options make."""
    from planner.sweeps.read import make_sweep, read_plan

    answers = given_answers(given)
    words = given["objective"] or []
    settings = parse_settings(given["settings"] or [])
    answered = {**answers.questions, **answers.limits}
    asked = {**answered, **settings}
    if words or options.is_given(given, "workload"):
        asked["workload"] = given["workload"]
    if given["sweep_plan"] is not None:
        if asked:
            name = options.option_name(next(iter(asked)))
            raise _usage(f"A plan says what is asked: leave out {name}, or the plan.")
        return read_plan(given["sweep_plan"], given["specs"])
    table: dict[str, object] = {"workload": given["workload"], **answered, "settings": settings}
    table |= {"objectives": ",".join(words)} if words else {}
    return make_sweep(table, given["specs"], said=options.option_name)


def _usage(message: str) -> Exception:
    from planner.errors import SearchSpaceError

    return SearchSpaceError(message)
