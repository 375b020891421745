"""A user's launch file as a question: what it says, what is assumed, what must be asked for.

Several things that a file starts are one launch where they are copies, nodes of a server, or its
two kinds of workers.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import field, replace
from math import prod
from pathlib import Path
from typing import Any

from planner.base.records import record
from planner.documents.shell.edits import ParsedOption
from planner.errors import LaunchError, PlannerError
from planner.launch.launchers.job_resources import parse_gpu_name
from planner.launch.model_shape import find_model, write_model
from planner.launch.option_lines import Line, Status, lines_of, require_known_training
from planner.launch.option_table import OptionRole
from planner.launch.parsed_launch import (
    LENGTHS,
    REPLICAS,
    LaunchSettings,
    OptionReader,
    ParsedCommand,
    StatedVersion,
    has_profiles,
    version_of,
)
from planner.launch.target import LaunchTarget
from planner.launch.write_launch import settings_of_plan_file
from planner.question.names import CONTEXT_PARALLEL, NUM_GPUS, TENSOR_PARALLEL
from planner.question.parse_values import LARGEST, format_input, parse_value
from planner.question.request import PlanRequest, Request
from planner.question.terms import glossary, terms_about, terms_of
from planner.specs.catalogue import Catalogue
from planner.specs.quantization import CheckpointName, checkpoint_of, nearest_model
from planner.specs.spec_paths import SpecKind, aliased
from planner.workloads.build_request import OptionNamer, make_request
from planner.workloads.registry import workload_of

_NEEDED = terms_about("required")
_OF_GPUS = ("gpu", "cluster")
_FOLDERS = ("/", "./", "../", "~", "$")
_TO_FILL_IN = re.compile(
    r"<.*>|[A-Z]+(_[A-Z]+)+|(?i:(.*/)?path/to/.*|your[-_ ].*)|\S.* https?://.*"
)
"""Words that stand for the user's own."""
SPLITS = terms_about("parallel_degree", "train")
MODEL_SPLITS = terms_about("model_parallel", "train")
"""Degrees that split one copy of the model."""
_MOST_LIKELY = 3
# What files of planner may leave to the user, or to the checkpoint.
_OF_PLANS = ("model", *_OF_GPUS)
_FORMATS = ("quantization", "expert_quantization")
_OF_NUMBERS = ("num_gpus", "request_rate")
# What a copy of the whole service has again.
_OF_COPIES = ("num_gpus", *REPLICAS)


