"""``planner sweep show``: what a sweep found, as a summary, rows, a matrix or differences."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from planner.cli import how
from planner.cli.picture import picture_of

EPILOG = """Names are columns of DIR/scenarios.csv, with their units or without: cost is cost_usd;
time is calendar or training time, or the latency of a request; value is cost x time. Examples:
planner sweep show DIR --where 'gpu=h100,b200,num_gpus>=512,cost<2M' --sort time;
planner sweep show DIR --pivot gpu,num_gpus --value time; planner sweep show DIR --against OTHER."""

Folder = Annotated[
    Path,
    typer.Argument(
        help="The directory of a sweep, finished or not.", metavar="DIR", show_default=False
    ),
]
Where = Annotated[
    list[str] | None,
    typer.Option(
        help="Only scenarios like this: =, !=, <, <=, >, >=; more values of = behind commas; "
        "repeatable.",
        metavar="NAME=VALUE[,...]",
    ),
]
Sort = Annotated[
    str, typer.Option(help="Least first; with a - before a name most first.", metavar="NAME[,NAME]")
]
Columns = Annotated[str, typer.Option(help="The columns to show or write.", metavar="NAME[,NAME]")]
Top = Annotated[
    int | None, typer.Option(help="Rows to show; 20 where not given.", metavar="N", min=1)
]
Pivot = Annotated[
    str, typer.Option(help="A matrix of --value; the last name goes across.", metavar="NAME,NAME")
]
Value = Annotated[
    str,
    typer.Option(help="What the matrix or comparison tells: cost, time, value, energy, throughput, "
                 "any column of numbers.", metavar="NAME"),
]  # fmt: skip
Against = Annotated[
    Path | None, typer.Option(help="Tell what differs from another sweep.", metavar="DIR")
]
Csv = Annotated[
    Path | None,
    typer.Option(help="Write the rows as CSV instead; - is stdout.", metavar="FILE"),
]
Json = Annotated[
    Path | None,
    typer.Option(help="Write the rows as JSON instead; - is stdout.", metavar="FILE"),
]
Full = Annotated[bool, typer.Option("--full", help="All works, rows and reasons.")]


def show(
    folder: Folder,
    where: Where = None,
    sort: Sort = "",
    columns: Columns = "",
    top: Top = None,
    pivot: Pivot = "",
    value: Value = "cost",
    against: Against = None,
    csv: Csv = None,
    json: Json = None,
    plot: how.Plot = None,
    picture: how.PictureName = None,
    dark: how.Dark = False,
    picture_width: how.PictureWidth = None,
    full: Full = False,
    specs: how.Specs = None,
) -> None:
    """Show what a sweep found: a summary, or the rows, matrix or differences asked for."""
    from planner.base.files import check_outputs
    from planner.errors import SearchSpaceError
    from planner.show.terminal import make_console, write
    from planner.sweeps.show import Shown, shown_blocks

    check_outputs(csv, json)
    of_picture = {"plot": plot, "picture": picture, "dark": dark, "picture_width": picture_width}
    drawn = picture_of("sweep", {**of_picture, "csv": csv, "json": json})
    if drawn is not None and against is not None:
        raise SearchSpaceError("--plot draws one sweep: leave out --against.")
    asked = Shown(
        folder=folder,
        where=tuple(where or ()),
        sort=sort,
        columns=columns,
        top=top,
        pivot=pivot,
        value=value,
        against=against,
        csv=csv,
        json=json,
        full=full,
        specs=specs,
    )
    if drawn is not None:
        from planner.sweeps.pictures import draw_shown

        draw_shown(drawn, asked)
    write(make_console(), shown_blocks(asked))
