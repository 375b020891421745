"""What configurations and overrides of MaxText say of a plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from planner.errors import LaunchError
from planner.launch.gpus import gpus_of, number_of
from planner.launch.targets.maxtext_axes import Mesh, mesh_of
from planner.launch.targets.maxtext_models import model_of_maxtext
from planner.launch.targets.maxtext_remat import KEYS, remat_of
from planner.launch.understood import Answers, Reading

_PROGRAMS = ("maxtext.trainers.", "MaxText.", "MaxText/", "maxtext/")
_BATCH_DEFAULT = 12.0
_LARGEST = 1e9
_LENGTH_DEFAULT = 2048
NEAREST = ("MaxText",)
"""Whose predictions are taken."""
_SIZES = (
    "base_emb_dim",
    "base_mlp_dim",
    "base_moe_mlp_dim",
    "base_num_decoder_layers",
    "base_num_kv_heads",
    "base_num_query_heads",
    "base_config",
)
_TABLE = (
    *("offload", "precision", "flash_attention", "attention_kernel"),
    *("adapter", "mtp_num_layers"),
)


def starts(words: Sequence[str]) -> bool:
    """Whether a command starts MaxText."""
    return any(word.startswith(_PROGRAMS) or "/MaxText/" in word for word in words[:4])


def is_of(values: Mapping[str, Any]) -> bool:
    """Whether a document is a configuration of MaxText."""
    return any(name.startswith(("ici_", "dcn_")) for name in values) or (
        "per_device_batch_size" in values and "base_config" in values
    )


def answers(reading: Reading) -> Answers:
    """What such a command or configuration says.

    Raises
    ------
    LaunchError
        The axes of its mesh do not fill its GPUs.
    """
    world = reading.found.world
    total, each = gpus_of(reading), number_of(world.gpus_per_node)
    nodes = number_of(world.num_nodes) or (total // each if total and each else None)
    mesh = mesh_of(lambda key: _integer(reading, key), nodes, each)
    num_gpus = mesh.num_gpus or total
    sizes = mesh.sizes
    values: dict[str, Any] = {
        "tensor_parallel": sizes["tensor"] * sizes["tensor_sequence"],
        "sequence_parallel": str(sizes["tensor_sequence"] > 1).lower(),
        "context_parallel": sizes["context"],
        "expert_parallel": sizes["expert"],
        "pipeline_parallel": sizes["pipeline"],
        **_sharding(reading, mesh),
        **remat_of(reading),
        **{name: reading.value(name) for name in _TABLE if reading.value(name) is not None},
    }
    defaults: dict[str, str] = {}
    if num_gpus is not None:
        values |= {"num_gpus": num_gpus, **_batch(reading, mesh, num_gpus, defaults)}
    values["sequence_length"] = reading.number("max_target_length") or _LENGTH_DEFAULT
    if not reading.has("max_target_length"):
        defaults["sequence_length"] = f"{_LENGTH_DEFAULT}, as MaxText does without an option"
    values.setdefault("precision", "bf16")
    values["dropout"] = str(_float(reading, "dropout_rate", 0.0) > 0).lower()
    rank = reading.number("lora_rank")
    if values.get("adapter", "none") != "none" and rank:
        values["lora_rank"] = rank
    model, shape = _model(reading)
    if model is not None:
        values["model"] = model
    (values["framework"],) = NEAREST
    asked = () if num_gpus is not None else ("num_gpus", "global_batch_size")
    return Answers(
        workload="train",
        values=values,
        shape=shape if model is None else None,
        used=frozenset(name for name in reading.found.options if _is_used(name)) | _files(reading),
        defaults=defaults,
        asked=(*asked, *(("model",) if model is None and shape is None else ())),
    )


def _files(reading: Reading) -> frozenset[str]:
    """Configurations by their end, which tells all that they say where they are MaxText's own."""
    named = [each.option for each in reading.found.unknown]
    return frozenset(name for name in named if name.strip("\"'").endswith("/configs/base.yml"))


