"""``planner calibrate``: a framework or engine profile fitted to the user's own runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from planner.cli import complete, how

RunsFile = Annotated[
    Path,
    typer.Argument(
        help="A CSV of measured runs, in the columns of `planner validate`.", metavar="RUNS"
    ),
]
Output = Annotated[Path, typer.Option(help="Write the fitted profile here.", metavar="FILE")]
Parameters = Annotated[
    list[str] | None,
    typer.Option(
        "--parameter",
        help="Fit this one, such as execution.layer_launch_time; repeatable; all if not given.",
        metavar="NAME",
    ),
]
Framework = Annotated[
    str | None,
    typer.Option(
        help="Fit this shipped profile; that of most rows if not given.",
        metavar="FRAMEWORK",
        autocompletion=complete.profiles,
    ),
]


def calibrate(
    runs: RunsFile,
    output: Output,
    framework: Framework = None,
    parameter: Parameters = None,
    specs: how.Specs = None,
    quiet: how.Quiet = False,
) -> None:
    """Fit a framework or engine profile to measured runs."""
    from planner.base.files import check_path, written_whole
    from planner.show.terminal import make_console, write
    from planner.specs.catalogue import Catalogue
    from planner.validation.fitted_profile import profile_text, require_fitting

    require_fitting()
    catalogue = Catalogue(specs)
    check_path(output)
    from planner.show.terminal import progress_bar
    from planner.show.views.calibration import calibration_blocks
    from planner.validation.calibration import (
        CALIBRATED,
        chosen_parameters,
        measured_runs,
        parameters_of,
    )
    from planner.validation.fit import fit, number_of_fits
    from planner.validation.library import Library
    from planner.validation.runs import read_runs

    table, library = read_runs(runs), Library(catalogue=catalogue)
    kind = CALIBRATED[table.kind]
    stem = None if framework is None else catalogue.find(kind.profiles, framework).stem
    name, rows = measured_runs(table, library, stem)
    profile = kind.load(library, name)
    parameters = chosen_parameters(parameters_of(profile), profile.name, parameter)
    with progress_bar(number_of_fits(rows), "fits", quiet=quiet) as progress:
        found = fit(rows, parameters, progress)
    origin = f"fitted to {found.runs} runs of {runs.name} by planner calibrate"
    with written_whole(output) as file:
        file.write(profile_text(catalogue.find(kind.profiles, name), found, origin))
    if not quiet:
        write(make_console(), calibration_blocks(profile.name, found, kind.time))
        typer.echo(f"\nWritten to {output}: use it with {kind.option} {output}")
