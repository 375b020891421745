"""``planner sweep``: every combination of the lists in a plan; ``show``: its results."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

import typer

from planner.base.atomic_write import check_path, write_atomically
from planner.cli import options
from planner.cli.help import PlanningCommand
from planner.cli.options import OptionValues, picture_of, with_options
from planner.cli.run_command import call_of, print_result
from planner.cli.text_options import TextOptionCommand, TextOptionGroup

if TYPE_CHECKING:
    from typer._click import Context, HelpFormatter


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
    help="Search every combination of models, GPUs and limits.",
)
sweep.command("show", cls=TextOptionCommand, epilog=EPILOG)(show)


def _run(values: OptionValues) -> None:
    """Search every combination of models, GPUs and limits.

    The lists are options, or a plan file. An unfinished sweep continues.
    """
    from planner.commands.sweep import SWEEP

    path = values["save_sweep"]
    if path is not None:
        check_path(path)
    picture = picture_of("sweep", values)
    inputs = SWEEP.read(call_of(values))
    if path is not None:
        with write_atomically(path) as file:
            file.write(inputs.plan.to_toml())
        if inputs.folder is None:
            return
    swept = SWEEP.run(inputs)
    if picture is not None and SWEEP.draw is not None:
        SWEEP.draw(picture, swept)
    if not values["quiet"]:
        print_result(values, SWEEP, swept)
    if problem := SWEEP.problem(swept):
        raise problem


run = with_options("sweep", _run)
sweep.command(_DEFAULT, cls=_Run, hidden=True)(run)
