"""LLM Foundry: ``composer train.py FILE`` and its YAML, read-only.

Source: mosaicml/llm-foundry at 0.22, ``llmfoundry/command_utils/train.py``,
``llmfoundry/models/mpt/configuration_mpt.py`` (sizes that a file leaves out) and
``scripts/train/yamls``; ``max_duration`` in the units of mosaicml/composer, ``core/time.py``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePath

from planner.documents.shell.edits import ParsedOption
from planner.launch.model_shape import find_model_of_name
from planner.launch.option_table import MutableQuantities
from planner.launch.read.hf_trainer.derive_settings import UNPACKED
from planner.launch.read.parsed_launch import (
    OptionReader,
    ParsedCommand,
    SettingsBuilder,
    option_text,
    with_unknown_options,
)
from planner.launch.read.references import resolve_references
from planner.launch.targets.training_reader import RowsHook, keep_name, make_reader_target

_DURATION = re.compile(r"(\d+)\s*(ba|ep|tok|sp|dur)")


def _add_unlisted_settings(
    reading: OptionReader, settings: SettingsBuilder, apply_rows: RowsHook
) -> MutableQuantities | None:
    """Set the duration of the run and, if the file does not name it, the model of its name."""
    values, sizes = settings.values, apply_rows({})
    if "model" not in values and sizes is None:
        model = None if _config_file(reading.command) else _model_of_config_name(reading)
        settings.require("model", model)
        if model:
            values["zero_stage"] = 3
            settings.defaults["zero_stage"] = (
                f"the configuration of {model} not found: those of LLM Foundry shard everything"
            )
    _set_duration(reading, settings)
    is_packed = reading.has("train_loader.dataset.packing_ratio")
    if values["training_objective"] == "sft" and not is_packed:
        settings.notes.append(UNPACKED.format(option="max_seq_len"))
    return sizes


def _config_file(command: ParsedCommand) -> ParsedCommand | None:
    """The configuration that a command names; None if it is missing."""
    return next(filter(None, map(command.files.get, command.words)), None)


def _merge_config_files(command: ParsedCommand) -> Mapping[str, ParsedOption]:
    """All options of a command and its configuration, with ``${...}`` references resolved."""
    config = _config_file(command)
    options = {**(config.options if config else {}), **with_unknown_options(command).options}
    return resolve_references(options)


def _model_of_config_name(reading: OptionReader) -> str | None:
    """The model in the name of a missing configuration; None if there is none."""
    names = (name for name in reading.command.words if name.endswith((".yaml", ".yml")))
    stems = (PurePath(name).stem for name in names)
    return next((model for stem in stems if (model := find_model_of_name(stem))), None)


def _set_duration(reading: OptionReader, settings: SettingsBuilder) -> None:
    """Set the tokens or the epochs of the full run; neither if they are not known."""
    match = _DURATION.match(option_text(reading, "max_duration") or "")
    if match is None:
        return
    amount, unit = int(match[1]), match[2]
    length = reading.number("max_seq_len")
    batch = reading.number("global_train_batch_size")
    if unit == "ep":
        settings.values["epochs"] = amount
    elif unit == "tok":
        settings.values["total_tokens"] = amount
    elif length and (unit == "sp" or batch):
        settings.values["total_tokens"] = amount * length * (batch or 1 if unit == "ba" else 1)


TARGET = make_reader_target(
    "llm-foundry", _merge_config_files, _add_unlisted_settings, format_name=keep_name
)
