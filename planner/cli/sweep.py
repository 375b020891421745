"""``planner sweep``: every combination of what a plan lists, each one search."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from planner.cli import options

_DEFAULT = "run"


class _RunUnlessNamed(TyperGroup):
    """``planner sweep PLAN`` runs it; words that name a command are that command."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args or args[0] not in self.commands:
            args = [_DEFAULT, *args]
        return super().parse_args(ctx, args)


sweep = typer.Typer(cls=_RunUnlessNamed, help="Run every combination of a plan of lists.")


@sweep.command(_DEFAULT, hidden=True)
def run(
    plan: Annotated[
        str | None,
        typer.Argument(help="A plan: a .toml file, or the name of one that is shipped."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="The directory of the results.", metavar="DIR")
    ] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Begin again; what the directory has is removed.")
    ] = False,
    workers: Annotated[
        int | None, typer.Option(help="Processes; all cores where not given.", min=1)
    ] = None,
    specs: options.Specs = None,
    quiet: options.Quiet = False,
) -> None:
    """Run every combination of a plan, each one search."""
    from planner.report.progress import stoppable_bar
    from planner.sweeps.read import read_plan
    from planner.sweeps.run import run_sweep
    from planner.sweeps.workers import num_cores, on_cores

    asked = read_plan(str(plan), specs)
    with stoppable_bar(asked.num_scenarios, "scenarios", quiet=quiet) as progress:
        run_sweep(
            asked,
            Path(output or "sweep"),
            run=on_cores(workers or num_cores()),
            fresh=fresh,
            progress=progress,
        )
