"""Commands of a user's file with options, GPUs and versions, and settings derived from them."""

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
"""Terms of the number of decode (or aggregated) and prefill workers."""
ONGOING = "max_ongoing_requests"
"""Option of a front end: most requests that it sends to a server at once."""
MAX_PARENT_FOLDERS = 6
"""Parent folders of a file that are searched for files that it names."""
LENGTHS = ("input_tokens", "output_tokens")
"""Terms of the lengths of requests."""
_LARGEST = 1e18
_CONFIG_OPTION = re.compile(r"|-{0,2}(?:[\w.-]*config|extra)[\w-]*|-c|(?:--)?deepspeed")
_CONFIG_FILE = re.compile(r"(?i)[^/{]\.(?:ya?ml|json|toml)$")
# Files of axolotl 0.21 and LLaMA-Factory 0.9; their names state the stage, and nothing else.
_SHIPPED_FILE = re.compile(
    r"(?:^|/)(?:deepspeed_configs/zero[1-3](?:_bf16)?|examples/deepspeed/ds_z[0-3]_config)\.json$"
)
_PLACEHOLDER = re.compile(r"<.*>|[A-Z]+(_[A-Z]+)+")  # of a number

_TEMPLATES = (".tpl", ".tmpl", ".template", ".j2", ".jinja", ".jinja2",
              ".example", ".sample", ".dist", ".in", ".orig", ".bak", ".old", ".txt")  # fmt: skip


def suffix_of(path: Path) -> str:
    """Return the suffix of a file's format, in lower case: that of ``x.yaml.tpl`` is ``.yaml``.

    >>> [suffix_of(Path(name)) for name in ("a.YML", "run.sh.j2", "Dockerfile", "b.tpl")]
    ['.yml', '.sh', '', '.tpl']
    """
    suffixes = [suffix.lower() for suffix in path.suffixes]
    while suffixes[1:] and suffixes[-1] in _TEMPLATES:
        suffixes.pop()
    return suffixes[-1] if suffixes else ""


@record(kw_only=True)
class JobResources:
    """Nodes and GPUs of a job; None if the file does not specify them.

    ``num_gpus`` is a total; ``gpu`` the scheduler's name of the GPU type, or the
    one that is tried in place of ``named_gpu``; ``copies`` the number of
    independent copies of the job. ``is_one_process``: Python starts the program without a
    launcher.
    """

    num_nodes: ParsedOption | None = None
    gpus_per_node: ParsedOption | None = None
    num_gpus: ParsedOption | None = None
    gpu: str | None = None
    named_gpu: str | None = None
    copies: ParsedOption | None = None
    is_one_process: bool | None = None

    @property
    def requested_gpus(self) -> int | None:
        """The number of GPUs that the user sets in place of the file's; None if unset."""
        is_of_user = self.num_gpus is not None and self.num_gpus.line == 0
        return parse_int(self.num_gpus) if is_of_user else None


