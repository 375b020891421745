"""What is launched, a plan with its specs and predictions, and what a target of it is.

Files are written as texts with holes, those of ``texts/``: ``{{name}}`` is a value; alone in a line
it may be several lines, or none, as far to the right. ``%if name``, ``%else`` and ``%end`` keep
lines where a value is something, ``%each name`` repeats them for each of several tables of values.
Blank lines that follow each other are one, or as many as ``blank_lines``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property, partial
from importlib.resources import files
from typing import Any, Self, TypeAlias

from planner.base import software_enums
from planner.base.records import record
from planner.base.software_enums import AttentionKernel
from planner.base.training_aliases import TrainingObjective
from planner.base.units import ceil_div
from planner.configurations.configuration_tables import PREFILL
from planner.documents.shell.edits import Changes
from planner.errors import InfeasibleError, LaunchError
from planner.launch.option_table import (
    OptionRole,
    OptionTable,
    OptionText,
    OptionTexts,
    ParameterNote,
    ParserOptions,
    Quantities,
    Words,
    is_command,
    is_document,
    parse_parameters,
    tool_row,
)
from planner.launch.parsed_launch import (
    LaunchSettings,
    OptionReader,
    ParsedCommand,
    SettingsBuilder,
    without_nulls,
)
from planner.optimize.collector import full_rows
from planner.question.request import Request
from planner.question.terms import glossary, terms_about, terms_of
from planner.specs.framework import FrameworkProfile
from planner.specs.gpu import ClusterSpec, GpuSpec
from planner.specs.model import ModelSpec
from planner.workloads.deployments import DISAGGREGATED
from planner.workloads.make_plan import Plan, evaluate, make_single_plan
from planner.workloads.saved_plan import SavedPlan
from planner.workloads.workload import Evaluation

_AUTO = "auto"
_NOT_STARTED = ("adapter", "both_splits", "no_such_file", "kv_cache")
"""Quantities of tables, without which nothing starts that is the plan."""


@record(kw_only=True)
class LaunchJob:
    """One plan that is to be started.

    ``row`` has the result columns of its estimate: parameters, derived numbers such as
    ``data_parallel``, predictions with their units in the names. ``profile`` is the framework
    or engine that it was predicted for.
    """

    pinned: SavedPlan
    model: ModelSpec
    gpu: GpuSpec
    cluster: ClusterSpec
    profile: Any
    row: Mapping[str, Any]

    @classmethod
    def of(cls, request: Request) -> Self:
        """The job of a request for one configuration.

        Raises `SpecError` or `SearchSpaceError`: something it names is unknown or
        impossible, or there are several configurations. Raises `InfeasibleError`: the plan
        breaks a rule or does not fit: no file would start it.
        """
        plan = make_single_plan(request)
        evaluation = evaluate(plan)
        if evaluation.rejected_by:
            raise InfeasibleError(
                f"The plan cannot run ({evaluation.rejected_by}): no launch file was written. "
                "`planner estimate` says why."
            )
        return cls.of_plan(plan, evaluation)

    @classmethod
    def of_plan(cls, plan: Plan, evaluation: Evaluation) -> Self:
        """The job of one configuration that was judged."""
        (row,) = full_rows(evaluation.table(), [evaluation.source])
        source: Any = evaluation.source
        setting = source.setting
        return cls(
            pinned=SavedPlan.of(plan, row),
            model=setting.model,
            gpu=setting.machine.gpu,
            cluster=setting.machine.cluster,
            profile=getattr(setting, plan.workload.profile_kind),
            row=row,
        )

    def __getitem__(self, name: str) -> Any:
        """A parameter, an answer or a result column of the plan; None where it has none."""
        for table in (self.pinned.parameters, self.pinned.answers, self.row):
            if table.get(name) is not None:
                return table[name]
        return None

    def option_values(self, quantities: Quantities) -> dict[str, Any]:
        """What an option table is given: no defaults, and attention as fused or by its kernel."""
        values, terms = dict(quantities), glossary()
        for name in [name for name, value in values.items() if value == _AUTO and name in terms]:
            codes = terms[name].codes
            # How software computes is its framework's where nobody says it.
            if codes is not None and codes.__module__ == software_enums.__name__:
                values[name] = None
        kernel = values.get("attention_kernel")
        if kernel == AttentionKernel.EAGER.word:
            values |= {"attention_kernel": None, "flash_attention": False}
        elif kernel is not None and "flash_attention" in values:
            values["attention_kernel"] = kernel if values["flash_attention"] is not None else None
            values["flash_attention"] = None
        return values

    @property
    def workload(self) -> str:
        """Of the plan."""
        return self.pinned.workload

    @property
    def is_training(self) -> bool:
        """Whether something is trained."""
        return isinstance(self.profile, FrameworkProfile)

    @property
    def learns_preferences(self) -> bool:
        """Whether it is trained on judged answers, not on texts."""
        objective = self["training_objective"]
        return objective is not None and TrainingObjective(objective).is_preference

    @property
    def is_disaggregated(self) -> bool:
        """Whether prompts and answers have workers of their own."""
        return bool(self["mode"] == DISAGGREGATED)

    @property
    def num_gpus(self) -> int:
        """GPUs of the whole job."""
        return int(self["num_gpus"])

    @property
    def gpus_per_node(self) -> int:
        """GPUs of a node that the job uses."""
        return min(self.num_gpus, self.cluster.gpus_per_node)

    @property
    def num_nodes(self) -> int:
        """Nodes of the whole job."""
        return ceil_div(self.num_gpus, self.cluster.gpus_per_node)

    @property
    def data_parallel(self) -> int:
        """Copies of the model, each with data of its own."""
        return int(self["data_parallel"])

    @property
    def accumulation_steps(self) -> int:
        """Micro-batches of a data-parallel rank in a step."""
        return int(self["gradient_accumulation_steps"])

    @property
    def training_steps(self) -> int | None:
        """Steps of the whole run; None where no tokens are asked for."""
        tokens = self["total_tokens"]
        objective = TrainingObjective(self["training_objective"] or TrainingObjective.SFT)
        sequences = self["global_batch_size"] * objective.sequences_per_sample
        tokens_per_step = sequences * self["sequence_length"]
        return max(math.ceil(tokens / tokens_per_step), 1) if tokens else None

    @cached_property
    def hub_name(self) -> str | None:
        """ORG/NAME of the model on Hugging Face, None where none is known."""
        return hub_name(str(self["model"]), *self.model.aliases)

    def require_even_nodes(self) -> None:
        """Refuse GPUs that fill no whole nodes.

        Raises `LaunchError`: the last node would have fewer GPUs than the others.
        """
        if self.num_gpus % self.gpus_per_node:
            raise LaunchError(
                f"{self.num_gpus} GPUs are no whole nodes of {self.gpus_per_node}: "
                "launchers need the same number on each; plan another number of GPUs."
            )


def hub_name(*names: str) -> str | None:
    """The first of a model's names that is ORG/NAME on Hugging Face, None if none is."""
    hub = re.compile(r"[^/]+/[^/]+(?<!\.toml)(?<!\.json)", re.DOTALL)
    return next(filter(hub.fullmatch, names), None)


