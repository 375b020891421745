"""A user's launch file as settings of a plan, with assumptions and missing terms.

Several commands of a file are one launch if they are copies, nodes of one server, or its prefill
and decode workers.
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
from planner.launch.model_shape import find_model, write_model
from planner.launch.option_table import OptionRole
from planner.launch.read.option_lines import (
    Line,
    Status,
    describe_documents,
    describe_options,
    refuse_unknown_training,
)
from planner.launch.read.parsed_launch import (
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
from planner.launch.wrappers.read_resources import parse_gpu_name
from planner.launch.write.write_launch import settings_of_plan_file
from planner.question.names import CONTEXT_PARALLEL, NUM_GPUS, TENSOR_PARALLEL
from planner.question.parse_values import LARGEST, format_input, parse_value
from planner.question.request import PlanRequest, Request
from planner.question.terms import glossary, terms_about, terms_of
from planner.specs.catalogue import Catalogue
from planner.specs.quantization import checkpoint_of, nearest_model
from planner.specs.spec_paths import SpecKind, aliased
from planner.workloads.build_request import OptionNamer, make_request
from planner.workloads.registry import workload_of

_REQUIRED_TERMS = terms_about("required")
_GPU_TERMS = ("gpu", "cluster")
_FOLDERS = (
    *("/", "./", "../", "~", "$"),
    *("output", "ckpt", "checkpoint", "models/", "saves/", "results/", "runs/", "exp/"),
    "work_dirs",
)
_PLACEHOLDER = re.compile(
    r"<.*>|[A-Z]+(_[A-Z]+)+|(?i:(.*/)?path/to/.*|your[-_ ].*)|\S.* https?://.*"
)
"""Placeholders that the user must replace."""
SPLITS = terms_about("parallel_degree", "train")
MODEL_SPLITS = terms_about("model_parallel", "train")
"""Degrees that split one copy of the model."""
_MAX_CANDIDATES = 3
_OTHER_LAYERS = re.compile(
    r"(?i)(?<![a-z])(?:rwkv|mamba|retnet|bert|t5|vit|llava|neva|clip|pi0)(?![a-z])"
)
"""Models in the name or folder of a file whose layers do not follow from sizes alone."""
_NUM_PATH_PARTS = 5
# Terms that launch files of planner may leave to the user, or to the checkpoint.
_PLAN_TERMS = ("model", *_GPU_TERMS)
_FORMATS = ("quantization", "expert_quantization")
_COUNT_TERMS = ("num_gpus", "request_rate")
# Counts that multiply with the copies of the whole service.
_COPIED_COUNTS = ("num_gpus", *REPLICAS)


@record(kw_only=True)
class ImportedLaunch:
    """One launch of a user's file.

    ``values`` are answers and parameters by name, as the file sets them; ``lines`` have the status
    of each of its options; ``notes`` are shown to the user; ``version`` is that of the tool, if the
    file names one. ``assumed`` has the reasons for assumed values, by term; ``answered`` are the
    terms that the user gave with the file.
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
    answered: frozenset[str] = frozenset()

    def complete(self, values: Mapping[str, object], reasons: Mapping[str, str]) -> ImportedLaunch:
        """Return the launch with ``values`` for missing terms, and the reason for each by term.

        Other missing terms take the defaults of a plan.
        """
        return replace(
            self,
            values={**self.values, **values},
            defaults={
                name: default for name, default in self.defaults.items() if name not in values
            },
            assumed={**self.assumed, **reasons},
            answers=replace(self.answers, missing=()),
        )

    def for_other_model(self) -> ImportedLaunch:
        """The launch for another model: without the weight formats of the file's checkpoint."""
        return self.without_defaults({*_FORMATS})

    def without_defaults(self, names: Collection[str]) -> ImportedLaunch:
        """Return the launch without the program's defaults for the terms ``names``."""
        dropped = {*names} & {*self.defaults}
        remaining = [
            {name: value for name, value in table.items() if name not in dropped}
            for table in (self.values, self.defaults)
        ]
        return replace(self, values=remaining[0], defaults=remaining[1])

    @property
    def workload(self) -> str:
        """Workload that the file starts."""
        return self.answers.workload

    def has_loadable_model(self, specs: Path | None) -> bool:
        """True if the model of the launch is known, or its file can be read."""
        try:
            Catalogue(specs).load_model(str(self.values.get("model", "")))
        except (PlannerError, OSError, ValueError):
            return False
        return True

    def lines_with_status(self, status: Status) -> list[Line]:
        """Lines of the options with a status."""
        return [line for line in self.lines if line.status is status]

    @property
    def not_modelled(self) -> list[str]:
        """Options that may change the result, which planner does not model."""
        return [line.option for line in self.lines_with_status(Status.NOT_MODELLED)]

    def request(
        self, answers: Mapping[str, object], specs: Path | None, option_name: OptionNamer = str
    ) -> Request:
        """Return the request for the launch; the user's ``answers`` replace values of the file.

        ``specs`` is the folder of the user's specs, ``option_name`` spells a term in messages.

        Raises LaunchError if required values are in neither; the message names all of them.
        Raises SpecError or SearchSpaceError if planner cannot read a value of the file.
        """
        self.require(self.missing_terms(answers), option_name)
        settings: dict[str, object] = {}
        questions: dict[str, object] = {}
        parameters = terms_of(self.workload, "parameter", "pool")
        values = self._scale_batch({**self.values, **answers}, self.values)
        for name, value in values.items():
            if name in answers:
                continue
            is_parameter = name in parameters and not glossary()[name].is_user_input
            (settings if is_parameter else questions)[name] = value
        lengths = () if self.workload == "train" else LENGTHS
        needed_answers = {
            name: answers[name] for name in (*_REQUIRED_TERMS, *lengths) if name in answers
        }
        table = {"workload": self.workload, "settings": settings, "specs": specs}
        try:
            request = make_request(
                {**table, **questions, **needed_answers}, option_name=option_name
            )
        except PlannerError as error:
            raise type(error)(f"{self.path}: {error}") from error
        return PlanRequest(**vars(request))

    def missing_terms(self, answers: Mapping[str, object]) -> tuple[str, ...]:
        """Return required terms without a value in the file or in the user's ``answers``."""
        specified = {*self.values, *answers}
        alternatives = {"gpu": _GPU_TERMS, "num_gpus": _COUNT_TERMS}
        needed = [
            name for name in _REQUIRED_TERMS if not specified & {name, *alternatives.get(name, ())}
        ]
        open_terms = [name for name in self.answers.missing if name not in specified]
        return tuple(dict.fromkeys([*needed, *open_terms]))

    def _scale_batch(
        self, all_values: Mapping[str, object], of_file: Mapping[str, object]
    ) -> dict[str, object]:
        """Return the file's values; a default global batch grows with the user's micro-batch."""
        values = _drop_ineffective(all_values, of_file)
        micro, batch = "micro_batch_size", "global_batch_size"
        file_micro, user_micro = (
            parse_count(self.values.get(micro)),
            parse_count(all_values.get(micro)),
        )
        if batch in self.defaults and file_micro and user_micro:
            values[batch] = parse_count(values[batch]) * user_micro // file_micro
        return values

    def require_answers(self, user_terms: Collection[str], option_name: OptionNamer) -> None:
        """Raise LaunchError unless the user sets all terms that are required with a reason.

        Such terms decide the result and have no default; the message has the reason for each one.
        """
        missing = {
            name: reason
            for name, reason in self.answers.required.items()
            if not {name, glossary()[name].short} & {*user_terms}
        }
        if missing:
            reasons = "; ".join(dict.fromkeys(missing.values()))
            names = ", ".join(map(option_name, missing))
            raise LaunchError(f"{self.path}: {reasons}. Set {names} together with --from.")

    def require(
        self, missing: Collection[str], option_name: OptionNamer, candidates: Sequence[str] = ()
    ) -> None:
        """Raise LaunchError if ``missing`` has terms; ``candidates`` are possible values.

        The message names the terms and the lines of the file about them.
        """
        if not missing:
            return
        descriptions = {name: glossary()[name].description for name in missing}
        labels = ", ".join(
            f"{re.split('[,;:]', text)[0]} ({option_name(name)})"
            for name, text in descriptions.items()
        )
        reasons = "".join(f"\n  {line}" for line in self.lines_with_status(Status.OPEN))
        suggestions = (
            f" Its text names {', '.join(candidates[:_MAX_CANDIDATES])}." if candidates else ""
        )
        files = ", ".join(f"{name} (not found)" for name in self.command.missing_files)
        may_have = f"; {files} may" if files else ""
        raise LaunchError(
            f"{self.path} does not specify {labels}{may_have}. Set it together with "
            f"--from.{suggestions}{reasons}"
        )


