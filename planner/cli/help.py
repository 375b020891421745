"""The help of commands that plan: options in groups, what each workload takes, examples.

``planner/commands/options.csv`` has the options that are not in the table of terms. Its columns:
``command`` is the command, empty for options of several commands; ``of`` are its workloads, empty
for all; ``kind`` is the type, with ``argument:`` for
a positional argument, empty for an option defined elsewhere; ``usual`` is the default; ``names``
are the option names if they differ from the name; ``range`` has the smallest and largest number;
``completed`` is the source of completions.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from planner.base.enums import TemplateKind
from planner.cli import completion
from planner.cli.text_options import HELP, TextOptionCommand, split_at_dashes
from planner.commands.options import option_rows
from planner.confidence.profile_rules import read_table
from planner.errors import did_you_mean
from planner.launch import WRAPPERS
from planner.question.names import GPU, MODEL, NUM_GPUS
from planner.question.terms import Term, glossary, terms_about, terms_of
from planner.show.output_blocks import PICTURES, USUAL_WIDTH
from planner.workloads.build_request import DRIVERS, EXHAUSTIVE, NSGA2, SAMPLERS, TRIALS
from planner.workloads.registry import workload_names

if TYPE_CHECKING:
    from typer._click import Context, HelpFormatter, Parameter


OptionSpec: TypeAlias = tuple[object, object]
"""The annotation of an option for typer, and its default."""

_KINDS: Mapping[str, Any] = {
    "text": str, "texts": list[str], "file": Path, "flag": bool, "whole": int, "number": float,
    "template": TemplateKind,
}  # fmt: skip
_WORDS = {
    "workloads": "|".join(workload_names()),
    "drivers": "|".join(DRIVERS),
    "driver": EXHAUSTIVE,
    "samplers": "|".join(SAMPLERS),
    "sampler": NSGA2,
    "trials": TRIALS,
    "wrappers": "|".join(WRAPPERS),
    "pictures": ", ".join(dict.fromkeys(name for names in PICTURES.values() for name in names)),
    "width": USUAL_WIDTH,
}


def _row_option_spec(row: Mapping[str, str]) -> OptionSpec:
    """Return the type annotation for typer and the default of an option, from its table row."""
    argument_mark, _, name = row["kind"].rpartition(":")
    kind, default = _KINDS[name], row["usual"].format(**_WORDS)
    minimum, _, maximum = row["range"].partition("..")
    completer, names = row["completed"], row["names"].split()
    extra: dict[str, Any] = {
        "help": row["help"].format(**_WORDS),
        "metavar": row["metavar"].format(**_WORDS) or None,
        "min": int(minimum) if minimum else None,
        "max": int(maximum) if maximum else None,
        "autocompletion": (completion.for_words(completer) or getattr(completion, completer))
        if completer
        else None,
    }
    if name == "flag":
        names = names or ["--" + row["name"].replace("_", "-")]
    option = (
        typer.Argument(**extra, show_default=False)
        if argument_mark
        else typer.Option(*names, **extra)
    )
    if default == "needed":
        return Annotated[kind, option], inspect.Parameter.empty
    if name == "flag" or default:
        return Annotated[kind, option], kind(default)
    return Annotated[kind | None, option], None


HOW: Mapping[str, tuple[str, object, object]] = {
    name: (row["group"], *_row_option_spec(row)) for name, row in option_rows()[""].items()
}
"""Options of several commands by name: group, annotation and default.