@record(kw_only=True)
class ImportedLaunch:
    """One launch of a user's file.

    ``values`` are questions and parameters by name as the file answers them; ``lines`` say what
    became of each of its options; ``notes`` what else is worth knowing; ``version`` that of the
    tool, where the file names one. ``assumed`` says of values that nothing tells why these.
    """

    path: Path
    target: LaunchTarget
    command: ParsedCommand
    answers: LaunchSettings
    values: Mapping[str, Any]
    lines: tuple[Line, ...]
    notes: tuple[str, ...] = ()
    version: str = ""
    defaults: Mapping[str, str] = field(default_factory=dict)
    assumed: Mapping[str, str] = field(default_factory=dict)

    def completed(self, values: Mapping[str, object], why: Mapping[str, str]) -> ImportedLaunch:
        """The launch with ``values`` of what it leaves open, and ``why`` these by term.

        What else is open is left to the defaults of a plan.
        """
        return replace(
            self,
            values={**self.values, **values},
            defaults={
                name: default for name, default in self.defaults.items() if name not in values
            },
            assumed={**self.assumed, **why},
            answers=replace(self.answers, missing=()),
        )

    def of_other_model(self) -> ImportedLaunch:
        """The launch of a model that the file does not tell, whose checkpoint has its own types."""
        return self.without_defaults({*_FORMATS})

    def without_defaults(self, names: Collection[str]) -> ImportedLaunch:
        """The launch without what its tool does where nobody gives these, as somebody does."""
        gone = {*names} & {*self.defaults}
        kept = [
            {name: value for name, value in table.items() if name not in gone}
            for table in (self.values, self.defaults)
        ]
        return replace(self, values=kept[0], defaults=kept[1])

    @property
    def workload(self) -> str:
        """What the file starts."""
        return self.answers.workload

    def has_model(self, specs: Path | None) -> bool:
        """Whether its model can be had."""
        try:
            Catalogue(specs).load_model(str(self.values.get("model", "")))
        except (PlannerError, OSError, ValueError):
            return False
        return True

    def of(self, status: Status) -> list[Line]:
        """The options of which this became."""
        return [line for line in self.lines if line.status is status]

    @property
    def not_modelled(self) -> list[str]:
        """Options that may change the result in a way that planner does not model."""
        return [line.option for line in self.of(Status.NOT_MODELLED)]

    def request(
        self, answers: Mapping[str, object], specs: Path | None, option_name: OptionNamer = str
    ) -> Request:
        """The question; ``answers`` are answers that the user gives beside the file.

        Raises LaunchError if a value is neither in the file nor among these; the message names all.
        Raises SpecError or SearchSpaceError if a value of the file is none that planner reads.
        """
        self.require(self.lacking(answers), option_name)
        settings: dict[str, object] = {}
        questions: dict[str, object] = {}
        parameters = terms_of(self.workload, "parameter", "pool")
        values = self._following({**self.values, **answers}, self.values)
        for name, value in values.items():
            if name in answers:
                continue
            is_setting = name in parameters and not glossary()[name].is_asked
            (settings if is_setting else questions)[name] = value
        lengths = () if self.workload == "train" else LENGTHS
        beside = {name: answers[name] for name in (*_NEEDED, *lengths) if name in answers}
        table = {"workload": self.workload, "settings": settings, "specs": specs}
        try:
            request = make_request({**table, **questions, **beside}, option_name=option_name)
        except PlannerError as error:
            raise type(error)(f"{self.path}: {error}") from error
        return PlanRequest(**vars(request))

    def lacking(self, answers: Mapping[str, object]) -> tuple[str, ...]:
        """What is neither in the file nor among these answers, by term."""
        known = {*self.values, *answers}
        enough = {"gpu": _OF_GPUS, "num_gpus": _OF_NUMBERS}
        needed = [name for name in _NEEDED if not known & {name, *enough.get(name, ())}]
        open_terms = [name for name in self.answers.missing if name not in known]
        return tuple(dict.fromkeys([*needed, *open_terms]))

    def _following(
        self, known: Mapping[str, object], of_file: Mapping[str, object]
    ) -> dict[str, object]:
        """The values of a file, a batch that nobody gives after the micro-batch that is known."""
        values = _effective(known, of_file)
        micro, batch = "micro_batch_size", "global_batch_size"
        own, given = parse_count(self.values.get(micro)), parse_count(known.get(micro))
        if batch in self.defaults and own and given:
            values[batch] = parse_count(values[batch]) * given // own
        return values

    def require_known(self, asked: Collection[str], option_name: OptionNamer) -> None:
        """Refuse a file that leaves to others what decides the result.

        Raises LaunchError with the reason, and the terms that the user must give.
        """
        missing = {
            name: why
            for name, why in self.answers.required.items()
            if not {name, glossary()[name].short} & {*asked}
        }
        if missing:
            reasons = "; ".join(dict.fromkeys(missing.values()))
            names = ", ".join(map(option_name, missing))
            raise LaunchError(f"{self.path}: {reasons}: give {names} with --from.")

    def require(
        self, lacking: Collection[str], option_name: OptionNamer, likely: Sequence[str] = ()
    ) -> None:
        """Ask for terms that neither the file nor the user tells; ``likely`` are answers.

        Raises LaunchError with what the file says of them, where there is one.
        """
        if not lacking:
            return
        whole = {name: glossary()[name].description for name in lacking}
        words = ", ".join(
            f"{re.split('[,;:]', text)[0]} ({option_name(name)})" for name, text in whole.items()
        )
        reasons = "".join(f"\n  {line}" for line in self.of(Status.OPEN))
        named = f" Its text names {', '.join(likely[:_MOST_LIKELY])}." if likely else ""
        raise LaunchError(
            f"{self.path} does not give {words}: give it with --from.{named}{reasons}"
        )


