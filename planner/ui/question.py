"""A question as text, from a form, a link or a JSON object; what a message says would help it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Self
from urllib.parse import urlencode

from planner.base.enums import Contract
from planner.base.records import record
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
from planner.workloads.build_request import make_request, parse_settings
from planner.workloads.registry import as_workload_name, workload_names

COMMANDS = (
    "search", "size", "sweep", "compare", "estimate", "explain", "max-batch", "launch",
)  # fmt: skip
SETTINGS, OBJECTIVES, PRECISION, WORKLOAD = "settings", "objectives", "precision", "workload"
THINGS, AGAINST, TARGET, WRAPPER = "things", "against", "target", "wrapper"
FILE, PRICES = "file", "prices"

_OPTIONS = {
    SETTINGS: "--set", OBJECTIVES: "--objective", PRECISION: "--precision", FILE: "--from",
}  # fmt: skip
PLACED = {THINGS: "", TARGET: ""}
"""What stands in a command by its place, without an option."""
_OUTPUT = {"sweep": ("--output", "sweep"), "launch": ("--output", "plan")}
"""Where a command line has its files written."""
_OF_COMMANDS = {
    "compare": (THINGS,), "launch": (TARGET, WRAPPER), "explain": (AGAINST,),
}  # fmt: skip
_ONE_PLAN = ("estimate", "explain", "max-batch")
_FROM_FILE = ("search", "estimate", "explain", "max-batch", "launch")
_WITH_OBJECTIVES = ("search", "sweep", "compare", "launch")
_UNLIMITED = ("estimate", "explain")
# What a file may be named by: names of specs are names here, so that nobody reads the server's
# files or has it fetch models.
_PATHS = ("/", "\\", "\0")
_FILES = (".toml", ".json", ".csv")
_REPOSITORY = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")
_PRICE = re.compile(r"([\w.-]+)(?:\s+([\w-]+))?\s*=\s*(\S+)")
PRICES_FILE = "prices.csv"
"""What the list of own prices is called on the command line."""


def is_file(name: str) -> bool:
    """Whether a field has what was uploaded."""
    term = glossary().get(name)
    return name == FILE or (term is not None and term.type == "file")


def option_of(name: str) -> str:
    """What a field is called on the command line."""
    term = glossary().get(name)
    return _OPTIONS.get(name) or (term.option_name if term else "--" + name.replace("_", "-"))


def fields_of(command: str, workload: str) -> dict[str, Term | None]:
    """What can be asked, in the order of the table of terms; None of what is no term."""
    kinds = ("question",) if command in _UNLIMITED else ("question", "limit")
    asked = terms_of(workload, *kinds)
    parameters = terms_of(workload, "parameter")
    fields: dict[str, Term | None] = dict.fromkeys(_OF_COMMANDS.get(command, ()))
    fields |= {"model": asked["model"], "gpu": asked["gpu"]}
    fields["num_gpus"] = parameters["num_gpus"]
    fields |= {FILE: None} if command in _FROM_FILE else {}
    fields |= terms_of(workload, "sizing") if command == "size" else {}
    fields |= asked
    if command in _ONE_PLAN:
        fields.pop("space", None)
    fields |= {PRECISION: None, SETTINGS: None}
    return fields | ({OBJECTIVES: None} if command in _WITH_OBJECTIVES else {})


@record(kw_only=True)
class Question:
    """A command and its answers as text, by the names of fields, without those left empty.

    ``files`` are the names and texts of what was uploaded, where the server still has them.
    """

    command: str
    workload: str
    fields: Mapping[str, str]
    files: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, command: str, pairs: Iterable[tuple[str, str]]) -> Self:
        """The question of a query: names and texts, those left empty among them.

        Raises SearchSpaceError if a name is unknown or twice there, or a text is a path.
        """
        given: dict[str, str] = {}
        for name, text in pairs:
            if name in given:
                raise SearchSpaceError(f"{name} is given twice; list its values with commas.")
            if text.strip():
                given[name] = text.strip()
        workload = as_workload_name(given.pop(WORKLOAD, Request.workload).lower())
        known = fields_of(command, workload)
        fields: dict[str, str] = {}
        for word, text in given.items():
            name = _field_name(word, known)
            if name not in known:
                hint = _hint_for(word, known, workload)
                raise SearchSpaceError(
                    f"planner {command} --workload {workload} has no {format_input(word)}.{hint}"
                )
            if name in fields:
                raise SearchSpaceError(f"{word} gives {name} twice; list its values with commas.")
            _refuse_paths(name, text)
            fields[name] = text
        ordered = {name: fields[name] for name in known if name in fields}
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

        Raises SearchSpaceError if it is none, or as `of` does.
        """
        if not isinstance(table, Mapping):
            raise SearchSpaceError("The question must be a JSON object of names and values.")
        found = dict(table)
        limits = found.pop("constraints", None) or {}
        if not isinstance(limits, Mapping):
            raise SearchSpaceError(f"constraints is an object, not {format_input(limits)}.")
        pairs = [*found.items(), *limits.items()]
        return cls.of(command, [(str(n), _text(n, v)) for n, v in pairs if v is not None])

    @classmethod
    def of_line(cls, command: str, line: str) -> Self:
        """The question of a command line of ours, asked by another command."""
        words = shlex.split(line)[2:]
        workload = words[words.index("--workload") + 1] if "--workload" in words else ""
        known = fields_of(command, workload or Request.workload)
        names = {option_of(name): name for name in known if name not in PLACED}
        fields: dict[str, str] = {}
        for at, word in enumerate(words):
            name = names.get(word)
            if name is None:
                continue
            after = words[at + 1] if at + 1 < len(words) else "--"
            value = "true" if after.startswith("--") else after
            is_more = name == SETTINGS and name in fields
            fields[name] = f"{fields[name]} {value}" if is_more else value
        return cls.draft(command, [(WORKLOAD, workload), *fields.items()])

    @property
    def has_subject(self) -> bool:
        """Whether it says what it is about: a model, things to compare, a file or services."""
        return any(name in self.fields for name in ("model", THINGS, FILE, SERVICES))

    @property
    def query(self) -> str:
        """The query of the link that asks it again."""
        plain = {} if self.workload == Request.workload else {WORKLOAD: self.workload}
        return urlencode({**plain, **self.fields})

    def changed(self, **fields: str) -> Self:
        """The question with other texts of some fields; empty ones are left out."""
        texts = {**self.fields, **fields}
        pairs = [(WORKLOAD, self.workload), *texts.items()]
        return type(self).draft(self.command, pairs)

    @property
    def words(self) -> list[str]:
        """The words of the command that asks the same."""
        words = [self.command]
        words += [w for n in PLACED if n in self.fields for w in _several(self.fields[n])]
        words += [] if self.workload == Request.workload else ["--workload", self.workload]
        for name, text in self.fields.items():
            term = glossary().get(name)
            if name in PLACED:
                continue
            if name in (SETTINGS, AGAINST):
                words += [word for one in text.split() for word in (option_of(name), one)]
            elif is_file(name):
                words += [option_of(name), text.partition(":")[2] or text]
            elif name == PRICES:
                words += [option_of(name), PRICES_FILE]
            elif term is not None and term.type == "flag":
                is_on = text.lower() in ("true", "yes", "on", "1")
                option = option_of(name)
                words.append(option if is_on else f"--no-{option[2:]}")
            else:
                words += [option_of(name), text]
        return words + self.output

    @property
    def output(self) -> list[str]:
        """The words that say where files are written."""
        return [*_OUTPUT.get(self.command, ())]

    @property
    def line(self) -> str:
        """The command as it stands in a shell."""
        return "planner " + shlex.join(self.words)

    @property
    def answers(self) -> dict[str, object]:
        """What is asked beside limits, settings, objectives, and what is the command's alone."""
        others = {THINGS, AGAINST, TARGET, WRAPPER, FILE, PRICES, SETTINGS, OBJECTIVES}
        others |= {*terms_of(self.workload, "sizing")}
        limits = self.limits
        return {n: v for n, v in self.fields.items() if n not in others and n not in limits}

    @property
    def limits(self) -> dict[str, str]:
        """The limits."""
        known = terms_of(self.workload, "limit")
        return {
            name: text
            for name, text in self.fields.items()
            if name in known and "question" not in known[name].kind
        }

    @property
    def settings(self) -> dict[str, list[str]]:
        """The parameters that are pinned or narrowed.

        Raises SearchSpaceError if a word is no ``name=value``.
        """
        return parse_settings(self.fields.get(SETTINGS, "").split())

    def asked(self, specs: Path | None) -> dict[str, object]:
        """The question as `make_request` takes it."""
        found: dict[str, object] = {WORKLOAD: self.workload, "specs": specs, **self.answers}
        found |= {"constraints": self.limits}
        if self.settings:
            found[SETTINGS] = self.settings
        if OBJECTIVES in self.fields:
            found[OBJECTIVES] = self.fields[OBJECTIVES]
        return found

    def request(self, specs: Path | None) -> Request:
        """The question as that of a search.

        Raises SpecError or SearchSpaceError if a value is not what its name takes.
        """
        return make_request(self.asked(specs), option_name=option_of)


