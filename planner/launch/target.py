"""Launch jobs (a plan with specs and predictions), targets (tools), and templates of files.

Files are filled from the templates of ``texts/``: ``{{name}}`` is a value; as the only text of a
line it may become several lines, or none, with the same indent. ``%if name``, ``%else`` and
``%end`` keep lines if a value is true, ``%each name`` repeats them for each of several mappings.
Runs of blank lines become one, or ``blank_lines``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property, partial
from importlib.resources import files
from pathlib import Path
from typing import Any, Self, TypeAlias

from planner.base import software_enums
from planner.base.records import record
from planner.base.software_enums import AttentionKernel
from planner.base.training_aliases import TrainingObjective
from planner.base.units import ceil_div
from planner.configurations.configuration_tables import PREFILL
from planner.documents.shell.edits import Changes
from planner.errors import InfeasibleError, LaunchError
from planner.launch.expressions import ValueLookup, attribute
from planner.launch.option_table import (
    OptionRole,
    OptionTable,
    OptionText,
    OptionTexts,
    ParameterNote,
    ParserOptions,
    Quantities,
    is_command,
    is_document,
    tool_row,
)
from planner.launch.read.expression_rows import (
    parse_parameters,
    plan_environment,
    plan_notes,
    user_rows,
    write_quantities,
)
from planner.launch.read.parsed_launch import (
    LaunchSettings,
    OptionReader,
    ParsedCommand,
    SettingsBuilder,
    without_nulls,
)
from planner.optimize.collector import full_rows
from planner.question.request import Request
from planner.question.terms import glossary, terms_about, terms_of
from planner.specs.catalogue import Catalogue
from planner.specs.framework import FrameworkProfile
from planner.specs.gpu import ClusterSpec, GpuSpec
from planner.specs.model import ModelSpec
from planner.workloads.make_plan import Plan, evaluate, make_single_plan
from planner.workloads.saved_plan import SavedPlan
from planner.workloads.serving.results import DISAGGREGATED
from planner.workloads.workload import Evaluation

_AUTO = "auto"
OUTPUT = "OUTPUT_DIR"
"""Variable of the folder of results, which must outlive the program."""
_LAYOUT_QUANTITIES = ("adapter", "both_splits", "no_such_file", "kv_cache")
"""Quantities that a target must express: without them another plan would start."""


JOB_NAMES = (
    *("num_gpus", "gpus_per_node", "num_nodes", "data_parallel", "accumulation_steps"),
    *("training_steps", "hub_name", "learns_preferences", "profile_name"),
)
"""Names of expressions that are attributes of the job."""


@record(kw_only=True)
class LaunchJob:
    """One plan to launch.

    ``row`` has the result columns of its estimate: parameters, derived numbers such as
    ``data_parallel``, predictions with units in their names. ``profile`` is the framework
    or engine of the prediction.
    """

    saved_plan: SavedPlan
    model: ModelSpec
    gpu: GpuSpec
    cluster: ClusterSpec
    profile: Any
    row: Mapping[str, Any]

    @classmethod
    def of(cls, request: Request) -> Self:
        """Return the job for a request that has one configuration.

        Raises `SpecError` or `SearchSpaceError`: a name is unknown, a value is impossible, or
        there are several configurations. Raises `InfeasibleError`: the plan breaks a rule or
        does not fit.
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
        """Return the job for an evaluated plan with one configuration."""
        (row,) = full_rows(evaluation.table(), [evaluation.source])
        source: Any = evaluation.source
        inputs = source.inputs
        return cls(
            saved_plan=SavedPlan.of(plan, row),
            model=inputs.model,
            gpu=inputs.machine.gpu,
            cluster=inputs.machine.cluster,
            profile=getattr(inputs, plan.workload.profile_kind),
            row=row,
        )

    def __getitem__(self, name: str) -> Any:
        """Return the parameter, answer or result ``name`` of the plan; None if it has none."""
        for table in (self.saved_plan.parameters, self.saved_plan.answers, self.row):
            if table.get(name) is not None:
                return table[name]
        return None

    def value_of(self, name: str) -> Any:
        """Return a value for expressions of option tables: also numbers of nodes, steps, ranks."""
        if "." in name:
            return attribute(self, name)
        return getattr(self, name) if name in JOB_NAMES else self[name]

    def option_values(self, quantities: Quantities) -> dict[str, Any]:
        """Return quantities with None for "auto", and attention as either a flag or a kernel."""
        values, terms = dict(quantities), glossary()
        for name in [name for name, value in values.items() if value == _AUTO and name in terms]:
            codes = terms[name].codes
            # Unspecified details of the software are the framework's.
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
        """Workload of the plan."""
        return self.saved_plan.workload

    @property
    def profile_name(self) -> str:
        """Name of the framework or engine of the prediction."""
        return str(self.profile.name)

    @property
    def is_training(self) -> bool:
        """Whether the plan is for a training framework."""
        return isinstance(self.profile, FrameworkProfile)

    @property
    def learns_preferences(self) -> bool:
        """Whether the training objective is preference learning."""
        objective = self["training_objective"]
        return objective is not None and TrainingObjective(objective).is_preference

    @property
    def is_disaggregated(self) -> bool:
        """Whether prefill and decode have separate workers."""
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
        """Data-parallel degree."""
        return int(self["data_parallel"])

    @property
    def accumulation_steps(self) -> int:
        """Micro-batches of a data-parallel rank in a step."""
        return int(self["gradient_accumulation_steps"])

    @property
    def training_steps(self) -> int | None:
        """Return the optimizer steps of the run; None if the plan has no number of tokens."""
        tokens = self["total_tokens"]
        objective = TrainingObjective(self["training_objective"] or TrainingObjective.SFT)
        sequences = self["global_batch_size"] * objective.sequences_per_sample
        tokens_per_step = sequences * self["sequence_length"]
        return max(math.ceil(tokens / tokens_per_step), 1) if tokens else None

    @cached_property
    def draft(self) -> ModelSpec | None:
        """The draft model that the plan names, or None; raises `SpecError` if it is gone."""
        name, folder = self["draft_model"], self.saved_plan.specs_folder
        return Catalogue(Path(folder) if folder else None).load_model(str(name)) if name else None

    @cached_property
    def hub_name(self) -> str | None:
        """ORG/NAME of the model on Hugging Face; None if unknown."""
        return hub_name(str(self["model"]), *self.model.aliases)

    def require_even_nodes(self) -> None:
        """Raise LaunchError if the GPUs do not fill whole nodes."""
        if self.num_gpus % self.gpus_per_node:
            raise LaunchError(
                f"{self.num_gpus} GPUs are not whole nodes of {self.gpus_per_node}: "
                "launchers need the same number on each; plan another number of GPUs."
            )