def _drop_ineffective(
    all_values: Mapping[str, object], of_file: Mapping[str, object]
) -> dict[str, Any]:
    """Return the file's values; switch off settings that frameworks ignore on this number of GPUs.

    These are ZeRO on one data-parallel rank, and sequence parallelism without tensor parallelism.
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


def has_other_layers(path: Path) -> bool:
    """Whether a file or its folder is named after models whose layers sizes do not give."""
    return _OTHER_LAYERS.search("/".join(path.absolute().parts[-_NUM_PATH_PARTS:])) is not None


def parse_count(value: object) -> int:
    """Parse a whole number, such as ``1_000`` or ``1,000``; 0 if it is no number, or several."""
    (text, *extra) = value if isinstance(value, list | tuple) else [value]
    try:
        return 0 if extra else int(str(text).replace("_", "").replace(",", ""))
    except ValueError:
        return 0


def import_launch(
    path: Path, target: LaunchTarget, command: ParsedCommand, specs: Path | None = None
) -> ImportedLaunch:
    """Translate a user's command or document to the values of a plan, with notes.

    Raises LaunchError if its options contradict each other.
    Raises SpecError if its sizes describe no valid model.
    """
    reading = target.make_reader(command)
    require_counts(reading)
    answers = target.answers(reading)
    values = {name: value for name, value in answers.values.items() if value is not None}
    notes = [*command.notes, *answers.notes]
    notes += [
        f"{option.option} is set in line {option.line} and again in line "
        f"{command.options[option.option].line}, which is used."
        for option in command.repeated
        if option.option in target.table.options
        and option.texts != command.options[option.option].texts
    ]
    catalogue = Catalogue(specs)
    if "model" not in values and answers.shape is not None and not has_other_layers(path):
        model, note = _model_of_shape(
            answers.shape, catalogue, path, _count_of(values.get("sequence_length")) or 0
        )
        values |= {} if model is None else {"model": model}
        notes.append(note)
    questions = terms_of(answers.workload, "question")
    load = command.benchmark_load.values()
    values |= {
        name: option.single
        for name, option in command.benchmark_load.items()
        if name in questions and option.single
    }
    # Requests of a benchmark have a fixed length.
    fixed_lengths = [name for name in LENGTHS if name in command.benchmark_load and name in values]
    values |= {name.replace("_tokens", "_variation"): 0.0 for name in fixed_lengths}
    if load_lines := [option.line for option in load if option.single]:
        notes.append(f"The load is read from line {max(load_lines)}.")
    if unknown_load := ", ".join(option.option for option in load if option.single is None):
        notes.append(f"Not known from the file about the load: {unknown_load}.")
    profile_kind = workload_of(answers.workload).profile_kind
    if profile_kind not in values and target.profiles:
        values[profile_kind] = target.profiles[0]
    hardware = _launcher_hardware(command, catalogue)
    values |= {name: v for name, v in hardware.items() if name not in values}
    version = version_of(target.name, command)
    is_planned_for = version is not None and version.number in target.version.split()
    if version is not None:
        values[profile_kind], note = _engine_profile(version, target, values, catalogue)
        values["engine_version"] = version.number
        notes += filter(None, [note])
    open_names = [name for name in _PLAN_TERMS if name not in values]
    formats = [name for name in _FORMATS if name in answers.defaults or name not in values]
    plan_values, plan_notes = settings_of_plan_file(path, [*open_names, *formats])
    notes += plan_notes
    values |= plan_values
    notes += _name_model(values, answers, specs)
    values |= _full_recomputation(values, catalogue)
    values = _expert_adapter_values(values, catalogue)
    notes += _unsupported_split_notes(values, catalogue)
    lines = (
        *describe_options(target, reading, answers),
        *describe_documents(target, command, answers),
    )
    if answers.workload == "train":
        refuse_unknown_training(target, command, lines)
    # An option without a readable model does not matter if the file names the model elsewhere.
    unreadable = [
        name for name in _unreadable_terms(target, reading) if name != "model" or name not in values
    ]
    values = {name: value for name, value in values.items() if name not in unreadable}
    copies = _count(command.resources.copies) or 1  # of the whole service
    counts = {name: _count_of(values.get(name)) for name in _COPIED_COUNTS}
    values |= {name: number * copies for name, number in counts.items() if number}
    return ImportedLaunch(
        path=path,
        target=target,
        command=command,
        version="" if version is None or is_planned_for else version.number,
        answers=replace(answers, missing=(*answers.missing, *unreadable)),
        values=values,
        lines=lines,
        notes=tuple(notes),
        defaults={
            name: reason for name, reason in answers.defaults.items() if name not in plan_values
        },
    )


_DIGITS = len(str(LARGEST))


def require_counts(reading: OptionReader) -> None:
    """Raise LaunchError, with the option, if a count of the file is out of range.

    Negative numbers are not refused: tools use them as special values.
    """
    for name, meaning in reading.meanings.items():
        term, text = glossary().get(name), (meaning.value or "").replace("_", "")
        if term is None or term.type != "count" or not text.isdecimal():
            continue
        if len(text) > _DIGITS or not int(term.least or 0) <= int(text) <= LARGEST:
            option_names = " ".join(meaning.options) or name
            raise LaunchError(
                f"{reading.position}: {option_names} {format_input(meaning.value)} is not a "
                f"number from {term.least or 0} to {LARGEST:,}: change it."
            )


def _engine_profile(
    version: StatedVersion, target: LaunchTarget, values: Mapping[str, object], catalogue: Catalogue
) -> tuple[str, str]:
    """Return the name of the engine profile for the version in a file, and a note about it.

    Files for the target's own release use the profile of its plans.
    """
    default = str(values["engine"])
    if version.number in target.version.split():
        # The profile keeps its name, whatever the release.
        return catalogue.load_engine(default).spec.name, version.unmeasured_message
    gpu = values.get("gpu")
    vendor = None if gpu is None else catalogue.load_gpu(str(gpu)).spec.vendor
    heading = f"Version read: {version.number} ({version.place})"
    profile = version.profile(catalogue, vendor)
    if profile is None and has_profiles(version.tool, catalogue):
        note = f"{heading}: it has no profile, {default} is used."
    else:
        note = f"{heading}: profile {profile or default}."
    return profile or default, " ".join(filter(None, (note, version.unmeasured_message)))


_DEFAULT_VOCABULARY = 128_256


def _model_of_shape(
    shape: Mapping[str, object], catalogue: Catalogue, path: Path, tokens: int
) -> tuple[str | None, str]:
    """Return the known model with these sizes, else the path of a new model file; and a note."""
    model = find_model(shape, catalogue, path.name, tokens)
    if model is not None:
        file_names = catalogue.names(SpecKind.MODELS)
        file_name = next(
            (name for name in file_names if catalogue.load_model(name).name == model.name), None
        )
        uses_spec_name = file_name is None or aliased(SpecKind.MODELS, model.name) is not None
        return model.name if uses_spec_name else file_name, f"Its sizes are those of {model.name}."
    assumed = ""
    if shape.get("vocab_size") is None:
        shape = {**shape, "vocab_size": _DEFAULT_VOCABULARY}
        assumed = (
            " The vocabulary is the tokenizer's, which the file does not give: "
            f"{_DEFAULT_VOCABULARY:,}, that of Llama 3, is assumed. Only embedding and logits "
            "depend on it."
        )
    saved_path = write_model(shape, path.name)
    note = f"No model that planner knows has its sizes: they are kept in {saved_path}."
    return str(saved_path), note + assumed


def _unsupported_split_notes(values: Mapping[str, object], catalogue: Catalogue) -> list[str]:
    """Return a note if the framework's profile lacks a parallelism that the file uses."""
    name = values.get("framework")
    splits = [split for split in SPLITS if (_count_of(values.get(split)) or 1) > 1]
    if name is None or not splits:
        return []
    profile = catalogue.load_framework(str(name)).spec
    takes_turns = bool(values.get("layer_split")) and profile.layer_split
    supported = (*profile.sharded_parallel, *(["pipeline_parallel"] if takes_turns else ()))
    unsupported = [
        split for split in splits if not getattr(profile, split) and split not in supported
    ]
    if not unsupported:
        return []
    label = " and ".join(unsupported)
    return [
        f"planner's profile of {profile.name} has no {label}, which the file sets. It may run with "
        "that; --framework can name a framework that has it."
    ]


