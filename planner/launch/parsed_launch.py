"""What a user's file says of options, GPUs and versions, and what a target makes of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from math import prod
from pathlib import Path
from typing import Any

from planner.base.records import record
from planner.base.training_aliases import is_paged, parse_optimizer
from planner.confidence.error_classes import Release
from planner.documents.shell.edits import ParsedOption
from planner.errors import LaunchError
from planner.launch.option_table import OptionTable, ParameterReading, shipped_rows
from planner.specs.catalogue import Catalogue
from planner.specs.spec_paths import SpecKind

REPLICAS = ("replicas", "prefill_replicas")
"""How many copies of each kind of workers there are: those of prefill have a pool of their own."""
ONGOING = "max_ongoing_requests"
"""The option with the requests that what stands before a server sends to it at once."""
MOST_ABOVE = 6
"""Folders above a file in which what it names is looked for."""
LENGTHS = ("input_tokens", "output_tokens")
"""Of requests, by term."""
_LARGEST = 1e18


@record(kw_only=True)
class JobResources:
    """On what a file starts its job; None where it does not say.

    ``num_gpus`` where it gives a total; ``gpu`` as its scheduler calls the kind; ``copies`` of
    the whole job, which know nothing of each other. ``is_one_process`` where Python starts a
    program and nothing around it starts more.
    """

    num_nodes: ParsedOption | None = None
    gpus_per_node: ParsedOption | None = None
    num_gpus: ParsedOption | None = None
    gpu: str | None = None
    copies: ParsedOption | None = None
    is_one_process: bool | None = None

    @property
    def requested_gpus(self) -> int | None:
        """The number of GPUs that the user names, whatever the file has."""
        is_of_user = self.num_gpus is not None and self.num_gpus.line == 0
        return parse_int(self.num_gpus) if is_of_user else None


@record(kw_only=True)
class ParsedCommand:
    """One command or document of a file that a target reads.

    ``options`` are those that the target's parsers know, by the names of its table; ``unknown``
    those that they do not; ``repeated`` those that a later one of the same name replaces.
    ``positional`` are words that are no options, the model of
    ``vllm serve`` among them. ``files`` are documents that the same text writes (here-documents),
    or that stand beside it at ``path``, by the name that options call them. ``text`` and ``name``
    are those of the file in which the spans are. ``release`` is that of the tool where the user
    names it, whatever the file has. ``benchmark_load`` are the requests that the file sends, by
    term; ``deployment`` tells what is started together from the other things in the file, where
    that has several. ``notes`` say where what is not in the file comes from.
    """

    target: str
    name: str
    text: str
    line: int = 1
    options: Mapping[str, ParsedOption] = field(default_factory=dict)
    unknown: tuple[ParsedOption, ...] = ()
    repeated: tuple[ParsedOption, ...] = ()
    positional: tuple[ParsedOption, ...] = ()
    environment: Mapping[str, ParsedOption] = field(default_factory=dict)
    resources: JobResources = field(default_factory=JobResources)
    files: Mapping[str, ParsedCommand] = field(default_factory=dict)
    benchmark_load: Mapping[str, ParsedOption] = field(default_factory=dict)
    deployment: int = 0
    notes: tuple[str, ...] = ()
    path: Path | None = None
    search_folders: tuple[str, ...] = ()
    release: str = ""


@record(kw_only=True)
class LaunchSettings:
    """What a target makes of a file, in the words of the table of terms.

    ``values`` are parameters and questions by name, as text or numbers; ``shape`` the model's
    in the words of `planner.launch.model_shape` where the file tells it in place of a name.
    ``used_options`` are further options that told something, ``ignored_options`` such as are the
    tool's and no
    part of what is predicted, ``unread`` such as are the tool's and not read; ``defaults`` what the
    target does where the file says nothing, by term, with the reason. ``missing`` are terms that
    the file leaves open and that have no default; ``notes`` say what else is worth knowing.
    ``fallbacks`` are values in place of defaults with which it does not fit, by term, each with
    the reason. ``required`` are terms that have no default here, each with the reason.
    """

    workload: str
    values: Mapping[str, Any]
    shape: Mapping[str, object] | None = None
    used_options: frozenset[str] = frozenset()
    ignored_options: frozenset[str] = frozenset()
    unread: frozenset[str] = frozenset()
    defaults: Mapping[str, str] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    fallbacks: Mapping[str, tuple[object, str]] = field(default_factory=dict)
    required: Mapping[str, str] = field(default_factory=dict)


@dataclass(kw_only=True)
class SettingsBuilder:
    """Answers while a file is read; see `Answers`."""

    values: dict[str, Any] = field(default_factory=dict)
    defaults: dict[str, str] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    fallbacks: dict[str, tuple[object, str]] = field(default_factory=dict)

    def set(self, name: str, value: object) -> None:
        """A value, unless it is None."""
        if value is not None:
            self.values[name] = value

    def assume(self, name: str, value: object, why: str) -> None:
        """A value that the file does not give."""
        if name not in self.values:
            self.values[name] = value
            self.defaults[name] = why

    def mark_missing(self, name: str) -> None:
        """What the file leaves open."""
        if name not in self.missing:
            self.missing.append(name)

    def require(self, name: str, value: object) -> None:
        """A value, which the file leaves open where it is None."""
        if value is None:
            self.mark_missing(name)
        else:
            self.values[name] = value

    def put_optimizer(self, name: str) -> None:
        """The optimizer of a library's or class's name; one that is not known is reported."""
        class_name = name.rpartition(".")[2]
        settings = parse_optimizer(class_name)
        if settings is None:
            self.notes.append(UNKNOWN_OPTIMIZER.format(name=name))
            return
        for parameter, code in settings.items():
            if code:  # 0 is what the program does without a name
                self.values[parameter] = code.word
                self.defaults.pop(parameter, None)
        if is_paged(class_name):
            self.values["paged_optimizer"] = "true"

    def build(self, workload: str = "train", **more: Any) -> LaunchSettings:
        """The answers; ``more`` are the other fields of them."""
        lists = {"missing": tuple(self.missing), "notes": tuple(self.notes)}
        return LaunchSettings(
            workload=workload,
            values=self.values,
            defaults=self.defaults,
            fallbacks=self.fallbacks,
            **{**lists, **more},
        )


@record(kw_only=True)
class OptionReader:
    """A file as its target's table reads it: what `Target.answers` is given."""

    command: ParsedCommand
    meanings: Mapping[str, ParameterReading]

    @classmethod
    def of(cls, command: ParsedCommand, table: OptionTable) -> OptionReader:
        """The file as a table reads its options, several values of one joined by blanks."""
        texts = {name: option.joined for name, option in command.options.items()}
        return cls(command=command, meanings=table.read(texts))

    @property
    def place(self) -> str:
        """Where the command or document stands: FILE:LINE."""
        return f"{self.command.name}:{self.command.line}"

    def text(self, option: str) -> str | None:
        """The single value of an option; None where it is absent, a flag, or cannot be told."""
        given = self.command.options.get(option)
        return None if given is None else given.single

    def has(self, option: str) -> bool:
        """Whether the option is there."""
        return option in self.command.options

    def number(self, option: str) -> int | None:
        """The value of an option as a whole number; None where it is none.

        Raises `LaunchError`: it is beyond what anything counts.
        """
        amount = self.amount(option)
        return int(amount) if amount is not None and amount.is_integer() else None

    def amount(self, option: str) -> float | None:
        """The value of an option as any number, as `number`."""
        text = (self.text(option) or "").replace("_", "")
        try:
            number = float(text)
        except ValueError:
            return None
        if abs(number) > _LARGEST:
            raise LaunchError(
                f"{self.place}: {option} is {text[:40]}, which is beyond {_LARGEST:.0e}."
            )
        return number

    def value(self, parameter: str) -> str | None:
        """The value of a parameter or quantity of the table."""
        meaning = self.meanings.get(parameter)
        return None if meaning is None else meaning.value


