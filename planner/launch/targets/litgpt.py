"""LitGPT: ``litgpt COMMAND`` and the YAML of ``config_hub``, which are read and not written.

Source: Lightning-AI/litgpt at 0.5, ``litgpt/finetune/full.py`` and ``lora.py`` (FSDP with all
layers repeated on several GPUs, none on one), ``litgpt/pretrain.py`` (FSDP within a node, compiled,
nothing repeated), ``litgpt/args.py``.
"""

from __future__ import annotations

from collections.abc import Mapping

from planner.documents.shell.text import Given
from planner.errors import LaunchError
from planner.launch.targets.trained import plain, put_tokens, ranks_of, read_alone
from planner.launch.trainer.answers import UNPACKED
from planner.launch.understood import Found, Gathered, Reading, flag, told, worded

_COMMANDS = ("pretrain", "finetune", "finetune_lora", "finetune_full")
_UNREAD = ("finetune_adapter", "finetune_adapter_v2")
_MATRICES = {
    "lora_query": (True, ("q_proj",)),
    "lora_key": (False, ("k_proj",)),
    "lora_value": (True, ("v_proj",)),
    "lora_projection": (False, ("o_proj",)),
    "lora_mlp": (False, ("gate_proj", "up_proj", "down_proj")),
}
# Tokens where a command is given none.
_TOKENS = 3_000_000_000_000
_FORMATS = {"bf16": "bf16", "16": "fp16", "32": "fp32"}
_RANK = 8


def _tell(reading: Reading, found: Gathered) -> None:
    """What no row tells of a configuration, or of a command with the one that it names."""
    words = [word_option.single or "" for word_option in reading.found.positional]
    command = next((word for word in words if word in (*_COMMANDS, *_UNREAD)), "")
    if command in _UNREAD or "adapter" in words:
        raise LaunchError(
            f"{reading.place}: LitGPT's adapters of prompts are not predicted: its pretrain, "
            "finetune_full and finetune_lora are."
        )
    is_new = command == "pretrain" or (not command and reading.has("model_name"))
    is_whole = is_new or command == "finetune_full" or "full" in words
    if not command and not is_whole:
        is_whole = not any(name.startswith("lora_") for name in reading.found.options)
    found.values |= {"adapter": "none", "training_objective": "pretrain" if is_new else "sft"}
    keys = ("checkpoint_dir", "model_name", "model_config.name")
    models = [reading.text(name) for name in keys if told(reading, name)]
    named = [word for word in words if word not in ("litgpt", command, "lora", "full")]
    model = next(filter(None, (*models, *named)), None)
    found.need("model", model and model.removeprefix("checkpoints/"))
    for row in TARGET.table.defaults:
        if row.text == ("pretrain" if is_new else "finetune"):
            found.assume(row.parameter, int(row.value), row.note.format(value=row.value))
    _gpus(reading, found, is_new)
    _adapter(reading, found, is_whole)
    _kind(reading, found, is_new)
    _length(reading, found, is_new)


def _whole(found: Found) -> Mapping[str, Given]:
    """The command's options over those of its configuration, without their dashes."""
    own = {plain(name): option for name, option in worded(found).options.items()}
    named = own.get("config")
    beside = found.files.get((named and named.single) or "")
    return {**(beside.options if beside else {}), **own}


def _gpus(reading: Reading, found: Gathered, is_new: bool) -> None:
    devices, nodes = told(reading, "devices"), reading.number("num_nodes") or 1
    if not reading.has("devices") and not is_new:
        devices = "1"
    is_counted = devices is not None and devices.isdecimal()
    ranks_of(reading, found, int(devices or 1) * nodes if is_counted else None)
    is_split = found.values.get("num_gpus") != 1
    found.values["zero_stage"] = 3 if is_split else 0
    if is_new and nodes > 1:
        found.values["data_parallel_replicas"] = nodes
    found.values["recompute"] = "full" if is_split and not is_new else "none"


def _adapter(reading: Reading, found: Gathered, is_whole: bool) -> None:
    values = found.values
    if is_whole:
        values.pop("lora_rank", None)
        return
    quantized = told(reading, "quantize") or ""
    values["adapter"] = "qlora" if quantized else "lora"
    if quantized.startswith("bnb.int8"):
        values["quantization_bits"] = 8
    elif quantized:
        values["double_quantization"] = quantized.endswith("-dq")
    found.assume("lora_rank", _RANK, f"no lora_r: {_RANK} is LitGPT's")
    chosen = [
        word
        for name, (default, matrices) in _MATRICES.items()
        if flag(reading, name, default=default)
        for word in matrices
    ]
    values["lora_targets"] = ",".join(chosen)
    if flag(reading, "lora_head"):
        found.notes.append("The adapter of the logits (lora_head) is not counted.")


def _kind(reading: Reading, found: Gathered, is_new: bool) -> None:
    """Profile, precision and optimizer."""
    values = found.values
    said = told(reading, "precision") or "bf16-mixed"
    width, _, kept = said.partition("-")
    values["precision"] = _FORMATS.get(width, width)
    if not reading.has("precision"):
        found.defaults["precision"] = "bf16-mixed is LitGPT's on GPUs that have it"
    is_narrow = kept == "true" and width != "32"
    values["framework"] = "FSDP bf16" if is_narrow else "FSDP"
    if values["adapter"] != "none":
        values["framework"] = "HF Trainer FSDP" if values["zero_stage"] else "HF Trainer"
    if is_new:
        values["torch_compile"] = "true"
    path = told(reading, "optimizer.class_path", "optimizer") or "adamw"
    found.put_optimizer(path)
    if values.pop("paged_optimizer", False):
        found.notes.append("The states of a paged optimizer are predicted to stay on the GPU.")


def _length(reading: Reading, found: Gathered, is_new: bool) -> None:
    values = found.values
    length, steps = reading.number("train.max_seq_length"), reading.number("train.max_steps")
    if length is None:
        found.ask("sequence_length")
    if not is_new:
        found.notes.append(UNPACKED.format(option="train.max_seq_length"))
        put_tokens(found, steps)
    else:
        values["total_tokens"] = reading.number("train.max_tokens") or _TOKENS


TARGET = read_alone("litgpt", _tell, _whole)