def hub_name(*names: str) -> str | None:
    """The first of a model's names with the form ORG/NAME of Hugging Face; None if none."""
    hub = re.compile(r"[^/]+/[^/]+(?<!\.toml)(?<!\.json)", re.DOTALL)
    return next(filter(hub.fullmatch, names), None)


@record(kw_only=True)
class LaunchOutputFile:
    """A file to write; ``name`` is relative to the directory of the launch.

    ``meaning`` is a short description; ``start`` has the shell commands that start it, one per
    line, empty if another file starts it.
    """

    name: str
    text: str
    is_executable: bool = False
    meaning: str = ""
    start: str = ""


@record(kw_only=True)
class ShellVariable:
    """A shell variable that the user sets: a path, an address.

    Without ``default`` the script ends with a message if it is unset. ``prefix`` and
    ``suffix`` are text around the value within the same word, such as a port after an address.
    ``times`` above 0 makes the value ``plus`` + ``times`` x the variable.
    ``is_output``: a folder of results, which must outlive the program.
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
    """Words of a command on one line; a ``str`` is quoted, a `ShellVariable` expanded."""

    words: tuple[str | ShellVariable, ...]
    note: str = ""

    @classmethod
    def of(cls, setting: OptionText) -> CommandWords:
        """An option and its text as words."""
        texts = () if setting.text is None else (setting.text,)
        return cls(words=(setting.option, *texts), note=setting.note)


def overrides(options: Iterable[OptionText]) -> list[CommandWords]:
    """Return options as words, and keys as words ``KEY=TEXT``, each with its note."""
    return [
        CommandWords.of(option)
        if option.option.startswith("-")
        else CommandWords(words=(f"{option.option}={option.text}",), note=option.note)
        for option in options
    ]


@record(kw_only=True)
class Process:
    """A program that runs on some GPUs, in ``copies`` equal copies.

    ``launcher`` starts a process for each GPU on each node: ``torchrun``, ``accelerate``,
    ``deepspeed``; empty if the program does that itself, or needs a single process.
    ``arguments`` begin with the program: a script for a launcher, else the command.
    ``follower_arguments`` come last on every node except the first. ``port`` is the listening
    port, 0 without one.
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
    """A plan as processes of a target, before a wrapper makes files of it.

    ``files`` are configurations that the commands read. ``unexpressed`` and ``left`` are shown in
    the file and on the screen. ``benchmark`` has commands that measure the predicted numbers;
    empty if the log of the job has them.
    """

    processes: tuple[Process, ...]
    files: tuple[LaunchOutputFile, ...] = ()
    unexpressed: tuple[ParameterNote, ...] = ()
    left: tuple[ParameterNote, ...] = ()
    benchmark: tuple[Process, ...] = ()
    notes: tuple[str, ...] = ()


