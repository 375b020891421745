"""A question as text, from a form, a link or a JSON object; fixes that error messages suggest."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Self
from urllib.parse import urlencode

from planner.base.enums import Contract
from planner.base.records import record
from planner.commands.options import FILE, OBJECTIVES, form_fields, option_name, option_rows
from planner.errors import SearchSpaceError, SpecError, did_you_mean
from planner.launch import TARGETS, WRAPPERS
from planner.question.names import BUDGET, CONTRACT, GPU, SERVICES
from planner.question.parse_values import format_input, full_name
from planner.question.request import Request
from planner.question.terms import Term, glossary, terms_of
from planner.show.presenters.comparison import kinds_named
from planner.specs.catalogue import Catalogue
from planner.specs.price import CONTRACTS
from planner.sweeps.plan import SPECS
from planner.workloads.build_request import parse_settings
from planner.workloads.registry import as_workload_name, workload_names

COMMANDS = (
    "search", "size", "sweep", "compare", "estimate", "explain", "max-batch", "max-length",
    "launch",
)  # fmt: skip
SETTINGS, PRECISION, WORKLOAD = "settings", "precision", "workload"
THINGS, AGAINST, TARGET, WRAPPER = "things", "against", "target", "wrapper"
PRICES = "prices"

PLACED = {THINGS: "", TARGET: ""}
"""Positional arguments of commands, without an option."""
_OUTPUT = {"sweep": ("--output", "sweep"), "launch": ("--output", "plan")}
"""Options for the output files of a command."""
# Marks of paths. Specs are given by name here, so that no client can read files of the server or
# make it download models.
_PATHS = ("/", "\\", "\0")
_FILES = (".toml", ".json", ".csv")
_REPOSITORY = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")
_PRICE = re.compile(r"([\w.-]+)(?:\s+([\w-]+))?\s*=\s*(\S+)")
PRICES_FILE = "prices.csv"
"""Name of the file of the user's prices on the command line."""


def is_file(name: str) -> bool:
    """Whether a field contains an uploaded file."""
    term = glossary().get(name)
    return name == FILE or (term is not None and term.type == "file")


def is_on(text: str) -> bool:
    """Whether the text of a flag means that it is on."""
    return text.lower() in ("true", "yes", "on", "1")


def field_help(name: str) -> str:
    """The help of an option without term."""
    return option_rows()[""][name]["help"]


def is_flag(name: str) -> bool:
    """Whether a field is either on or off."""
    term, row = glossary().get(name), option_rows()[""].get(name, {})
    return (row.get("kind") if term is None else term.type) == "flag"