def _effective(all_values: Mapping[str, object], of_file: Mapping[str, object]) -> dict[str, Any]:
    """The values of a file without what does nothing on these GPUs.

    Frameworks take a distributed optimizer of one rank and sequence parallelism of one GPU, and
    do as if they were not there.
    """
    values = dict(of_file)
    sizes = {name: parse_count(all_values.get(name, 1)) for name in MODEL_SPLITS}
    num_gpus = parse_count(all_values.get("train_gpus") or all_values.get("num_gpus", 0))
    if sizes[TENSOR_PARALLEL] == 1 and "sequence_parallel" in values:
        values["sequence_parallel"] = False
    is_one_rank = num_gpus == prod(sizes.values()) and sizes[CONTEXT_PARALLEL] == 1
    if num_gpus and is_one_rank and "zero_stage" in values:
        values["zero_stage"] = 0
    return values


def parse_count(value: object) -> int:
    """A whole number as the file or the user gives it; 0 where it is none, or several."""
    (text, *more) = value if isinstance(value, list | tuple) else [value]
    try:
        return 0 if more else int(str(text).replace("_", "").replace(",", ""))
    except ValueError:
        return 0


def import_launch(
    path: Path, target: LaunchTarget, command: ParsedCommand, specs: Path | None = None
) -> ImportedLaunch:
    """What a command or document of a user means.

    Raises LaunchError if its options contradict each other.
    Raises SpecError if the model that its sizes describe is none.
    """
    reading = target.reading(command)
    require_counts(reading)
    answers = target.answers(reading)
    values = {name: value for name, value in answers.values.items() if value is not None}
    notes = [*command.notes, *answers.notes, *_repeated(target, command)]
    catalogue = Catalogue(specs)
    if "model" not in values and answers.shape is not None:
        model, told = _model(
            answers.shape, catalogue, path, _count_of(values.get("sequence_length")) or 0
        )
        values |= {} if model is None else {"model": model}
        notes.append(told)
    asks = terms_of(answers.workload, "question")
    load = command.benchmark_load.values()
    values |= {
        name: one.single
        for name, one in command.benchmark_load.items()
        if name in asks and one.single
    }
    # The requests of a benchmark are as long as it says.
    constant = [one for one in LENGTHS if one in command.benchmark_load and one in values]
    values |= {one.replace("_tokens", "_variation"): 0.0 for one in constant}
    if senders := [one.line for one in load if one.single]:
        notes.append(f"The load is taken from line {max(senders)}.")
    if open_load := ", ".join(one.option for one in load if one.single is None):
        notes.append(f"Not known from the file about the load: {open_load}.")
    kind = workload_of(answers.workload).profile_kind
    if kind not in values and target.profiles:
        values[kind] = target.profiles[0]
    placed = _placed(command, catalogue)
    values |= {name: v for name, v in placed.items() if name not in values}
    version = version_of(target.name, command)
    is_planned_for = version is not None and version.number in target.version.split()
    if version is not None:
        values[kind], told = _profile(version, target, values, catalogue)
        values["engine_version"] = version.number
        notes += filter(None, [told])
    open_names = [name for name in _OF_PLANS if name not in values]
    formats = [name for name in _FORMATS if name in answers.defaults or name not in values]
    beside, told_beside = settings_of_plan_file(path, [*open_names, *formats])
    notes += told_beside
    values |= beside
    notes += _name_model(values, answers, specs)
    values |= _whole_recomputation(values, catalogue)
    values = _with_experts(values, catalogue)
    notes += _unpredicted(values, catalogue)
    lines = lines_of(target, reading, answers)
    if answers.workload == "train":
        require_known_training(target, command, lines)
    # A model that an option leaves open is one that the file tells otherwise.
    untold = [
        name for name in _unknown_terms(target, reading) if name != "model" or name not in values
    ]
    values = {name: value for name, value in values.items() if name not in untold}
    copies = _count(command.resources.copies) or 1  # of the whole service
    of_one = {name: _count_of(values.get(name)) for name in _OF_COPIES}
    values |= {name: number * copies for name, number in of_one.items() if number}
    return ImportedLaunch(
        path=path,
        target=target,
        command=command,
        version="" if version is None or is_planned_for else version.number,
        answers=replace(answers, missing=(*answers.missing, *untold)),
        values=values,
        lines=lines,
        notes=tuple(notes),
        defaults={name: why for name, why in answers.defaults.items() if name not in beside},
    )


