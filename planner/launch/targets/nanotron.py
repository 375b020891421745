"""nanotron, Hugging Face's small trainer: its YAML, read-only.

Source: huggingface/nanotron at 2411b02, ``src/nanotron/config`` (``config.py``,
``parallelism_config.py``, ``models_config.py``), ``parallel/context.py`` and ``helpers.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from planner.base.units import ceil_div
from planner.documents.shell.edits import ParsedOption
from planner.errors import LaunchError
from planner.launch.option_table import MutableQuantities
from planner.launch.read.parsed_launch import (
    OptionReader,
    ParsedCommand,
    SettingsBuilder,
    total_gpus,
)
from planner.launch.targets.training_reader import (
    make_reader_target,
    set_global_batch,
    set_gpus,
    set_total_tokens,
)

_MODEL = "model.model_config."
_NULL_TEXTS = ("", "null", "none", "~")
_AFAB_NOTE = (
    "pp_engine afab runs all forward passes before the backward passes. Its first stage keeps the "
    "activations of all micro-batches of a step; 1f1b, which is predicted, those of {stages}."
)
_NO_FP32_COPY_NOTE = (
    "accumulate_grad_in_fp32 false: nanotron then updates the 16-bit weights themselves. Memory is "
    "predicted with 32-bit gradients and weights, as accumulate_grad_in_fp32 true has them."
)


def _add_unlisted_settings(
    reading: OptionReader, settings: SettingsBuilder
) -> MutableQuantities | None:
    """Set what the option table does not read; return the model's sizes.

    Raises LaunchError if experts are split, or the model is of an unsupported kind.
    """
    values = settings.values
    if int(values.get("expert_parallel") or 1) > 1:
        raise LaunchError(
            f"{reading.position}: expert_parallel_size above 1 is not read: nanotron counts "
            "its GPUs "
            "otherwise in each version. Describe the run without --from."
        )
    mode, recomputes = (
        (reading.text(f"parallelism.{key}") or "").lower() for key in ("tp_mode", "recompute_layer")
    )
    _set_batch_and_gpus(reading, settings)
    values["sequence_parallel"] = mode == "reduce_scatter"
    values["recompute"] = "full" if recomputes == "true" else "none"
    if (reading.text("optimizer.accumulate_grad_in_fp32") or "true").lower() == "false":
        settings.notes.append(_NO_FP32_COPY_NOTE)
    shape = _read_shape(reading)
    if shape is None:
        settings.mark_missing("model")
    set_total_tokens(settings, reading.number("tokens.train_steps"))
    return shape


def _merge_config_files(command: ParsedCommand) -> Mapping[str, ParsedOption]:
    """Options of the configuration that a command names, with those of the command."""
    config_option = command.options.get("--config-file")
    document = command.files.get((config_option and config_option.single) or "")
    return {**(document.options if document else {}), **command.options}


def _set_batch_and_gpus(reading: OptionReader, settings: SettingsBuilder) -> None:
    """Set the batch of a step, and the GPUs of the launcher, else of the layout."""
    sizes = {
        degree: int(settings.values.get(f"{name}_parallel") or 1)
        for degree, name in (("tp", "tensor"), ("pp", "pipeline"), ("cp", "context"))
    }
    data_parallel = reading.number("parallelism.dp")
    num_gpus = total_gpus(reading.command.resources) or (
        data_parallel and data_parallel * prod(sizes.values())
    )
    ranks = set_gpus(reading, settings, num_gpus, **sizes)
    if ranks is None:
        settings.mark_missing("global_batch_size")
        return
    accumulation_steps = reading.number("tokens.batch_accumulation_per_replica") or 0
    if accumulation_steps:
        set_global_batch(settings, ranks, accumulation_steps)
    engine = (reading.text("parallelism.pp_engine") or "").lower()
    if engine in (*_NULL_TEXTS, "afab") and accumulation_steps > sizes["pp"] > 1:
        settings.notes.append(_AFAB_NOTE.format(stages=sizes["pp"]))


def _read_shape(reading: OptionReader) -> MutableQuantities | None:
    """Return the model's sizes by parameter; None if the file does not set them.

    Raises LaunchError if the model has experts or states.
    """
    texts = {
        name.removeprefix(_MODEL): (reading.text(name) or "").lower()
        for name in reading.command.options
        if name.startswith(_MODEL)
    }
    sizes = {name: text for name, text in texts.items() if text not in _NULL_TEXTS}
    if "hidden_size" not in sizes or "num_hidden_layers" not in sizes:
        return None
    unsupported = [name for name in sizes if name.startswith(("moe_", "d_state", "is_starcoder"))]
    if unsupported:
        raise LaunchError(
            f"{reading.position}: {_MODEL}{unsupported[0]}: nanotron's models with experts "
            "or states "
            "and its Starcoder are not read. Set --model and leave model_config out."
        )

    def number(name: str, default: int) -> int:
        return reading.number(_MODEL + name) or default

    num_heads = number("num_attention_heads", 32)
    vocabulary = number("vocab_size", 32000)
    multiple = reading.number("model.make_vocab_size_divisible_by") or 1
    multiple *= reading.number("parallelism.tp") or 1
    return {
        "num_hidden_layers": number("num_hidden_layers", 32),
        "hidden_size": number("hidden_size", 4096),
        "intermediate_size": number("intermediate_size", 11008),
        "num_attention_heads": num_heads,
        "num_key_value_heads": number("num_key_value_heads", num_heads),
        "vocab_size": ceil_div(vocabulary, multiple) * multiple,
        "max_position_embeddings": number("max_position_embeddings", 2048),
        "tie_word_embeddings": sizes.get("tie_word_embeddings") == "true",
        "qkv_bias": sizes.get("attention_bias") == "true",
        "sliding_window": reading.number(f"{_MODEL}sliding_window_size"),
        "gated": True,
        "position_embedding": "rotary",
    }


TARGET = make_reader_target("nanotron", _add_unlisted_settings, _merge_config_files)
