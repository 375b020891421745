"""Runs a command with the options of the command line, writes its files and prints it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import typer

from planner.cli.options import OptionValues, is_set
from planner.commands.command import Answering, Call, PlanQuestion
from planner.commands.options import option_name, setting_name
from planner.question.parse_values import parse_value
from planner.question.terms import glossary
from planner.workloads.build_request import parse_settings

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from planner.optimize.exhaustive import Progress
    from planner.show.presenters.plots.picture import Picture

Result = TypeVar("Result")

# Options that need another option: the option, and whether it is set.
_NEEDS: dict[str, tuple[str, Callable[[OptionValues], bool]]] = {
    "all_rows": ("--csv or --json", lambda values: bool(values["csv"] or values["json"])),
    "compare_api": (
        "the report or --json: leave out --quiet",
        lambda values: bool(values["json"]) or not values["quiet"],
    ),
    "top": ("the report: leave out --quiet", lambda values: not values["quiet"]),
    "full": ("the report: leave out --quiet", lambda values: not values["quiet"]),
    "wrapper": (
        "--launch: the tool whose files are written",
        lambda values: bool(values.get("launch") or values.get("target")),
    ),
    "launch_output": (
        "--launch: the tool whose files are written",
        lambda values: bool(values.get("launch") or values.get("target")),
    ),
}
# Suffixes of a length in thousands; 8192 is written as 8Ki.
_THOUSANDS = ("k", "K", "M")
_STOPPABLE = ("configurations", "trials", "scenarios", "scenarios in tables")
_FIELDS = ("num_gpus", "precision")


def call_of(values: OptionValues) -> Call:
    """Return the call of a command: the values of the options that the user set."""
    request: dict[str, object] = {}
    extra: dict[str, object] = {}
    limits: dict[str, object] = {}
    for name in values:
        term = glossary().get(name)
        if not is_set(values, name) or name in ("workload", "specs", "settings", "objective"):
            continue
        if (term is None and name not in _FIELDS) or (term is not None and "sizing" in term.kind):
            extra[name] = values[name]
        elif term is not None and "limit" in term.kind and "question" not in term.kind:
            limits[name] = values[name]
        else:
            request[name] = values[name]
    request |= {"constraints": limits} if limits else {}
    if settings := parse_settings(values.get("settings") or []):
        request["settings"] = settings
    if objectives := values.get("objective"):
        request["objectives"] = ",".join(objectives)
    if is_set(values, "workload"):
        request["workload"] = values["workload"]
    if values["specs"] is not None:
        request["specs"] = values["specs"]
    return Call(
        request=request,
        extra=extra,
        option_name=option_name,
        setting_name=setting_name,
        bar=partial(_bar, quiet=values["quiet"]),
        note=_print_note if not values["quiet"] else lambda *_: None,
        warn=_print_note,
        check=partial(_check_options, values),
    )


def _bar(total: int, unit: str, *, quiet: bool) -> AbstractContextManager[Progress | None]:
    """Return a progress bar; a search and a sweep can be interrupted."""
    from planner.show.terminal import progress_bar, stoppable_bar

    return (stoppable_bar if unit in _STOPPABLE else progress_bar)(total, unit, quiet=quiet)


def _print_note(*lines: str) -> None:
    """Print lines on stderr."""
    from planner.show.output_blocks import make_lines
    from planner.show.terminal import make_console, print_blocks

    print_blocks(make_console(stderr=True), [make_lines(*lines)])


def _check_options(values: OptionValues, question: PlanQuestion) -> None:
    """Check the options that need another one, and print how many tokens lengths such as 8k are.

    Powers of two are common, so that 8k may be meant as 8Ki.
    """
    from planner.errors import SearchSpaceError

    for name, (needed, is_there) in _NEEDS.items():
        if is_set(values, name) and not is_there(values):
            raise SearchSpaceError(f"{option_name(name)} needs {needed}.")
    if is_set(values, "write") and question.launch is None:
        raise SearchSpaceError("--write needs --from with a launch file of yours.")
    for name, term in glossary().items():
        text = str(values.get(name) or "").strip()
        is_length = term.type == "count" and term.unit == "tokens"
        if values["quiet"] or not is_length or not text.endswith(_THOUSANDS):
            continue
        other = f"{text[:-1]}{text[-1].upper()}i"
        typer.echo(
            f"{term.option_name} {text}: {parse_value(term, text):,} tokens; {other} would be "
            f"{parse_value(term, other):,}.",
            err=True,
        )


def check_files(values: OptionValues) -> None:
    """Raise OutputError for files that cannot be written."""
    from planner.base.atomic_write import check_outputs

    others = (values.get(name) for name in ("save_plan", "mocker_profile"))
    check_outputs(values.get("csv"), values.get("json"), *others)


def uses_stdout(values: OptionValues) -> bool:
    """Whether rows are written to stdout, so that the report goes to stderr."""
    return Path("-") in (values.get("csv"), values.get("json"))


def run_command(
    values: OptionValues,
    command: Answering[Result],
    call: Call | None = None,
    picture: Picture | None = None,
) -> Result:
    """Run a command, write its files, draw its picture, print it, and return its result.

    Raises PlannerError if a value is invalid; or at the end if the result is infeasible.
    """
    return show_result(values, command, command.answer(call or call_of(values)), picture)


def show_result(
    values: OptionValues,
    command: Answering[Result],
    result: Result,
    picture: Picture | None = None,
    after: Callable[[Result], None] | None = None,
) -> Result:
    """Write, draw and print a result, and call ``after``.

    Raises PlannerError at the end if the result is infeasible.
    """
    problem = command.problem(result)
    csv, json = values.get("csv"), values.get("json")
    if (csv or json) and (problem is None or command.is_written(result)):
        from planner.show.presenters.row_tables import row_files

        with row_files(csv, json) as files:
            command.write(files, result, values["context"].obj)
    if picture is not None and command.draw is not None and problem is None:
        command.draw(picture, result)
    if not values["quiet"]:
        print_result(values, command, result)
        if problem:
            problem = command.brief_problem(result) or problem
    if after is not None:
        after(result)
    if error := problem or command.warn(result):
        raise error
    return result


def print_result(values: OptionValues, command: Answering[Result], result: Result) -> None:
    """Print the blocks of a result; on stderr if rows go to stdout."""
    from planner.show.terminal import make_console, print_blocks

    console = make_console(stderr=uses_stdout(values))
    print_blocks(console, command.present(result, bool(values.get("full"))))