@record(kw_only=True)
class ParsedCommand:
    """One command or document of a file that a target reads.

    ``options`` are known to the target's parsers, by the names of its table; ``unknown`` are not;
    ``repeated`` are replaced by a later option of the same name. ``positional`` are words that are
    no options, such as the model of ``vllm serve``. ``files`` are documents that the same text
    writes (here-documents) or files at ``path``, by the name in options. ``text`` and ``name``
    belong to the file with the spans. ``release`` is the tool's release if the user sets it.
    ``benchmark_load`` are the requests that the file sends, by term; ``deployment`` numbers the
    deployments of a file. ``notes`` are sources outside of the file.
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

    @property
    def words(self) -> list[str]:
        """The positional words that are readable."""
        return [text for word in self.positional for text in word.texts if text]

    @property
    def missing_files(self) -> list[str]:
        """Configurations that the command or its files name, and that are not near them."""
        variables = [option for name, option in self.environment.items() if name == "CONFIG_FILE"]
        options = [*self.positional, *self.options.values(), *self.unknown]
        options += [option for file in self.files.values() for option in file.options.values()]
        near_files = {*self.files}.union(*(file.files for file in self.files.values()))
        named = [option for option in options if _CONFIG_OPTION.fullmatch(option.option)]
        return [
            text
            for option in (*named, *variables)
            for text in option.texts
            if text
            and _CONFIG_FILE.search(text)
            and not _SHIPPED_FILE.search(text)
            and text not in near_files
        ]


@record(kw_only=True)
class LaunchSettings:
    """Settings of a plan that a target derives from a file, by term.

    ``values`` are parameters and answers by term, as text or numbers; ``shape`` has the sizes of
    the model (see `planner.launch.model_shape`) if the file has them in place of a name.
    ``used_options`` are further options that were read, ``ignored_options`` have no effect on the
    prediction, ``unread`` are options of the tool that planner does not read. ``defaults`` are
    reasons for defaults of the target, by term. ``missing`` are terms without value and default;
    ``notes`` are shown to the user. ``fallbacks`` are values to try if a default does not fit,
    by term, each with the reason; those of a tuple are tried in order. ``required`` are terms
    that have no default here, each with the reason.
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
    """Builder of `LaunchSettings` while a file is read."""

    values: dict[str, Any] = field(default_factory=dict)
    defaults: dict[str, str] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    fallbacks: dict[str, tuple[object, str]] = field(default_factory=dict)

    @classmethod
    def of(cls, settings: LaunchSettings) -> SettingsBuilder:
        """Return a builder that starts from settings of another reader."""
        return cls(
            values={**settings.values},
            defaults={**settings.defaults},
            missing=[*settings.missing],
            notes=[*settings.notes],
            fallbacks={**settings.fallbacks},
        )

    def set(self, name: str, value: object) -> None:
        """Set a value unless it is None."""
        if value is not None:
            self.values[name] = value

    def assume(self, name: str, value: object, reason: str) -> None:
        """Set a default with its reason, unless the file has a value."""
        if name not in self.values:
            self.values[name] = value
            self.defaults[name] = reason

    def mark_missing(self, name: str) -> None:
        """Mark a term as missing."""
        if name not in self.missing:
            self.missing.append(name)

    def require(self, name: str, value: object) -> None:
        """Set a term to a value; None marks the term as missing."""
        if value is None:
            self.mark_missing(name)
        else:
            self.values[name] = value

    def set_optimizer(self, name: str) -> None:
        """Set the optimizer from a library's or class's name; add a note if the name is unknown."""
        class_name = name.rpartition(".")[2]
        settings = parse_optimizer(class_name)
        if settings is None:
            self.notes.append(UNKNOWN_OPTIMIZER.format(name=name))
            return
        for parameter, code in settings.items():
            if code:  # 0: default of the program
                self.values[parameter] = code.word
                self.defaults.pop(parameter, None)
        if is_paged(class_name):
            self.values["paged_optimizer"] = "true"

    def build(self, workload: str = "train", **fields: Any) -> LaunchSettings:
        """Return the settings; ``fields`` are further fields of `LaunchSettings`."""
        lists = {"missing": tuple(self.missing), "notes": tuple(self.notes)}
        return LaunchSettings(
            workload=workload,
            values=self.values,
            defaults=self.defaults,
            fallbacks=self.fallbacks,
            **{**lists, **fields},
        )


@record(kw_only=True)
class OptionReader:
    """A command or document as its target's table reads it: input of `LaunchTarget.answers`."""

    command: ParsedCommand
    meanings: Mapping[str, ParameterReading]

    @classmethod
    def of(cls, command: ParsedCommand, table: OptionTable) -> OptionReader:
        """A command with its parameters read by a table; values of a list are joined by blanks."""
        texts = {name: option.joined for name, option in command.options.items()}
        return cls(command=command, meanings=table.read(texts))

    @property
    def position(self) -> str:
        """Position of the command or document: FILE:LINE."""
        return f"{self.command.name}:{self.command.line}"

    def text(self, option: str) -> str | None:
        """The single value of an option; None if it is absent, a flag, or not readable."""
        parsed = self.command.options.get(option)
        return None if parsed is None else parsed.single

    def has(self, option: str) -> bool:
        """Whether the option is set."""
        return option in self.command.options

    def number(self, option: str) -> int | None:
        """Return the value of an option as a whole number; None if absent or no whole number.

        Raises `LaunchError`: it is larger than any count.
        """
        amount = self.amount(option)
        return int(amount) if amount is not None and amount.is_integer() else None

    def amount(self, option: str) -> float | None:
        """Return the value of an option as a number; None if absent or no number.

        Raises LaunchError if it is larger than any count.
        """
        text = (self.text(option) or "").replace("_", "")
        try:
            number = float(text)
        except ValueError:
            return None
        if abs(number) > _LARGEST:
            raise LaunchError(
                f"{self.position}: {option} is {text[:40]}, which is beyond {_LARGEST:.0e}."
            )
        return number

    def value(self, parameter: str) -> str | None:
        """The value of a parameter or quantity of the table."""
        meaning = self.meanings.get(parameter)
        return None if meaning is None else meaning.value


def total_gpus(resources: JobResources) -> int | None:
    """Return the GPUs of the whole job; None if the file does not specify them.

    A launcher with processes per node and without nodes starts one node.
    """
    total = parse_int(resources.num_gpus)
    if total is not None:
        return total
    per_node, nodes = parse_int(resources.gpus_per_node), parse_int(resources.num_nodes)
    if per_node is None or (resources.num_nodes is not None and nodes is None):
        return None
    return per_node * (1 if nodes is None else nodes)


def parse_int(option: ParsedOption | None) -> int | None:
    """The positive whole number of an option; None if it is none, or not readable."""
    text = "" if option is None else (option.single or "").replace("_", "")
    return int(text) if text.isascii() and text.isdecimal() and int(text) > 0 else None


