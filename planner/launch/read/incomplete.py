"""Options of a launch file that may decide its verdict, and that are not read."""

from __future__ import annotations

import re
from collections.abc import Iterator

from planner.base.training_aliases import is_one_end
from planner.documents.shell.scope import (
    IN_BRANCHES,
    ONLY_AT_RUN_TIME,
    ONLY_IN_SOME,
    READ_AT_RUN_TIME,
)
from planner.launch.option_table import OptionRole
from planner.launch.read.harmless import has_harmless_name
from planner.launch.read.import_launch import ImportedLaunch, parse_count
from planner.launch.read.option_lines import Status
from planner.launch.targets import readers
from planner.launch.wrappers.read_resources import parse_gpu_name

_DECISIVE_OPTION = re.compile(
    r"n_\w*gpus|num_gpus|gpus_per|nnodes|num_nodes|^--.*parallel-size$|teacher|distil|^--kd$"
    r"|tiled_mlp|layers_to_transform|layers_pattern"
)
_MIG_SLICE = re.compile(r"(?<![\w.])(?:mig-)?(\dg\.\d{1,3}gb)\b")
_CHOICES = re.compile(rf"\$\w+ is (?P<choices>.*), {IN_BRANCHES}")
_UNREAD_WORDS = re.compile(rf"{IN_BRANCHES}|{READ_AT_RUN_TIME}|(?<!^\$\w is ){ONLY_AT_RUN_TIME}")
# verl's rollout: the engine ends an answer at this length, prompt included; it is not predicted.
_CONTEXT_OPTION = "rollout.max_model_len"
_NO_CHECKPOINTING = "no --gradient_checkpointing"
_SAVED_MODULES = re.compile(r"modules_to_save$|^-*additional_target$")
_DOCUMENTS = (".yaml", ".yml", ".json", ".toml", ".conf")
_VALUE_ROLES = (OptionRole.IS, OptionRole.READS)
_COMPUTING_ROLES = (OptionRole.READ, OptionRole.SET, OptionRole.SIZE)
# Terms without which a file is refused, or that decide the length of the run alone.
_FREE_TERMS = ("model", "named_model", "program", "total_tokens", "training_steps", "save_interval")


def undecided_options(launch: ImportedLaunch) -> list[str]:
    """Return options that may decide the verdict, but are not understood or not readable.

    They are unknown options, options of parameters without a value in the file, counts of GPUs
    that are not modelled, configurations that are not near the file, and slices of a GPU.
    """
    return [*dict.fromkeys(_undecided(launch))]


def _undecided(launch: ImportedLaunch) -> Iterator[str]:
    workloads = ["train" if launch.workload in ("train", "rl") else "serve"]
    tables = [launch.target.table]
    if launch.target.name in _TRAINERS:  # all read what the Trainer takes
        tables.append(readers()[_TRAINERS[0]].table)
    decisive = {
        row.option
        for row in (row for table in tables for row in table.rows)
        if row.role in _VALUE_ROLES
        and row.parameter not in ("model", "program")
        and row.parameter not in launch.answered
    }
    # Rows with expressions name their options without hyphens where documents have them, too.
    computing = [
        row
        for table in tables
        for row in table.expressions
        if row.role in _COMPUTING_ROLES and row.parameter not in launch.answered
    ]
    free = (row.read_options for row in computing if row.parameter in _FREE_TERMS)
    read_options = frozenset[str]().union(*(row.read_options for row in computing))
    decisive |= read_options.difference(*free)
    yield from (f"{name} (not found)" for name in launch.command.missing_files)
    gpu = launch.command.resources.named_gpu
    if gpu and parse_gpu_name(gpu) is None and "gpu" not in launch.answered:
        yield f"the GPU {gpu}"
    if launch.command.resources.is_one_process and launch.target.name in _TRAINERS:
        count = parse_count(launch.values.get("num_gpus", 1))
        if count > 1 and "num_gpus" not in launch.answered and not launch.values.get("layer_split"):
            yield f"the one process on {count} GPUs"
    for line in launch.lines_with_status(Status.UNKNOWN):
        if not has_harmless_name(line.option, line.text.split(), workloads):
            yield line.option
    for line in launch.lines_with_status(Status.OPEN):
        is_word = not line.option.startswith(("-", "$(seq ")) and _UNREAD_WORDS.search(line.meaning)
        if is_word and ONLY_IN_SOME in line.meaning:
            for option in line.meaning.partition(f" {ONLY_IN_SOME}")[0].split(", "):
                if not has_harmless_name(option.partition("=")[0], [], workloads):
                    yield f"{option} (in some branches)"
        elif {line.option, line.option.lstrip("-")} & decisive or is_word:
            choices = _CHOICES.match(line.meaning)
            yield f"{line.option} ({choices['choices']})" if choices else line.option
    yield from _unseen_defaults(launch)
    yield from _unseen_program(launch)
    yield from _unknown_modules(launch)
    yield from _open_lengths(launch)
    yield from _cut_answers(launch)
    yield from (name for name in launch.not_modelled if _DECISIVE_OPTION.search(name.lower()))
    yield from (f"MIG slice {name}" for name in _MIG_SLICE.findall(launch.command.text))