def _field_name(word: str, fields: Mapping[str, Term | None]) -> str:
    """The field that a word names: itself, or its option on the command line.

    >>> fields = fields_of("search", "serve")
    >>> [_field_name(word, fields) for word in ("input-tokens", "gpus", "ttft", "set")]
    ['input_tokens', 'num_gpus', 'time_to_first_token', 'settings']
    """
    if word in fields:
        return word
    option = "--" + word.strip().lstrip("-").replace("_", "-")
    by_option = {option_of(name): name for name in fields}
    terms = {name: term for name, term in fields.items() if term is not None}
    return by_option.get(option) or full_name(word, terms)


def _hint_for(word: str, fields: Mapping[str, Term | None], workload: str) -> str:
    """How a word that is no field is written instead; empty where nothing is near."""
    parameters = terms_of(workload, "parameter")
    name = full_name(word, parameters)
    if name in parameters and SETTINGS in fields:
        return f" It is a parameter: give {SETTINGS}={{{name!r}: ...}}."
    return did_you_mean(word, fields)


def prices_csv(text: str) -> str:
    """Own prices, ``h100 reserved-1y=1.9, b200=4``, as the CSV file of ``--prices``.

    Raises SpecError if a part of it is no price.

    >>> prices_csv("h100 reserved-1y=1.9, b200=4").splitlines()
    ['gpu,contract,price', 'h100,reserved-1y,1.9', 'b200,on-demand,4']
    """
    rows = [f"{GPU},{CONTRACT},price"]
    for one in _several(text):
        match = _PRICE.fullmatch(one)
        if match is None:
            raise SpecError(
                f"{PRICES} {format_input(one)}: write GPU=USD or GPU CONTRACT=USD, such as "
                "h100 reserved-1y=1.9, several with commas."
            )
        contract = match[2] or str(Contract.ON_DEMAND)
        if contract not in CONTRACTS:
            raise SpecError(f"Unknown contract {contract!r}.{did_you_mean(contract, CONTRACTS)}")
        rows.append(f"{match[1]},{contract},{match[3]}")
    return "\n".join([*rows, ""])


