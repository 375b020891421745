"""The options of commands, made from the table of terms, and the request that they make."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeAlias

import typer

from planner.base.csv_cells import Value
from planner.cli import completion
from planner.cli.help import HOW, OptionSpec, PlanningCommand, command_options
from planner.question.parse_values import parse_int, parse_value
from planner.question.request import Request
from planner.question.terms import Term, glossary
from planner.specs.file_cache import snapshot_files
from planner.workloads.build_request import (
    EXHAUSTIVE,
    parse_settings,
    read_burst,
    read_driver,
    search_request,
)
from planner.workloads.build_request import make_request as _make_request

if TYPE_CHECKING:
    from planner.optimize.source import Candidates
    from planner.show.presenters.plots.picture import Picture
    from planner.workloads.make_plan import Plan
    from planner.workloads.saved_plan import SavedPlan


OptionValues: TypeAlias = dict[str, Any]
"""The value of every option of a command by name, and its ``context``."""

Command: TypeAlias = Callable[[OptionValues], None]
_OTHER_NAMES = {
    "settings": "--set",
    "all_rows": "--all",
    "objectives": "--objective",
    "from_file": "--from",
    "launch_output": "--output",
}
_PLACEHOLDERS = {
    "second": "TIME", "byte": "BYTES", "usd": "USD", "watt": "POWER", "kg": "MASS", "1": "SHARE",
    "token": "TOKENS", "count": "N", "counts": "N", "number": "X", "1/s": "X", "peak": "SHARE|RATE",
    "price": "USD|GPU=USD,...", "file": "FILE",
}  # fmt: skip


def option_name(name: str) -> str:
    """The option name of a term or of a name in `HOW`."""
    term = glossary().get(name)
    return term.option_name if term else _OTHER_NAMES.get(name, "--" + name.replace("_", "-"))


PLAN_OPTIONS = (
    "plan", "from_file", "row", "num_gpus", "workload", "settings", "precision", "burst",
)  # fmt: skip
"""The options of ``HOW`` that specify one plan."""


def with_term_options(
    *kinds: str,
    without: Iterable[str] = (),
    how: Iterable[str],
    texts: Mapping[str, str] | None = None,
) -> Callable[[Command], Callable[..., None]]:
    """Return a decorator that gives a command options for all terms of these kinds.

    ``texts`` replace the descriptions of terms. The decorated function gets one mapping; typer
    reads the signature made here.
    """
    descriptions = texts or {}
    terms = {
        name: replace(term, description=descriptions.get(name, term.description))
        for name, term in glossary().items()
        if set(kinds) & set(term.kind) and name not in {*without, *how}
    }

    def decorate(command: Command) -> Callable[..., None]:
        """Return the command as a function for typer with a parameter for each option."""

        def run(context: typer.Context, **values: object) -> None:
            with snapshot_files():
                command({"context": context, **values})

        rows: dict[str, OptionSpec] = {"context": (typer.Context, inspect.Parameter.empty)}
        other_names = (
            {} if "objective" in how else {"training_objective": [option_name("objective")]}
        )
        takes_several = "operator" in kinds
        rows |= {
            name: _option_spec(term, other_names.get(name, []), takes_several)
            for name, term in terms.items()
        }
        rows |= {name: HOW[name][1:] for name in how}
        run.command_class = PlanningCommand  # type: ignore[attr-defined]
        return _with_signature(run, rows, command)

    return decorate


def with_command_options(command: str) -> Callable[[Command], Callable[..., None]]:
    """Return a decorator that gives a command its own options of `planner.cli.help`."""

    def decorate(function: Command) -> Callable[..., None]:
        def run(**values: object) -> None:
            function(values)

        return _with_signature(run, command_options(command), function)

    return decorate


def _with_signature(
    run: Callable[..., None], rows: Mapping[str, OptionSpec], command: Callable[..., None]
) -> Callable[..., None]:
    """Return the function with the name of a command and a signature for typer."""
    kind = inspect.Parameter.KEYWORD_ONLY
    run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter(n, kind, annotation=option_type, default=default)
            for n, (option_type, default) in rows.items()
        ]
    )
    run.__annotations__ = {name: annotation for name, (annotation, _) in rows.items()}
    run.__name__, run.__doc__ = command.__name__, command.__doc__
    return run


def _option_spec(
    term: Term, other_names: Iterable[str] = (), takes_several: bool = False
) -> OptionSpec:
    """Return the type annotation of a term's option and its default.

    ``other_names`` are further option names. ``takes_several``: every option takes several values.
    """
    bound_text = f"at {'most' if term.sign > 0 else 'least'}: " if term.better else ""
    text = f"{bound_text}{term.description}."
    text = text[0].upper() + text[1:]
    if term.type == "flag":
        # Without a default the flag has three states: on, off, not specified.
        default = {"true": True, "false": False}.get(term.default)
        on_off_names = [f"{name}/--no-{name[2:]}" for name in term.options]
        names = term.options if default is False else on_off_names
        return Annotated[bool | None, typer.Option(*names, help=text)], default
    placeholder = _PLACEHOLDERS.get(term.type, term.term.split("_")[-1].upper())
    if term.takes_several or (takes_several and term.type != "text"):
        placeholder = f"{placeholder}[,{placeholder}...]"
    option = typer.Option(
        *term.options,
        *other_names,
        help=text,
        metavar=placeholder,
        autocompletion=completion.for_term(term),
    )
    return Annotated[str | None, option], None


def is_set(values: OptionValues, name: str) -> bool:
    """Whether the user set an option; False if the command has no such option."""
    source = values["context"].get_parameter_source(name) if name in values else None
    return source is not None and source.name == "COMMANDLINE"


def driver_settings(values: OptionValues) -> dict[str, Value]:
    """Return the search driver and, for Optuna, its settings.

    Raises SearchSpaceError if one of them is invalid, or --all is set with a sampling driver.
    """
    from planner.errors import SearchSpaceError

    names = ("driver", "trials", "seed", "sampler")
    chosen = read_driver(
        {name: values[name] for name in names if is_set(values, name)}, option_name
    )
    if chosen["driver"] == EXHAUSTIVE:
        return chosen
    if values["all_rows"]:
        raise SearchSpaceError("--all writes every configuration: it needs --driver exhaustive.")
    return chosen


_NAMES = ("plot", "picture", "dark", "picture_width")


def picture_of(command: str, values: OptionValues) -> Picture | None:
    """Return the requested picture, None without one; also checks the file of a timeline.

    Raises OutputError, SearchSpaceError or MissingDependencyError if it cannot be drawn or
    written.
    """
    plot, name, dark, width = (values.get(option) for option in _NAMES)
    timeline = values.get("timeline")
    if not any((plot, name, dark, width, timeline)):
        return None
    from planner.show.presenters.plots.picture import check_picture, read_width, requested_picture

    others = [values.get(other) for other in ("csv", "json", "output", "save_plan")]
    if timeline is not None:
        check_picture(timeline, "--timeline", others, more=(".json",))
        others.append(timeline)
        if plot is None and name is None:
            read_width(width)  # the width applies to the timeline
            return None
    return requested_picture(command, plot, name, dark=bool(dark), width=width, others=others)


def draw_plan(
    values: OptionValues, picture: Picture | None, plan: Plan, candidates: Candidates
) -> None:
    """Draw and write the requested pictures and profiles of one configuration.

    Raises OutputError or SearchSpaceError if a file cannot be written, or the workload has no
    timeline, or no batches of an engine.
    """
    if picture is not None:
        from planner.show.presenters.plots.picture import draw

        draw(picture, plan, candidates)
    path: Path | None = values.get("timeline")
    if path is not None:
        from planner.show.presenters.plots.timeline import write_timeline

        write_timeline(path, plan, candidates, dark=values["dark"], width=values["picture_width"])
    profile: Path | None = values.get("mocker_profile")
    if profile is not None:
        from planner.decide.predictor import Predictor

        Predictor.of(candidates).save_mocker_profile(profile)


def plan_file_of(values: OptionValues) -> tuple[Path, Request] | None:
    """Return the file of --plan or --from, and its request; None without such a file.

    A launch file of the user's becomes ``values["question"]``; ``values["launch_text"]`` is read in
    place of its text, ``values["launch_assumed"]`` are answers besides those of the user.
    """
    from planner.errors import PlannerError, SearchSpaceError

    plan, source, row = (values.get(name) for name in ("plan", "from_file", "row"))
    if source is None and row is not None:
        raise SearchSpaceError("--row needs --from: the file or directory whose row it is.")
    if plan is not None and source is not None:
        raise SearchSpaceError("--plan and --from both give a plan: leave one out.")
    path: Path | None = plan or source
    if path is None:
        return None
    number = None if row is None else parse_int(row, "--row")
    from planner.sweeps.find_plan import is_launch_file, read_saved_plan

    if source is not None and is_launch_file(source):
        from planner.launch.read.launch_file import LaunchFile

        answers = {**split_answers(values).questions, **parse_settings(values["settings"] or [])}
        answers |= values.get("launch_assumed") or {}
        question = LaunchFile(
            path=source,
            answers=answers,
            specs=values["specs"],
            number=number,
            text=values.get("launch_text"),
            option_name=option_of,
            workload=values.get("workload") if is_set(values, "workload") else None,
        ).question()
        values["imported"], values["question"] = question.imported, question
        return source, question.request
    saved_plan = read_saved_plan(path, number, values["specs"])
    _warn_defaulted(path, saved_plan)
    try:
        return path, saved_plan.request()
    except PlannerError as error:
        raise type(error)(f"{path}: {error}") from error


def _warn_defaulted(path: Path, saved_plan: SavedPlan) -> None:
    """Print on stderr which parameters an older plan file lacks and therefore has as default."""
    from planner.show.output_blocks import make_lines
    from planner.show.terminal import make_console, print_blocks

    if names := saved_plan.defaulted:
        head = f"{path} lacks {len(names)} parameters, as plans of older versions do; each has"
        line = f"{head} its default: {', '.join(names)}."
        print_blocks(make_console(stderr=True), [make_lines(line)])


def option_of(name: str) -> str:
    """The option of a question, or ``--set NAME=VALUE`` of a parameter without option."""
    term = glossary().get(name)
    is_setting = term is not None and "parameter" in term.kind and not term.is_user_input
    return f"--set {name}=VALUE" if is_setting else option_name(name)


# Options that need another option: the option, and whether it is set.
_NEEDS: dict[str, tuple[str, Callable[[OptionValues], bool]]] = {
    "all_rows": ("--csv or --json", lambda values: bool(values["csv"] or values["json"])),
    "compare_api": (
        "the report or --json: leave out --quiet",
        lambda values: bool(values["json"]) or not values["quiet"],
    ),
    "top": ("the report: leave out --quiet", lambda values: not values["quiet"]),
    "full": ("the report: leave out --quiet", lambda values: not values["quiet"]),
    "write": (
        "--from with a launch file of yours",
        lambda values: values.get("imported") is not None,
    ),
    "wrapper": (
        "--launch: the tool whose files are written",
        lambda values: bool(values.get("launch") or values.get("target")),
    ),
    "launch_output": (
        "--launch: the tool whose files are written",
        lambda values: bool(values.get("launch") or values.get("target")),
    ),
}
_OTHERS = {"context", *HOW} - {"num_gpus", "precision"}
# Suffixes of a length in thousands; 8192 is written as 8Ki.
_THOUSANDS = ("k", "K", "M")


def make_request(values: OptionValues, *, is_search: bool = False) -> Request:
    """Return the `planner.Request` of the options; a search leaves the layout of a file open.

    Raises SpecError or SearchSpaceError if a value is invalid, the workload has no such option, or
    another option is needed.
    """
    plan = _request_of_plan_file(values)
    if plan is not None and is_search:
        values["own"] = plan
        plan = search_request(plan)
    questions, bounds = split_answers(values)
    answers: dict[str, object] = {
        "workload": values["workload"],
        "specs": values["specs"],
        **questions,
    }
    if plan is None or is_search:
        objectives = ",".join(values.get("objective") or [])
        answers |= {"objectives": objectives or None, "constraints": bounds}
    settings = parse_settings(values["settings"] or [])
    request = _make_request({**answers, "settings": settings}, base=plan, option_name=option_name)
    from planner.errors import SearchSpaceError

    for name, (needed, is_there) in _NEEDS.items():
        if is_set(values, name) and not is_there(values):
            raise SearchSpaceError(f"{option_name(name)} needs {needed}.")
    if values.get("compare_api"):
        from planner.decide.api_comparison import require_token_pricing

        require_token_pricing(values["workload"], option_name)
    values["burst"] = read_burst(request.workload, values.get("burst"), option_name)
    values["top"] = parse_int(values.get("top", 1), "--top", 1)
    _echo_lengths(values)
    return request


def apply_engine_start(values: OptionValues, request: Request) -> Request:
    """Return the request of a launch file with the values that its engine adjusts at start.

    Prints the adjustments on stderr. Returns other requests unchanged.
    """
    if values.get("imported") is None:
        return request
    from planner.launch.read.launch_file import apply_engine_start as started_by_engine
    from planner.show.output_blocks import make_lines
    from planner.show.terminal import make_console, print_blocks

    started, notes = started_by_engine(request, values.get("burst"))
    if not values["quiet"]:
        print_blocks(make_console(stderr=True), [make_lines(*notes)])
    return started


class SplitAnswers(NamedTuple):
    """Answers to questions, and limits, by name."""

    questions: dict[str, object]
    limits: dict[str, object]


def split_answers(values: OptionValues) -> SplitAnswers:
    """Return the inputs and the limits that the user specified, as two mappings."""
    answers = SplitAnswers({}, {})
    for name in values:
        if name in _OTHERS or not is_set(values, name):
            continue
        term = glossary().get(name)
        if term is not None and "sizing" in term.kind:
            continue
        is_limit = term is not None and "limit" in term.kind and "question" not in term.kind
        (answers.limits if is_limit else answers.questions)[name] = values[name]
    return answers


def _request_of_plan_file(values: OptionValues) -> Request | None:
    """Return the request of the plan file, None without one; sets the command's workload."""
    from planner.errors import SearchSpaceError

    plan_file = plan_file_of(values)
    if plan_file is None:
        return None
    path, plan = plan_file
    if is_set(values, "workload") and values["workload"] != plan.workload:
        raise SearchSpaceError(
            f"{path} is a plan of --workload {plan.workload}: leave --workload out."
        )
    values["workload"] = plan.workload
    return plan


def _echo_lengths(values: OptionValues) -> None:
    """Print on stderr how many tokens a length such as 8k is, as powers of two are common."""
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
