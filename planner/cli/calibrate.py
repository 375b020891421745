"""``planner calibrate``: a framework profile fitted to the user's own runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from planner.cli import options

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
    """Fit a framework profile to measured runs."""
    from planner.calibration.profile_file import profile_text, require_fitting
    from planner.report.console import make_console
    from planner.report.files import check_path, written_whole
    from planner.specs.catalogue import find
    from planner.specs.paths import use_specs_folder

    require_fitting()
    use_specs_folder(specs)
    check_path(output)
    from planner.calibration.fit import fit
    from planner.calibration.parameters import parameters_of
    from planner.calibration.runs import measured_runs
    from planner.report.calibration import print_calibration
    from planner.validation.library import Library
    from planner.validation.runs import read_runs

    library = Library()
    stem = None if framework is None else find("frameworks", framework).stem
    name, rows = measured_runs(read_runs(runs), library, stem)
    profile = library.framework(name)
    found = fit(rows, parameters_of(profile, parameter))
    origin = f"fitted to {found.rows} runs of {runs.name} by planner calibrate"
    with written_whole(output) as file:
        file.write(profile_text(find("frameworks", name), found, origin))
    if not quiet:
        print_calibration(make_console(), profile.name, found)
        typer.echo(f"\nWritten to {output}: use it with --profile {output}")
