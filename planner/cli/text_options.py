"""Commands of typer whose option values are texts, and the names of all commands."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from typer.core import TyperCommand, TyperGroup

from planner.base.formatting import printable
from planner.question.renamed import current_name

if TYPE_CHECKING:
    from typer._click import Context, HelpFormatter, Parameter
    from typer.core import TyperOption

HELP = ("-h", "--help")
COMMANDS = {
    "search": "Find the best configurations of a model on given GPUs.",
    "size": "Find the fewest and the cheapest GPUs for given limits.",
    "estimate": "Predict one configuration: time, memory, cost.",
    "check": "Check if a command will fit, and how fast it will run.",
    "explain": "Explain a plan: what bounds it. Or explain a word.",
    "compare": "Compare plans, models, GPUs, engines or sweeps.",
    "max-batch": "Find the largest batch that fits and keeps the limits.",
    "max-length": "Find the longest text that fits and keeps the limits.",
    "operators": "Predict the time of one kernel, collective or copy.",
    "launch": "Write the launch files of a plan.",
    "report": "Write a result as a page to share.",
    "mcp": "Run an MCP server for AI assistants.",
    "ui": "Run the web interface and JSON API on this machine.",
    "calibrate": "Fit a framework or engine profile to measured runs.",
    "validate": "Predict measured runs and show the errors.",
    "sweep": "Search every combination of models, GPUs and limits.",
    "specs": "List, show, validate and add specs.",
}
"""One sentence for each command, short enough for one line of the list of commands."""
GROUPS = {
    "Plan": ("search", "size", "estimate", "max-batch", "max-length", "sweep"),
    "Understand": ("explain", "compare", "operators"),
    "Use a plan": ("launch", "check", "report", "ui", "mcp"),
    "Your data": ("specs", "validate", "calibrate"),
}
"""The groups of the list of commands, in order."""
FIRST_EXAMPLES = (
    "search --model llama-65b --gpus 2048",
    "size --workload serve --model qwen3-8b --gpu h100 --request-rate 50",
    "estimate --from serve.sh --gpu h100",
)
"""The examples of the first help."""
_EXAMPLES = {
    "report": "report front.json --output page.html",
    "mcp": "mcp",
    "ui": "ui --port 8765",
    "calibrate": "calibrate runs.csv --output my-profile.toml",
    "validate": "validate runs.csv --output errors.csv",
    "sweep show": "sweep show DIR --sort cost_usd",
    "specs": "specs list gpus",
    "specs list": "specs list models",
    "specs show": "specs show gpus h100",
    "specs validate": "specs validate gpus",
    "specs add": "specs add model Qwen/Qwen3-8B",
}
"""An example of each command that answers no planning question."""


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


def split_at_dashes(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the arguments before ``--``, which are planner's, and those from it on."""
    index = arguments.index("--") if "--" in arguments else len(arguments)
    return [*arguments[:index]], [*arguments[index:]]


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
        options, program = split_at_dashes(args)
        arguments = _current_options(self.params, options) + program  # type: ignore[attr-defined]
        context: Context = super().make_context(info_name, arguments, parent, **extra)  # type: ignore[misc]
        return context

    def get_params(self, ctx: Context) -> list[Parameter]:
        """The options of the command, including the help option."""
        return _with_text_options(super().get_params(ctx))  # type: ignore[misc]

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        """Read the options from the command line."""
        options, _ = split_at_dashes(args)
        position = next(
            (index for index, option in enumerate(options) if option in HELP), len(options)
        )
        if position + 1 < len(options) and not options[position + 1].startswith("-"):
            ctx.meta[_TOPIC] = options[position + 1]
        remaining: list[str] = super().parse_args(ctx, args)  # type: ignore[misc]
        return remaining

    def format_help_text(self, ctx: Context, formatter: HelpFormatter) -> None:
        """Write what the command does, and an example."""
        super().format_help_text(ctx, formatter)  # type: ignore[misc]
        if example := _EXAMPLES.get(ctx.command_path.partition(" ")[2]):
            with formatter.section("Example"):
                formatter.write(f"  planner {example}\n")

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
