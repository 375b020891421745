"""The typer application: its commands and its global options.

A command is built, and its module imported, when it is named.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cache, cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from planner.base.formatting import printable
from planner.cli.text_options import (
    COMMANDS,
    FIRST_EXAMPLES,
    GROUPS,
    TextOptionCommand,
    TextOptionGroup,
)
from planner.errors import REMOVED_OPTIONS, did_you_mean

if TYPE_CHECKING:
    from typer._click import Command, Context, HelpFormatter

WIDEST = 100
"""Maximum columns of help texts: longer lines are hard to read."""

_MODULES = {"calibrate": "validate", "mcp": "ui", "report": "ui"}

# Newer versions of typer append a hint of their own to this text.
_COMMAND = re.compile(r"No such command '(.*)'\.", re.DOTALL)


class Interrupted(Exception):
    """Ctrl-C as an exception that typer does not turn into an exit."""


class PipeClosed(Exception):
    """The reader of the output closed the pipe; typer does not catch this exception."""


def _improve_message(error: Any) -> None:
    """Add hints to typer's error message about an unknown option or command."""
    message = getattr(error, "message", None)
    command = getattr(getattr(error, "ctx", None), "command", None)
    if not isinstance(message, str):
        return
    if message.startswith("No such option") and command is not None:
        candidates = [option for param in command.params for option in param.opts]
        message = (
            f"{message.rstrip('.')}.{_suggest_option(error.option_name, candidates, command.name)}"
        )
        error.possibilities = None
    elif message.startswith("Got unexpected extra argument") and command is not None:
        if any("--model" in param.opts for param in command.params):
            message = f"{message.rstrip('.')}. Each value has an option, as in --model llama-65b."
    elif match := _COMMAND.fullmatch(message):
        candidates = [*getattr(command, "commands", ())]
        message = f"{match[0]}{did_you_mean(match[1], candidates)}"
    error.message = printable(message)


def _suggest_option(option: str, options: Iterable[str], command: str | None) -> str:
    """Return a hint for an unknown option: a similar option, or the parameter of that name."""
    from planner.question.parse_values import full_name
    from planner.question.terms import glossary

    if removed := REMOVED_OPTIONS.get(f"{command} {option.lstrip('-')}"):
        return f" {removed}"
    parameters = {
        name: term
        for name, term in glossary().items()
        if {"parameter", "pool"} & set(term.kind) and not term.option
    }
    name = full_name(option.lstrip("-"), parameters)
    if name in parameters:
        return f" It is a parameter: --set {name}=VALUE."
    if option in _limits():
        hint = " A limit chooses among plans: `planner search` takes it"
        if command != "estimate":
            return f"{hint}."
        column = _limits()[option]
        return f"{hint}; estimate prints {column} of its one plan; --json has the others."
    return did_you_mean(option, options)


def _limits() -> dict[str, str]:
    """Return the name of the limited result for each limit option."""
    from planner.question.terms import glossary

    return {
        option: term.header.rpartition(" ")[0] or name.replace("_", " ")
        for name, term in glossary().items()
        if "limit" in term.kind
        for option in term.options
    }


class NamedCommand(TyperCommand):
    """A command that is imported when it is used; until then only name and help text."""

    def __init__(self, name: str, help_text: str) -> None:
        super().__init__(name, help=help_text)

    @cached_property
    def source(self) -> Callable[..., object] | typer.Typer:
        """Return the function of the command, or the application of the group."""
        from planner.commands.options import OPTIONS

        name = self.name or ""
        if name in OPTIONS and name != "sweep":
            from planner.cli import commands
            from planner.cli.options import with_options

            command = getattr(commands, name, None) or commands.plain_command(name)
            return with_options(name, command)
        module = import_module(f"planner.cli.{_MODULES.get(name, name)}")
        source: Callable[..., object] | typer.Typer = getattr(module, name.replace("-", "_"))
        return source

    @cached_property
    def built(self) -> Command:
        """Build the command or the group with its options."""
        app = self.source
        if not isinstance(app, typer.Typer):
            app = typer.Typer(add_completion=False, rich_markup_mode=None)
            kind = getattr(self.source, "command_class", TextOptionCommand)
            app.command(self.name, cls=kind)(self.source)
        return typer.main.get_command(app)

    def make_context(
        self, info_name: str | None, args: list[str], parent: Context | None = None, **extra: object
    ) -> Context:
        """The context of the command that is built, which is what runs."""
        return self.built.make_context(info_name, args, parent, **extra)


class _Commands(TextOptionGroup):
    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for name, help_text in COMMANDS.items():
            self.add_command(NamedCommand(name, help_text))

    def make_context(
        self, info_name: str | None, args: list[str], parent: Context | None = None, **extra: object
    ) -> Context:
        """Read the command line of the group; hints are added to the message of an error."""
        try:
            return super().make_context(info_name, args, parent, **extra)
        except Exception as error:
            _improve_message(error)
            raise

    def format_help_text(self, ctx: Context, formatter: HelpFormatter) -> None:
        """Write what planner does, and three examples."""
        super().format_help_text(ctx, formatter)
        with formatter.section("Examples"):
            for example in FIRST_EXAMPLES:
                formatter.write(f"  planner {example}\n")

    def format_commands(self, ctx: Context, formatter: HelpFormatter) -> None:
        """Write the commands in groups."""
        width = max(map(len, COMMANDS))
        for title, names in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), COMMANDS[name]) for name in names])

    def invoke(self, ctx: Context) -> object:
        """Run the command; an interrupt or a closed output pipe becomes an exception of planner."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            raise Interrupted(*error.args) from error
        except BrokenPipeError as error:
            raise PipeClosed from error
        except Exception as error:
            _improve_message(error)
            raise


app = typer.Typer(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": WIDEST},
    epilog="planner COMMAND -h has more examples.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> None:
    """Print planner's version and exit, if the option ``--version`` is set."""
    if wanted:
        from planner.base.install_conflicts import version_line

        typer.echo(version_line())
        raise typer.Exit


@app.callback()
def planner(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error; allowed anywhere.")
    ] = False,
) -> None:
    """Plan how to train or serve a language model on GPUs, over every configuration."""


@cache
def command_line() -> Command:
    """The click command of `app`, made once in a process."""
    return typer.main.get_command(app)
