"""``planner calibrate``: a framework or engine profile fitted to the user's own runs."""

from __future__ import annotations

import typer

from planner.cli import options


@options.own("calibrate")
def calibrate(given: options.Given) -> None:
    """Fit a framework or engine profile to measured runs."""
    from planner.base.files import check_path, written_whole
    from planner.show.terminal import make_console, write
    from planner.specs.catalogue import Catalogue
    from planner.validation.calibration import profile_text, require_fitting

    require_fitting()
    catalogue, output = Catalogue(given["specs"]), given["output"]
    check_path(output)
    from planner.show.terminal import progress_bar
    from planner.show.views.validation import calibration_blocks
    from planner.validation.calibration import (
        CALIBRATED,
        chosen_parameters,
        measured_runs,
        parameters_of,
    )
    from planner.validation.fit import fit, number_of_fits
    from planner.validation.library import Library
    from planner.validation.runs import read_runs

    table, library = read_runs(given["runs"]), Library(catalogue=catalogue)
    kind = CALIBRATED[table.kind]
    framework = given["framework"]
    stem = None if framework is None else catalogue.find(kind.profiles, framework).stem
    name, rows = measured_runs(table, library, stem)
    profile = kind.load(library, name)
    parameters = chosen_parameters(parameters_of(profile), profile.name, given["parameter"])
    with progress_bar(number_of_fits(rows), "fits", quiet=given["quiet"]) as progress:
        found = fit(rows, parameters, progress)
    origin = f"fitted to {found.runs} runs of {given['runs'].name} by planner calibrate"
    with written_whole(output) as file:
        file.write(profile_text(catalogue.find(kind.profiles, name), found, origin))
    if not given["quiet"]:
        write(make_console(), calibration_blocks(profile.name, found, kind.time))
        typer.echo(f"\nWritten to {output}: use it with {kind.option} {output}")
