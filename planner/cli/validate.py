"""``planner validate``: predictions against measured runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from planner.cli import options

if TYPE_CHECKING:
    from planner.validation.predict import Prediction
    from planner.validation.runs import Runs

RunsFile = Annotated[
    Path | None,
    typer.Argument(help="A CSV of measured runs; the published ones if not given."),
]
Output = Annotated[
    Path | None,
    typer.Option(help="Write the runs with their predictions as CSV.", metavar="FILE"),
]

Profile = Annotated[
    Path | None,
    typer.Option(
        help="A profile of `planner calibrate`, in place of the shipped one of its name.",
        metavar="FILE",
    ),
]


def validate(
    runs: RunsFile = None,
    output: Output = None,
    profile: Profile = None,
    specs: options.Specs = None,
    quiet: options.Quiet = False,
) -> None:
    """Predict measured training runs and show how far off the predictions are."""
    from planner.report.console import make_console
    from planner.report.files import STDOUT, check_path
    from planner.report.validation import print_validation, write_predictions
    from planner.specs.paths import use_specs_folder
    from planner.validation.compare import joined
    from planner.validation.runs import SHIPPED, read_runs

    use_specs_folder(specs)
    if output is not None:
        check_path(output)
    table = read_runs(runs or SHIPPED)
    rows = joined(table, _predictions(table, profile, quiet=quiet))
    if output is not None:
        write_predictions(output, table, rows)
    if not quiet:
        print_validation(make_console(stderr=output == STDOUT), rows)


def _predictions(table: Runs, profile: Path | None, *, quiet: bool) -> list[Prediction]:
    from planner.report.progress import progress_bar
    from planner.validation.library import Library, replacing
    from planner.validation.predict import predict

    library = Library(profiles=replacing(profile) if profile is not None else {})
    with progress_bar(len(table.rows), "runs", quiet=quiet) as progress:
        return predict(table, library, progress=progress)