_DIGITS = len(str(LARGEST))


def require_counts(reading: OptionReader) -> None:
    """Refuse counts that none can be; below zero tools have words such as "as many as there are".

    Raises LaunchError with the option that gives it.
    """
    for name, meaning in reading.meanings.items():
        term, text = glossary().get(name), (meaning.value or "").replace("_", "")
        if term is None or term.type != "count" or not text.isdecimal():
            continue
        if len(text) > _DIGITS or not int(term.least or 0) <= int(text) <= LARGEST:
            said = " ".join(meaning.options) or name
            raise LaunchError(
                f"{reading.place}: {said} {format_input(meaning.value)} is not a "
                f"number from {term.least or 0} to {LARGEST:,}: change it."
            )


def _profile(
    version: StatedVersion, target: LaunchTarget, values: Mapping[str, object], catalogue: Catalogue
) -> tuple[str, str]:
    """The engine profile of a version that was read, and what is said of it.

    Files for the release that is planned for are predicted as its plans are.
    """
    usual = str(values["engine"])
    if version.number in target.version.split():
        # By its own name a profile stays, whatever the release.
        return catalogue.load_engine(usual).spec.name, version.unmeasured
    gpu = values.get("gpu")
    vendor = None if gpu is None else catalogue.load_gpu(str(gpu)).spec.vendor
    read_at = f"Version read: {version.number} ({version.place})"
    profile = version.profile(catalogue, vendor)
    if profile is None and has_profiles(version.tool, catalogue):
        told = f"{read_at}: it has no profile, {usual} is used."
    else:
        told = f"{read_at}: profile {profile or usual}."
    return profile or usual, " ".join(filter(None, (told, version.unmeasured)))


def _repeated(target: LaunchTarget, command: ParsedCommand) -> list[str]:
    """What is said of options of the plan that are given twice."""
    return [
        f"{given.option} is given in line {given.line} and again in line "
        f"{command.options[given.option].line}, which is used."
        for given in command.repeated
        if given.option in target.table.options
        and given.texts != command.options[given.option].texts
    ]


_USUAL_VOCABULARY = 128_256


def _model(
    shape: Mapping[str, object], catalogue: Catalogue, path: Path, tokens: int
) -> tuple[str | None, str]:
    """The model of a shape, None where it lacks a size, and what is said of it."""
    model = find_model(shape, catalogue, path.name, tokens)
    if model is not None:
        stems = catalogue.names(SpecKind.MODELS)  # what some are called is no name to ask for
        stem = next((stem for stem in stems if catalogue.load_model(stem).name == model.name), None)
        is_asked = stem is None or aliased(SpecKind.MODELS, model.name) is not None
        return model.name if is_asked else stem, f"Its sizes are those of {model.name}."
    assumed = ""
    if shape.get("vocab_size") is None:
        shape = {**shape, "vocab_size": _USUAL_VOCABULARY}
        assumed = (
            " The vocabulary is the tokenizer's, which the file does not give: "
            f"{_USUAL_VOCABULARY:,}, that of Llama 3, is assumed; only embedding and logits depend "
            "on it."
        )
    written = write_model(shape, path.name)
    kept = f"No model that planner knows has its sizes: they are kept in {written}."
    return str(written), kept + assumed


