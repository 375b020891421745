"""The typer application: its commands and its global options."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from planner.cli.calibrate import calibrate
from planner.cli.estimate import estimate
from planner.cli.search import search
from planner.cli.specs import specs
from planner.cli.validate import validate
from planner.text import printable


class Interrupted(Exception):
    """Ctrl-C, under a name that typer does not turn into an exit of its own."""


class PipeClosed(Exception):
    """The reader of the output went away, likewise."""


def _make_printable(error: Exception) -> None:
    """Typer prints the message of a wrong option itself, with the words that were given."""
    message = getattr(error, "message", None)
    if isinstance(message, str):
        error.message = printable(message)  # type: ignore[attr-defined]


class _Commands(TyperGroup):
    def make_context(self, *arguments: Any, **extra: Any) -> Any:
        try:
            return super().make_context(*arguments, **extra)
        except Exception as error:
            _make_printable(error)
            raise

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            raise Interrupted(*error.args) from error
        except BrokenPipeError as error:
            raise PipeClosed from error
        except Exception as error:
            _make_printable(error)
            raise


app = typer.Typer(
    cls=_Commands,
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.command()(search)
app.command()(estimate)
app.command()(calibrate)
app.command()(validate)
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
