"""The options of commands, made from the table of terms and `planner.commands.options`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from planner.cli import completion
from planner.cli.help import HOW, OptionSpec, PlanningCommand, command_options, command_texts
from planner.commands.options import OPTIONS, option_name
from planner.question.terms import Term
from planner.specs.file_cache import snapshot_files

if TYPE_CHECKING:
    from planner.optimize.source import Candidates
    from planner.show.presenters.plots.picture import Picture
    from planner.workloads.make_plan import Plan


OptionValues: TypeAlias = dict[str, Any]
"""The value of every option of a command by name, and its ``context``."""

Command: TypeAlias = Callable[[OptionValues], None]
_PLACEHOLDERS = {
    "second": "TIME", "byte": "BYTES", "usd": "USD", "watt": "POWER", "kg": "MASS", "1": "SHARE",
    "token": "TOKENS", "count": "N", "counts": "N", "number": "X", "1/s": "X", "peak": "SHARE|RATE",
    "price": "USD|GPU=USD,...", "file": "FILE",
}  # fmt: skip


def with_options(name: str, command: Command) -> Callable[..., None]:
    """Return a command as a function for typer with a parameter for each of its options."""
    options, texts = OPTIONS[name], command_texts(name)
    terms = {
        term_name: replace(term, description=texts.get(term_name, term.description))
        for term_name, term in options.terms.items()
    }

    def run(context: typer.Context, **values: object) -> None:
        with snapshot_files():
            command({"context": context, **values})

    rows: dict[str, OptionSpec] = {"context": (typer.Context, inspect.Parameter.empty)}
    has_objective = "objective" in options.names
    other_names = {} if has_objective else {"training_objective": [option_name("objective")]}
    takes_several = "operator" in options.kinds
    rows |= {
        term_name: _option_spec(term, other_names.get(term_name, []), takes_several)
        for term_name, term in terms.items()
    }
    rows |= {name: HOW[name][1:] for name in options.names}
    run.command_class = PlanningCommand  # type: ignore[attr-defined]
    return _with_signature(run, rows, command)


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