def _name_model(
    values: dict[str, object], answers: LaunchSettings, specs: Path | None
) -> list[str]:
    """Replace the model's name in ``values`` by the known model that it means; return notes."""
    notes = []
    name = str(values.get("model", ""))  # /path/to/Qwen3-8B names a model
    if _PLACEHOLDER.fullmatch(name) and checkpoint_of(name, specs).model is None:
        notes.append(f"{values.pop('model')} is a placeholder.")
    if "model" not in values:
        return notes
    name = str(values["model"])
    checkpoint = checkpoint_of(name, specs)
    is_listed = checkpoint.model == name or aliased(SpecKind.MODELS, name, specs) is not None
    if is_listed or os.path.exists(name):
        return notes
    from planner.specs.hugging_face import cached_config, is_repository

    if checkpoint.model is not None and "model" in answers.values:
        notes.append(f"{name} is read as {checkpoint.model}, by its name.")
        values["model"] = checkpoint.model
    elif (
        not (is_repository(name) and cached_config(name))
        and (similar := nearest_model(name, specs))
        and "model" in answers.values
    ):
        notes.append(
            f"{name} is assumed to have the sizes of {similar}, by its name. Pass the "
            "path of its config.json if they differ."
        )
        values["model"] = similar
    elif name.startswith(_FOLDERS) or not (
        is_repository(name) or name.endswith((".json", ".toml"))
    ):
        notes.append(f"Unknown model {values.pop('model')}.")
    if checkpoint.quantization and "quantization" in answers.defaults:
        values["quantization"] = checkpoint.quantization
    return notes