@record(kw_only=True)
class LaunchOutputFile:
    """A file that is written; ``name`` is relative to the directory of the launch.

    ``meaning`` is what it is for, in a few words; ``start`` the commands of the shell with which
    the user starts it, one on each line, empty where another file does.
    """

    name: str
    text: str
    is_executable: bool = False
    meaning: str = ""
    start: str = ""


@record(kw_only=True)
class ShellVariable:
    """What only the user knows, as a variable of the shell: a path, an address.

    Without ``default`` the script ends with a message where nobody sets it. ``prefix`` and
    ``suffix`` are text around the value within the same word, as a port follows an address.
    Of a number, ``plus`` + ``times`` x it can be meant; 0 ``times`` stands for the value itself.
    ``is_output``: a folder that the program writes, which must outlive it.
    """

    name: str
    meaning: str
    default: str | None = None
    prefix: str = ""
    suffix: str = ""
    times: int = 0
    plus: int = 0
    is_output: bool = False


NODE_RANK = ShellVariable(
    name="NODE_RANK", meaning="number of this node among those of its process, from 0"
)
NUM_NODES = ShellVariable(name="NUM_NODES", meaning="number of these nodes")
PORT = ShellVariable(name="PORT", meaning="port of this copy of the process")
COPY = ShellVariable(name="COPY", meaning="number of this copy of the process, from 0")
HOST_ADDRESS = ShellVariable(
    name="HOST_ADDRESS", meaning="address of this node, as others reach it"
)
MASTER_PORT = ShellVariable(name="MASTER_PORT", meaning="port on the first of these nodes")
MASTER_ADDR = ShellVariable(name="MASTER_ADDR", meaning="address of the first of these nodes")


@record(kw_only=True)
class CommandWords:
    """Words of a command that stand on one line; a ``str`` is quoted, a `Variable` expanded."""

    words: tuple[str | ShellVariable, ...]
    note: str = ""

    @classmethod
    def of(cls, setting: OptionText) -> CommandWords:
        """An option with its text."""
        texts = () if setting.text is None else (setting.text,)
        return cls(words=(setting.option, *texts), note=setting.note)


