"""The options of each command; every caller takes them but for those of ``exceptions.csv``.

The rows of ``exceptions.csv`` are options that a caller does not take, with the reason; a row
without a command is of all commands. ``options.csv`` has the options that are not in the table of
terms.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from planner.base.records import record
from planner.confidence.profile_rules import read_table
from planner.question.terms import Term, glossary, terms_of

FILE, OBJECTIVES = "file", "objectives"
SERVER, PYTHON = "server", "python"
_MODULES = {"max-batch": "max_batch", "max-length": "max_batch", "operators": "explain"}
_NAMES = {"from_file": FILE, "objective": OBJECTIVES}
"""Options whose name in forms and in Python is another."""
_FIRST = ("things", "program", "target", "wrapper", "against")
_LAST_FIELDS = ("precision", "settings", OBJECTIVES)
"""Fields at the beginning and at the end of a form."""
_OPTION_NAMES = {
    "settings": "--set", "all_rows": "--all", "objectives": "--objective", "from_file": "--from",
    FILE: "--from", "launch_output": "--output",
}  # fmt: skip


@record(kw_only=True)
class CommandOptions:
    """The options of a command: terms of some kinds, ``without`` some, and others by name.

    ``names`` are in the order of the help.
    """

    kinds: tuple[str, ...]
    names: tuple[str, ...]
    without: tuple[str, ...] = ()

    @property
    def terms(self) -> dict[str, Term]:
        """The terms that are options."""
        others = {*self.without, *self.names}
        return {
            name: term
            for name, term in glossary().items()
            if {*self.kinds} & {*term.kind} and name not in others
        }


_QUESTION = ("question",)
_LIMITED = ("question", "limit")
_DRAWN = ("plot", "picture", "dark", "picture_width")
_PLAN = ("plan", "from_file", "row", "num_gpus", "workload", "settings", "precision")
_NARROWED = ("num_gpus", "workload", "settings", "precision")
_LAST = ("specs", "quiet")
OPTIONS: Mapping[str, CommandOptions] = {
    "search": CommandOptions(
        kinds=_LIMITED,
        names=(
            "from_file", "row", *_NARROWED, "objective", "driver", "trials", "seed", "sampler",
            "csv", "json", *_DRAWN, "all_rows", "save_plan", "launch", "wrapper", "launch_output",
            "compare_api", "top", "full", *_LAST,
        ),
    ),
    "size": CommandOptions(
        kinds=(*_LIMITED, "sizing"),
        names=(
            "pools", "from_file", "row", *_NARROWED, "csv", "json", *_DRAWN, "workers", "full",
            *_LAST,
        ),
    ),
    "estimate": CommandOptions(
        kinds=_QUESTION,
        names=(
            *_PLAN, "burst", "json", *_DRAWN, "timeline", "mocker_profile", "compare_api", "write",
            "full", *_LAST,
        ),
        without=("space",),
    ),
    "check": CommandOptions(
        kinds=_QUESTION,
        names=("program", "row", *_NARROWED, "json", *_LAST),
        without=("space",),
    ),
    "explain": CommandOptions(
        kinds=_QUESTION,
        names=("words", *_PLAN, "burst", "against", "json", "full", *_LAST),
        without=("space",),
    ),
    "compare": CommandOptions(
        kinds=_LIMITED, names=("things", *_NARROWED, "objective", "json", "full", *_LAST)
    ),
    "max-batch": CommandOptions(
        kinds=_LIMITED, names=(*_PLAN, "json", *_LAST, "csv"), without=("space",)
    ),
    "max-length": CommandOptions(
        kinds=_LIMITED, names=(*_PLAN, "json", *_LAST), without=("space",)
    ),
    "launch": CommandOptions(
        kinds=_LIMITED,
        names=("target", *_PLAN, "objective", "wrapper", "launch_output", *_LAST),
    ),
    "operators": CommandOptions(
        kinds=("operator",), names=("operators", "num_gpus", "precision", "csv", "json", *_LAST)
    ),
    "sweep": CommandOptions(
        kinds=_LIMITED,
        names=(
            "sweep_plan", *_NARROWED, "objective", "output", "save_sweep", *_DRAWN, "fresh",
            "workers", "dask", *_LAST,
        ),
    ),
}  # fmt: skip


def command_of(name: str) -> Any:
    """Return the `planner.commands.command.Command` of a name; its module is imported now."""
    module = _MODULES.get(name, name)
    return getattr(import_module(f"planner.commands.{module}"), name.upper().replace("-", "_"))


def option_name(name: str) -> str:
    """The option of a term or of another value on the command line."""
    term = glossary().get(name)
    usual = "--" + name.replace("_", "-")
    return term.option_name if term else _OPTION_NAMES.get(name, usual)


def setting_name(name: str) -> str:
    """The option of a question, or ``--set NAME=VALUE`` of a parameter without option."""
    term = glossary().get(name)
    is_setting = term is not None and "parameter" in term.kind and not term.is_user_input
    return f"--set {name}=VALUE" if is_setting else option_name(name)


@cache
def option_rows() -> Mapping[str, Mapping[str, Mapping[str, str]]]:
    """The rows of ``options.csv`` by command and option; "" has those of several commands."""
    rows: dict[str, dict[str, Mapping[str, str]]] = {}
    for row in read_table("options.csv", Path(__file__).parent):
        rows.setdefault(row["command"], {})[row["name"]] = row
    return rows


@cache
def exceptions(command: str, caller: str) -> Mapping[str, str]:
    """Return the options of a command that a caller does not take, with the reason for each."""
    return {
        row["option"]: row["reason"]
        for row in read_table("exceptions.csv", Path(__file__).parent)
        if row["command"] in ("", command) and row["caller"] == caller
    }


def field_names(command: str, caller: str) -> list[str]:
    """Return the names of a command's options, as a form or Python calls them, without terms."""
    names = (n for n in OPTIONS[command].names if n not in exceptions(command, caller))
    return [_NAMES.get(name, name) for name in names]


def form_fields(command: str, workload: str) -> dict[str, Term | None]:
    """Return the fields of a form with their terms, in order; None for fields without term."""
    options, names, rows = OPTIONS[command], field_names(command, SERVER), option_rows()[""]
    terms = terms_of(workload, *options.kinds)
    others = {n: workload in (rows[n]["of"].split() or [workload]) for n in names if n in rows}
    fields: dict[str, Term | None] = dict.fromkeys(name for name in _FIRST if name in names)
    fields |= {"model": terms["model"], "gpu": terms["gpu"]}
    fields["num_gpus"] = terms_of(workload, "parameter")["num_gpus"]
    fields |= {FILE: None} if FILE in names else {}
    fields |= {name: term for name, term in terms.items() if "sizing" in term.kind}
    fields |= {name: term for name, term in terms.items() if name not in options.without}
    fields |= {
        name: None
        for name, is_of_workload in others.items()
        if is_of_workload and name not in fields
    }
    for name in ("workload", *_LAST_FIELDS):
        fields.pop(name, None)
    return fields | dict.fromkeys(name for name in _LAST_FIELDS if name in names)