def _full_recomputation(values: Mapping[str, object], catalogue: Catalogue) -> dict[str, object]:
    """Return ``recompute_num_layers`` as 0 (all) if the number covers a whole stage; else empty."""
    number = _count_of(values.get("recompute_num_layers"))
    if not number or values.get("model") is None:
        return {}
    stages = _count_of(values.get("pipeline_parallel")) or 1
    layers = catalogue.load_model(str(values["model"])).num_hidden_layers
    return {"recompute_num_layers": 0} if number * stages >= layers else {}


def _expert_adapter_values(values: dict[str, object], catalogue: Catalogue) -> dict[str, Any]:
    """Return values without LoRA adapters on experts if the model has no experts, or fused ones.

    The experts of gpt-oss are no linear layers in any version: names of layers do not match them.
    """
    model = str(values.get("model", ""))
    if "expert_adapters" not in values:
        return values
    if model and catalogue.load_model(model).num_experts:
        return {**values, "expert_adapters": "none"} if "gpt-oss" in model.lower() else values
    return {name: value for name, value in values.items() if name != "expert_adapters"}


# Missing term in place of a parameter that only an engine has.
_OPEN_INSTEAD = {"stage_gpus": "tensor_parallel"}


def _unreadable_terms(target: LaunchTarget, reading: OptionReader) -> list[str]:
    """Return the terms whose options have values that cannot be read from the file."""
    options = reading.command.options
    unknown_options = {
        name for name, option in options.items() if option.unknown or None in option.texts
    }
    parameters = dict.fromkeys(
        row.parameter
        for row in target.table.rows
        if row.option in unknown_options
        and row.role in (OptionRole.IS, OptionRole.READS)
        and row.parameter not in reading.meanings
    )
    return [
        *dict.fromkeys(
            _OPEN_INSTEAD.get(name, name)
            for name in parameters
            if name in {*_OPEN_INSTEAD, *glossary()}
        )
    ]