def override(key: str, name: str, meaning: str, default: str | None = None) -> CommandWords:
    """``KEY=`` with what only the user knows."""
    return CommandWords(
        words=(ShellVariable(name=name, meaning=meaning, default=default, prefix=f"{key}="),)
    )


def overrides(settings: OptionTexts) -> list[CommandWords]:
    """Options as words ``KEY=TEXT``."""
    return [
        CommandWords(words=(f"{setting.option}={setting.text}",), note=setting.note)
        for setting in settings.options
    ]


@record(kw_only=True)
class Process:
    """A program that runs on some GPUs, alike ``copies`` times.

    ``launcher`` starts a process for each GPU on each node: ``torchrun``, ``accelerate``,
    ``deepspeed``; empty where the program does that itself, or needs one process alone.
    ``arguments`` begin with the program: a script for a launcher, else the command.
    ``follower_arguments`` come last on every node but the first. ``port`` is where it listens,
    0 if it does not.
    """

    name: str
    arguments: tuple[CommandWords, ...]
    num_nodes: int
    gpus_per_node: int
    launcher: str = ""
    launcher_arguments: tuple[CommandWords, ...] = ()
    follower_arguments: tuple[CommandWords, ...] = ()
    copies: int = 1
    environment: Mapping[str, str] = field(default_factory=dict)
    port: int = 0
    notes: tuple[str, ...] = ()


@record(kw_only=True)
class LaunchDraft:
    """A plan in the words of a target, before a wrapper makes it startable.

    ``files`` stand beside the commands: configurations that they read. ``unexpressed`` and
    ``left`` are told in the file and on the screen. ``benchmark`` measures what was predicted:
    commands beside the job, empty where its own log does.
    """

    processes: tuple[Process, ...]
    files: tuple[LaunchOutputFile, ...] = ()
    unexpressed: tuple[ParameterNote, ...] = ()
    left: tuple[ParameterNote, ...] = ()
    benchmark: tuple[Process, ...] = ()
    notes: tuple[str, ...] = ()


def _unwritten(job: LaunchJob, _: OptionTexts) -> LaunchDraft:
    raise LaunchError(f"Its files are only read: choose another target to {job.workload}.")


def changes_nothing(_: ParsedCommand, __: Changes) -> tuple[Changes, Changes]:
    """No change of a file is known to be honoured by its program."""
    return {}, {}


_LISTS = ("workloads", "profiles", "nearest", "accepted", "aliases")


