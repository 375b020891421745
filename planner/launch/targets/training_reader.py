"""Readers shared by training programs: GPUs, tokens, parallelism, micro-batches, adapters."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any, TypeAlias

from planner.base.enums import AdapterTargets
from planner.base.training_aliases import (
    TrainingObjective,
    nearest_adapter_targets,
    parse_adapter_targets,
)
from planner.documents.shell.edits import ParsedOption
from planner.errors import PlannerError
from planner.launch.option_table import (
    MutableQuantities,
    OptionTable,
    matches_option,
    tool_row,
)
from planner.launch.read.expression_rows import apply_read_rows
from planner.launch.read.parsed_launch import (
    NOTHING,
    LaunchSettings,
    OptionReader,
    ParsedCommand,
    SettingsBuilder,
    require_split,
    with_unknown_options,
    without_null_keys,
)
from planner.launch.read.training_values import model_degrees
from planner.launch.target import LaunchTarget, option_texts
from planner.specs.catalogue import load_model

RowsHook: TypeAlias = Callable[[MutableQuantities], MutableQuantities | None]
"""Applies the rows with expressions, given quantities; returns the sizes of the model."""
SettingsHook: TypeAlias = Callable[
    [OptionReader, SettingsBuilder, RowsHook], MutableQuantities | None
]
NameFormatter: TypeAlias = Callable[[str], str]
"""Turns the name of an option in a command into its name in the table."""


def strip_dashes(option: str) -> str:
    """The option's name without leading dashes."""
    return option.lstrip("-")


def keep_name(option: str) -> str:
    """The option's name, unchanged."""
    return option


def make_reader_target(
    name: str,
    merge_config_files: Callable[[ParsedCommand], Mapping[str, ParsedOption]],
    add_settings: SettingsHook = lambda _, __, apply_rows: apply_rows({}),
    format_name: NameFormatter = strip_dashes,
) -> LaunchTarget:
    """Return the launch target of a training program whose files are read, never written.

    Parameters
    ----------
    name : name of the target and of its table
    merge_config_files : returns the options of a command or document with those of the file it
        names, by their names in the table
    add_settings : adds settings that no row of the table has, and returns the sizes of a model
        without a name; it applies the rows when what they use is set, and may pass quantities to
        them; raises `LaunchError` or `SpecError` if something is not predicted
    format_name : turns the name of an option into its name in the table
    """
    table = OptionTable.load(name)

    def read_settings(reading: OptionReader) -> LaunchSettings:
        """Read the settings of a command and its YAML; report used, ignored and unread options."""
        options = without_null_keys(merge_config_files(reading.command), table)
        command = replace(reading.command, options=options, unknown=())
        inner, tool = OptionReader.of(command, table), tool_row(name)
        settings = option_texts(inner, tool["title"])
        profiles = f"{tool['profiles']}|{tool['nearest']}".strip("|")
        chosen_by_rows = any(row.parameter == "framework" for row in table.expressions)
        settings.values["framework"] = None if chosen_by_rows else profiles.partition("|")[0]
        shape = add_settings(inner, settings, partial(apply_read_rows, inner, table, settings))
        num_gpus = settings.values.get("num_gpus")
        require_split(inner, num_gpus and int(num_gpus), **model_degrees(settings))
        names = {*reading.command.options, *(option.option for option in reading.command.unknown)}
        table_names = {format_name(name) for name in table.used | table.options}
        used = frozenset(name for name in names if matches_option(format_name(name), table_names))
        ignored = frozenset(name for name in names if format_name(name) in table.ignored)
        unread = frozenset(
            name for name in names if matches_option(format_name(name), table.unread)
        )
        return settings.build(
            shape=shape, used_options=used, ignored_options=ignored - used, unread=unread
        )

    return LaunchTarget.of(name, answers=read_settings)


def make_update_reader(
    name: str,
    add_unlisted_settings: Callable[[OptionReader, SettingsBuilder], None],
    models: Sequence[str],
    sections: tuple[str, ...],
) -> Callable[[OptionReader], LaunchSettings]:
    """Return a function that reads the weight update of a reinforcement-learning program.

    Parameters
    ----------
    name : name of the target and of its table
    add_unlisted_settings : adds settings that no row of the table has; raises `LaunchError` if
        they are impossible
    models : options that may name the model; the first that is set counts
    sections : prefixes of the program's options that are not read
    """
    table, title = OptionTable.load(name), tool_row(name)["title"]

    def read_settings(reading: OptionReader) -> LaunchSettings:
        """Read the settings of a command that trains all weights; report unused options."""
        reading = replace(reading, command=with_unknown_options(reading.command))
        settings = option_texts(reading, title)
        set_full_training(settings)
        settings.require("model", next(filter(None, map(reading.text, models)), None))
        add_unlisted_settings(reading, settings)
        return settings.build(used_options=table.used, **classify_unused_options(reading, sections))

    return read_settings