_TRAINERS = ("transformers", "deepspeed", "accelerate")
# Words of the reason for a rank that no known front end has (options/trainer-setup.csv).
_OF_LIBRARY = "is the library's"
_OF_TRAINER = {"output_dir", "gradient_accumulation_steps", "overwrite_output_dir"}


def _unseen_defaults(launch: ImportedLaunch) -> Iterator[str]:
    """Yield the batch and the rank that a user's program has if neither file nor Trainer sets it.

    A program with options of the Trainer has its batch; another may have any. Its own options have
    any rank.
    """
    command = launch.command
    program = next((text for text in command.words if text.endswith(".py")), None)
    if launch.target.name not in _TRAINERS or program is None:
        return
    options = {*command.options, *(option.option for option in command.unknown)}
    names = {option.lstrip("-").replace("-", "_") for option in options}
    file = program.rpartition("/")[2]
    if "micro_batch_size" in launch.defaults and not names & _OF_TRAINER:
        yield f"the batch of {file}"
    is_of_library = _OF_LIBRARY in launch.defaults.get("lora_rank", "")
    if is_of_library and not names & {"use_peft", "lora_r"}:
        yield f"the rank of the adapters of {file}"


def _unseen_program(launch: ImportedLaunch) -> Iterator[str]:
    """Yield the program of a document whose keys are partly its own: it may set the rest."""
    is_bare = launch.target.name in _TRAINERS and not launch.command.positional
    is_document = is_bare and launch.command.name.endswith(_DOCUMENTS)
    has_default = launch.defaults.get("recompute") == _NO_CHECKPOINTING
    unknown_keys = {line.option for line in launch.lines_with_status(Status.UNKNOWN)}
    if is_document and has_default and unknown_keys and "the program" not in unknown_keys:
        yield "the program that reads it"


def _unknown_modules(launch: ImportedLaunch) -> Iterator[str]:
    """Yield the option of modules that are trained in full, unless they are the model's ends."""
    for line in launch.lines_with_status(Status.UNDERSTOOD):
        names = line.text.replace(",", " ").split()
        if _SAVED_MODULES.search(line.option) and not all(map(is_one_end, names)):
            yield line.option


def _open_lengths(launch: ImportedLaunch) -> Iterator[str]:
    """Yield the length of sequences if neither a command nor its program states it."""
    is_program = launch.target.name in _TRAINERS and not launch.command.name.endswith(_DOCUMENTS)
    name = "sequence_length"
    is_open = name in launch.assumed or name not in {*launch.values, *launch.answered}
    if is_program and launch.workload == "train" and is_open:
        yield "the length of its sequences"


def _cut_answers(launch: ImportedLaunch) -> Iterator[str]:
    """Yield the context of the rollout if the longest prompt and answer do not fit in it."""
    names = ("sequence_length", "input_tokens", "output_cap")
    trained, *answered = (parse_count(launch.values.get(name, 0)) for name in names)
    longest = max(trained, sum(answered))
    for line in launch.lines:
        if line.option.endswith(_CONTEXT_OPTION) and 0 < parse_count(line.text) < longest:
            yield line.option