@record(kw_only=True)
class LaunchTarget:
    """A tool at a version.

    Parameters
    ----------
    name : as the command line takes it, and as its table and its options are called
    title, version : as people know it, and what its files are written for
    workloads : of the plans that it starts
    profiles : names of the frameworks or engines whose predictions are of it; empty where
        there is none of it, which is told
    nearest : names of those whose predictions are taken where a plan names none; it starts
        plans of others, too
    quantities : what the table's parameters are for a job where they are not as in the plan, and
        what is worked out from them; None where a parameter says nothing
    draft : a job in its words, given the options of the table; raises `LaunchError` where that
        is impossible; programs that are read alone have neither of both
    answers : the other way: what a file of it says, in the words of the table of terms
    starts : whether words, those of wrappers taken away, start this tool: the program first
    is_of : whether the values of a YAML or JSON document, by dotted path, are of this tool
    honoured : what of a change stands in a file itself, in words that its program honours, and
        what in files beside it; raises `LaunchError` where it honours none of these words
    script : what the Trainer's table is told of the script that it starts
    narrowed : a search's request without what the target cannot start, where its table does not
        say so
    accepted : file stems of what its parsers accept, in ``planner/launch/accepted``
    complete : a command or document with all that its table reads: words that no parser of ours
        knows, what it begins from
    step : what reads and writes the same files as the whole step of reinforcement learning, of
        whose update the target itself tells; None of a program that generates nothing
    words : its table where that has another name
    inherits : whether its documents begin from others, whose values null replaces

    What is no function stands in a row of ``targets.csv``, lists with ``|`` between. Its
    ``command`` is a pattern of the words that start the tool, ``document`` the keys that tell a
    document of it: all groups must be there, of a group one of those with ``|`` between; ``*``
    stands for any end, ``KEY=TEXT`` for what the value begins or is, ``!KEY`` for none of it, and
    `` or `` separates ways to be one.
    """

    name: str
    title: str
    version: str
    workloads: tuple[str, ...]
    profiles: tuple[str, ...]
    answers: Callable[[OptionReader], LaunchSettings]
    quantities: Callable[[LaunchJob], Quantities] = lambda _: {}
    draft: Callable[[LaunchJob, OptionTexts], LaunchDraft] = _unwritten
    starts: Callable[[Sequence[str]], bool] = lambda _: False
    is_of: Callable[[Mapping[str, object]], bool] = lambda _: False
    honoured: Callable[[ParsedCommand, Changes], tuple[Changes, Changes]] = lambda _, changes: (
        changes,
        {},
    )
    script: Callable[[LaunchJob], Quantities] = lambda _: {}
    accepted: tuple[str, ...] = ()
    narrowed: Callable[[Request], Request] = lambda request: request
    complete: Callable[[ParsedCommand], ParsedCommand] = lambda command: command
    step: LaunchTarget | None = None
    aliases: tuple[str, ...] = ()
    nearest: tuple[str, ...] = ()
    words: str = ""
    inherits: bool = False

    @classmethod
    def of(cls, name: str, **hooks: Any) -> Self:
        """The tool of a row of the table with its functions; one without a draft is read alone."""
        row = tool_row(name)
        fields: dict[str, Any] = {
            **{key: row[key] for key in ("name", "title", "version")},
            **{key: tuple(filter(None, row[key].split("|"))) for key in _LISTS},
            "starts": partial(is_command, name),
            "is_of": partial(is_document, name),
            **({} if "draft" in hooks else {"honoured": changes_nothing}),
        }
        return cls(**{**fields, **hooks})

    @property
    def table(self) -> OptionTable:
        """Which option says which parameter."""
        return OptionTable.load(self.words or self.name)

    @property
    def tool(self) -> str:
        """Name and version, the name once."""
        is_named = self.version.startswith(self.title)
        return self.version if is_named else f"{self.title} {self.version}"

    @property
    def options(self) -> ParserOptions:
        """What its parsers accept, and what else its table reads."""
        return ParserOptions.of(self.accepted, self.table)

    def settings(self, job: LaunchJob) -> OptionTexts:
        """The options of a job that the table knows."""
        return self.table.written(job.option_values(self.table_input(job)))

    def table_input(self, job: LaunchJob) -> Quantities:
        """What the table is given: what the target works out, else as the plan has it."""
        return {**plan_words(job, self.table), **self.quantities(job)}

    def drafted(self, job: LaunchJob) -> LaunchDraft:
        """The job in the words of the target.

        Raises LaunchError if it is another workload's or framework's, or has no such option.
        """
        if job.workload not in self.workloads:
            raise LaunchError(
                f"{self.title} cannot start a plan to {job.workload}: choose another target."
            )
        name = job.profile.name
        *others, last = self.profiles or ("",)
        profile_names = f"{', '.join(others)} or {last}" if others else last
        is_supported = name in self.profiles or self.is_of_release(job.profile)
        if self.profiles and not is_supported:
            raise LaunchError(
                f"The plan is for {name}; {self.title} is predicted as {profile_names}: "
                "search with that --framework or --engine, or choose another target."
            )
        settings = self.settings(job)
        draft = self.draft(job, settings)
        self._refuse_other_layout((*settings.unexpressed, *draft.unexpressed))
        is_exact = name in (*self.profiles, *self.nearest)
        notes = () if is_exact else (f"Times and memory are predicted as for {name}.",)
        return replace(
            draft,
            unexpressed=(*settings.unexpressed, *draft.unexpressed),
            left=(*settings.left, *draft.left),
            notes=(*notes, *draft.notes),
        )

    def _refuse_other_layout(self, unexpressed: Sequence[ParameterNote]) -> None:
        """Refuse a plan whose GPUs would be split in another way than it has them."""
        names = {*terms_about("parallel_degree"), "virtual_pipeline", *_NOT_STARTED}
        wrong = [
            str(remark) for remark in unexpressed if remark.parameter.removeprefix(PREFILL) in names
        ]
        if wrong:
            raise LaunchError(
                f"{self.title} cannot start this plan: {'; '.join(wrong)}. Change it with --set, "
                "or choose another target."
            )

    def is_of_release(self, profile: object) -> bool:
        """Whether a profile tells of the tool in other releases."""
        return str(getattr(profile, "since", "")).startswith(f"{self.name} ")

    def for_workload(self, workload: object) -> LaunchTarget:
        """What reads its files as a plan of a workload; the target where that has no other."""
        return self if self.step is None or workload not in self.step.workloads else self.step

    def reading(self, command: ParsedCommand) -> OptionReader:
        """A command or document of a user as the table reads it."""
        completed = self.complete(command)
        return OptionReader.of(
            completed if self.inherits else without_nulls(completed, self.table), self.table
        )

    def read(self, command: ParsedCommand) -> LaunchSettings:
        """What a command or document of a user says.

        Raises `LaunchError`: its options contradict each other.
        """
        return self.answers(self.reading(command))


