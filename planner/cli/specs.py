"""``planner specs``: what there is, what a spec says, whether it is right, and own ones."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

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


def _of_gpu(option: str, words: str, metavar: str = "QUANTITY") -> Any:
    return typer.Option(option, help=f"Of a GPU: {words}.", metavar=metavar)


Memory = Annotated[str | None, _of_gpu("--memory", "its memory, such as 96GiB")]
Bandwidth = Annotated[
    str | None, _of_gpu("--bandwidth", "bandwidth of its memory, such as 3.35TB/s")
]
Peak = Annotated[str | None, _of_gpu("--peak", "dense peak in bf16, such as 400TFLOP/s")]
Link = Annotated[
    str | None, _of_gpu("--link", "its link to others, in one direction, such as 64GB/s")
]
Power = Annotated[str | None, _of_gpu("--power", "thermal design power, such as 350W")]
Fp8Peak = Annotated[str | None, _of_gpu("--fp8-peak", "dense peak in fp8, if it has any")]
Vendor = Annotated[
    str, _of_gpu("--vendor", "its maker, whose engines and frameworks run on it", "VENDOR")
]
Architecture = Annotated[
    str,
    _of_gpu("--architecture", "its generation, as engine profiles name it, such as ada", "NAME"),
]
Source = Annotated[str, _of_gpu("--source", "where its figures are from", "TEXT")]


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
        str, typer.Argument(help="model or gpu.", metavar="KIND", autocompletion=complete.kinds)
    ],
    source: Annotated[
        str,
        typer.Argument(
            help="Of a model ORG/NAME of Hugging Face, a config.json, its folder, or a name; "
            "of a GPU what to call it.",
            metavar="SOURCE",
        ),
    ],
    name: Annotated[
        str | None,
        typer.Option("--name", help="What to call it; that of SOURCE if not given."),
    ] = None,
    memory: Memory = None,
    bandwidth: Bandwidth = None,
    peak: Peak = None,
    link: Link = None,
    power: Power = None,
    fp8_peak: Fp8Peak = None,
    vendor: Vendor = "NVIDIA",
    architecture: Architecture = "",
    figures_source: Source = "a datasheet",
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
    """Keep a model, or a GPU by its datasheet, in a folder of own specs."""
    from planner.errors import SpecError
    from planner.estimators.parameters import count_parameters
    from planner.show.views.spec_numbers import spec_kind
    from planner.specs.datasheet import Datasheet, add_gpu
    from planner.specs.paths import SpecKind
    from planner.specs.written import add_model

    kept = spec_kind(kind)
    where = "" if specs_folder is None else f" --specs {specs_folder}"
    if kept is SpecKind.GPUS:
        sheet = Datasheet(
            name=name or source, memory=memory, bandwidth=bandwidth, peak=peak, link=link,
            power=power, fp8_peak=fp8_peak, vendor=vendor, architecture=architecture,
            source=figures_source,
        )  # fmt: skip
        path = add_gpu(sheet, specs_folder, replaces)
        typer.echo(f"{path}: what kernels reach is assumed, and intervals are wide.")
        typer.echo(f"planner search --gpu {path.stem}{where} ...")
        return
    if any((memory, bandwidth, peak, link, power, fp8_peak)):
        raise SpecError(f"--memory, --peak and the like are of a GPU, not of a {kind}.")
    path, model = add_model(kept, source, name, specs_folder, replaces)
    typer.echo(f"{path}: {model.name}, {count_parameters(model).total:,} parameters.")
    typer.echo(f"planner estimate --model {path.stem}{where} ...")