def _launcher_hardware(command: ParsedCommand, catalogue: Catalogue) -> dict[str, object]:
    """Return ``num_gpus`` and ``gpu`` as the launcher or scheduler requests them; else empty."""
    resources = command.resources
    values: dict[str, object] = {}
    num_nodes, per_node, total = map(
        _count, (resources.num_nodes, resources.gpus_per_node, resources.num_gpus)
    )
    if total is not None:
        values["num_gpus"] = total
    elif num_nodes is not None and per_node is not None:
        values["num_gpus"] = num_nodes * per_node
    if resources.gpu is not None and (name := parse_gpu_name(resources.gpu, catalogue.folder)):
        values["gpu"] = name
    return values


def _count(option: ParsedOption | None) -> int | None:
    return None if option is None else _parse_count(option.texts)


def _count_of(value: object) -> int | None:
    return None if value is None else _parse_count((str(value),))


def _parse_count(texts: tuple[str | None, ...]) -> int | None:
    """Return the first text as a number of GPUs; None if there is no text, or it is no number."""
    (text, *_) = (*texts, None)
    try:
        return int(str(parse_value(glossary()[NUM_GPUS], text))) if text else None
    except PlannerError:
        return None


_NODE_RANK = "--node-rank"
_PREFILL_PREFIX = "prefill_"