Numbers are text here: `planner.question.parse_values` reads them.
"""


def command_texts(command: str) -> dict[str, str]:
    """Help texts of a command that replace the descriptions of terms, by name."""
    return {name: row["help"] for name, row in option_rows().get(command, {}).items()}


def command_options(command: str) -> dict[str, OptionSpec]:
    """The options of a single command, by name."""
    rows = option_rows()[command].items()
    return {name: _row_option_spec(row) if row["kind"] else HOW[name][1:] for name, row in rows}


TITLES = {
    "question": "Question",
    "hardware": "GPUs and software",
    "limits": "Limits",
    "money": "Money, failures, energy",
    "search": "Search",
    "output": "Output",
}
"""The groups of options, in order, as the table of terms calls them: their titles."""

_AUDIENCES = {
    ("train",): "training",
    ("inference",): "static batches",
    ("serve",): "serving",
    ("inference", "serve"): "static batches and serving",
    ("train", "serve"): "training and serving",
    ("rl",): "reinforcement learning",
    ("train", "rl"): "training",
    ("inference", "serve", "rl"): "static batches and serving",
}
ALL = "all"
TOPICS = {
    **{"gpus" if group == "hardware" else group: group for group in TITLES},
    "training": "train", "serving": "serve", "batches": "inference",
    **{name: name for name in workload_names()},
    ALL: ALL,
}  # fmt: skip
"""Help topics, the words allowed behind ``-h``: a group of options, a workload, or all."""
_TOPIC = "planner.topic"
_COMMON = frozenset(
    (*terms_about("common_options"), "workload", "from_file", "settings", "csv", "full", "help")
)
_BRIEF_EXAMPLES = 2
_MIN_FOR_BRIEF = 30
_TIE = "\0"
_FIRST = ("target", "operators", MODEL, "workload", NUM_GPUS, GPU)


class PlanningCommand(TextOptionCommand):
    """A command whose help shows options by group, for one workload if it is named."""

    @property
    def title(self) -> str:
        """The name of the command on the command line."""
        return self.name or ""

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        """Parse the options; ``--NAME`` of a parameter becomes a setting.

        The word behind ``-h`` is the help topic.
        """
        options = {
            option for param in self.params for option in (*param.opts, *param.secondary_opts)
        }
        arguments, program = split_at_dashes(args)
        if "--set" in options:
            arguments = _with_settings(arguments, options)
        index = next(
            (index for index, argument in enumerate(arguments) if argument in HELP), len(arguments)
        )
        if index + 1 < len(arguments) and not arguments[index + 1].startswith("-"):
            topic = arguments.pop(index + 1)
            if topic not in TOPICS:
                hint = did_you_mean(topic, TOPICS)
                ctx.fail(f"There is no help on {topic!r}. Topics: {', '.join(TOPICS)}.{hint}")
            ctx.meta[_TOPIC] = TOPICS[topic]
        return super().parse_args(ctx, arguments + program)

    def format_help_text(self, ctx: Context, formatter: HelpFormatter) -> None:
        """Write what the command does, and examples."""
        super().format_help_text(ctx, formatter)
        workload, number = (
            _requested_workload(ctx),
            _BRIEF_EXAMPLES if self._is_brief(ctx) else None,
        )
        lines = examples(self.title, workload)[:number]
        with formatter.section("Examples" if len(lines) > 1 else "Example"):
            for line in lines:
                formatter.write("".join(_command(f"planner {line}", formatter.width)))

    def format_options(self, ctx: Context, formatter: HelpFormatter) -> None:
        """Write the common options, or those of the topic; for a workload also its parameters."""
        topic, workload = ctx.meta.get(_TOPIC), _requested_workload(ctx)
        params = self.get_params(ctx)
        if self._is_brief(ctx):
            sections = [*_common_sections(params, ctx)]
        else:
            sections = [
                *_sections(params, ctx, workload, [topic] if topic in TITLES else [*TITLES])
            ]
        if workload is not None:
            sections += _name_sections(workload, {param.name for param in self.params})
        column = max(20, min(30, formatter.width // 3))
        for title, rows in sections:
            with formatter.section(title):
                formatter.write_dl([(name.ljust(column), text) for name, text in rows], column)

    def format_epilog(self, ctx: Context, formatter: HelpFormatter) -> None:
        """Write the notation of numbers and the help topics."""
        is_brief, name = self._is_brief(ctx), self.title
        with formatter.section("Numbers"):
            formatter.write_text(
                "8k is 8,000, 2M 2 million, 1.4T 1.4 trillion, 8Ki 8,192, 40% 0.4; times and bytes "
                "have a unit: 40ms, 6s, 20d, 8GiB."
            )
        if not is_brief:
            return
        groups = {group for param in self.get_params(ctx) if (group := _group(str(param.name)))}
        topics = [topic for topic, topic_group in TOPICS.items() if topic_group in groups]
        if any(param.name == "workload" for param in self.params):
            topics += ["training", "serving", "batches"]
        with formatter.section("More options"):
            formatter.write_text(f"planner {name} -h KIND: {', '.join([*topics, ALL])}.")

    def _is_brief(self, ctx: Context) -> bool:
        """Whether the help shows common options only: there are many and no topic is requested."""
        has_topic = _TOPIC in ctx.meta or _requested_workload(ctx) is not None
        return not has_topic and len(self.params) > _MIN_FOR_BRIEF


def _with_settings(args: Sequence[str], options: Collection[str] = ()) -> list[str]:
    """Return a command line with ``--set NAME=VALUE`` for each ``--NAME VALUE`` of a parameter.

    ``options`` are options of the command, which stay.

    >>> _with_settings(["--gpu-memory-utilization", "0.9", "--gpus=8"])
    ['--set', 'gpu_memory_utilization=0.9', '--gpus=8']
    """
    names = {
        f"--{name.replace('_', '-')}": name
        for name, term in glossary().items()
        if {"parameter", "pool"} & {*term.kind} and not term.option
    }
    settings: list[str] = []
    arguments = iter(args)
    for argument in arguments:
        option, equals, value = argument.partition("=")
        name = names.get(option.replace("_", "-"))
        if name is None or option in options:
            settings.append(argument)
            continue
        text = value if equals else next(arguments, None)
        settings += [argument] if text is None else ["--set", f"{name}={text}"]
    return settings


def examples(name: str, workload: str | None = None) -> list[str]:
    """Return the examples of a command, limited to one workload if named."""
    return [
        f"{name} {row['words']}"
        for row in read_table("examples.csv", Path(__file__).parent)
        if row["command"] == name and workload in (None, row["workload"])
    ]


def _requested_workload(ctx: Context) -> str | None:
    """Return the workload that a command line or its help topic names; None without one."""
    if (topic := ctx.meta.get(_TOPIC)) is not None:
        return str(topic) if topic in workload_names() else None
    arguments = list(ctx.obj) if isinstance(ctx.obj, list | tuple) else []
    for argument, following in zip(arguments, [*arguments[1:], ""], strict=True):
        name, equals, value = argument.partition("=")
        if name == "--workload":
            workload = value if equals else following
            return workload if workload in workload_names() else None
    return None


def _sections(
    params: Sequence[Parameter], ctx: Context, workload: str | None, groups: Sequence[str]
) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Yield titles and rows of the option groups; options of some workloads are separate."""
    ordered = sorted(params, key=lambda param: param.name not in _FIRST)
    ordered.sort(key=lambda param: _FIRST.index(param.name) if param.name in _FIRST else 9)
    for group in groups:
        group_params = [param for param in ordered if _group(str(param.name)) == group]
        for audience, rows in _by_audience(group_params, ctx, workload).items():
            title = TITLES[group]
            yield f"{title}, {audience}" if audience else title, rows