def _refuse_to_write(job: LaunchJob, _: OptionTexts) -> LaunchDraft:
    raise LaunchError(f"Its files are only read: choose another target to {job.workload}.")


def ignore_changes(_: ParsedCommand, __: Changes) -> tuple[Changes, Changes]:
    """No changes: planner does not know options that the program reads."""
    return {}, {}


_LISTS = ("workloads", "profiles", "nearest", "accepted", "aliases")


@record(kw_only=True)
class LaunchTarget:
    """A tool at a version.

    Parameters
    ----------
    name : on the command line, and of its tables
    title, version : name for people, and the version that its files are written for
    workloads : workloads of plans that it starts
    profiles : names of the frameworks or engines that predict it; empty if there is none, which
        is shown
    nearest : names of profiles for plans that name none; it starts plans of others, too
    quantities : parameters of its table that differ from the plan's, and derived numbers; None
        is not written
    draft : makes the draft of a job from the options of its table; raises `LaunchError` if that
        is impossible; read-only programs have neither ``quantities`` nor ``draft``
    answers : settings of a command or document, by term
    starts : whether words start this tool, the program first, without launchers and wrappers
    is_of : whether the values of a YAML or JSON document, by dotted path, belong to this tool
    honoured : changes to a file as options that its program reads, and changes to files that it
        names; raises `LaunchError` if the program reads none of these options
    script : quantities for the Trainer's table, for the script that it starts
    narrowed : a search's request without values that the target cannot start, beyond its table
    accepted : stems of files with the options of its parsers, in ``planner/launch/accepted``
    complete : adds to a command or document the options that its table reads: unknown words,
        and inherited files
    step : target of the whole step of reinforcement learning in the same files, if the target
        itself is its update; None of a program without generation
    words : name of its table, if different
    inherits : whether its documents inherit from others, with null as an override

    Fields that are no functions are a row of ``targets.csv``, lists separated by ``|``. Its
    ``starts`` are the words that start a server, ``|`` between lines of a file, its
    ``command`` is a pattern of the words that start the tool, ``document`` the keys of its
    documents: all groups must match, of a group one of the alternatives separated by ``|``, of
    ``2:`` before a group two; ``*``
    is a wildcard, ``KEY=TEXT`` a pattern of the value, ``!KEY`` means no such key, and
    `` or `` separates alternatives.
    """

    name: str
    title: str
    version: str
    workloads: tuple[str, ...]
    profiles: tuple[str, ...]
    answers: Callable[[OptionReader], LaunchSettings]
    quantities: Callable[[LaunchJob], Quantities] = lambda _: {}
    draft: Callable[[LaunchJob, OptionTexts], LaunchDraft] = _refuse_to_write
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
        """Return the program ``name`` of ``targets.csv``; ``hooks`` are its functions.

        Without a ``draft`` hook planner reads its files, but does not write them.
        """
        row = tool_row(name)
        fields: dict[str, Any] = {
            **{key: row[key] for key in ("name", "title", "version")},
            **{key: tuple(filter(None, row[key].split("|"))) for key in _LISTS},
            "starts": partial(is_command, name),
            "is_of": partial(is_document, name),
            **({} if "draft" in hooks else {"honoured": ignore_changes}),
        }
        return cls(**{**fields, **hooks})

    @property
    def table(self) -> OptionTable:
        """The option table of the tool."""
        return OptionTable.load(self.words or self.name)

    @property
    def can_write(self) -> bool:
        """Whether planner writes its files, not only reads them."""
        return self.draft is not _refuse_to_write

    @property
    def tool(self) -> str:
        """Title and version, without repeating the title."""
        is_named = self.version.startswith(self.title)
        return self.version if is_named else f"{self.title} {self.version}"

    @property
    def options(self) -> ParserOptions:
        """Options that its parsers accept or its table reads."""
        return ParserOptions.of(self.accepted, self.table)

    def settings(self, job: LaunchJob) -> OptionTexts:
        """The options of a job from the table."""
        return self.table.write_options(job.option_values(self.table_input(job)))

    def table_input(self, job: LaunchJob) -> Quantities:
        """Quantities for the table: of the plan, replaced by those of the target and its rows."""
        quantities = {name: job[name] for name in self.table.parameters}
        quantities |= self.quantities(job)
        if not job.is_training:  # rows of engines are of each group of servers
            return quantities
        return {**quantities, **write_quantities(self.table, value_lookup(job, quantities))}

    def make_draft(self, job: LaunchJob) -> LaunchDraft:
        """Return the processes, files and notes that start a job with this program.

        Raises LaunchError if the plan has another workload or framework, or needs an option that
        the target does not have.
        """
        if job.workload not in self.workloads:
            raise LaunchError(
                f"{self.title} cannot start a plan to {job.workload}: choose another target."
            )
        name = job.profile.name
        *all_but_last, last = self.profiles or ("",)
        profile_names = f"{', '.join(all_but_last)} or {last}" if all_but_last else last
        is_supported = name in self.profiles or self.is_of_release(job.profile)
        if self.profiles and not is_supported:
            raise LaunchError(
                f"The plan is for {name}; {self.title} is predicted as {profile_names}: "
                "search with that --framework or --engine, or choose another target."
            )
        settings, lookup = self.settings(job), value_lookup(job, self.table_input(job))
        draft = self.draft(job, settings)
        of_rows = plan_notes(self.table, OptionRole.UNEXPRESSED, lookup)
        unexpressed = (*settings.unexpressed, *draft.unexpressed, *of_rows)
        self._refuse_other_layout(unexpressed)
        is_exact = name in (*self.profiles, *self.nearest)
        notes = () if is_exact else (f"Times and memory are predicted as for {name}.",)
        environment = plan_environment(self.table, lookup)
        processes, benchmark = (
            tuple(replace(each, environment={**each.environment, **environment}) for each in group)
            for group in (draft.processes, draft.benchmark)
        )
        return replace(
            draft,
            processes=processes,
            benchmark=benchmark,
            unexpressed=unexpressed,
            left=(*settings.left, *draft.left, *plan_notes(self.table, OptionRole.ADVICE, lookup)),
            notes=(*notes, *draft.notes),
        )

    def _refuse_other_layout(self, unexpressed: Sequence[ParameterNote]) -> None:
        """Raise LaunchError if the program cannot express a plan's layout, LoRA or KV cache."""
        names = {*terms_about("parallel_degree"), "virtual_pipeline", *_LAYOUT_QUANTITIES}
        wrong = [
            str(remark) for remark in unexpressed if remark.parameter.removeprefix(PREFILL) in names
        ]
        if wrong:
            raise LaunchError(
                f"{self.title} cannot start this plan: {'; '.join(wrong)}. Change it with --set, "
                "or choose another target."
            )

    def is_of_release(self, profile: object) -> bool:
        """Whether a profile is for other releases of the tool."""
        return str(getattr(profile, "since", "")).startswith(f"{self.name} ")

    def for_workload(self, workload: object) -> LaunchTarget:
        """The target that reads its files for a workload: the whole step, or itself."""
        return self if self.step is None or workload not in self.step.workloads else self.step

    def make_reader(self, command: ParsedCommand) -> OptionReader:
        """Return a reader that looks up options of a user's command or document."""
        completed = self.complete(command)
        return OptionReader.of(
            completed if self.inherits else without_nulls(completed, self.table), self.table
        )

    def read_settings(self, command: ParsedCommand) -> LaunchSettings:
        """Return the settings that a user's command or document specifies.

        Raises `LaunchError`: its options contradict each other.
        """
        return self.answers(self.make_reader(command))