def _unpredicted(values: Mapping[str, object], catalogue: Catalogue) -> list[str]:
    """Splits of a training that planner's profile of the framework does not have."""
    name = values.get("framework")
    splits = [split for split in SPLITS if (_count_of(values.get(split)) or 1) > 1]
    if name is None or not splits:
        return []
    profile = catalogue.load_framework(str(name)).spec
    takes_turns = bool(values.get("layer_split")) and profile.layer_split
    has = (*profile.sharded_parallel, *(["pipeline_parallel"] if takes_turns else ()))
    lacking = [split for split in splits if not getattr(profile, split) and split not in has]
    if not lacking:
        return []
    words = " and ".join(lacking)
    return [
        f"The prediction of {profile.name} has no {words}, which the file has and may run with: "
        "--framework names one that does."
    ]


def _name_model(
    values: dict[str, object], answers: LaunchSettings, specs: Path | None
) -> list[str]:
    """Put the model that a name stands for in its place, and say what was made of it."""
    notes = []
    named = str(values.get("model", ""))  # of /path/to/Qwen3-8B the end is a model all the same
    if _TO_FILL_IN.fullmatch(named) and checkpoint_of(named, specs).model is None:
        notes.append(f"{values.pop('model')} is a placeholder.")
    checkpoint = _checkpoint(values.get("model"), specs)
    if checkpoint is None:
        return notes
    if checkpoint.model is not None and "model" in answers.values:
        notes.append(f"{values['model']} is read as {checkpoint.model}, by its name.")
        values["model"] = checkpoint.model
    elif (near := _resembled(str(values["model"]), specs)) and "model" in answers.values:
        notes.append(
            f"{values['model']} is taken as {near}, whose family and size its name has: pass the "
            "path of its config.json if its sizes are others."
        )
        values["model"] = near
    elif str(values["model"]).startswith(_FOLDERS):
        notes.append(f"Unknown model {values.pop('model')}.")
    if checkpoint.quantization and "quantization" in answers.defaults:
        values["quantization"] = checkpoint.quantization
    return notes


def _checkpoint(name: object, specs: Path | None) -> CheckpointName | None:
    """What the name of a checkpoint tells; None of a model that is known by it."""
    if name is None or os.path.exists(str(name)) or aliased(SpecKind.MODELS, str(name), specs):
        return None
    told = checkpoint_of(str(name), specs)
    return None if told.model == str(name) else told


def _resembled(name: str, specs: Path | None) -> str | None:
    """The shipped model that a repository was trained from, by its name, if nothing tells more."""
    from planner.specs.hugging_face import cached_config, is_repository

    return None if is_repository(name) and cached_config(name) else nearest_model(name, specs)


def _whole_recomputation(values: Mapping[str, object], catalogue: Catalogue) -> dict[str, object]:
    """No number of layers where it is all of a stage: that is full recomputation."""
    number = _count_of(values.get("recompute_num_layers"))
    if not number or values.get("model") is None:
        return {}
    stages = _count_of(values.get("pipeline_parallel")) or 1
    layers = catalogue.load_model(str(values["model"])).num_hidden_layers
    return {"recompute_num_layers": 0} if number * stages >= layers else {}


def _with_experts(values: dict[str, object], catalogue: Catalogue) -> dict[str, Any]:
    """Without adapters on routed experts of a model that has none, or fuses them as gpt-oss does.

    Its experts are no linear layers in any version, so that names of such layers miss them.
    """
    model = str(values.get("model", ""))
    if "expert_adapters" not in values:
        return values
    if model and catalogue.load_model(model).num_experts:
        return {**values, "expert_adapters": "none"} if "gpt-oss" in model.lower() else values
    return {name: value for name, value in values.items() if name != "expert_adapters"}


# What is open where a parameter of an engine's own is.
_BEHIND = {"stage_gpus": "tensor_parallel"}


def _unknown_terms(target: LaunchTarget, reading: OptionReader) -> list[str]:
    """Terms of options that are there with values that text alone does not tell."""
    given = reading.command.options
    untold = {name for name, one in given.items() if one.unknown or None in one.texts}
    own = dict.fromkeys(
        row.parameter
        for row in target.table.rows
        if row.option in untold
        and row.role in (OptionRole.IS, OptionRole.READS)
        and row.parameter not in reading.meanings
    )
    return [
        *dict.fromkeys(_BEHIND.get(name, name) for name in own if name in {*_BEHIND, *glossary()})
    ]