def _common_sections(
    params: Sequence[Parameter], ctx: Context
) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Yield titles and rows of the options that all workloads have."""
    common = [param for param in params if param.name in _COMMON or param.required]
    common.sort(key=lambda param: _FIRST.index(param.name) if param.name in _FIRST else len(_FIRST))
    for audience, rows in _by_audience(common, ctx, None).items():
        yield f"Usual options, {audience}" if audience else "Usual options", rows


def _by_audience(
    params: Sequence[Parameter], ctx: Context, workload: str | None
) -> dict[str, list[tuple[str, str]]]:
    """Return the rows of options by workloads; the empty key has options of all workloads."""
    sections: dict[str, list[tuple[str, str]]] = {"": []}
    for param in params:
        term = None if param.name in HOW else _term(str(param.name))
        workloads = term.of if term is not None and term.of else workload_names()
        row = option_rows()[""].get(str(param.name), {})
        workloads = (*row.get("of", "").split(),) or workloads
        record = param.get_help_record(ctx)
        if record is None or (workload and workload not in workloads):
            continue
        is_for_all = workload is not None or set(workload_names()) <= set(workloads)
        audience = "" if is_for_all else _AUDIENCES.get(workloads, " and ".join(workloads))
        sections.setdefault(audience, []).append(record)
    return {audience: rows for audience, rows in sections.items() if rows}


def _group(name: str) -> str:
    term = _term(name)
    return HOW[name][0] if name in HOW else term.group if term else "output"


def _term(name: str) -> Term | None:
    """The term of an option, by the name of the term or of the option."""
    option = "--" + name.replace("_", "-")
    by_option = (term for term in glossary().values() if term.option and option in term.options)
    return glossary().get(name) or next(by_option, None)


def _name_sections(
    workload: str, options: set[str | None]
) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Yield help sections with the parameters and the objectives of a workload."""
    parameters = terms_of(workload, "parameter", "pool")
    yield (
        "Parameters, for --set",
        [
            (", ".join(filter(None, (name, term.short))), _describe(term))
            for name, term in parameters.items()
            if name != "num_gpus"
        ],
    )
    if "objective" in options:
        objectives = terms_of(workload, "objective")
        yield (
            "Objectives, for --objective",
            [(name, term.description) for name, term in objectives.items()],
        )


def _describe(term: Term) -> str:
    """Return the description of a parameter, with its values if they are words."""
    values = [] if term.codes is None else [str(term.decode(code)) for code in term.codes]
    if term.codes is not None and len(term.codes.words()) < len(values):
        values = []  # combined values: the description explains the parts
    has_all_words = all(value in term.description for value in values)
    return term.description if has_all_words else f"{term.description}: {', '.join(values)}"


def _command(command: str, width: int) -> Iterator[str]:
    """Yield a shell command as lines with continuations; options stay with their values."""
    parts = (part.replace(" ", _TIE) for part in re.split(" (?=--)", command))
    lines = textwrap.wrap(
        " ".join(parts), max(width - 8, 40), break_long_words=False, break_on_hyphens=False
    )
    for number, line in enumerate(lines):
        end = "" if number == len(lines) - 1 else " \\"
        yield f"{'  ' if number == 0 else '      '}{line.replace(_TIE, ' ')}{end}\n"
