"""The typer application: its commands and its global options.

A command is built, and its module imported, when it is named.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cache, cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from planner.base.formatting import printable
from planner.errors import REMOVED_OPTIONS, did_you_mean
from planner.question.renamed import current_name

if TYPE_CHECKING:
    from typer._click import Command, Context, HelpFormatter, Parameter
    from typer.core import TyperOption

WIDEST = 100
"""Maximum columns of help texts: longer lines are hard to read."""

HELP = ("-h", "--help")
COMMANDS = {
    "search": "Find the best configurations of a space.",
    "size": "Find the fewest and the cheapest GPUs of each type and contract that keep the limits.",
    "estimate": "Show one configuration in full.",
    "explain": "Explain a plan, or the recommended one: what bounds it, what would change it.",
    "compare": "Compare plans, specs or sweeps: what differs, which is better, what is tied.",
    "max-batch": "Find the largest micro-batch, or the most concurrent requests, within memory and "
    "limits.",
    "max-length": "Find the longest sequence, prompt or answer that fits and keeps the limits.",
    "operators": "Show how long one kernel, collective or copy takes, and what bounds it.",
    "launch": "Write the launch files of a plan, yours or the recommended one.",
    "report": "Write a result as one page: the answer, alternatives, the front, sources.",
    "mcp": "Run an MCP server for AI assistants.",
    "ui": "Run the web interface and JSON API, on this machine only by default.",
    "calibrate": "Fit a framework or engine profile to measured runs.",
    "validate": "Predict measured runs and show the errors.",
    "sweep": "Run every combination of the lists in a plan.",
    "specs": "List, show, validate and add specs.",
}
"""One sentence for each command, shown in the list of commands."""
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


class _TextOption:
    """Parser of option values that passes text through unchanged.

    typer would use pydantic for every value, which takes longer to load than a search.
    """

    def coerce(self, value: object, param: TyperOption, ctx: Context) -> object:
        """Return the value of an option; values that are not text are parsed by typer."""
        if value is None:
            return () if param.multiple else None
        annotation = param.type_descriptor.annotation
        if annotation is str:
            return value
        if annotation is Path and isinstance(value, str | Path):
            return Path(value)
        if annotation == list[str]:
            return [*value] if isinstance(value, Iterable) else value
        param._runtime_param = None
        return param.get_runtime_param().coerce(value, param=param, ctx=ctx)


def _with_text_options(params: list[Parameter]) -> list[Parameter]:
    """Return parameters with the text parser, where this version of typer supports that."""
    for param in params:
        if getattr(param, "_runtime_param", param) is None:
            vars(param)["_runtime_param"] = _TextOption()
    return params


_TOPIC = "planner.no_topic"


def _current_options(params: Iterable[Parameter], arguments: Iterable[str]) -> list[str]:
    """Arguments of a command line with the current names of renamed options."""
    options = {option for param in params for option in (*param.opts, *param.secondary_opts)}
    parts = [argument.partition("=") for argument in arguments]
    return [current_name("option", name, options) + equals + value for name, equals, value in parts]


class _FullHelpCommand:
    """A command without help topics: a word behind ``-h`` shows the full help and a note."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: Context | None = None, **extra: object
    ) -> Context:
        """The context of the command; renamed options are read under their old names."""
        arguments = _current_options(self.params, args)  # type: ignore[attr-defined]
        context: Context = super().make_context(info_name, arguments, parent, **extra)  # type: ignore[misc]
        return context

    def get_params(self, ctx: Context) -> list[Parameter]:
        """The options of the command, including the help option."""
        return _with_text_options(super().get_params(ctx))  # type: ignore[misc]

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        """Read the options from the command line."""
        position = next(
            (index for index, argument in enumerate(args) if argument in HELP), len(args)
        )
        if position + 1 < len(args) and not args[position + 1].startswith("-"):
            ctx.meta[_TOPIC] = args[position + 1]
        remaining: list[str] = super().parse_args(ctx, args)  # type: ignore[misc]
        return remaining

    def format_epilog(self, ctx: Context, formatter: HelpFormatter) -> None:
        """Write that no help exists on a word."""
        super().format_epilog(ctx, formatter)  # type: ignore[misc]
        if topic := ctx.meta.get(_TOPIC):
            formatter.write_paragraph()
            if topic in getattr(self, "commands", ()):
                formatter.write_text(f"Of {topic}: {ctx.command_path} {topic} -h")
                return
            formatter.write_text(
                f"There is no help on {printable(topic)!r} alone; this is all of "
                f"{ctx.command_path}."
            )


class TextOptionCommand(_FullHelpCommand, TyperCommand):
    """A command whose option values are texts."""


class TextOptionGroup(_FullHelpCommand, TyperGroup):
    """A group of commands whose option values are texts."""


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
    epilog="Start with: planner search --model llama-65b --gpus 2048. `planner search -h` has more "
    "examples.",
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
