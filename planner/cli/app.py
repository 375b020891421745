"""The typer application: its commands and its global options."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from planner.cli.calibrate import calibrate
from planner.cli.compare import compare
from planner.cli.estimate import estimate
from planner.cli.explain import explain
from planner.cli.help import WIDEST, PlanningCommand
from planner.cli.launch import launch
from planner.cli.max_batch import max_batch, max_length
from planner.cli.report import report
from planner.cli.search import search
from planner.cli.size import size
from planner.cli.specs import specs
from planner.cli.sweep import sweep
from planner.cli.ui import ui
from planner.cli.validate import validate
from planner.errors import did_you_mean
from planner.inputs import full_name
from planner.terms import glossary
from planner.text import printable

# Newer versions of typer give a hint themselves, and there the text goes on.
_COMMAND = re.compile(r"No such command '(.*)'\.", re.DOTALL)


class Interrupted(Exception):
    """Ctrl-C, under a name that typer does not turn into an exit of its own."""


class PipeClosed(Exception):
    """The reader of the output went away, likewise."""


def _explain(error: Any) -> None:
    """Typer prints the message of a wrong option itself, with the words that were given."""
    message = getattr(error, "message", None)
    command: Any = getattr(getattr(error, "ctx", None), "command", None)
    if not isinstance(message, str):
        return
    if message.startswith("No such option") and command is not None:
        known = [option for param in command.params for option in param.opts]
        message = f"{message.rstrip('.')}.{_meant(error.option_name, known, command.name)}"
        error.possibilities = None
    elif match := _COMMAND.fullmatch(message):
        message = f"{match[0]}{did_you_mean(match[1], command.commands)}"
    error.message = printable(message)


def _meant(option: str, known: Iterable[str], command: str | None) -> str:
    """A hint for an unknown option: one that is like it, or the parameter of its name."""
    parameters = {
        name: term
        for name, term in glossary().items()
        if {"parameter", "pool"} & set(term.kind) and not term.option
    }
    name = full_name(option.lstrip("-"), parameters)
    if name in parameters:
        return f" It is a parameter: --set {name}=VALUE."
    if option in _limits():
        told = " A limit chooses among plans: `planner search` takes it"
        if command != "estimate":
            return f"{told}."
        return f"{told}; estimate prints {_limits()[option]} of its one plan, or see --json."
    return did_you_mean(option, known)


def _limits() -> dict[str, str]:
    """Options of limits, with the result that each bounds."""
    return {
        option: term.header.rpartition(" ")[0] or name.replace("_", " ")
        for name, term in glossary().items()
        if "limit" in term.kind
        for option in term.options
    }


class _Commands(TyperGroup):
    def make_context(self, *arguments: Any, **extra: Any) -> Any:
        try:
            return super().make_context(*arguments, **extra)
        except Exception as error:
            _explain(error)
            raise

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            raise Interrupted(*error.args) from error
        except BrokenPipeError as error:
            raise PipeClosed from error
        except Exception as error:
            _explain(error)
            raise


app = typer.Typer(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": WIDEST},
    epilog="Start with: planner search --model llama-65b --gpus 2048. `planner search -h` has more "
    "examples.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.command(cls=PlanningCommand)(search)
app.command(cls=PlanningCommand)(size)
app.command(cls=PlanningCommand)(estimate)
app.command(cls=PlanningCommand)(explain)
app.command(cls=PlanningCommand)(compare)
app.command(cls=PlanningCommand)(max_batch)
app.command(cls=PlanningCommand)(max_length)
app.command(cls=PlanningCommand)(launch)
app.command()(report)
app.command()(ui)
app.command()(calibrate)
app.command()(validate)
app.add_typer(sweep, name="sweep")
app.add_typer(specs, name="specs")


def _version(wanted: bool) -> None:
    if wanted:
        from planner.distribution import version_line

        typer.echo(version_line())
        raise typer.Exit


@app.callback()
def planner(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error; goes anywhere.")
    ] = False,
) -> None:
    """Plan how to train or serve a language model on GPUs, over every configuration."""