def models_of(request: Request) -> list[ModelSpec]:
    """Return the models of a search's request."""
    names = (request.model,) if isinstance(request.model, str) else request.model or ()
    return [Catalogue(request.specs).load_model(str(name)) for name in names]


def without_framework(request: Request, name: str) -> Request:
    """Return a search's request without one of its frameworks, if it has several."""
    if not isinstance(request.framework, tuple):
        return request
    return replace(request, framework=tuple(each for each in request.framework if each != name))


def option_texts(reading: OptionReader, tool: str, workload: str = "train") -> SettingsBuilder:
    """Return a builder with values that the option table reads, and the program's defaults."""
    settings = SettingsBuilder(values={**parse_parameters(reading.meanings, workload)})
    for name in settings.values:
        meaning = reading.meanings[name]
        if meaning.note:
            settings.defaults[name] = f"{meaning.value}, {tool}'s default"
    return settings


def unreadable_counts(
    reading: OptionReader, table: OptionTable, values: Mapping[str, object]
) -> list[str]:
    """Return terms of counts that are set but unreadable, or unset and without default."""
    terms, counts = terms_of("train", "parameter", "question"), parse_parameters(reading.meanings)
    names = [
        name
        for name in table.parameters
        if name in terms and terms[name].type == "count" and name not in {**values, **counts}
        if (rows := table.rows_of(name, OptionRole.IS))
        if any(reading.has(row.option) for row in rows)
        or not table.rows_of(name, OptionRole.OMITTED, OptionRole.USUAL)
    ]
    return sorted(names, key=lambda name: not terms[name].is_user_input)


