"""``planner calibrate``: a framework or engine profile fitted to the user's own runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from planner.cli import options

if TYPE_CHECKING:
    from planner.calibration.fit import Fit
    from planner.validation.library import Library
    from planner.validation.runs import Runs

RunsFile = Annotated[
    Path, typer.Argument(help="A CSV of measured runs, in the columns of `planner validate`.")
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
        help="Fit this shipped profile; that of most rows if not given.", metavar="FRAMEWORK"
    ),
]


def calibrate(
    runs: RunsFile,
    output: Output,
    framework: Framework = None,
    parameter: Parameters = None,
    specs: options.Specs = None,
    quiet: options.Quiet = False,
) -> None:
    """Fit a framework or engine profile to measured runs."""
    from planner.calibration.profile_file import profile_text, require_fitting
    from planner.report.console import make_console
    from planner.report.files import check_path, written_whole
    from planner.specs.catalogue import Catalogue

    require_fitting()
    catalogue = Catalogue(specs)
    check_path(output)
    from planner.report.calibration import print_calibration
    from planner.validation.columns import TableKind
    from planner.validation.library import Library
    from planner.validation.runs import read_runs

    table = read_runs(runs)
    training = table.kind is TableKind.TRAINING
    kind = "frameworks" if training else "engines"
    stem = None if framework is None else catalogue.find(kind, framework).stem
    fitted = _fitted_framework if training else _fitted_engine
    library = Library(catalogue=catalogue)
    name, title, found = fitted(table, library, stem, parameter, quiet=quiet)
    origin = f"fitted to {found.runs} runs of {runs.name} by planner calibrate"
    with written_whole(output) as file:
        file.write(profile_text(catalogue.find(kind, name), found, origin))
    if not quiet:
        print_calibration(make_console(), title, found, "step time" if training else "times")
        option = "--profile" if training else "--engine"
        typer.echo(f"\nWritten to {output}: use it with {option} {output}")


def _fitted_framework(
    table: Runs, library: Library, stem: str | None, names: list[str] | None, *, quiet: bool
) -> tuple[str, str, Fit]:
    from planner.calibration.fit import fit, log_ratios, number_of_fits
    from planner.calibration.parameters import parameters_of
    from planner.calibration.runs import measured_runs
    from planner.report.progress import progress_bar

    name, rows = measured_runs(table, library, stem)
    profile = library.framework(name)
    parameters = parameters_of(profile, names)
    with progress_bar(number_of_fits(rows), "fits", quiet=quiet) as progress:
        return name, profile.name, fit(rows, parameters, log_ratios, progress)


def _fitted_engine(
    table: Runs, library: Library, stem: str | None, names: list[str] | None, *, quiet: bool
) -> tuple[str, str, Fit]:
    from planner.calibration.fit import fit, number_of_fits
    from planner.calibration.inference import (
        engine_parameters,
        inference_log_ratios,
        measured_inference,
    )
    from planner.report.progress import progress_bar

    name, rows = measured_inference(table, library, stem)
    engine = library.engine(name)
    parameters = engine_parameters(engine, names)
    with progress_bar(number_of_fits(rows), "fits", quiet=quiet) as progress:
        return name, engine.name, fit(rows, parameters, inference_log_ratios, progress)