@record(kw_only=True)
class Question:
    """A command and the texts of its fields, without empty ones.

    ``files`` are the names and texts of uploaded files that the server still has.
    """

    command: str
    workload: str
    fields: Mapping[str, str]
    files: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, command: str, pairs: Iterable[tuple[str, str]]) -> Self:
        """Return the question of a query, whose texts may be empty.

        Raises SearchSpaceError if a name is unknown or repeated, or a text is a path.
        """
        texts: dict[str, str] = {}
        for name, text in pairs:
            if name in texts:
                raise SearchSpaceError(f"{name} is given twice; list its values with commas.")
            if text.strip():
                texts[name] = text.strip()
        workload = as_workload_name(texts.pop(WORKLOAD, Request.workload).lower())
        terms = form_fields(command, workload)
        fields: dict[str, str] = {}
        for written_name, text in texts.items():
            name = _field_name(written_name, terms)
            if name not in terms:
                hint = _hint_for(written_name, terms, workload)
                raise SearchSpaceError(
                    f"planner {command} --workload {workload} has no "
                    f"{format_input(written_name)}.{hint}"
                )
            if name in fields:
                raise SearchSpaceError(
                    f"{written_name} gives {name} twice; list its values with commas."
                )
            _refuse_paths(name, text)
            fields[name] = text
        ordered = {name: fields[name] for name in terms if name in fields}
        return cls(command=command, workload=workload, fields=ordered)

    @classmethod
    def draft(cls, command: str, pairs: Iterable[tuple[str, str]]) -> Self:
        """Return the question with the known fields of a query that may be invalid."""
        texts = {name: text.strip() for name, text in pairs if text.strip()}
        workload_name = texts.get(WORKLOAD, "").lower()
        workload = workload_name if workload_name in workload_names() else Request.workload
        terms = form_fields(command, workload)
        fields = {name: texts[name] for name in terms if name in texts}
        return cls(command=command, workload=workload, fields=fields)

    @classmethod
    def of_object(cls, command: str, table: object) -> Self:
        """Return the question of a JSON object, whose values may be numbers, lists and mappings.

        Raises SearchSpaceError if it is no object, or as `of` does.
        """
        if not isinstance(table, Mapping):
            raise SearchSpaceError("The question must be a JSON object of names and values.")
        values = dict(table)
        limits = values.pop("constraints", None) or {}
        if not isinstance(limits, Mapping):
            raise SearchSpaceError(f"constraints is an object, not {format_input(limits)}.")
        pairs = [*values.items(), *limits.items()]
        return cls.of(
            command, [(str(n), _format_json_value(n, v)) for n, v in pairs if v is not None]
        )

    @classmethod
    def of_line(cls, command: str, line: str) -> Self:
        """Return the question of another command with the options of a planner command line."""
        arguments = shlex.split(line)[2:]
        workload = arguments[arguments.index("--workload") + 1] if "--workload" in arguments else ""
        terms = form_fields(command, workload or Request.workload)
        names = {option_name(name): name for name in terms if name not in PLACED}
        fields: dict[str, str] = {}
        for index, argument in enumerate(arguments):
            name = names.get(argument)
            if name is None:
                continue
            after = arguments[index + 1] if index + 1 < len(arguments) else "--"
            value = "true" if after.startswith("--") else after
            is_more = name == SETTINGS and name in fields
            fields[name] = f"{fields[name]} {value}" if is_more else value
        return cls.draft(command, [(WORKLOAD, workload), *fields.items()])

    @property
    def has_subject(self) -> bool:
        """Whether it has a model, things to compare, a file or services."""
        return any(name in self.fields for name in ("model", THINGS, FILE, SERVICES))

    @property
    def query(self) -> str:
        """Query of the link that asks this question."""
        workload_field = {} if self.workload == Request.workload else {WORKLOAD: self.workload}
        return urlencode({**workload_field, **self.fields})

    def with_fields(self, **fields: str) -> Self:
        """The question with other texts of some fields; empty ones are left out."""
        texts = {**self.fields, **fields}
        pairs = [(WORKLOAD, self.workload), *texts.items()]
        return type(self).draft(self.command, pairs)

    @property
    def arguments(self) -> list[str]:
        """Return the arguments of the equivalent command line."""
        arguments = [self.command]
        arguments += [w for n in PLACED if n in self.fields for w in _split_commas(self.fields[n])]
        arguments += [] if self.workload == Request.workload else ["--workload", self.workload]
        for name, text in self.fields.items():
            if name in PLACED:
                continue
            if name in (SETTINGS, AGAINST):
                arguments += [
                    argument for inputs in text.split() for argument in (option_name(name), inputs)
                ]
            elif is_file(name):
                arguments += [option_name(name), text.partition(":")[2] or text]
            elif name == PRICES:
                arguments += [option_name(name), PRICES_FILE]
            elif is_flag(name):
                option = option_name(name)
                if is_on(text) or name in glossary():
                    arguments.append(option if is_on(text) else f"--no-{option[2:]}")
            else:
                arguments += [option_name(name), text]
        return arguments + self.output

    @property
    def output(self) -> list[str]:
        """Arguments for the output files."""
        return [*_OUTPUT.get(self.command, ())]

    @property
    def line(self) -> str:
        """The equivalent command line for a shell."""
        return "planner " + shlex.join(self.arguments)

    @property
    def answers(self) -> dict[str, object]:
        """Return the inputs by term, without limits, settings and command-specific fields."""
        others = {PRICES, FILE, SETTINGS, OBJECTIVES, *self.extra}
        limits = self.limits
        return {n: v for n, v in self.fields.items() if n not in others and n not in limits}

    @property
    def extra(self) -> dict[str, object]:
        """Return the values of the command that are no fields of a request, by name."""
        fields = form_fields(self.command, self.workload)
        request = (PRECISION, SETTINGS, OBJECTIVES, FILE)
        extra = {n for n, term in fields.items() if term is None or "sizing" in term.kind}
        return {
            name: is_on(text) if is_flag(name) else text
            for name, text in self.fields.items()
            if name in extra and name not in request
        }

    @property
    def limits(self) -> dict[str, str]:
        """Return the texts of the limits by name."""
        terms = terms_of(self.workload, "limit")
        return {
            name: text
            for name, text in self.fields.items()
            if name in terms and "question" not in terms[name].kind
        }

    @property
    def settings(self) -> dict[str, list[str]]:
        """Return the values of the parameters that are fixed or restricted, by name.

        Raises SearchSpaceError if a word is not ``name=value``.
        """
        return parse_settings(self.fields.get(SETTINGS, "").split())

    def request_arguments(self, specs: Path | None) -> dict[str, object]:
        """Return the arguments for `make_request`."""
        arguments: dict[str, object] = {WORKLOAD: self.workload, "specs": specs, **self.answers}
        arguments |= {"constraints": self.limits}
        if self.settings:
            arguments[SETTINGS] = self.settings
        if OBJECTIVES in self.fields:
            arguments[OBJECTIVES] = self.fields[OBJECTIVES]
        return arguments


