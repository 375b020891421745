"""``planner specs``: what there is, what a spec says, and whether it is right."""

from __future__ import annotations

from typing import Annotated

import typer

from planner.cli import complete, how

specs = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    help="List, show and validate specs.",
)

Kind = Annotated[
    str,
    typer.Argument(
        help="gpus, clusters, models, spaces, frameworks, engines or reliability.",
        metavar="KIND",
        autocompletion=complete.kinds,
    ),
]


@specs.command("list")
def list_specs(kind: Kind = "", specs_folder: how.Specs = None) -> None:
    """Show all specs of a kind with key figures, or the kinds."""
    from planner.show.terminal import make_console, write
    from planner.show.views.spec_lists import kinds_blocks, list_blocks, spec_kind
    from planner.specs.catalogue import Catalogue

    catalogue = Catalogue(specs_folder)
    console = make_console()
    if kind:
        write(console, list_blocks(spec_kind(kind), catalogue))
    else:
        write(console, kinds_blocks(catalogue))


@specs.command("show")
def show(
    kind: Kind,
    name: Annotated[
        str,
        typer.Argument(
            help="A name, an alias or a file.", metavar="NAME", autocompletion=complete.of_kind
        ),
    ],
    specs_folder: how.Specs = None,
) -> None:
    """Show every number of a spec with its unit and its source."""
    from planner.show.terminal import make_console, write
    from planner.show.views.spec_lists import spec_kind
    from planner.show.views.spec_numbers import spec_blocks
    from planner.specs.catalogue import Catalogue

    catalogue = Catalogue(specs_folder)
    write(make_console(), spec_blocks(spec_kind(kind), name, catalogue))


@specs.command("validate")
def validate(
    targets: Annotated[
        list[str] | None,
        typer.Argument(
            help="A kind, files, or both; everything if not given.",
            autocompletion=complete.kinds,
        ),
    ] = None,
    specs_folder: how.Specs = None,
) -> None:
    """Check spec files and print every fault of every one."""
    from planner.errors import SpecError
    from planner.show.views.spec_numbers import check_files, files_to_check
    from planner.specs.catalogue import Catalogue

    catalogue = Catalogue(specs_folder)
    files = files_to_check(targets or [], catalogue)
    faults = check_files(files, catalogue)
    if faults:
        raise SpecError("\n".join(faults))
    typer.echo(f"{len(files)} files checked, no faults.")
