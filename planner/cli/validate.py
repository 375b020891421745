"""``planner validate`` and ``planner calibrate``: predictions against measured runs, and fits."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from planner.cli import options
from planner.cli.options import OptionValues, picture_of

if TYPE_CHECKING:
    from planner.base.enums import TemplateKind


def validate_log(values: OptionValues) -> None:
    """Compare a log with the prediction of its plan, and keep its row in ``--output``.

    Raises LaunchError if the log cannot be read, or is of another run than the plan's.
    Raises CalibrationError if none of its quantities is predicted, or the run cannot be a row.
    """
    from planner.base.atomic_write import STDOUT, check_path
    from planner.errors import CalibrationError, SpecError
    from planner.logs.formats import read_log
    from planner.show.presenters.validation import (
        add_row,
        comparison_blocks,
        share_blocks,
        write_shared_row,
    )
    from planner.show.terminal import make_console, print_blocks
    from planner.validation.inference.cases import Mode
    from planner.validation.logs.log_comparison import compare
    from planner.validation.logs.predicted_run import PredictedRun

    log, plan, output, share = (values[name] for name in ("log", "plan", "output", "share"))
    for name in ("runs", "template", "profile", "plot", "where"):
        if values[name]:
            option = "RUNS" if name == "runs" else f"--{name}"
            raise SpecError(f"--log compares a log with its plan alone: leave out {option}.")
    if log is None:
        raise SpecError(
            "--plan, --log-format and --share belong to --log FILE, the log of the run."
        )
    if plan is None:
        raise SpecError(
            f"--log {log} needs --plan FILE, the plan that ran: `planner search --save-plan` "
            "writes it."
        )
    if output is not None:
        if output == STDOUT:
            raise SpecError("--output adds the row of a log to a file, not to stdout.")
        check_path(output)
    if share is not None:
        if share == output:
            raise SpecError("--share and --output are two files: one for others, one of yours.")
        check_path(share)
    predicted_run = PredictedRun.read(plan, values["specs"])
    comparison = compare(read_log(log, values["log_format"]), predicted_run, log.name)
    if not values["quiet"]:
        console = make_console(stderr=share == STDOUT)
        print_blocks(console, comparison_blocks(comparison, predicted_run, log))
    if all(quantity.predicted is None for quantity in comparison.quantities):
        raise CalibrationError(f"{log}: nothing that it measured is predicted for {plan}.")
    if share is not None:
        write_shared_row(share, comparison, predicted_run)
        if not values["quiet"]:
            print_blocks(make_console(stderr=share == STDOUT), share_blocks(share, predicted_run))
    if output is None:
        return
    added = add_row(output, comparison, predicted_run)
    if not values["quiet"]:
        done = "has the run" if added else "had the run already"
        command = f"planner calibrate {output} --output my_profile.toml fits to it"
        if comparison.cells.get("mode") == Mode.DISAGGREGATED:
            command = "planner validate reads it; profiles are not fitted to pools of workers"
        typer.echo(f"\n{output} {done}: {command}")


@options.with_command_options("validate")
def validate(values: options.OptionValues) -> None:
    """Predict measured runs and show the errors.

    The runs are of training, inference or RL. Select some with --where. Use --log to read a run
    from its log, then --output to add it to a table for `planner calibrate`, or --share to write
    an anonymous row for others. Exits with 5 if no row has both a measurement and a prediction.
    """
    if any(values[name] is not None for name in ("log", "plan", "log_format", "share")):
        return validate_log(values)
    from planner.base.atomic_write import STDOUT, check_path
    from planner.errors import CalibrationError, SpecError
    from planner.show.presenters.validation import (
        not_understood,
        nothing_compared,
        validation_blocks,
        write_predictions,
    )
    from planner.show.terminal import make_console, print_blocks, progress_bar
    from planner.specs.catalogue import Catalogue
    from planner.validation.accuracy import kind_of
    from planner.validation.spec_library import Library, replacing
    from planner.validation.validated_runs import predict_runs

    catalogue, quiet = Catalogue(values["specs"]), values["quiet"]
    runs, output, profile = values["runs"], values["output"], values["profile"]
    if output is not None:
        check_path(output)
    picture = picture_of("validate", values)
    if values["template"] is not None:
        if runs is not None:
            raise SpecError(f"--template writes a table, it does not read {runs}: use --output.")
        return _write_template(values["template"], output or STDOUT)
    library = Library(catalogue=catalogue) if profile is None else replacing(profile, catalogue)
    bar = partial(progress_bar, quiet=quiet)
    validated = predict_runs(runs, values["where"] or (), library, bar)
    if output is not None:
        write_predictions(output, validated.tables)
    if picture is not None and validated.is_compared:
        from planner.show.presenters.plots.picture import draw

        source_name = "published runs" if runs is None else runs.name
        title = f"How close are predictions to {source_name}?"
        draw(picture, title, [rows for _, rows in validated.tables])
    if not quiet:
        for table, rows in validated.tables:
            blocks = validation_blocks(kind_of(table), rows)
            print_blocks(make_console(stderr=output == STDOUT), blocks)
    for line in (line for table, _ in validated.tables for line in not_understood(table)):
        typer.echo(line, err=True)
    if not validated.is_compared:
        raise CalibrationError(nothing_compared(*validated.tables[0]))
    return None


def _write_template(kind: TemplateKind, path: Path) -> None:
    """Write the CSV template of a table of measured runs of this kind."""
    import csv

    from planner.base.atomic_write import write_atomically
    from planner.validation.run_tables import template

    with write_atomically(path) as stream:
        csv.writer(stream, lineterminator="\n").writerows(template(kind))


@options.with_command_options("calibrate")
def calibrate(values: options.OptionValues) -> None:
    """Fit a framework or engine profile to measured runs."""
    from planner.base.atomic_write import check_path, write_atomically
    from planner.show.terminal import make_console, print_blocks
    from planner.specs.catalogue import Catalogue
    from planner.validation.calibration import require_fitting
    from planner.validation.fitted_profile import profile_text

    require_fitting()
    catalogue, output = Catalogue(values["specs"]), values["output"]
    check_path(output)
    from planner.show.presenters.validation import calibration_blocks
    from planner.show.terminal import progress_bar
    from planner.validation.calibration import CALIBRATED, chosen_parameters, measured_runs
    from planner.validation.fit_parameters import fit, number_of_fits
    from planner.validation.run_tables import read_runs
    from planner.validation.spec_library import Library

    table, library = read_runs(values["runs"]), Library(catalogue=catalogue)
    kind = CALIBRATED[table.kind]
    framework = values["framework"]
    stem = None if framework is None else catalogue.find(kind.profiles, framework).stem
    name, rows = measured_runs(table, library, stem)
    profile = kind.load(library, name)
    parameters = chosen_parameters(kind.parameters(profile), profile.name, values["parameter"])
    with progress_bar(number_of_fits(rows), "fits", quiet=values["quiet"]) as progress:
        fitted = fit(rows, parameters, progress)
    origin = f"fitted to {fitted.runs} runs of {values['runs'].name} by planner calibrate"
    gpus = dict.fromkeys(row.case.gpu.name for row in rows)
    with write_atomically(output) as file:
        file.write(profile_text(catalogue.find(kind.profiles, name), fitted, origin, [*gpus]))
    if not values["quiet"]:
        print_blocks(make_console(), calibration_blocks(profile.name, fitted, kind.time))
        typer.echo(f"\nWritten to {output}: use it with {kind.option} {output}")