def _field_name(word: str, fields: Mapping[str, Term | None]) -> str:
    """Return the name of the field that a name or an option denotes.

    >>> fields = form_fields("search", "serve")
    >>> [_field_name(word, fields) for word in ("input-tokens", "gpus", "ttft", "set")]
    ['input_tokens', 'num_gpus', 'time_to_first_token', 'settings']
    """
    if word in fields:
        return word
    option = "--" + word.strip().lstrip("-").replace("_", "-")
    by_option = {option_name(name): name for name in fields}
    terms = {name: term for name, term in fields.items() if term is not None}
    return by_option.get(option) or full_name(word, terms)


def _hint_for(word: str, fields: Mapping[str, Term | None], workload: str) -> str:
    """Return a hint for an unknown field name; "" if no known name is similar."""
    parameters = terms_of(workload, "parameter")
    name = full_name(word, parameters)
    if name in parameters and SETTINGS in fields:
        return f" It is a parameter: write {SETTINGS}={{{name!r}: ...}}."
    return did_you_mean(word, fields)


def prices_csv(text: str) -> str:
    """Return the user's prices, ``h100 reserved-1y=1.9, b200=4``, as the CSV file of ``--prices``.

    Raises SpecError if a part of the text is no price.

    >>> prices_csv("h100 reserved-1y=1.9, b200=4").splitlines()
    ['gpu,contract,price', 'h100,reserved-1y,1.9', 'b200,on-demand,4']
    """
    rows = [f"{GPU},{CONTRACT},price"]
    for entry in _split_commas(text):
        match = _PRICE.fullmatch(entry)
        if match is None:
            raise SpecError(
                f"{PRICES} {format_input(entry)}: write GPU=USD or GPU CONTRACT=USD, such as "
                "h100 reserved-1y=1.9, several with commas."
            )
        contract = match[2] or str(Contract.ON_DEMAND)
        if contract not in CONTRACTS:
            raise SpecError(f"Unknown contract {contract!r}.{did_you_mean(contract, CONTRACTS)}")
        rows.append(f"{match[1]},{contract},{match[3]}")
    return "\n".join([*rows, ""])


def parse_things(text: str, specs: Path | None) -> list[str]:
    """Return the names of the GPUs, models, frameworks or engines to compare.

    Raises SearchSpaceError if a name is unknown.
    """
    names = _split_commas(text)
    for thing in names:
        if not any(kinds_named(thing, specs)):
            all_names = [name for kind in SPECS.values() for name in Catalogue(specs).names(kind)]
            raise SearchSpaceError(
                f"Unknown name {thing!r}.{did_you_mean(thing, all_names)} "
                "GPUs, models, frameworks and engines can be compared."
            )
    return names


