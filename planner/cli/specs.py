"""``planner specs``: what there is, what a spec says, whether it is right, and own ones."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from planner.cli import complete, how

specs = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    help="List, show, validate and add specs.",
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
    from planner.show.views.spec_numbers import kinds_blocks, list_blocks, spec_kind
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
    from planner.show.views.spec_numbers import spec_blocks, spec_kind
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


@specs.command("add")
def add(
    kind: Annotated[
        str, typer.Argument(help="model.", metavar="KIND", autocompletion=complete.kinds)
    ],
    source: Annotated[
        str,
        typer.Argument(
            help="ORG/NAME of Hugging Face, a config.json, its folder, or a name.",
            metavar="SOURCE",
        ),
    ],
    name: Annotated[
        str | None,
        typer.Option("--name", help="What to call it; that of SOURCE if not given."),
    ] = None,
    replaces: Annotated[
        bool, typer.Option("--replace", help="Replace a file of that name.")
    ] = False,
    specs_folder: Annotated[
        Path | None,
        typer.Option(
            "--specs", help="The folder to keep it in; ./hardware_specs if not given.",
            metavar="DIR",
        ),
    ] = None,
) -> None:  # fmt: skip
    """Keep a model in a folder of own specs, where requests find it by its name."""
    from planner.estimators.parameters import count_parameters
    from planner.show.views.spec_numbers import spec_kind
    from planner.specs.written import add_model

    path, model = add_model(spec_kind(kind), source, name, specs_folder, replaces)
    where = "" if specs_folder is None else f" --specs {specs_folder}"
    typer.echo(f"{path}: {model.name}, {count_parameters(model).total:,} parameters.")
    typer.echo(f"planner estimate --model {path.stem}{where} ...")
