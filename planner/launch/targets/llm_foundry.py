"""LLM Foundry: ``composer train.py FILE`` and its YAML, read-only.

Source: mosaicml/llm-foundry at 0.22, ``llmfoundry/command_utils/train.py``,
``llmfoundry/models/mpt/configuration_mpt.py`` (sizes that a file leaves out) and
``scripts/train/yamls``; ``max_duration`` in the units of mosaicml/composer, ``core/time.py``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import PurePath

from planner.documents.shell.edits import ParsedOption
from planner.launch.model_shape import find_model_of_name
from planner.launch.option_table import MutableQuantities
from planner.launch.read.hf_trainer.derive_settings import UNPACKED
from planner.launch.read.parsed_launch import (
    OptionReader,
    ParsedCommand,
    SettingsBuilder,
    flag,
    number,
    option_text,
    with_unknown_options,
)
from planner.launch.targets.training_reader import keep_name, make_reader_target, set_gpus

_DURATION = re.compile(r"(\d+)\s*(ba|ep|tok|sp|dur)")
_INTERPOLATED = re.compile(r"\$\{([\w.]+)\}")
_POSITIONS = {"alibi": "model.attn_config.alibi", "rotary": "model.attn_config.rope"}


def _add_unlisted_settings(
    reading: OptionReader, settings: SettingsBuilder
) -> MutableQuantities | None:
    """Set what the option table does not read; return an MPT model's sizes."""
    values = settings.values
    is_fine_tuning = option_text(reading, "train_loader.name") == "finetuning"
    values |= {"adapter": "none", "training_objective": "sft" if is_fine_tuning else "pretrain"}
    if "lora_rank" in values:
        values |= {"adapter": "lora", "framework": "HF Trainer FSDP"}
        if reading.has("model.peft_config.target_modules"):
            values["lora_targets"] = "all_linear"
        settings.assume("lora_targets", "query_value", "no target_modules: peft's of most models")
    settings.set_optimizer(option_text(reading, "optimizer.name") or "adam")
    set_gpus(reading, settings, number(reading, "--world_size", "-n", "--nproc"))
    micro = option_text(reading, "device_train_microbatch_size") or "auto"
    settings.require("micro_batch_size", int(micro) if micro.isdecimal() else None)
    shape = None
    if model := reading.text("model.pretrained_model_name_or_path"):
        values["model"] = model
    elif reading.number("model.d_model"):
        shape = _read_shape(reading)
    elif _config_file(reading.command) is None and (
        model_of_name := _model_of_config_name(reading)
    ):
        values |= {"model": model_of_name, "zero_stage": 3}
        reason = (
            f"the configuration of {model_of_name} not found: those of LLM Foundry shard everything"
        )
        settings.defaults["zero_stage"] = reason
    else:
        settings.mark_missing("model")
    _set_duration(reading, settings)
    if is_fine_tuning and not reading.has("train_loader.dataset.packing_ratio"):
        settings.notes.append(UNPACKED.format(option="max_seq_len"))
    return shape


def _config_file(command: ParsedCommand) -> ParsedCommand | None:
    """The configuration that a command names; None if it is missing."""
    files = (command.files.get(file.single or "") for file in command.positional)
    return next((file for file in files if file is not None), None)


def _merge_config_files(command: ParsedCommand) -> Mapping[str, ParsedOption]:
    """All options of a command and its configuration, with ``${...}`` references resolved."""
    config = _config_file(command)
    options = {**(config.options if config else {}), **with_unknown_options(command).options}
    return {name: _interpolate(option, options) for name, option in options.items()}


def _model_of_config_name(reading: OptionReader) -> str | None:
    """The model in the name of a missing configuration; None if there is none."""
    names = (argument.single or "" for argument in reading.command.positional)
    stems = (PurePath(name).stem for name in names if name.endswith((".yaml", ".yml")))
    return next((model for stem in stems if (model := find_model_of_name(stem))), None)


def _interpolate(option: ParsedOption, options: Mapping[str, ParsedOption]) -> ParsedOption:
    """Replace a reference such as ``${variables.max_seq_len}`` by the referenced option's value."""
    match = _INTERPOLATED.fullmatch(option.single or "")
    referenced = options.get(match[1]) if match is not None else None
    return (
        option
        if referenced is None
        else replace(option, texts=referenced.texts, spans=referenced.spans)
    )


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


def _read_shape(reading: OptionReader) -> MutableQuantities:
    """Return the sizes of an MPT model by parameter; None for sizes that are not set."""
    hidden, heads = reading.number("model.d_model"), reading.number("model.n_heads")
    ratio = reading.amount("model.expansion_ratio") or 4
    positions = next(
        (position for position, key in _POSITIONS.items() if flag(reading, key)), "learned"
    )
    return {
        "num_hidden_layers": reading.number("model.n_layers"),
        "hidden_size": hidden,
        "intermediate_size": int((hidden or 0) * ratio),
        "num_attention_heads": heads,
        "num_key_value_heads": reading.number("model.attn_config.kv_n_heads") or heads,
        "vocab_size": reading.number("model.vocab_size"),
        "max_position_embeddings": reading.number("max_seq_len"),
        "tie_word_embeddings": flag(reading, "model.tie_word_embeddings", default=True),
        "position_embedding": positions,
        "gated": option_text(reading, "model.ffn_config.ffn_type") == "mptglu",
    }


TARGET = make_reader_target(
    "llm-foundry", _add_unlisted_settings, _merge_config_files, format_name=keep_name
)