def value_lookup(job: LaunchJob, quantities: Quantities) -> ValueLookup:
    """Return the values that expressions of option tables use: quantities, else the job's."""

    def value(name: str) -> Any:
        quantity = quantities.get(name)
        return job.value_of(name) if quantity is None else quantity

    return value


def user_arguments(table: str, job: LaunchJob) -> list[CommandWords]:
    """Return the arguments that the user sets, and fixed ones: rows ``user`` of a table."""
    arguments = []
    for row, text in user_rows(OptionTable.load(table), job.value_of):
        word: str | ShellVariable = text or ""
        if row.parameter:
            is_output = row.parameter == OUTPUT
            word = ShellVariable(
                name=row.parameter, meaning=row.note, default=text, is_output=is_output
            )
        words = (
            (row.option, *([word] if word else ()))
            if row.option.startswith("-")
            else (
                replace(word, prefix=f"{row.option}=")
                if isinstance(word, ShellVariable)
                else f"{row.option}={word}",
            )
        )
        arguments.append(CommandWords(words=words, note="" if row.parameter else row.note))
    return arguments


Value: TypeAlias = "str | int | Sequence[str] | Sequence[Mapping[str, Value]]"
Values: TypeAlias = Mapping[str, Value]

_HOLE = re.compile(r"\{\{(\w+)\}\}")
_PLACEHOLDER_LINE = re.compile(r"( *)\{\{(\w+)\}\}")


def fill_template(name: str, values: Values, blank_lines: int = 1) -> str:
    """The template of this name, filled."""
    text = files("planner").joinpath(f"launch/texts/{name}").read_text(encoding="utf-8")
    return fill_lines(text.splitlines(), values, blank_lines)


def fill_lines(template: Sequence[str], values: Values, blank_lines: int = 1) -> str:
    """Return the text of a template, with its placeholders and blocks filled from ``values``.

    >>> print(fill_lines(["%each names", "say {{word}}", "%end", "", "", "  {{more}}"],
    ...     {"names": [{"word": "a"}, {"word": "b"}], "more": ["c", "d"]}), end="")
    say a
    say b
    <BLANKLINE>
      c
      d
    """
    text: list[str] = []
    for line in _filled_lines(template, values):
        if line or any(text[-blank_lines:]):
            text.append(line)
    while not text[-1]:
        text.pop()
    return "\n".join(text) + "\n"


def _filled_lines(template: Sequence[str], values: Values) -> Iterator[str]:
    """Yield template lines with ``{{name}}`` replaced, and ``%if`` and ``%each`` evaluated."""
    index = 0
    while index < len(template):
        line = template[index]
        if line.startswith("%"):
            alternative, end = _branches(template, index)
            keyword, name = line[1:].split()
            value = values[name]
            if keyword == "each":
                for entry in value if isinstance(value, Sequence) else ():
                    entry_values = entry if isinstance(entry, Mapping) else {}
                    yield from _filled_lines(template[index + 1 : end], {**values, **entry_values})
            else:
                branch = (
                    template[index + 1 : alternative] if value else template[alternative + 1 : end]
                )
                yield from _filled_lines(branch, values)
            index = end
        elif (match := _PLACEHOLDER_LINE.fullmatch(line)) and not isinstance(values[match[2]], str):
            value = values[match[2]]
            parts = value if isinstance(value, Sequence) else (value,)
            yield from (f"{match[1]}{part}" if part else "" for part in parts)
        else:
            yield _HOLE.sub(lambda hole: str(values[hole[1]]), line)
        index += 1


def _branches(template: Sequence[str], start: int) -> tuple[int, int]:
    """Return the indices of a block's ``%else`` line (its ``%end`` if it has none) and ``%end``."""
    depth, alternative = 0, 0
    for index in range(start, len(template)):
        keyword = template[index].split(" ")[0]
        depth += (keyword in ("%if", "%each")) - (keyword == "%end")
        if keyword == "%else" and depth == 1:
            alternative = index
        if not depth:
            return alternative or index, index
    raise ValueError(f"{template[start]} has no %end.")