def option_texts(reading: OptionReader, tool: str, workload: str = "train") -> SettingsBuilder:
    """What the rows of a target tell; of a value without an option with a note that is told."""
    settings = SettingsBuilder(values={**parse_parameters(reading.meanings, workload)})
    for name in settings.values:
        meaning = reading.meanings[name]
        if meaning.note:
            settings.defaults[name] = f"{meaning.value}, {tool}'s default"
    return settings


def open_counts(
    reading: OptionReader, table: OptionTable, values: Mapping[str, object]
) -> list[str]:
    """The numbers that options tell and text alone does not, or nothing where no option is."""
    terms, counts = terms_of("train", "parameter", "question"), parse_parameters(reading.meanings)
    names = [
        name
        for name in table.parameters
        if name in terms and terms[name].type == "count" and name not in {**values, **counts}
        if (rows := table.rows_of(name, OptionRole.IS))
        if any(reading.has(row.option) for row in rows)
        or not table.rows_of(name, OptionRole.OMITTED, OptionRole.USUAL)
    ]
    return sorted(names, key=lambda name: not terms[name].is_asked)


def plan_words(job: LaunchJob, table: OptionTable) -> Words:
    """What a plan has of the names in a table."""
    return {name: job[name] for name in table.parameters}


def low_rank_words(job: LaunchJob) -> Words:
    """What frameworks of their own are told of low-rank adapters; nothing without one."""
    names = ("lora_rank", "lora_targets")
    return dict.fromkeys(names) if job["adapter"] in (None, "none") else {}


Value: TypeAlias = "str | int | Sequence[str] | Sequence[Mapping[str, Value]]"
Values: TypeAlias = Mapping[str, Value]

_HOLE = re.compile(r"\{\{(\w+)\}\}")
_PLACEHOLDER_LINE = re.compile(r"( *)\{\{(\w+)\}\}")


def filled(name: str, values: Values, blank_lines: int = 1) -> str:
    """The text of this name with its holes filled."""
    text = files("planner").joinpath(f"launch/texts/{name}").read_text(encoding="utf-8")
    return fill(text.splitlines(), values, blank_lines)


def fill(template: Sequence[str], values: Values, blank_lines: int = 1) -> str:
    """The lines of a text with their holes filled.

    >>> print(fill(["%each names", "say {{word}}", "%end", "", "", "  {{more}}"],
    ...     {"names": [{"word": "a"}, {"word": "b"}], "more": ["c", "d"]}), end="")
    say a
    say b
    <BLANKLINE>
      c
      d
    """
    text: list[str] = []
    for line in _lines(template, values):
        if line or any(text[-blank_lines:]):
            text.append(line)
    while not text[-1]:
        text.pop()
    return "\n".join(text) + "\n"


def _lines(template: Sequence[str], values: Values) -> Iterator[str]:
    index = 0
    while index < len(template):
        line = template[index]
        if line.startswith("%"):
            alternative, end = _branches(template, index)
            word, name = line[1:].split()
            value = values[name]
            if word == "each":
                for entry in value if isinstance(value, Sequence) else ():
                    entry_values = entry if isinstance(entry, Mapping) else {}
                    yield from _lines(template[index + 1 : end], {**values, **entry_values})
            else:
                branch = (
                    template[index + 1 : alternative] if value else template[alternative + 1 : end]
                )
                yield from _lines(branch, values)
            index = end
        elif (match := _PLACEHOLDER_LINE.fullmatch(line)) and not isinstance(values[match[2]], str):
            value = values[match[2]]
            parts = value if isinstance(value, Sequence) else (value,)
            yield from (f"{match[1]}{part}" if part else "" for part in parts)
        else:
            yield _HOLE.sub(lambda hole: str(values[hole[1]]), line)
        index += 1


def _branches(template: Sequence[str], start: int) -> tuple[int, int]:
    """The lines of ``%else``, or of the end without one, and of ``%end``."""
    depth, alternative = 0, 0
    for index in range(start, len(template)):
        word = template[index].split(" ")[0]
        depth += (word in ("%if", "%each")) - (word == "%end")
        if word == "%else" and depth == 1:
            alternative = index
        if not depth:
            return alternative or index, index
    raise ValueError(f"{template[start]} has no %end.")
