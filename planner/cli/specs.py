"""``planner specs``: list, show, validate and add specs."""

from __future__ import annotations

import typer

from planner.cli import options
from planner.cli.text_options import TextOptionCommand, TextOptionGroup

specs = typer.Typer(
    cls=TextOptionGroup,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    help="List, show, validate and add specs.",
)


@specs.command("list", cls=TextOptionCommand)
@options.with_command_options("specs list")
def list_specs(values: options.OptionValues) -> None:
    """Show all specs of a kind with key figures, or the kinds."""
    from planner.show.presenters.spec_numbers import kinds_blocks, list_blocks, spec_kind
    from planner.show.terminal import make_console, print_blocks
    from planner.specs.catalogue import Catalogue

    catalogue = Catalogue(values["specs"])
    console = make_console()
    if values["kind"]:
        print_blocks(console, list_blocks(spec_kind(values["kind"]), catalogue))
    else:
        print_blocks(console, kinds_blocks(catalogue))


@specs.command("show", cls=TextOptionCommand)
@options.with_command_options("specs show")
def show(values: options.OptionValues) -> None:
    """Show every number of a spec with its unit and its source."""
    from planner.show.presenters.spec_numbers import spec_blocks, spec_kind
    from planner.show.terminal import make_console, print_blocks
    from planner.specs.catalogue import Catalogue

    catalogue = Catalogue(values["specs"])
    print_blocks(make_console(), spec_blocks(spec_kind(values["kind"]), values["name"], catalogue))


@specs.command("validate", cls=TextOptionCommand)
@options.with_command_options("specs validate")
def validate(values: options.OptionValues) -> None:
    """Check spec files and print all errors."""
    from planner.errors import SpecError
    from planner.show.presenters.spec_numbers import check_files, files_of_arguments
    from planner.specs.catalogue import Catalogue

    catalogue = Catalogue(values["specs"])
    files = files_of_arguments(values["targets"] or [], catalogue)
    errors = check_files(files, catalogue)
    if errors:
        raise SpecError("\n".join(errors))
    typer.echo(f"{len(files)} files checked, no errors.")


@specs.command("add", cls=TextOptionCommand)
@options.with_command_options("specs add")
def add(values: options.OptionValues) -> None:
    """Add a model, or a GPU by its datasheet, to a folder of user specs."""
    from planner.errors import SpecError
    from planner.layers.model import count_parameters
    from planner.show.presenters.spec_numbers import spec_kind
    from planner.specs.spec_paths import SpecKind
    from planner.specs.spec_writer import Datasheet, add_gpu, add_model

    kind, folder, replaces = values["kind"], values["specs"], values["replaces"]
    spec_type = spec_kind(kind)
    specs_option = "" if folder is None else f" --specs {folder}"
    figures = {
        name: values[name] for name in ("memory", "bandwidth", "peak", "link", "power", "fp8_peak")
    }
    if spec_type is SpecKind.GPUS:
        sheet = Datasheet(
            name=values["name"] or values["source"], **figures, vendor=values["vendor"],
            architecture=values["architecture"] or "", source=values["figures_source"],
        )  # fmt: skip
        path = add_gpu(sheet, folder, replaces)
        typer.echo(f"{path}: kernel efficiencies are assumed, so intervals are wide.")
        typer.echo(f"planner search --gpu {path.stem}{specs_option} ...")
        return
    if any(figures.values()):
        raise SpecError(f"--memory, --peak and the like are for a GPU, not a {kind}.")
    path, model = add_model(spec_type, values["source"], values["name"], folder, replaces)
    typer.echo(f"{path}: {model.name}, {count_parameters(model).total:,} parameters.")
    typer.echo(f"planner estimate --model {path.stem}{specs_option} ...")
