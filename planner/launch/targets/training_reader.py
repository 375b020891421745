"""Readers shared by training programs: GPUs, tokens, parallelism, micro-batches, adapters."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

from planner.base.training_aliases import TrainingObjective
from planner.documents.shell.edits import ParsedOption
from planner.errors import PlannerError
from planner.launch.option_table import (
    FLAG,
    VALUE,
    MutableQuantities,
    OptionTable,
    matches_option,
    tool_row,
)
from planner.launch.read.expression_rows import apply_read_rows
from planner.launch.read.harmless import vouches
from planner.launch.read.parsed_launch import (
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


_FREE = (VALUE, FLAG)


def _unread_words(table: OptionTable, reading: OptionReader) -> set[str]:
    """Return options with words of their own whose word in a file is none of them."""
    fixed = {row.option for row in table.rows if row.role == "is" and row.text not in _FREE}
    fixed -= {row.option for row in table.rows if row.role == "used" or row.text in _FREE}
    return fixed.difference(*(meaning.options for meaning in reading.meanings.values()))


def make_reader_target(
    name: str,
    merge_config_files: Callable[[ParsedCommand], Mapping[str, ParsedOption]] | None = None,
    add_settings: SettingsHook = lambda _, __, apply_rows: apply_rows({}),
    format_name: NameFormatter = strip_dashes,
) -> LaunchTarget:
    """Return the launch target of a training program whose files are read, never written.

    Parameters
    ----------
    name : name of the target and of its table
    merge_config_files : returns the options of a command or document with those of the file it
        names, by their names in the table; default: those of the command, unknown ones too
    add_settings : adds settings that no row of the table has, and returns the sizes of a model
        without a name; it applies the rows when what they use is set, and may pass quantities to
        them; raises `LaunchError` or `SpecError` if something is not predicted
    format_name : turns the name of an option into its name in the table
    """
    table = OptionTable.load(name)

    def read_settings(reading: OptionReader) -> LaunchSettings:
        """Read the settings of a command and its YAML; report used, ignored and unread options."""
        if merge_config_files is None:
            options = with_unknown_options(reading.command).options
            options = {format_name(option): parsed for option, parsed in options.items()}
        else:
            options = merge_config_files(reading.command)
        options = without_null_keys(options, table)
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
        read_names = (table.used | table.options) - _unread_words(table, inner)
        table_names = {format_name(name) for name in read_names}
        used = frozenset(name for name in names if matches_option(format_name(name), table_names))
        ignored = frozenset(name for name in names if format_name(name) in table.ignored)
        all_options = (*reading.command.options.values(), *reading.command.unknown)
        unread = frozenset(
            option.option
            for option in all_options
            if vouches(table.unread, format_name(option.option), option.texts, ("train",))
        )
        return settings.build(
            shape=shape, used_options=used, ignored_options=ignored - used, unread=unread
        )

    return LaunchTarget.of(name, answers=read_settings)


def make_update_reader(
    name: str,
    merge_config_files: Callable[[ParsedCommand], ParsedCommand] = with_unknown_options,
) -> Callable[[OptionReader], LaunchSettings]:
    """Return a function that reads the weight update of a reinforcement-learning program.

    Parameters
    ----------
    name : name of the target and of its table
    merge_config_files : returns the command with the options of the files that it names, and notes
    """
    table, title = OptionTable.load(name), tool_row(name)["title"]

    def read_settings(reading: OptionReader) -> LaunchSettings:
        """Read the settings of a command that trains all weights; report unused options.

        Raises LaunchError if the file's split of the model does not divide its GPUs.
        """
        command = merge_config_files(reading.command)
        settings = option_texts(reading, title)
        settings.set("precision", "bf16")
        settings.set("mtp_num_layers", 0)
        settings.set("adapter", "none")
        settings.notes += command.notes[len(reading.command.notes) :]
        reading = replace(reading, command=command)
        complete_update(reading, table, settings)
        return settings.build(
            used_options=table.used, **classify_unused_options(reading, table.unread, table.used)
        )

    return read_settings


def complete_update(reading: OptionReader, table: OptionTable, settings: SettingsBuilder) -> None:
    """Set what the rows of an update's table read, its micro-batch and its objective.

    Rows may compute ``token_budget``, ``sequences_per_rank`` and ``most_sequences`` of a
    micro-batch, and ``has_reference`` and ``has_critic`` of an update on rollouts.
    Raises LaunchError if the degrees do not divide the GPUs.
    """
    quantities: dict[str, Any] = {}
    apply_read_rows(reading, table, settings, quantities)
    if num_gpus := settings.values.get("num_gpus"):
        require_split(reading, int(num_gpus), **model_degrees(settings))
    if budget := quantities.get("token_budget"):
        _set_token_budget(settings, budget, quantities.get("sequences_per_rank"))
    if most := quantities.get("most_sequences"):  # with packing, this many set the tokens
        settings.values["micro_batch_size"] = min(settings.values["micro_batch_size"], most)
    if quantities.get("has_critic"):
        settings.notes.append("It also trains a critic, which is not predicted.")
    if (has_reference := quantities.get("has_reference")) is not None:
        objective = TrainingObjective.GRPO if has_reference else TrainingObjective.DAPO
        settings.values["training_objective"] = str(objective)
        if not has_reference:
            settings.notes.append("No reference model: predicted as DAPO, which has none.")


def published_layers(model: str | None) -> int | None:
    """Return the number of layers of a model by name; None if the model is unknown."""
    try:
        return load_model(model).num_hidden_layers if model else None
    except PlannerError:
        return None


def _set_token_budget(
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
    reading: OptionReader, patterns: Collection[str], used: frozenset[str]
) -> dict[str, Any]:
    """Return the unused options that match ``patterns``, as ``ignored_options`` and ``unread``.

    Ignored: options of generation and other models than the policy, without effect on the update.
    """
    options = [
        (name, option.texts) for name, option in reading.command.options.items() if name not in used
    ]
    generation = {
        name for name, _ in options if matches_option(name, patterns) and _OTHER_MODELS.match(name)
    }
    of_tool = {name for name, texts in options if vouches(patterns, name, texts, ("train",))}
    return {"ignored_options": frozenset(generation), "unread": frozenset(of_tool)}


_OTHER_MODELS = re.compile(
    r"(--)?(actor_rollout_ref\.(rollout|ref)|critic|reward|rollout|vllm|sglang|ref|eval"
    r"|valid|env|orchestrator|inference|policy\.generation|teacher|value"
    r"|value_loss_fn|custom_reward_function)(?![a-z])"
)
