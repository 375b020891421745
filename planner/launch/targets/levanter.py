"""Levanter: ``python -m levanter.main.train_lm`` and its YAML, which are read and not written.

Source: stanford-crfm/levanter at 9263f81, ``src/levanter/trainer.py`` (``TrainerConfig``),
``src/levanter/models`` and ``lora.py``; ``models/levanter.csv`` has the sizes that a model is of
where a file says none. Layers are repeated unless ``gradient_checkpointing`` is off.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from planner.base.training_names import optimizer_of
from planner.documents.shell.text import Given
from planner.errors import LaunchError, PlannerError
from planner.launch.option_table import Words, shipped_rows
from planner.launch.targets.trained import plain, put_tokens, ranks_of, read_alone
from planner.launch.understood import (
    Found,
    Gathered,
    Reading,
    gpus_of,
    number,
    require_split,
    told,
    worded,
)
from planner.specs.catalogue import load_model
from planner.specs.quantization import checkpoint_of

_MODELS = {row.pop("type"): row for row in shipped_rows("models/levanter.csv")}
_FORMATS = {"bf16": "bf16", "bfloat16": "bf16", "f16": "fp16", "float16": "fp16", "half": "fp16"}
_NEAREST = (
    "It is compiled by XLA and shards as MaxText does, whose profile is nearest: predicted as "
    "MaxText."
)
_REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+(@\w+)?")
_SAVED = ("false", "save_all")
_TOKENIZER = "gpt2"
_RANK, _BATCH = 8, 512


def _tell(reading: Reading, found: Gathered) -> Words | None:
    """What no row tells of a configuration, or of a command with the one that it names."""
    values = found.values
    is_tuned = any(name.startswith("supervised_data") for name in reading.found.options)
    values["training_objective"] = "sft" if is_tuned else "pretrain"
    found.notes.append(_NEAREST)
    kind = told(reading, "model.type") or "llama"
    own = _MODELS.get(kind)
    # A checkpoint in a bucket has the sizes that the file says.
    loaded = (reading.text(key) or "" for key in ("initialize_from_hf", "model_name_or_path"))
    model = next((name for name in loaded if _REPOSITORY.fullmatch(name)), None)
    if own is None and model is None:
        raise LaunchError(
            f"{reading.place}: model.type {kind} is not read: {', '.join(_MODELS)} are. Give the "
            "model with --model if planner knows it."
        )
    shape = None
    if model is not None:
        values["model"] = model.partition("@")[0]
    elif own is not None:
        shape = _shape(reading, kind, own)
    length = number(reading, "max_train_length", "max_seq_len", "model.seq_len")
    found.need("sequence_length", length or (int(own["seq_len"]) if own else None))
    _adapter(reading, found)
    _memory(reading, found)
    _layout(reading, found)
    put_tokens(found, reading.number("trainer.num_train_steps"))
    return shape


def _whole(found: Found) -> Mapping[str, Given]:
    """The configuration that a command names, with its own options over it."""
    own = {plain(option): given for option, given in worded(found).options.items()}
    named = own.get("config_path") or own.get("config")
    name = (named and named.single) or ""
    beside = found.files.get(name)
    if name and beside is None:
        raise LaunchError(
            f"{found.name}:{found.line}: {name} has the model and the batch, and does not stand "
            "beside: put it there, or give it itself."
        )
    options = {**(beside.options if beside else {}), **own}
    # A batch that grows: its first phase.
    for ending in (".0.value", "[0].value"):
        first = options.get(f"trainer.train_batch_size{ending}")
        if first is not None:
            options.setdefault("trainer.train_batch_size", first)
    return options


def _shape(reading: Reading, kind: str, own: Mapping[str, str]) -> Words:
    """The sizes of a model: those of a file, else of its class."""

    def size(name: str) -> int | None:
        given = reading.number(f"model.{name}")
        return given if given is not None else int(own[name]) if own.get(name) else None

    hidden, heads = size("hidden_dim") or 0, size("num_heads")
    is_plain = kind == "gpt2"
    experts = {}
    if own["num_experts"]:
        experts = {
            "num_experts": number(reading, "model.n_routed_experts") or int(own["num_experts"]),
            "num_experts_per_tok": number(reading, "model.num_experts_per_tok") or 2,
            "moe_intermediate_size": size("intermediate_dim"),
        }
    tied = told(reading, "model.tie_word_embeddings") or own["tie_word_embeddings"]
    return {
        "num_hidden_layers": size("num_layers"),
        "hidden_size": hidden,
        "intermediate_size": size("intermediate_dim") or hidden * 4,
        "num_attention_heads": heads,
        "num_key_value_heads": size("num_kv_heads") or heads,
        "head_dim": size("head_dim"),
        "vocab_size": _vocabulary(reading),
        "max_position_embeddings": size("seq_len") if is_plain else None,
        "tie_word_embeddings": tied == "true",
        "position_embedding": own["position_embedding"],
        "gated": own["gated"] == "true",
        "norm_bias": own["norm_bias"] == "true",
        "qkv_bias": is_plain or kind == "qwen",
        "output_bias": is_plain,
        "mlp_bias": is_plain,
        "qk_norm": kind in ("qwen3", "olmo2"),
        **experts,
    }


def _vocabulary(reading: Reading) -> int | None:
    """That of the tokenizer, where planner knows the model that it is of."""
    name = reading.text("data.tokenizer") or reading.text("tokenizer") or _TOKENIZER
    try:
        return load_model(checkpoint_of(name).model or name).vocab_size
    except PlannerError:
        return None


def _adapter(reading: Reading, found: Gathered) -> None:
    is_adapted = any(name.startswith(("lora.", "peft_save")) for name in reading.found.options)
    if not is_adapted:
        found.values["adapter"] = "none"
        return
    found.values["adapter"] = "lora"
    found.assume("lora_rank", _RANK, f"no lora.r: {_RANK} is Levanter's")
    modules = told(reading, "lora.target_modules")
    if modules is None:
        found.values["lora_targets"] = "all_linear"
    elif "wqkv" in modules:
        found.values["lora_targets"] = "q_proj,k_proj,v_proj"
    else:
        found.values["lora_targets"] = modules.replace(" ", ",")


def _memory(reading: Reading, found: Gathered) -> None:
    """Number formats, what is repeated, and the optimizer."""
    values = found.values
    policy = told(reading, "trainer.mp") or "f32"
    parts = dict(part.strip().split("=", 1) for part in policy.split(",") if "=" in part)
    plain = policy if not parts else "f32"
    kept = parts.get("p") or parts.get("params") or plain
    computed = parts.get("c") or parts.get("compute") or plain
    values.setdefault("precision", _FORMATS.get(computed, "fp32"))
    if _FORMATS.get(kept) == "bf16":
        values |= {"main_params_precision": "bf16", "optimizer_state_precision": "bf16"}
    repeats = told(reading, "model.gradient_checkpointing") or "true"
    values["recompute"] = "none" if repeats in _SAVED else "full"
    kind = told(reading, "optimizer.type") or "adam"
    known = optimizer_of(kind)
    if known is None:
        found.notes.append(f"The optimizer {kind} is predicted as Adam.")
    elif known["optimizer"]:
        values["optimizer"] = known["optimizer"].word


def _layout(reading: Reading, found: Gathered) -> None:
    """GPUs, shards and copies; sequences of a GPU and of a step."""
    values = found.values
    total, tensor = gpus_of(reading.found.world), int(values["tensor_parallel"])
    copies = number(reading, "trainer.replica_ici_axis_size") or 1
    copies *= number(reading, "trainer.replica_dcn_axis_size") or 1
    require_split(reading, total, model_axis_size=tensor, replicas=copies)
    ranks = ranks_of(reading, found, model_axis_size=tensor)
    is_split = told(reading, "trainer.fsdp_axis") is not None or not reading.has(
        "trainer.fsdp_axis"
    )
    values["zero_stage"] = 3 if is_split else 0
    if copies > 1:
        values["data_parallel_replicas"] = copies
    micro = number(reading, "trainer.per_device_parallelism")
    batch = number(reading, "trainer.train_batch_size")
    if batch is None and micro is None:
        batch = _BATCH
        found.defaults["global_batch_size"] = f"{_BATCH} is Levanter's train_batch_size"
    values.pop("micro_batch_size", None)
    values.pop("global_batch_size", None)
    found.put("global_batch_size", batch)
    if ranks is None:
        found.put("micro_batch_size", micro)
        return
    # A device takes its share at once unless it is told to take less.
    found.put("micro_batch_size", micro or (max(batch // ranks, 1) if batch else None))
    if batch is None and micro is not None:
        values["global_batch_size"] = micro * ranks


TARGET = read_alone("levanter", _tell, _whole)
