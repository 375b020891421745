"""What a command starts from in place of options: a plan, a row of a result, a launch file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from planner.cli.options import Given, option_name
from planner.cli.request import given_answers
from planner.plan.given import parse_settings
from planner.question.inputs import read_all, whole
from planner.question.request import ALL, Request
from planner.question.terms import glossary

if TYPE_CHECKING:
    from planner.plan.pinned import PinnedPlan


def found_in(given: Given) -> tuple[Path, Request] | None:
    """The file of --plan or --from, and what it asks.

    A launch file of the user's becomes ``given["question"]``; ``given["launch_text"]`` is read in
    place of its text, ``given["launch_assumed"]`` are answers besides those of the user.
    """
    from planner.errors import PlannerError, SearchSpaceError

    plan, source, row = (given.get(name) for name in ("plan", "from_file", "row"))
    if source is None and row is not None:
        raise SearchSpaceError("--row needs --from: the file or directory whose row it is.")
    if plan is not None and source is not None:
        raise SearchSpaceError("--plan and --from both give a plan: leave one out.")
    path: Path | None = plan or source
    if path is None:
        return None
    number = None if row is None else whole(row, "--row")
    from planner.sweeps.any_plan import is_launch_file, pinned_in

    if source is not None and is_launch_file(source):
        from planner.launch.assumed import LaunchFile

        asked = {**given_answers(given).questions, **parse_settings(given["settings"] or [])}
        asked |= given.get("launch_assumed") or {}
        question = LaunchFile(
            path=source,
            asked=asked,
            specs=given["specs"],
            number=number,
            text=given.get("launch_text"),
            said=option_of,
        ).question()
        given["imported"], given["question"] = question.imported, question
        return source, question.request
    pinned = pinned_in(path, number, given["specs"])
    _tell_defaulted(path, pinned)
    try:
        return path, pinned.request()
    except PlannerError as error:
        raise type(error)(f"{path}: {error}") from error


def _tell_defaulted(path: Path, pinned: PinnedPlan) -> None:
    """Say on stderr which parameters a plan of an older version leaves to their defaults."""
    from planner.show.page import said
    from planner.show.terminal import make_console, write

    if names := pinned.defaulted:
        told = f"{path} lacks {len(names)} parameters, as plans of older versions do; each has"
        line = f"{told} its default: {', '.join(names)}."
        write(make_console(stderr=True), [said(line)])


def option_of(name: str) -> str:
    """How the user answers a question, or sets a parameter that has no option."""
    term = glossary().get(name)
    is_setting = term is not None and "parameter" in term.kind and not term.is_asked
    return f"--set {name}=VALUE" if is_setting else option_name(name)


def _count(given: str | None) -> str | None:
    """The number of GPUs where one is given; a search may be given several, or all."""
    if given is None:
        return None
    counts = read_all(glossary()["num_gpus"], given, "--gpus") if given != ALL else []
    return str(counts[0]) if len(counts) == 1 else None


def _one(given: str | None) -> str | None:
    """The GPU where one is given, not several or all."""
    return None if given is None or given == ALL or "," in given else given