def _is_used(name: str) -> bool:
    starts_with = ("ici_", "dcn_", "num_", "lora_", "per_device", "remat", "model_name")
    exact = ("head_dim", "vocab_size", "logits_via_embedding", "gradient_accumulation_steps",
             "max_target_length", "dropout_rate", "shard_optimizer_over_data")  # fmt: skip
    return name.startswith(starts_with) or name in (*exact, *_SIZES, *KEYS)


def _sharding(reading: Reading, mesh: Mesh) -> dict[str, Any]:
    """What data-parallel ranks shard, and the copies of it."""
    if mesh.sizes["fsdp"] > 1:
        return {"zero_stage": 3, "data_parallel_replicas": mesh.sizes["data"]}
    is_sharded = (reading.text("shard_optimizer_over_data") or "").lower() == "true"
    return {"zero_stage": int(is_sharded)}


def _batch(reading: Reading, mesh: Mesh, num_gpus: int, defaults: dict[str, str]) -> dict[str, Any]:
    each = _float(reading, "per_device_batch_size", _BATCH_DEFAULT)
    if not reading.has("per_device_batch_size"):
        defaults["global_batch_size"] = f"{_BATCH_DEFAULT:g} sequences of a GPU, as MaxText does"
    accumulated = reading.number("gradient_accumulation_steps") or 1
    stages = mesh.sizes["pipeline"]
    cut = reading.number("num_pipeline_microbatches") or 0
    pieces = (cut if cut > 0 else stages) if stages > 1 else 1
    sequences = int(each * num_gpus)
    repeats = reading.number("num_pipeline_repeats") or 1
    chunks = {"virtual_pipeline": max(repeats, 1)} if stages > 1 else {}
    return {
        **chunks,
        "global_batch_size": sequences * accumulated,
        "micro_batch_size": max(sequences // (mesh.data * pieces), 1),
    }


def _integer(reading: Reading, key: str) -> int | None:
    text = reading.text(key) or ""
    return int(text) if text.removeprefix("-").isdecimal() else None


def _float(reading: Reading, key: str, default: float) -> float:
    told = reading.amount(key)
    number = default if told is None else told
    if not 0 <= number < _LARGEST:
        where = f"{reading.found.name}:{reading.found.line}"
        raise LaunchError(f"{where}: {key} is {number:g}: give a number of at least 0.")
    return number


def _model(reading: Reading) -> tuple[str | None, dict[str, Any] | None]:
    """The model that is named, else the sizes that are given."""
    named = reading.text("model_name")
    # The end of a path tells the model, even where its beginning is not known.
    words = [
        (text or each.option).strip("\"'")
        for each in (*reading.found.positional, *reading.found.unknown)
        for text in each.texts or (None,)
    ]
    files = [word for word in words if word.endswith((".yml", ".yaml"))]
    for name in (named, reading.text("base_config"), *files, reading.found.name):
        model = model_of_maxtext(name) if name else None
        if model is not None:
            return model, None
    number = reading.number
    if not number("base_num_decoder_layers") or not number("base_emb_dim"):
        return None, None
    experts = number("num_experts") or 1
    heads = number("base_num_query_heads") or 16
    return None, {
        "num_hidden_layers": number("base_num_decoder_layers"),
        "hidden_size": number("base_emb_dim"),
        "intermediate_size": number("base_mlp_dim"),
        "num_attention_heads": heads,
        "num_key_value_heads": number("base_num_kv_heads") or heads,
        "head_dim": number("head_dim") or 128,
        "vocab_size": number("vocab_size") or 32000,
        "gated": True,
        "position_embedding": "rotary",
        "tie_word_embeddings": reading.text("logits_via_embedding") == "true",
        "qk_norm": reading.text("use_qk_norm") == "true",
        "num_experts": experts if experts > 1 else None,
        "num_experts_per_tok": number("num_experts_per_tok"),
        "moe_intermediate_size": number("base_moe_mlp_dim"),
    }