def require_split(reading: OptionReader, num_gpus: int | None, **sizes: int) -> None:
    """Raise LaunchError if a degree is below 1, or the GPUs are not a multiple of the degrees.

    ``sizes`` are the degrees by name. ``num_gpus`` is None if the file does not have it.
    """
    for name, size in sizes.items():
        if size < 1:
            raise LaunchError(f"{reading.position}: {name} is {size}: a degree is at least 1.")
    ranks = prod(sizes.values())
    if num_gpus is None or num_gpus % ranks == 0:
        return
    layout = " x ".join(f"{name} {size}" for name, size in sizes.items() if size > 1)
    raise LaunchError(
        f"{reading.position}: starts on {num_gpus} GPUs, but {layout} takes "
        f"multiples of {ranks}: give the number of GPUs with --gpus if it runs on others."
    )


_NUMBER = r"v?(?P<number>\d+\.\d+(?:\.\d+)*)"


@cache
def _version_patterns(tool: str) -> tuple[str, ...]:
    """Return patterns of a program's version, most reliable first: image tag, pin, text.

    Images of other products that contain the engine have versions of their own.
    """
    rows = shipped_rows("wrappers/versions.csv")
    return tuple(row["place"].replace("NUMBER", _NUMBER) for row in rows if row["tool"] == tool)


@record(kw_only=True)
class StatedVersion(Release):
    """A release named in a line of a file; line 0: set by the user."""

    line: int

    @property
    def place(self) -> str:
        """Its source for messages: line of the file or option."""
        return f"line {self.line}" if self.line else "--engine-version"


def has_profiles(tool: str, catalogue: Catalogue) -> bool:
    """Whether releases of a tool have engine profiles of their own."""
    specs = (catalogue.load_engine(name).spec for name in catalogue.names(SpecKind.ENGINES))
    return any(spec.since.partition(" ")[0] == tool for spec in specs)


def version_of(tool: str, command: ParsedCommand) -> StatedVersion | None:
    """Return a program's version: set by the user, else nearest to the command; None if unknown.

    Image tags count before pins, and those before comments.
    """
    if command.release:
        return StatedVersion(tool=tool, number=command.release, line=0)
    for pattern in _version_patterns(tool):
        versions = []
        for match in re.finditer(pattern, command.text, re.IGNORECASE):
            line = command.text.count("\n", 0, match.start("number")) + 1
            versions.append(StatedVersion(tool=tool, number=match["number"], line=line))
        if versions:
            return min(versions, key=lambda version: abs(version.line - command.line))
    return None


def with_unknown_options(command: ParsedCommand) -> ParsedCommand:
    """A command with its unknown options among its options; the last of a name counts."""
    unknown_options = {option.option: option for option in command.unknown}
    return replace(command, options={**unknown_options, **command.options}, unknown=())


UNKNOWN_OPTIMIZER = (
    "The optimizer {name} is not understood and is predicted as Adam: memory and time may change."
)
NOTHING = ("", "null", "none", "~")
_NULL_TEXTS = (("null",), ("~",), ("",))


def without_nulls(command: ParsedCommand, table: OptionTable) -> ParsedCommand:
    """Return a document, and the documents that it names, without keys whose value is null.

    Null means the default. Keys with null as a value in the option table stay.
    """
    files = {name: without_nulls(file, table) for name, file in command.files.items()}
    if command.positional:  # a command: KEY=null changes the file that it names
        return replace(command, files=files)
    return replace(command, options=without_null_keys(command.options, table), files=files)


def without_null_keys(
    options: Mapping[str, ParsedOption], table: OptionTable
) -> Mapping[str, ParsedOption]:
    """Return options without keys whose value is null; see `without_nulls`."""
    options_with_null = {row.option for row in table.rows if row.text == _NULL_TEXTS[0][0]}
    return {
        name: option
        for name, option in options.items()
        if name.startswith("-")
        or name in options_with_null
        or option.texts not in _NULL_TEXTS
        or option.unknown
    }


def option_text(reading: OptionReader, *options: str) -> str | None:
    """The text of the first of these options with a value, in lower case."""
    texts = ((reading.text(option) or "").strip("'\" ").lower() for option in options)
    return next((text for text in texts if text not in NOTHING), None)


def flag(reading: OptionReader, *options: str, default: bool = False) -> bool:
    """True if the first of ``options`` that is set is on; ``default`` if none is set."""
    for option in options:
        if not reading.has(option):
            continue
        text = option_text(reading, option)
        # A flag without a value is on; null counts as not set.
        if text is not None or not reading.command.options[option].texts:
            return text not in ("false", "0")
    return default


def has_unknown_value(reading: OptionReader, *options: str) -> bool:
    """Whether one of these options has a value that is not readable, or a placeholder."""
    present = (reading.command.options[name] for name in options if reading.has(name))
    return any(
        text is None or _PLACEHOLDER.fullmatch(text) for option in present for text in option.texts
    )


def number(reading: OptionReader, *options: str) -> int | None:
    """The first positive whole number of these options; None if there is none."""
    numbers = (reading.number(option) for option in options)
    return next((value for value in numbers if value is not None and value > 0), None)