def unique_launches(launches: Sequence[ImportedLaunch]) -> list[tuple[ImportedLaunch, int]]:
    """Return different launches, each with its number of copies; skip later nodes of a server."""
    unique: list[tuple[ImportedLaunch, int]] = []
    for launch in launches:
        same_index = next(
            (
                index
                for index, (other, _) in enumerate(unique)
                if launch.target is other.target
                and launch.values == other.values
                and launch.command.deployment == other.command.deployment
            ),
            None,
        )
        if same_index is None:
            unique.append((launch, 1))
            continue
        rank = launch.command.options.get(_NODE_RANK)
        if rank is None or rank.texts in (("0",), (None,)):
            unique[same_index] = (unique[same_index][0], unique[same_index][1] + 1)
        # else it is a later node of a server: the command of the first node counts
    return unique


def merge_pools(launches: Sequence[tuple[ImportedLaunch, int]]) -> list[ImportedLaunch]:
    """Merge prefill and decode workers of one deployment into one launch; return all launches.

    With several models, or several deployments of one, the n-th prefill workers of a model are
    paired with its n-th decode workers.
    """
    pools: dict[object, tuple[list[int], list[int]]] = {}
    models = {launch.values["model"] for launch, _ in launches if "model" in launch.values}
    only = next(iter(models)) if len(models) == 1 else None  # workers may leave it to others
    for index, (launch, _) in enumerate(launches):
        kinds = [name in launch.values for name in REPLICAS]
        if kinds.count(True) == 1:
            pools.setdefault(launch.values.get("model", only), ([], []))[kinds.index(True)].append(
                index
            )
    pairs = [
        pair
        for decode, prefill in pools.values()
        if len(decode) == len(prefill)
        for pair in zip(prefill, decode, strict=True)
    ]
    paired = [
        pair_pools(launches[prefill_index], launches[decode_index])
        for prefill_index, decode_index in pairs
    ]
    in_pairs = {index for pair in pairs for index in pair}
    return [
        *paired,
        *(launch for index, (launch, _) in enumerate(launches) if index not in in_pairs),
    ]


def pair_pools(
    prefill: tuple[ImportedLaunch, int], decode: tuple[ImportedLaunch, int]
) -> ImportedLaunch:
    """Return one disaggregated launch of prefill and decode workers, each with its copies."""
    (first, num_first), (second, num_second) = prefill, decode
    prefill_values = {
        name: v for name, v in first.values.items() if name.startswith(_PREFILL_PREFIX)
    }
    values = {**second.values, **prefill_values, "mode": "disaggregated"}
    values["prefill_replicas"] = num_first * int(first.values["prefill_replicas"])
    values["replicas"] = num_second * int(second.values["replicas"])
    pool_gpus = [int(launch.values.get("num_gpus") or 0) for launch in (first, second)]
    if all(pool_gpus):
        values["num_gpus"] = num_first * pool_gpus[0] + num_second * pool_gpus[1]
    all_lines = dict.fromkeys((*first.lines, *second.lines))
    return replace(
        second,
        values=values,
        lines=tuple(sorted(all_lines, key=lambda line: (line.line, line.option))),
        notes=tuple(dict.fromkeys((*first.notes, *second.notes))),
    )
