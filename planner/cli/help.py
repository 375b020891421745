"""The help of commands that plan: options in groups, what each workload takes, examples."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from planner.cli.app import PlainCommand
from planner.cli.how import HOW
from planner.confidence.software import read_table
from planner.question.terms import Term, glossary, terms_about, terms_of
from planner.workloads.registry import workload_names

if TYPE_CHECKING:
    from typer._click import Context, HelpFormatter, Parameter

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
}
_TIE = "\0"
_MODEL, *_GPUS = terms_about("first")
_FIRST = ("target", "operators", _MODEL, "workload", *_GPUS)


class PlanningCommand(PlainCommand):
    """A command whose options are shown by group, of one workload where one is named."""

    @property
    def title(self) -> str:
        """What it is called on the command line."""
        return self.name or ""

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        """Read the options; a parameter that is written as one is a setting."""
        known = {option for param in self.params for option in (*param.opts, *param.secondary_opts)}
        words = _with_settings(args, known) if "--set" in known else args
        return super().parse_args(ctx, words)

    def format_options(self, ctx: Context, formatter: HelpFormatter) -> None:
        """Write the groups of options, and what a workload has names for."""
        asked = _asked_workload(ctx.obj)
        sections = [*_sections(self.get_params(ctx), ctx, asked)]
        if asked is not None:
            sections += _names(asked, {param.name for param in self.params})
        column = max(20, min(30, formatter.width // 3))
        for title, rows in sections:
            with formatter.section(title):
                formatter.write_dl([(name.ljust(column), text) for name, text in rows], column)

    def format_epilog(self, ctx: Context, formatter: HelpFormatter) -> None:
        """Write examples, and how to see more."""
        asked = _asked_workload(ctx.obj)
        name = self.title
        with formatter.section("Examples"):
            for line in examples(name, asked):
                formatter.write("".join(_command(f"planner {line}", formatter.width)))
        with formatter.section("Numbers"):
            formatter.write_text(
                "8k is 8,000, 2M 2 million, 1.4T 1.4 trillion, 8Ki 8,192, 40% 0.4; times and bytes "
                "have a unit: 40ms, 6s, 20d, 8GiB."
            )
        if asked is None and any(param.name == "workload" for param in self.params):
            kinds = "|".join(workload_names())
            formatter.write_paragraph()
            formatter.write_text(
                f"planner {name} --workload {kinds} --help shows the options of one workload, "
                "its parameters and its objectives."
            )


def _with_settings(args: Sequence[str], known: Collection[str] = ()) -> list[str]:
    """A command line with ``--set NAME=VALUE`` for each ``--NAME VALUE`` of a parameter.

    ``known`` are options of the command, which stay.

    >>> _with_settings(["--gpu-memory-utilization", "0.9", "--gpus=8"])
    ['--set', 'gpu_memory_utilization=0.9', '--gpus=8']
    """
    names = {
        f"--{name.replace('_', '-')}": name
        for name, term in glossary().items()
        if {"parameter", "pool"} & {*term.kind} and not term.option
    }
    found: list[str] = []
    words = iter(args)
    for word in words:
        option, equals, value = word.partition("=")
        name = names.get(option.replace("_", "-"))
        if name is None or option in known:
            found.append(word)
            continue
        given = value if equals else next(words, None)
        found += [word] if given is None else ["--set", f"{name}={given}"]
    return found


def examples(name: str, workload: str | None = None) -> list[str]:
    """The examples of a command, of one workload where one is named."""
    return [
        f"{name} {row['words']}"
        for row in read_table("examples.csv", Path(__file__).parent)
        if row["command"] == name and workload in (None, row["workload"])
    ]


def _asked_workload(words: object) -> str | None:
    """The workload that a command line names; None where it names none."""
    given = list(words) if isinstance(words, list | tuple) else []
    for word, following in zip(given, [*given[1:], ""], strict=True):
        name, equals, value = word.partition("=")
        if name == "--workload":
            workload = value if equals else following
            return workload if workload in workload_names() else None
    return None


def _sections(
    params: Sequence[Parameter], ctx: Context, asked: str | None
) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Titles and rows of the groups; options of some workloads in sections of their own."""
    places = sorted(params, key=lambda param: param.name not in _FIRST)
    places.sort(key=lambda param: _FIRST.index(param.name) if param.name in _FIRST else 9)
    for group, title in TITLES.items():
        found: dict[str, list[tuple[str, str]]] = {"": []}
        for param in places:
            term = None if param.name in HOW else _term(param.name)
            of = term.of if term is not None and term.of else workload_names()
            of = ("serve",) if param.name in ("burst", "compare_api") else of
            record = param.get_help_record(ctx)
            if _group(param.name) != group or record is None or (asked and asked not in of):
                continue
            everyone = asked is not None or set(workload_names()) <= set(of)
            found.setdefault("" if everyone else _AUDIENCES.get(of, " and ".join(of)), []).append(
                record
            )
        for audience, rows in found.items():
            if rows:
                yield f"{title}, {audience}" if audience else title, rows


def _group(name: str) -> str:
    term = _term(name)
    return HOW[name][0] if name in HOW else term.group if term else "output"


def _term(name: str) -> Term | None:
    """The term of an option, by its own name or its option's."""
    option = "--" + name.replace("_", "-")
    by_option = (term for term in glossary().values() if term.option and option in term.options)
    return glossary().get(name) or next(by_option, None)


def _names(workload: str, options: set[str | None]) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """What a workload has names for: parameters, and what can be best."""
    parameters = terms_of(workload, "parameter", "pool")
    yield (
        "Parameters, for --set",
        [
            (", ".join(filter(None, (name, term.short))), _described(term))
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


def _described(term: Term) -> str:
    """What a parameter is, and its values where they are words."""
    words = [] if term.codes is None else [str(term.shown(code)) for code in term.codes]
    if term.codes is not None and len(term.codes.words()) < len(words):
        words = []  # of sets the description tells the parts
    told = all(word in term.description for word in words)
    return term.description if told else f"{term.description}: {', '.join(words)}"


def _command(command: str, width: int) -> Iterator[str]:
    """The lines of a command that a shell reads as one; an option stays beside its value."""
    parts = (part.replace(" ", _TIE) for part in re.split(" (?=--)", command))
    lines = textwrap.wrap(
        " ".join(parts), max(width - 8, 40), break_long_words=False, break_on_hyphens=False
    )
    for number, line in enumerate(lines):
        end = "" if number == len(lines) - 1 else " \\"
        yield f"{'  ' if number == 0 else '      '}{line.replace(_TIE, ' ')}{end}\n"
