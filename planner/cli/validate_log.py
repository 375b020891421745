"""``planner validate --log``: a run as its log tells it, beside the plan that it ran."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import typer


def validate_log(
    log: Path | None,
    plan: Path | None,
    log_format: str | None,
    *,
    output: Path | None,
    specs: Path | None,
    others: Mapping[str, object],
    quiet: bool,
) -> None:
    """Compare a log with the prediction of its plan, and keep its row in ``output``.

    ``others`` are options that mean nothing beside a log.

    Raises
    ------
    LaunchError
        The log cannot be read, or is of another run than the plan's.
    CalibrationError
        Nothing of it is predicted, or no row can tell it.
    """
    from planner.base.files import STDOUT, check_path
    from planner.errors import CalibrationError, SpecError
    from planner.launch.logs.compare import compare
    from planner.launch.logs.formats import read_log
    from planner.launch.logs.planned import Planned
    from planner.report.measured import add_row, comparison_blocks
    from planner.show.terminal import make_console, write
    from planner.validation.inference.cases import Mode

    extra = [name for name, given in others.items() if given is not None]
    if extra:
        raise SpecError(f"--log compares a log with its plan alone: leave out {extra[0]}.")
    if log is None:
        raise SpecError("--plan and --log-format belong to --log FILE, the log of the run.")
    if plan is None:
        raise SpecError(
            f"--log {log} needs --plan FILE, the plan that ran: `planner search --save-plan` "
            "writes it."
        )
    if output is not None:
        if output == STDOUT:
            raise SpecError("--output adds the row of a log to a file, it cannot be stdout.")
        check_path(output)
    planned = Planned.read(plan, specs)
    found = compare(read_log(log, log_format), planned, log.name)
    if not quiet:
        write(make_console(), comparison_blocks(found, planned, log))
    if all(one.predicted is None for one in found.quantities):
        raise CalibrationError(f"{log}: nothing that it measured is predicted for {plan}.")
    if output is None:
        return
    added = add_row(output, found, planned)
    if not quiet:
        done = "has the run" if added else "had the run already"
        command = f"planner calibrate {output} --output my_profile.toml fits to it"
        if found.cells.get("mode") == Mode.DISAGGREGATED:
            command = "planner validate reads it; profiles are not fitted to pools of workers"
        typer.echo(f"\n{output} {done}: {command}")
