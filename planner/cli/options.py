"""The options of the commands, made from the table of terms where it has them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from planner.base.cells import Value
from planner.cli import complete
from planner.cli.help import PlanningCommand
from planner.cli.how import HOW, Taken, of_command
from planner.question.terms import Term, glossary
from planner.specs.cache import steady
from planner.workloads.given import DRIVERS, read_driver

if TYPE_CHECKING:
    from planner.optimize.source import Candidates
    from planner.show.views.plots.picture import Picture
    from planner.workloads.plan import Plan

Given: TypeAlias = dict[str, Any]
"""What a command was given: the value of every option by name, and its ``context``."""

Command: TypeAlias = Callable[[Given], None]
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
    """What a name of a term or of `HOW` is called on the command line."""
    term = glossary().get(name)
    return term.option_name if term else _OTHER_NAMES.get(name, "--" + name.replace("_", "-"))


OF_ONE_PLAN = (
    "plan", "from_file", "row", "num_gpus", "workload", "settings", "precision", "burst",
)  # fmt: skip
"""The options of ``HOW`` by which one plan is given."""


def taking(
    *kinds: str,
    without: Iterable[str] = (),
    how: Iterable[str],
    texts: Mapping[str, str] | None = None,
) -> Callable[[Command], Callable[..., None]]:
    """A command that takes the terms of these kinds, and options of ``HOW``, as one mapping.

    ``texts``: descriptions in place of those of the table. typer reads the signature that is made
    here.
    """
    said = texts or {}
    asked = {
        name: replace(term, description=said.get(name, term.description))
        for name, term in glossary().items()
        if set(kinds) & set(term.kind) and name not in {*without, *how}
    }

    def decorate(command: Command) -> Callable[..., None]:
        def run(context: typer.Context, **values: object) -> None:
            with steady():
                command({"context": context, **values})

        rows: dict[str, Taken] = {"context": (typer.Context, inspect.Parameter.empty)}
        also = {} if "objective" in how else {"training_objective": [option_name("objective")]}
        several = "operator" in kinds
        rows |= {name: _of_term(term, also.get(name, []), several) for name, term in asked.items()}
        rows |= {name: HOW[name][1:] for name in how}
        run.command_class = PlanningCommand  # type: ignore[attr-defined]
        return _signed(run, rows, command)

    return decorate


def own(command: str) -> Callable[[Command], Callable[..., None]]:
    """A command that takes the options that the rows of `planner.cli.how` have for it alone."""

    def decorate(function: Command) -> Callable[..., None]:
        def run(**values: object) -> None:
            function(values)

        return _signed(run, of_command(command), function)

    return decorate


def _signed(
    run: Callable[..., None], rows: Mapping[str, Taken], command: Callable[..., None]
) -> Callable[..., None]:
    """The function with the name of a command, and parameters for typer to read."""
    kind = inspect.Parameter.KEYWORD_ONLY
    run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter(n, kind, annotation=of, default=usual)
            for n, (of, usual) in rows.items()
        ]
    )
    run.__annotations__ = {name: annotation for name, (annotation, _) in rows.items()}
    run.__name__, run.__doc__ = command.__name__, command.__doc__
    return run


def _of_term(term: Term, also: Iterable[str] = (), several: bool = False) -> Taken:
    """The type of a term's option and its value where not given; ``also`` are other names.

    ``several``: the command takes several values of all.
    """
    bound = f"at {'most' if term.sign > 0 else 'least'}: " if term.better else ""
    text = f"{bound}{term.description}."
    text = text[0].upper() + text[1:]
    if term.type == "flag":
        # Without a default it is neither on nor off until somebody says so.
        usual = {"true": True, "false": False}.get(term.default)
        both = [f"{name}/--no-{name[2:]}" for name in term.options]
        names = term.options if usual is False else both
        return Annotated[bool | None, typer.Option(*names, help=text)], usual
    word = _PLACEHOLDERS.get(term.type, term.term.split("_")[-1].upper())
    if term.takes_several or (several and term.type != "text"):
        word = f"{word}[,{word}...]"
    option = typer.Option(
        *term.options,
        *also,
        help=text,
        metavar=word,
        autocompletion=complete.for_term(term),
    )
    return Annotated[str | None, option], None


def is_given(given: Given, name: str) -> bool:
    """Whether the user gave an option; one that the command lacks is not given."""
    source = given["context"].get_parameter_source(name) if name in given else None
    return source is not None and source.name == "COMMANDLINE"


def how(given: Given) -> dict[str, Value]:
    """The driver and, for Optuna, its settings.

    Raises
    ------
    SearchSpaceError
        One of them is impossible, or all rows are asked for of a driver that samples.
    """
    from planner.errors import SearchSpaceError

    names = ("driver", "trials", "seed", "sampler", "storage")
    chosen = read_driver(
        {name: given[name] for name in names if is_given(given, name)}, option_name
    )
    if chosen["driver"] == DRIVERS[0]:
        return chosen
    if given["all_rows"]:
        raise SearchSpaceError("--all writes every configuration: it needs --driver exhaustive.")
    storage = None if given["storage"] == "none" else given["storage"]
    return {**chosen, "storage": storage}


_NAMES = ("plot", "picture", "dark", "picture_width")


def picture_of(command: str, given: Given) -> Picture | None:
    """The picture that was asked for; None without one. The file of a timeline is checked, too.

    Raises
    ------
    OutputError, SearchSpaceError, MissingDependencyError
        It cannot be drawn, or not there.
    """
    plot, name, dark, width = (given.get(one) for one in _NAMES)
    timeline = given.get("timeline")
    if not any((plot, name, dark, width, timeline)):
        return None
    from planner.show.views.plots.picture import asked_picture, check_picture, read_width

    others = [given.get(other) for other in ("csv", "json", "output", "save_plan")]
    if timeline is not None:
        check_picture(timeline, "--timeline", others, more=(".json",))
        others.append(timeline)
        if plot is None and name is None:
            read_width(width)  # what is said of the look is said of the timeline
            return None
    return asked_picture(command, plot, name, dark=bool(dark), width=width, others=others)


def draw_plan(given: Given, picture: Picture | None, plan: Plan, candidates: Candidates) -> None:
    """Draw and write what was asked for of one configuration.

    Raises
    ------
    OutputError, SearchSpaceError
        A file cannot be written, or the workload has no timeline.
    """
    if picture is not None:
        from planner.show.views.plots.picture import draw

        draw(picture, plan, candidates)
    path: Path | None = given.get("timeline")
    if path is not None:
        from planner.show.views.trace import write_timeline

        write_timeline(path, plan, candidates, dark=given["dark"], width=given["picture_width"])
