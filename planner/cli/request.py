"""From the options that were given to a request."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import typer

from planner.cli.how import HOW
from planner.cli.options import Given, is_given, option_name
from planner.question.inputs import read, whole
from planner.question.request import Request
from planner.question.terms import glossary
from planner.workloads.given import make_request as _make_request
from planner.workloads.given import parse_settings, question_of, read_burst

if TYPE_CHECKING:
    from planner.workloads.pinned import PinnedPlan


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


# Options that do nothing alone: what they need, and whether it is there.
_NEEDS: dict[str, tuple[str, Callable[[Given], bool]]] = {
    "all_rows": ("--csv or --json", lambda given: bool(given["csv"] or given["json"])),
    "compare_api": (
        "the report or --json: leave out --quiet",
        lambda given: bool(given["json"]) or not given["quiet"],
    ),
    "top": ("the report: leave out --quiet", lambda given: not given["quiet"]),
    "full": ("the report: leave out --quiet", lambda given: not given["quiet"]),
    "write": (
        "--from with a launch file of yours",
        lambda given: given.get("imported") is not None,
    ),
    "wrapper": (
        "--launch: the tool whose files are written",
        lambda given: bool(given.get("launch") or given.get("target")),
    ),
    "launch_output": (
        "--launch: the tool whose files are written",
        lambda given: bool(given.get("launch") or given.get("target")),
    ),
}
_OTHERS = {"context", *HOW} - {"num_gpus", "precision"}
# Behind a length: who means 8192 writes 8Ki.
_THOUSANDS = ("k", "K", "M")


def make_request(given: Given, *, is_search: bool = False) -> Request:
    """A `planner.Request` from what was given; a search leaves the layout of a file open.

    Raises
    ------
    SpecError, SearchSpaceError
        A text is not what its option takes, the workload knows no such option, or it does
        nothing alone.
    """
    plan = _plan_of(given)
    if plan is not None and is_search:
        given["own"] = plan
        plan = question_of(plan)
    questions, bounds = given_answers(given)
    asked: dict[str, object] = {"workload": given["workload"], "specs": given["specs"], **questions}
    if plan is None or is_search:
        words = ",".join(given.get("objective") or [])
        asked |= {"objectives": words or None, "constraints": bounds}
    settings = parse_settings(given["settings"] or [])
    request = _make_request({**asked, "settings": settings}, base=plan, said=option_name)
    _refuse_useless(given)
    if given.get("compare_api"):
        from planner.decide.api_comparison import check_comparable

        check_comparable(given["workload"], option_name)
    given["burst"] = read_burst(request.workload, given.get("burst"), option_name)
    given["top"] = whole(given.get("top", 1), "--top", 1)
    _tell_lengths(given)
    return request


def as_started(given: Given, request: Request) -> Request:
    """The request of a launch file as its engine runs it, as every command judges it; says what
    that changes on stderr. Others stay as they are."""
    if given.get("imported") is None:
        return request
    from planner.launch.judge import as_started as started_by_engine
    from planner.show.page import said
    from planner.show.terminal import make_console, write

    started, notes = started_by_engine(request, given.get("burst"))
    if not given["quiet"]:
        write(make_console(stderr=True), [said(*notes)])
    return started


class Answers(NamedTuple):
    """What was given for questions, and for limits, by name."""

    questions: dict[str, object]
    limits: dict[str, object]


def given_answers(given: Given) -> Answers:
    """The questions and limits that the user answered."""
    answers = Answers({}, {})
    for name in given:
        if name in _OTHERS or not is_given(given, name):
            continue
        term = glossary().get(name)
        if term is not None and "sizing" in term.kind:
            continue
        is_limit = term is not None and "limit" in term.kind and "question" not in term.kind
        (answers.limits if is_limit else answers.questions)[name] = given[name]
    return answers


def _plan_of(given: Given) -> Request | None:
    """The request of the plan file that was given; its workload is that of the command then."""
    from planner.errors import SearchSpaceError

    found = found_in(given)
    if found is None:
        return None
    path, plan = found
    if is_given(given, "workload") and given["workload"] != plan.workload:
        raise SearchSpaceError(
            f"{path} is a plan of --workload {plan.workload}: leave --workload out."
        )
    given["workload"] = plan.workload
    return plan


def _refuse_useless(given: Given) -> None:
    from planner.errors import SearchSpaceError

    for name, (needed, is_there) in _NEEDS.items():
        if is_given(given, name) and not is_there(given):
            raise SearchSpaceError(f"{option_name(name)} needs {needed}.")


def _tell_lengths(given: Given) -> None:
    """Say how many tokens 8k are: lengths are often meant in powers of two."""
    for name, term in glossary().items():
        text = str(given.get(name) or "").strip()
        is_length = term.type == "count" and term.unit == "tokens"
        if given["quiet"] or not is_length or not text.endswith(_THOUSANDS):
            continue
        other = f"{text[:-1]}{text[-1].upper()}i"
        typer.echo(
            f"{term.option_name} {text}: {read(term, text):,} tokens; {other} would be "
            f"{read(term, other):,}.",
            err=True,
        )