def published_layers(model: str | None) -> int | None:
    """Return the number of layers of a model by name; None if the model is unknown."""
    try:
        return load_model(model).num_hidden_layers if model else None
    except PlannerError:
        return None


def set_full_training(settings: SettingsBuilder, precision: str = "bf16") -> None:
    """Set an update of all weights in a precision, without adapter and multi-token prediction."""
    settings.set("precision", precision)
    settings.set("mtp_num_layers", 0)
    settings.set("adapter", "none")


def set_lora(reading: OptionReader, settings: SettingsBuilder, rank: int, *options: str) -> None:
    """Set LoRA adapters of the matrices in the first option that is set, else of all linear."""
    settings.set("adapter", "lora")
    settings.set("lora_rank", rank)
    target_texts = (reading.command.options[name].texts for name in options if reading.has(name))
    target_modules = ",".join(_MODULE.findall(" ".join(filter(None, next(target_texts, ())))))
    is_all = (
        target_modules.lower() in NOTHING
        or parse_adapter_targets(target_modules) == AdapterTargets.ALL_LINEAR
    )
    targets = (
        target_modules
        if parse_adapter_targets(target_modules) in [*AdapterTargets]
        else str(nearest_adapter_targets([target_modules]))
    )
    settings.set("lora_targets", str(AdapterTargets.ALL_LINEAR) if is_all else targets)


_MODULE = re.compile(r"[\w.*-]+")


def require_model_ranks(reading: OptionReader, settings: SettingsBuilder, num_gpus: int) -> int:
    """Return the GPUs that share one copy of the model.

    Raises LaunchError if they do not divide the GPUs.
    """
    sizes = model_degrees(settings)
    require_split(reading, num_gpus, **sizes)
    return prod(sizes.values())


def set_objective(settings: SettingsBuilder, has_reference: bool, has_critic: bool = False) -> None:
    """Set the objective: GRPO with a reference model, DAPO without; note a critic."""
    if has_critic:
        settings.notes.append("It also trains a critic, which is not predicted.")
    objective = TrainingObjective.GRPO if has_reference else TrainingObjective.DAPO
    settings.values["training_objective"] = str(objective)
    if not has_reference:
        settings.notes.append("No reference model: predicted as DAPO, which has none.")


def note_updates(
    settings: SettingsBuilder, program: str, generated: int | None, batch: int
) -> None:
    """Add a note on the number of updates per step, if a step has several."""
    if generated and generated > batch and generated % batch == 0:
        updates = generated // batch
        settings.notes.append(
            f"A step of {program} has {updates} such updates, after one generation."
        )


def set_token_budget(
    settings: SettingsBuilder, tokens: int, sequences_per_rank: int | None
) -> None:
    """Set the micro-batch to the most full-length sequences within ``tokens`` tokens.

    Its size divides ``sequences_per_rank``, if that is known.
    """
    max_sequences = max(tokens // int(settings.values["sequence_length"]), 1)
    sizes = (
        range(1, min(max_sequences, sequences_per_rank) + 1)
        if sequences_per_rank
        else (max_sequences,)
    )
    size = max(size for size in sizes if not sequences_per_rank or sequences_per_rank % size == 0)
    settings.values["micro_batch_size"] = size
    settings.notes.append(
        f"Micro-batches of up to {tokens:,} tokens: planner assumes {size} of full length."
    )


def classify_unused_options(
    reading: OptionReader, sections: tuple[str, ...], used: frozenset[str] = frozenset()
) -> dict[str, Any]:
    """Return the unused options of ``sections``, as ``ignored_options`` and ``unread``.

    Ignored: options of generation and other models than the policy, without effect on the update.
    """
    names = {name for name in reading.command.options if name.startswith(sections)} - used
    generation_options = frozenset(name for name in names if _OTHER_MODELS.match(name))
    return {"ignored_options": generation_options, "unread": frozenset(names - generation_options)}


_OTHER_MODELS = re.compile(
    r"(--)?(actor_rollout_ref\.(rollout|ref)|critic|reward|rollout|vllm|sglang|ref|eval"
    r"|valid|env|orchestrator|inference|policy\.generation|teacher|value"
    r"|value_loss_fn|custom_reward_function)(?![a-z])"
)
