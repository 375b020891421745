"""``planner sweep show``: what a sweep found, as a summary, rows, a matrix or differences."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from planner.cli.how import HOW
from planner.cli.options import Given, Taken, of_rows
from planner.cli.picture import picture_of

EPILOG = """Names are columns of DIR/scenarios.csv, with their units or without: cost is cost_usd;
time is calendar or training time, or the latency of a request; value is cost x time. Examples:
planner sweep show DIR --where 'gpu=h100,b200,num_gpus>=512,cost<2M' --sort time;
planner sweep show DIR --pivot gpu,num_gpus --value time; planner sweep show DIR --against OTHER."""

_PATH = Path | None


def _text(words: str, metavar: str, kind: object = str) -> object:
    return Annotated[kind, typer.Option(help=words, metavar=metavar)]


_FOLDER = typer.Argument(
    help="The directory of a sweep, finished or not.", metavar="DIR", show_default=False
)
_WHERE = (
    "Only scenarios like this: =, !=, <, <=, >, >=; more values of = behind commas; repeatable."
)
_VALUE = (
    "What the matrix or comparison tells: cost, time, value, energy, throughput, any column of "
    "numbers."
)
_TOP = typer.Option(help="Rows to show; 20 where not given.", metavar="N", min=1)
_FULL = typer.Option("--full", help="All works, rows and reasons.")
_ASKED: Mapping[str, Taken] = {
    "folder": (Annotated[Path, _FOLDER], inspect.Parameter.empty),
    "where": (_text(_WHERE, "NAME=VALUE[,...]", list[str] | None), None),
    "sort": (_text("Least first; with a - before a name most first.", "NAME[,NAME]"), ""),
    "columns": (_text("The columns to show or write.", "NAME[,NAME]"), ""),
    "top": (Annotated[int | None, _TOP], None),
    "pivot": (_text("A matrix of --value; the last name goes across.", "NAME,NAME"), ""),
    "value": (_text(_VALUE, "NAME"), "cost"),
    "against": (_text("Tell what differs from another sweep.", "DIR", _PATH), None),
    "csv": (_text("Write the rows as CSV instead; - is stdout.", "FILE", _PATH), None),
    "json": (_text("Write the rows as JSON instead; - is stdout.", "FILE", _PATH), None),
    **{name: HOW[name][1:] for name in ("plot", "picture", "dark", "picture_width")},
    "full": (Annotated[bool, _FULL], False),
    "specs": HOW["specs"][1:],
}
"""The options: the annotation that typer reads and the value where not given, by name."""


@of_rows(_ASKED)
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
    of_look = ("plot", "picture", "dark", "picture_width")
    asked = Shown(**{name: value for name, value in given.items() if name not in of_look})
    if drawn is not None:
        from planner.sweeps.pictures import draw_shown

        draw_shown(drawn, asked)
    write(make_console(), shown_blocks(asked))
