"""A question as text, from a form, a link or a JSON object, and the command that asks the same."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Self
from urllib.parse import urlencode

from planner.base.records import record
from planner.errors import SearchSpaceError, did_you_mean
from planner.question.inputs import shown
from planner.question.request import Request
from planner.question.terms import Term, glossary, terms_of
from planner.workloads.given import make_request, parse_settings
from planner.workloads.registry import known_workload, workload_names

COMMANDS = ("search", "estimate", "size")
SETTINGS, OBJECTIVES, PRECISION, WORKLOAD = "settings", "objectives", "precision", "workload"

_OTHERS = {SETTINGS: "--set", OBJECTIVES: "--objective", PRECISION: "--precision"}
# What a file may be named by: names of specs are names here, so that nobody reads the server's
# files or has it fetch models.
_PATHS = ("/", "\\", "\0")
_FILES = (".toml", ".json", ".csv")
# Questions whose answer is a file.
_NOT_ASKED = ("prices",)


def option_of(name: str) -> str:
    """What a field is called on the command line."""
    term = glossary().get(name)
    return _OTHERS.get(name) or (term.option_name if term else "--" + name.replace("_", "-"))


def fields_of(command: str, workload: str) -> dict[str, Term | None]:
    """What can be asked, in the order of the table of terms; None of what is no term."""
    kinds = ("question",) if command == "estimate" else ("question", "limit")
    asked = terms_of(workload, *kinds)
    parameters = terms_of(workload, "parameter")
    fields: dict[str, Term | None] = {"model": asked["model"], "gpu": asked["gpu"]}
    fields["num_gpus"] = parameters["num_gpus"]
    fields |= {name: term for name, term in asked.items() if name not in _NOT_ASKED}
    if command == "estimate":
        fields.pop("space", None)
    fields |= {PRECISION: None, SETTINGS: None}
    return fields | ({OBJECTIVES: None} if command == "search" else {})


@record(kw_only=True)
class Question:
    """A command and its answers as text, by the names of fields, without those left empty."""

    command: str
    workload: str
    fields: Mapping[str, str]

    @classmethod
    def of(cls, command: str, pairs: Iterable[tuple[str, str]]) -> Self:
        """The question of a query: names and texts, those left empty among them.

        Raises
        ------
        SearchSpaceError
            A name is unknown or twice there, or a text is a path.
        """
        given: dict[str, str] = {}
        for name, text in pairs:
            if name in given:
                raise SearchSpaceError(f"{name} is given twice; list its values with commas.")
            if text.strip():
                given[name] = text.strip()
        workload = known_workload(given.pop(WORKLOAD, Request.workload).lower())
        known = fields_of(command, workload)
        for name, text in given.items():
            if name not in known:
                raise SearchSpaceError(_unknown(name, known, command, workload))
            _refuse_paths(name, text)
        ordered = {name: given[name] for name in known if name in given}
        return cls(command=command, workload=workload, fields=ordered)

    @classmethod
    def draft(cls, command: str, pairs: Iterable[tuple[str, str]]) -> Self:
        """What a form has of a query that asks something impossible."""
        given = {name: text.strip() for name, text in pairs if text.strip()}
        word = given.get(WORKLOAD, "").lower()
        workload = word if word in workload_names() else Request.workload
        known = fields_of(command, workload)
        fields = {name: given[name] for name in known if name in given}
        return cls(command=command, workload=workload, fields=fields)

    @classmethod
    def of_object(cls, command: str, table: object) -> Self:
        """The question of a JSON object, whose values may be numbers, lists and mappings.

        Raises
        ------
        SearchSpaceError
            It is none, or as `of`.
        """
        if not isinstance(table, Mapping):
            raise SearchSpaceError("The question must be a JSON object of names and values.")
        found = dict(table)
        limits = found.pop("constraints", None) or {}
        if not isinstance(limits, Mapping):
            raise SearchSpaceError(f"constraints is an object, not {shown(limits)}.")
        pairs = [*found.items(), *limits.items()]
        return cls.of(command, [(str(n), _text(n, v)) for n, v in pairs if v is not None])

    @property
    def is_asked(self) -> bool:
        """Whether anything was asked yet."""
        return bool(self.fields)

    @property
    def query(self) -> str:
        """The query of the link that asks it again."""
        plain = {} if self.workload == Request.workload else {WORKLOAD: self.workload}
        return urlencode({**plain, **self.fields})

    @property
    def words(self) -> list[str]:
        """The words of the command that asks the same."""
        words = [self.command]
        words += [] if self.workload == Request.workload else ["--workload", self.workload]
        for name, text in self.fields.items():
            term = glossary().get(name)
            if name == SETTINGS:
                words += [word for one in text.split() for word in ("--set", one)]
            elif term is not None and term.type == "flag":
                is_on = text.lower() in ("true", "yes", "on", "1")
                option = option_of(name)
                words.append(option if is_on else f"--no-{option[2:]}")
            else:
                words += [option_of(name), text]
        return words

    @property
    def line(self) -> str:
        """The command as it stands in a shell."""
        return "planner " + shlex.join(self.words)

    def request(self, specs: Path | None) -> Request:
        """The question as that of a search.

        Raises
        ------
        SpecError, SearchSpaceError
            A value is not what its name takes.
        """
        known = terms_of(self.workload, "limit")
        asked: dict[str, object] = {WORKLOAD: self.workload, "specs": specs}
        limits: dict[str, str] = {}
        for name, text in self.fields.items():
            if name == SETTINGS:
                asked[name] = parse_settings(text.split())
            elif name in known and "question" not in known[name].kind:
                limits[name] = text
            else:
                asked[name] = text
        return make_request({**asked, "constraints": limits}, said=option_of)


def _text(name: str, value: object) -> str:
    """A value of a JSON object as people write it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float | str):
        return str(value)
    if isinstance(value, list):
        return ",".join(_text(name, one) for one in value)
    if isinstance(value, Mapping):
        return " ".join(f"{key}={_text(name, one)}" for key, one in value.items())
    raise SearchSpaceError(f"{name} is not a word, number, list or object.")


def _refuse_paths(name: str, text: str) -> None:
    term = glossary().get(name)
    is_name = term is None or term.type in ("names", "text")
    is_path = any(mark in text for mark in _PATHS) or text.lower().endswith(_FILES)
    if is_name and is_path and name != "pipeline_layout":
        raise SearchSpaceError(
            f"{name} {shown(text)}: is a path; here specs go by name. `planner ui "
            "--specs DIR` offers those of a folder."
        )


def _unknown(name: str, known: Iterable[str], command: str, workload: str) -> str:
    hint = did_you_mean(name, known)
    return f"planner {command} --workload {workload} has no {shown(name)}.{hint}"