def _placed(command: ParsedCommand, catalogue: Catalogue) -> dict[str, object]:
    """The GPUs that the launcher or the scheduler is asked for."""
    world = command.resources
    values: dict[str, object] = {}
    nodes, each, total = map(_count, (world.num_nodes, world.gpus_per_node, world.num_gpus))
    if total is not None:
        values["num_gpus"] = total
    elif nodes is not None and each is not None:
        values["num_gpus"] = nodes * each
    if world.gpu is not None and (name := parse_gpu_name(world.gpu, catalogue.folder)):
        values["gpu"] = name
    return values


def _count(option: ParsedOption | None) -> int | None:
    return None if option is None else _parse_count(option.texts)


def _count_of(value: object) -> int | None:
    return None if value is None else _parse_count((str(value),))


def _parse_count(texts: tuple[str | None, ...]) -> int | None:
    (text, *_) = (*texts, None)
    try:
        return int(str(parse_value(glossary()[NUM_GPUS], text))) if text else None
    except PlannerError:
        return None


_NODE_RANK = "--node-rank"
_OF_POOLS = "prefill_"


def unique_launches(found: Sequence[ImportedLaunch]) -> list[tuple[ImportedLaunch, int]]:
    """Those that mean different things, each with how many mean it: one for each node, copies."""
    kept: list[tuple[ImportedLaunch, int]] = []
    for one in found:
        same = next(
            (
                at
                for at, (other, _) in enumerate(kept)
                if one.target is other.target
                and one.values == other.values
                and one.command.deployment == other.command.deployment
            ),
            None,
        )
        if same is None:
            kept.append((one, 1))
            continue
        rank = one.command.options.get(_NODE_RANK)
        if rank is None or rank.texts in (("0",), (None,)):
            kept[same] = (kept[same][0], kept[same][1] + 1)
        # else it is of a later node of a server that another command leads
    return kept


def merge_pools(found: Sequence[tuple[ImportedLaunch, int]]) -> list[ImportedLaunch]:
    """Prefill and decode workers of one deployment as one launch.

    Where a file has workers for several models, or several deployments of one, a kind of prefill
    workers goes with the decode workers of its model that stand at the same place among these.
    """
    pools: dict[object, tuple[list[int], list[int]]] = {}
    for at, (one, _) in enumerate(found):
        kinds = [name in one.values for name in REPLICAS]
        if kinds.count(True) == 1:
            pools.setdefault(one.values.get("model"), ([], []))[kinds.index(True)].append(at)
    pairs = [
        both
        for decode, prefill in pools.values()
        if len(decode) == len(prefill)
        for both in zip(prefill, decode, strict=True)
    ]
    several = [pair_pools(found[first], found[second]) for first, second in pairs]
    done = {at for both in pairs for at in both}
    return [*several, *(one for at, (one, _) in enumerate(found) if at not in done)]


def pair_pools(
    prefill: tuple[ImportedLaunch, int], decode: tuple[ImportedLaunch, int]
) -> ImportedLaunch:
    """One deployment of both kinds of workers, each so many times."""
    (first, num_first), (second, num_second) = prefill, decode
    own = {name: v for name, v in first.values.items() if name.startswith(_OF_POOLS)}
    values = {**second.values, **own, "mode": "disaggregated"}
    values["prefill_replicas"] = num_first * int(first.values["prefill_replicas"])
    values["replicas"] = num_second * int(second.values["replicas"])
    each = [int(one.values.get("num_gpus") or 0) for one in (first, second)]
    if all(each):
        values["num_gpus"] = num_first * each[0] + num_second * each[1]
    every = dict.fromkeys((*first.lines, *second.lines))
    return replace(
        second,
        values=values,
        lines=tuple(sorted(every, key=lambda line: (line.line, line.option))),
        notes=tuple(dict.fromkeys((*first.notes, *second.notes))),
    )
