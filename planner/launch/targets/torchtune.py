"""torchtune: ``tune run RECIPE --config NAME`` and its YAML, read-only.

Source: pytorch/torchtune at bd2a0fc, ``torchtune/_cli/run.py``, ``torchtune/_recipe_registry.py``,
``recipes/*.py`` and ``torchtune/models``; ``models/torchtune.csv`` has the options of
``recipes/configs`` that affect predictions, by the name that ``--config`` takes, and
``models/torchtune-builders.csv`` the models of its builders.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache

from planner.documents.shell.edits import ParsedOption, implied_option
from planner.errors import LaunchError
from planner.launch.option_table import shipped_rows
from planner.launch.read.hf_trainer.derive_settings import UNPACKED
from planner.launch.read.parsed_launch import (
    OptionReader,
    ParsedCommand,
    SettingsBuilder,
    flag,
    with_unknown_options,
)
from planner.launch.targets.training_reader import RowsHook, keep_name, make_reader_target

_ADAPTER_PREFIX = re.compile(r"^q?(lora|dora)_")
_ATTENTION = {"q_proj": "q_proj", "k_proj": "k_proj", "v_proj": "v_proj", "output_proj": "o_proj"}
_FEED_FORWARD = ("gate_proj", "up_proj", "down_proj")


@cache
def _models() -> Mapping[str, str]:
    """Return the model of each of torchtune's builders, by its name without adapter and variant."""
    return {row["builder"]: row["model"] for row in shipped_rows("models/torchtune-builders.csv")}


@cache
def _shipped_configs() -> Mapping[str, Mapping[str, ParsedOption]]:
    """Return the options of each configuration that torchtune ships, by its name."""
    return {
        row["config"]: {
            key: implied_option(key, text) for key, text in row.items() if text and key != "config"
        }
        for row in shipped_rows("models/torchtune.csv")
    }


def _add_settings(reading: OptionReader, settings: SettingsBuilder, apply_rows: RowsHook) -> None:
    """Apply the rows to the recipe, the model of the builder and the adapted modules.

    Raises LaunchError if the recipe trains something that is not predicted.
    """
    recipe = next(iter(reading.command.words), "")
    builder = (reading.text("model._component_") or "").rpartition(".")[2]
    base_name = _ADAPTER_PREFIX.sub("", builder).removesuffix("_instruct").removesuffix("_base")
    lora_modules = reading.command.options.get("model.lora_attn_modules")
    words = re.findall(r"\w+", (lora_modules.joined or "") if lora_modules else "")
    targets = [_ATTENTION[word] for word in words if word in _ATTENTION]
    targets += _FEED_FORWARD if flag(reading, "model.apply_lora_to_mlp") else ()
    if not flag(reading, "dataset.packed"):
        settings.notes.append(UNPACKED.format(option="tokenizer.max_seq_len"))
    apply_rows(
        {
            "recipe": recipe,
            "recipe_name": recipe or reading.command.name,
            "builder": builder,
            "named_model": _models().get(base_name),
            "adapted_modules": ",".join(targets),
        }
    )
    if "adapter" not in settings.values:
        settings.values.pop("lora_rank", None)


def _merge_config_files(command: ParsedCommand) -> Mapping[str, ParsedOption]:
    """Return the options of the named configuration, overridden by the command's.

    Raises LaunchError if that file is missing and torchtune ships none of that name.
    """
    options = with_unknown_options(command).options
    config_option = options.get("--config")
    if config_option is None or config_option.single is None:
        return options
    document = command.files.get(config_option.single)
    config = (
        document.options if document is not None else _shipped_configs().get(config_option.single)
    )
    if config is None and "model._component_" not in options:
        raise LaunchError(
            f"{command.name}:{command.line}: --config {config_option.single} is no configuration "
            "of torchtune that planner predicts, and no file in this folder: put it there."
        )
    return {**(config or {}), **options}


TARGET = make_reader_target("torchtune", _merge_config_files, _add_settings, keep_name)