def total_gpus(world: JobResources) -> int | None:
    """GPUs of the whole job; None where the file leaves them open.

    A launcher that is given processes of a node and no nodes starts one node.
    """
    total = parse_int(world.num_gpus)
    if total is not None:
        return total
    of_node, nodes = parse_int(world.gpus_per_node), parse_int(world.num_nodes)
    if of_node is None or (world.num_nodes is not None and nodes is None):
        return None
    return of_node * (1 if nodes is None else nodes)


def parse_int(option: ParsedOption | None) -> int | None:
    """The whole number that something says; None where text alone does not tell one."""
    text = "" if option is None else (option.single or "").replace("_", "")
    return int(text) if text.isascii() and text.isdecimal() and int(text) > 0 else None


def require_split(reading: OptionReader, num_gpus: int | None, **sizes: int) -> None:
    """Refuse GPUs that a file's own split of the model does not divide.

    Raises LaunchError if the file starts on fewer GPUs, or on others, than it deals the model to.
    """
    ranks = prod(sizes.values())
    if num_gpus is None or ranks < 1 or num_gpus % ranks == 0:
        return
    words = " x ".join(f"{name} {size}" for name, size in sizes.items() if size > 1)
    raise LaunchError(
        f"{reading.place}: starts on {num_gpus} GPUs, but {words} takes "
        f"multiples of {ranks}: give the number of GPUs with --gpus if it runs on others."
    )


