"""``planner specs``: what there is, what a spec says, whether it is right, and own ones."""

from __future__ import annotations

import typer

from planner.cli import options
from planner.cli.app import PlainCommand, PlainGroup

specs = typer.Typer(
    cls=PlainGroup,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    help="List, show, validate and add specs.",
)


@specs.command("list", cls=PlainCommand)
@options.own("specs list")
def list_specs(given: options.Given) -> None:
    """Show all specs of a kind with key figures, or the kinds."""
    from planner.show.terminal import make_console, write
    from planner.show.views.spec_numbers import kinds_blocks, list_blocks, spec_kind
    from planner.specs.catalogue import Catalogue

    catalogue = Catalogue(given["specs"])
    console = make_console()
    if given["kind"]:
        write(console, list_blocks(spec_kind(given["kind"]), catalogue))
    else:
        write(console, kinds_blocks(catalogue))


@specs.command("show", cls=PlainCommand)
@options.own("specs show")
def show(given: options.Given) -> None:
    """Show every number of a spec with its unit and its source."""
    from planner.show.terminal import make_console, write
    from planner.show.views.spec_numbers import spec_blocks, spec_kind
    from planner.specs.catalogue import Catalogue

    catalogue = Catalogue(given["specs"])
    write(make_console(), spec_blocks(spec_kind(given["kind"]), given["name"], catalogue))


@specs.command("validate", cls=PlainCommand)
@options.own("specs validate")
def validate(given: options.Given) -> None:
    """Check spec files and print every fault of every one."""
    from planner.errors import SpecError
    from planner.show.views.spec_numbers import check_files, files_to_check
    from planner.specs.catalogue import Catalogue

    catalogue = Catalogue(given["specs"])
    files = files_to_check(given["targets"] or [], catalogue)
    faults = check_files(files, catalogue)
    if faults:
        raise SpecError("\n".join(faults))
    typer.echo(f"{len(files)} files checked, no faults.")


@specs.command("add", cls=PlainCommand)
@options.own("specs add")
def add(given: options.Given) -> None:
    """Keep a model, or a GPU by its datasheet, in a folder of own specs."""
    from planner.errors import SpecError
    from planner.layers.model import count_parameters
    from planner.show.views.spec_numbers import spec_kind
    from planner.specs.paths import SpecKind
    from planner.specs.written import Datasheet, add_gpu, add_model

    kind, folder, replaces = given["kind"], given["specs"], given["replaces"]
    kept = spec_kind(kind)
    where = "" if folder is None else f" --specs {folder}"
    figures = {
        name: given[name] for name in ("memory", "bandwidth", "peak", "link", "power", "fp8_peak")
    }
    if kept is SpecKind.GPUS:
        sheet = Datasheet(
            name=given["name"] or given["source"], **figures, vendor=given["vendor"],
            architecture=given["architecture"] or "", source=given["figures_source"],
        )  # fmt: skip
        path = add_gpu(sheet, folder, replaces)
        typer.echo(f"{path}: what kernels reach is assumed, and intervals are wide.")
        typer.echo(f"planner search --gpu {path.stem}{where} ...")
        return
    if any(figures.values()):
        raise SpecError(f"--memory, --peak and the like are for a GPU, not a {kind}.")
    path, model = add_model(kept, given["source"], given["name"], folder, replaces)
    typer.echo(f"{path}: {model.name}, {count_parameters(model).total:,} parameters.")
    typer.echo(f"planner estimate --model {path.stem}{where} ...")