def _split_commas(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _format_json_value(name: str, value: object) -> str:
    """Return a value of a JSON object as text of a form field."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float | str):
        return str(value)
    if isinstance(value, list):
        return ",".join(_format_json_value(name, element) for element in value)
    if isinstance(value, Mapping):
        return " ".join(
            f"{key}={_format_json_value(name, element)}" for key, element in value.items()
        )
    raise SearchSpaceError(f"{name} is not a word, number, list or object.")


def _refuse_paths(name: str, text: str) -> None:
    """Raise SearchSpaceError for a path; a model may be ORG/NAME as on Hugging Face."""
    term = glossary().get(name)
    is_name = term is None or term.type in ("names", "text")
    if is_file(name) or name in (PRICES, BUDGET, "network"):
        return  # uploads, a list of prices, money per time, and Gbit/s
    words = [text] if name != "model" else _split_commas(text)
    others = [word for word in words if not (name == "model" and _REPOSITORY.fullmatch(word))]
    is_path = any(mark in word for word in others for mark in _PATHS)
    is_path = is_path or any(word.lower().endswith(_FILES) for word in words)
    if is_name and is_path and name != "pipeline_layout":
        raise SearchSpaceError(
            f"{name} {format_input(text)}: is a path; name a spec here, or upload your file. "
            "`planner ui --specs DIR` adds the specs of a folder."
        )


SUMMARIES = {
    "search": "The Pareto front and the recommended plan, as planner search --json",
    "estimate": "One configuration in full, as planner estimate --json",
    "size": "The fewest and the cheapest GPUs that meet the limits, as planner size --json",
    "sweep": "One row for every combination of the listed values",
    "compare": "Plans, models, GPUs or software compared, as planner compare --json",
    "explain": "The causes of a plan's time and memory, as planner explain --json",
    "max-batch": "The largest batch that fits, as planner max-batch --json",
    "max-length": "The longest sequence, prompt or answer that fits, as planner max-length --json",
    "launch": "The files that start a plan, by name",
}
"""The answer of each command."""
_FIELD_DESCRIPTIONS = {
    SETTINGS: "fixed values or lists of values of parameters; in a query tp=4,8 mbs=1",
    OBJECTIVES: "one to three names, the most important one first",
    "precision": "number format of the matrix products, several, or all",
    THINGS: "two or more GPUs, models, frameworks or engines",
    AGAINST: "different settings of the other plan: tp=4 zero=3",
    TARGET: f"the tool to write files for: {', '.join(TARGETS)}",
    WRAPPER: f"the launcher: {', '.join(WRAPPERS)}",
    FILE: "name that /uploads returned for the files of a launch or a model",
}


def question_schema(command: str) -> dict[str, object]:
    """Return the JSON schema of a question: an entry per field, limits in ``constraints``."""
    fields = field_schemas(command)
    properties: dict[str, object] = {
        n: schema for n, (schema, is_limit) in fields.items() if not is_limit
    }
    if limits := {n: schema for n, (schema, is_limit) in fields.items() if is_limit}:
        properties["constraints"] = {"type": "object", "properties": limits}
    return {"type": "object", "required": ["model"], "properties": properties}


def field_schemas(command: str) -> dict[str, tuple[dict[str, object], bool]]:
    """Return the JSON schema of each field, and whether the field is a limit."""
    terms: dict[str, Term | None] = {WORKLOAD: None}
    for workload in workload_names():
        terms |= form_fields(command, workload)
    return {name: _field_schema(name, term) for name, term in terms.items()}


def _field_schema(name: str, term: Term | None) -> tuple[dict[str, object], bool]:
    """Return the JSON schema of a field, and whether the field is a limit."""
    if name == WORKLOAD:
        schema = {"type": "string", "enum": [*workload_names()], "default": "train"}
        return {
            **schema,
            "description": "training, static batches, serving requests, or reinforcement learning",
        }, False
    if term is None:
        kind = {"type": ["object", "string"]} if name == SETTINGS else {"type": ["array", "string"]}
        text = _FIELD_DESCRIPTIONS.get(name) or field_help(name)
        if is_flag(name) or name not in _FIELD_DESCRIPTIONS:
            kind = {"type": ["boolean", "string"] if is_flag(name) else ["number", "string"]}
        return {**kind, "description": text}, False
    suffix = f" ({', '.join(term.of)})" if term.of else ""
    is_limit = "limit" in term.kind and "question" not in term.kind
    bound = ("at most: " if term.sign > 0 else "at least: ") if is_limit else ""
    if term.type == "file":
        description = f"{term.description}{suffix}; name that /uploads returned"
        return {"type": "string", "description": description}, False
    kinds = ["number", "string", "array"] if "parameter" in term.kind else ["number", "string"]
    if term.type == "flag":
        kinds = ["boolean", "string"]
    elif term.is_word:
        kinds = ["string", "array"]
    return {"type": kinds, "description": f"{bound}{term.description}{suffix}"}, is_limit


_DID_YOU_MEAN = re.compile(r"'([^']+)'[^?]*?Did you mean ([^?]+)\?", re.DOTALL)
_OPTION = re.compile(r"(--[a-z][\w-]*)(?:[ =]+([^\s,;:]+))?")
_MAX_FIXES = 8
_PUNCTUATION = ".,;:)"
# Values of options; other words after an option in a sentence do not match.
_VALUE = re.compile(r"(?=.*[\d=])[\w.=+*/%-]+|true|false|full|selective|bf16|fp8|all")


@record(kw_only=True)
class Fix:
    """A change of a question: its ``query``, or the ``field`` to be filled in."""

    label: str
    query: str = ""
    field: str = ""


def suggest_fixes(question: Question, message: str) -> list[Fix]:
    """Return the changes that an error message suggests; complete changes come first."""
    fixes = {
        fix.label: fix
        for fix in (*_suggest_word(question, message), *_suggest_options(question, message))
    }
    return sorted(fixes.values(), key=lambda fix: not fix.query)[:_MAX_FIXES]


def _suggest_word(question: Question, message: str) -> Iterator[Fix]:
    """Yield replacements of an unknown word in an error message by similar known words."""
    for unknown, suggestions in _DID_YOU_MEAN.findall(message):
        for suggestion in re.split(r"\s+or\s+|,\s*", " ".join(suggestions.split())):
            for name, text in question.fields.items():
                pattern = rf"(?<![\w.-]){re.escape(unknown)}(?![\w.-])"
                changed = re.sub(pattern, lambda _, by=suggestion: by, text, flags=re.IGNORECASE)  # type: ignore[misc]
                if changed != text:
                    query = question.with_fields(**{name: changed}).query
                    yield Fix(label=f"{unknown} → {suggestion}", query=query)


def _suggest_options(question: Question, message: str) -> Iterator[Fix]:
    """Yield the options that an error message mentions, with the values that it has."""
    fields = form_fields(question.command, question.workload)
    names = {option_name(name): name for name in fields if name not in PLACED}
    for option, value_text in _OPTION.findall(" ".join(message.split())):
        name, value = names.get(option), value_text.rstrip(_PUNCTUATION)
        if name is None:
            continue
        if not _VALUE.fullmatch(value) or value.isupper():
            yield Fix(label=f"Fill in {name.replace('_', ' ')}", field=name)
        elif name == SETTINGS:
            current = dict(
                inputs.partition("=")[::2] for inputs in question.fields.get(name, "").split()
            )
            key, _, text = value.partition("=")
            settings = " ".join(f"{n}={v}" for n, v in {**current, key: text}.items())
            yield Fix(label=f"Set {value}", query=question.with_fields(**{name: settings}).query)
        elif question.fields.get(name) != value:
            query = question.with_fields(**{name: value}).query
            yield Fix(label=f"Set {name.replace('_', ' ')} = {value}", query=query)