_NUMBER = r"v?(?P<number>\d+\.\d+(?:\.\d+)*)"


@cache
def _places(tool: str) -> tuple[str, ...]:
    """What names a version, the surest first: the tag of an image, a pin, words.

    Images of other products that hold the engine count versions of their own.
    """
    rows = shipped_rows("launchers/versions.csv")
    return tuple(row["place"].replace("NUMBER", _NUMBER) for row in rows if row["tool"] == tool)


@record(kw_only=True)
class StatedVersion(Release):
    """A release that stands in a line of a file; line 0: the user names it."""

    line: int

    @property
    def place(self) -> str:
        """Where it is named, as messages say it."""
        return f"line {self.line}" if self.line else "--engine-version"


def has_profiles(tool: str, catalogue: Catalogue) -> bool:
    """Whether releases of a tool have engine profiles of their own."""
    specs = (catalogue.load_engine(name).spec for name in catalogue.names(SpecKind.ENGINES))
    return any(spec.since.partition(" ")[0] == tool for spec in specs)


def version_of(tool: str, command: ParsedCommand) -> StatedVersion | None:
    """The version of a tool that the user names, else the file, nearest to the command.

    Image tags count before pins, and those before comments.
    """
    if command.release:
        return StatedVersion(tool=tool, number=command.release, line=0)
    for place in _places(tool):
        named = []
        for one in re.finditer(place, command.text, re.IGNORECASE):
            line = command.text.count("\n", 0, one.start("number")) + 1
            named.append(StatedVersion(tool=tool, number=one["number"], line=line))
        if named:
            return min(named, key=lambda one: abs(one.line - command.line))
    return None


def with_unknown_options(command: ParsedCommand) -> ParsedCommand:
    """A command whose words that no parser of ours knows are options: the last of a name counts."""
    words = {option.option: option for option in command.unknown}
    return replace(command, options={**words, **command.options}, unknown=())


UNKNOWN_OPTIMIZER = (
    "The optimizer {name} is not understood and is predicted as Adam: memory and time may change."
)
NOTHING = ("", "null", "none", "~")
_NULL = (("null",), ("~",), ("",))


def without_nulls(command: ParsedCommand, table: OptionTable) -> ParsedCommand:
    """A document, and those that it names, without keys that are null: these are defaults.

    A key stays where null is one of its values in the table.
    """
    files = {name: without_nulls(file, table) for name, file in command.files.items()}
    if command.positional:  # a command: KEY=null changes the file that it names
        return replace(command, files=files)
    return replace(command, options=without_null_keys(command.options, table), files=files)


def without_null_keys(
    options: Mapping[str, ParsedOption], table: OptionTable
) -> Mapping[str, ParsedOption]:
    """Options without keys that are null; see `without_nulls`."""
    means = {row.option for row in table.rows if row.text == _NULL[0][0]}
    return {
        name: option
        for name, option in options.items()
        if name.startswith("-") or name in means or option.texts not in _NULL or option.unknown
    }


def option_text(reading: OptionReader, *options: str) -> str | None:
    """The text of the first of some options that says something, in lower case."""
    texts = ((reading.text(option) or "").strip("'\" ").lower() for option in options)
    return next((text for text in texts if text not in NOTHING), None)


def flag(reading: OptionReader, *options: str, default: bool = False) -> bool:
    """Whether the first of some options that is there is on."""
    for option in options:
        if not reading.has(option):
            continue
        text = option_text(reading, option)
        # A flag without a value is on; null is as if it were not there.
        if text is not None or not reading.command.options[option].texts:
            return text not in ("false", "0")
    return default


def has_unknown_value(reading: OptionReader, *options: str) -> bool:
    """Whether one of some options is there with a value that text alone does not tell."""
    given = (reading.command.options[name] for name in options if reading.has(name))
    return any(None in one.texts for one in given)


def number(reading: OptionReader, *options: str) -> int | None:
    """The first whole number above 0 that some options say."""
    numbers = (reading.number(option) for option in options)
    return next((one for one in numbers if one is not None and one > 0), None)