def things_in(text: str, specs: Path | None) -> list[str]:
    """What is compared, by name.

    Raises SearchSpaceError if one of them is no GPU, model, framework or engine.
    """
    words = _several(text)
    for word in words:
        if not any(kinds_named(word, specs)):
            known = [name for kind in SPECS.values() for name in Catalogue(specs).names(kind)]
            raise SearchSpaceError(
                f"Unknown name {word!r}.{did_you_mean(word, known)} GPUs, models, frameworks and "
                "engines are compared."
            )
    return words


def _several(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


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
    """Refuse what names a file; of a model ORG/NAME is the name that others have for it."""
    term = glossary().get(name)
    is_name = term is None or term.type in ("names", "text")
    if is_file(name) or name in (PRICES, BUDGET, "network"):
        return  # what was uploaded, prices as such, money by the time, and Gbit/s
    words = [text] if name != "model" else _several(text)
    left = [one for one in words if not (name == "model" and _REPOSITORY.fullmatch(one))]
    is_path = any(mark in one for one in left for mark in _PATHS)
    is_path = is_path or any(one.lower().endswith(_FILES) for one in words)
    if is_name and is_path and name != "pipeline_layout":
        raise SearchSpaceError(
            f"{name} {format_input(text)}: is a path; here specs go by name, and files of "
            "yours are uploaded. `planner ui --specs DIR` offers those of a folder."
        )


SUMMARIES = {
    "search": "The Pareto front and the recommended plan, as planner search --json",
    "estimate": "One configuration in full, as planner estimate --json",
    "size": "The fewest and the cheapest GPUs that keep the limits, as planner size --json",
    "sweep": "Every combination of the listed values, a row each",
    "compare": "Things side by side, as planner compare --json",
    "explain": "Why a plan takes what it takes, as planner explain --json",
    "max-batch": "The most that fits, as planner max-batch --json",
    "launch": "The files that start a plan, by name",
}
"""What each command answers."""
_OTHERS = {
    SETTINGS: "parameters and their values, pinned or narrowed; in a query tp=4,8 mbs=1",
    OBJECTIVES: "one to three names, the first one counts first",
    "precision": "number format of the matrix products, several, or all",
    THINGS: "two or more GPUs, models, frameworks or engines",
    AGAINST: "what the other plan sets otherwise: tp=4 zero=3",
    TARGET: f"the tool whose files are written: {', '.join(TARGETS)}",
    WRAPPER: f"what starts it: {', '.join(WRAPPERS)}",
    FILE: "what /uploads called the files of a launch or a model",
}


def question_schema(command: str) -> dict[str, object]:
    """The object of a question: an entry for every field, limits under ``constraints``."""
    fields = described_fields(command)
    properties: dict[str, object] = {
        n: one for n, (one, is_limit) in fields.items() if not is_limit
    }
    if limits := {n: one for n, (one, is_limit) in fields.items() if is_limit}:
        properties["constraints"] = {"type": "object", "properties": limits}
    return {"type": "object", "required": ["model"], "properties": properties}


def described_fields(command: str) -> dict[str, tuple[dict[str, object], bool]]:
    """The schema of each field, and whether it is a limit."""
    terms: dict[str, Term | None] = {WORKLOAD: None}
    for workload in workload_names():
        terms |= fields_of(command, workload)
    return {name: _described(name, term) for name, term in terms.items()}


def _described(name: str, term: Term | None) -> tuple[dict[str, object], bool]:
    """The schema of a field, and whether it is a limit."""
    if name == WORKLOAD:
        words = {"type": "string", "enum": [*workload_names()], "default": "train"}
        return {
            **words,
            "description": "training, static batches, serving requests, or reinforcement learning",
        }, False
    if term is None:
        kind = {"type": ["object", "string"]} if name == SETTINGS else {"type": ["array", "string"]}
        return {**kind, "description": _OTHERS[name]}, False
    of = f" ({', '.join(term.of)})" if term.of else ""
    is_limit = "limit" in term.kind and "question" not in term.kind
    bound = ("at most: " if term.sign > 0 else "at least: ") if is_limit else ""
    if term.type == "file":
        told = f"{term.description}{of}; what /uploads called it, with what it names behind it"
        return {"type": "string", "description": told}, False
    kinds = ["number", "string", "array"] if "parameter" in term.kind else ["number", "string"]
    if term.type == "flag":
        kinds = ["boolean", "string"]
    elif term.is_word:
        kinds = ["string", "array"]
    return {"type": kinds, "description": f"{bound}{term.description}{of}"}, is_limit


_DID_YOU_MEAN = re.compile(r"'([^']+)'[^?]*?Did you mean ([^?]+)\?", re.DOTALL)
_OPTION = re.compile(r"(--[a-z][\w-]*)(?:[ =]+([^\s,;:]+))?")
_MOST = 8
_END = ".,;:)"
# Words that stand behind an option in a sentence and are no value of it.
_VALUE = re.compile(r"(?=.*[\d=])[\w.=+*/%-]+|true|false|full|selective|bf16|fp8|all")


@record(kw_only=True)
class Fix:
    """A change of a question: its ``query``, or the ``field`` to be filled in."""

    label: str
    query: str = ""
    field: str = ""


def fixes_of(question: Question, message: str) -> list[Fix]:
    """The changes that a message names, each once, those that can be asked at once first."""
    found = {
        one.label: one for one in (*_suggest_word(question, message), *_options(question, message))
    }
    return sorted(found.values(), key=lambda one: not one.query)[:_MOST]


def _suggest_word(question: Question, message: str) -> Iterator[Fix]:
    """A word that is unknown, and the nearest that are known."""
    for word, listed in _DID_YOU_MEAN.findall(message):
        for meant in re.split(r"\s+or\s+|,\s*", " ".join(listed.split())):
            for name, text in question.fields.items():
                whole = rf"(?<![\w.-]){re.escape(word)}(?![\w.-])"
                changed = re.sub(whole, lambda _, by=meant: by, text, flags=re.IGNORECASE)  # type: ignore[misc]
                if changed != text:
                    query = question.changed(**{name: changed}).query
                    yield Fix(label=f"{word} → {meant}", query=query)


def _options(question: Question, message: str) -> Iterator[Fix]:
    """Options that a message tells to give, with their values where it has some."""
    fields = fields_of(question.command, question.workload)
    names = {option_of(name): name for name in fields if name not in PLACED}
    for option, given in _OPTION.findall(" ".join(message.split())):
        name, value = names.get(option), given.rstrip(_END)
        if name is None:
            continue
        if not _VALUE.fullmatch(value) or value.isupper():
            yield Fix(label=f"Fill in {name.replace('_', ' ')}", field=name)
        elif name == SETTINGS:
            own = dict(one.partition("=")[::2] for one in question.fields.get(name, "").split())
            key, _, text = value.partition("=")
            words = " ".join(f"{n}={v}" for n, v in {**own, key: text}.items())
            yield Fix(label=f"Set {value}", query=question.changed(**{name: words}).query)
        elif question.fields.get(name) != value:
            query = question.changed(**{name: value}).query
            yield Fix(label=f"Set {name.replace('_', ' ')} = {value}", query=query)
