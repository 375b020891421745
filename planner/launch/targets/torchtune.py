"""torchtune: ``tune run RECIPE --config NAME`` and its YAML, read-only.

Source: pytorch/torchtune at bd2a0fc, ``torchtune/_cli/run.py``, ``torchtune/_recipe_registry.py``,
``recipes/*.py`` and ``torchtune/models``; ``models/torchtune.csv`` has the options of
``recipes/configs`` that affect predictions, by the name that ``--config`` takes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache

from planner.documents.shell.edits import ParsedOption, implied_option
from planner.errors import LaunchError
from planner.launch.model_shape import find_model_of_name
from planner.launch.option_table import shipped_rows
from planner.launch.read.hf_trainer.derive_settings import UNPACKED
from planner.launch.read.parsed_launch import (
    OptionReader,
    ParsedCommand,
    SettingsBuilder,
    flag,
    total_gpus,
    with_unknown_options,
)
from planner.launch.targets.training_reader import (
    RowsHook,
    keep_name,
    make_reader_target,
)

_SINGLE_DEVICE = "single_device"
_ADAPTER_PREFIX = re.compile(r"^(q?lora|q?dora)_")
_ATTENTION = {"q_proj": "q_proj", "k_proj": "k_proj", "v_proj": "v_proj", "output_proj": "o_proj"}
_FEED_FORWARD = ("gate_proj", "up_proj", "down_proj")
_DEFAULT_LORA_RANK = 8


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
    """Set the model, its adapter and the GPUs, before the rows.

    Raises LaunchError if the recipe trains something that is not predicted.
    """
    recipe = next((argument.single or "" for argument in reading.command.positional), "")
    _set_model(reading, settings)
    recipe_name = (recipe or reading.command.name).removesuffix(".py").removesuffix(".yaml")
    num_gpus = total_gpus(reading.command.resources)
    names = f"{recipe_name} {reading.text('--config') or ''}"
    if num_gpus is None and _SINGLE_DEVICE in names and "distributed" not in recipe_name:
        num_gpus = 1
        settings.defaults["num_gpus"] = "a recipe of a single device"
    settings.require("num_gpus", num_gpus)
    if not flag(reading, "dataset.packed"):
        settings.notes.append(UNPACKED.format(option="tokenizer.max_seq_len"))
    apply_rows({"recipe": recipe})


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


def _set_model(reading: OptionReader, settings: SettingsBuilder) -> None:
    """Set the model and its LoRA adapter."""
    values = settings.values
    component = (reading.text("model._component_") or "").rpartition(".")[2]
    adapter_match = _ADAPTER_PREFIX.match(component)
    model = next(filter(None, map(find_model_of_name, _candidate_names(component))), None)
    settings.require("model", model)
    if adapter_match is None:
        values.pop("lora_rank", None)
        return
    is_quantized = adapter_match[1].startswith("q") or flag(reading, "model.quantize_base")
    values["adapter"] = "qlora" if is_quantized else "lora"
    settings.assume(
        "lora_rank", _DEFAULT_LORA_RANK, f"no model.lora_rank: {_DEFAULT_LORA_RANK} is torchtune's"
    )
    lora_modules = reading.command.options.get("model.lora_attn_modules")
    words = re.findall(r"\w+", (lora_modules.joined or "") if lora_modules else "")
    targets = [_ATTENTION[word] for word in words if word in _ATTENTION]
    targets += _FEED_FORWARD if flag(reading, "model.apply_lora_to_mlp") else ()
    if targets:
        values["lora_targets"] = ",".join(targets)
    if flag(reading, "model.apply_lora_to_output"):
        settings.notes.append("The adapter of the logits (apply_lora_to_output) is not counted.")


def _candidate_names(component: str) -> Iterator[str]:
    """Yield possible model names of a builder such as ``lora_llama3_1_8b``.

    >>> "qwen2-1.5b" in [*_candidate_names("qwen2_1_5b")]
    True
    """
    base_name = _ADAPTER_PREFIX.sub("", component)
    for suffix in ("_instruct", "_base"):
        base_name = base_name.removesuffix(suffix)
    # Each underscore between digits may be a point or a hyphen; the size is tried first.
    sized = re.sub(r"_(\d+)_(\d+b)$", r"-\1.\2", base_name)
    for text in (sized, re.sub(r"(\d)_(\d+)(?=[_-])", r"\1.\2", sized)):
        yield text.replace("_", "-")
        yield re.sub(r"^([a-z]+)(\d)", r"\1-\2", text.replace("_", "-"))
    text = re.sub(r"(\d)_(\d+)(?=_)", r"\1.\2", base_name).replace("_", "-")
    yield text
    yield re.sub(r"^([a-z]+)(\d)", r"\1-\2", text)


TARGET = make_reader_target("torchtune", _merge_config_files, _add_settings, keep_name)
