"""Model sizes in the words of options and of ``config.json``, and models by their names."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from planner.base.atomic_write import write_atomically
from planner.base.enums import AttentionKind, PositionEmbedding
from planner.base.read_files import parse_json, require_table
from planner.base.user_cache import cache_file
from planner.errors import LaunchError, PlannerError, SpecError
from planner.launch.option_table import shipped_rows
from planner.specs.catalogue import Catalogue, load_model
from planner.specs.hugging_face_families import FAMILIES
from planner.specs.hugging_face_reader import ConfigReader
from planner.specs.model import LayerGroup, ModelSpec, Placement
from planner.specs.spec_files import check_spec
from planner.specs.spec_paths import SpecKind

Config = dict[str, Any]


def shape_of(model: ModelSpec) -> dict[str, Any]:
    """Return the sizes of a model by the names of ``config.json``; None for sizes without value.

    Every ``window_skip``-th layer attends to all tokens, the others to a window.
    ``num_dense_layers`` come before those with experts; ``norm_bias`` is the bias of LayerNorm.
    ``qk_nope_head_dim`` and ``qk_rope_head_dim`` are of latent attention only.
    Raises LaunchError if its layers differ in more than dense layers before those with experts.
    """
    model, skip = _merge_windows(model)
    dense, main = _dense_and_main(model)
    attention, forward = main.attention, main.feed_forward
    is_compressed = attention is not None and attention.kind is AttentionKind.COMPRESSED
    has_state = attention is not None and (attention.has_state or main.state is not None)
    if attention is None or forward is None or has_state or is_compressed:
        raise LaunchError(f"{model.name}: its layers differ, only a checkpoint can describe them.")
    is_latent = attention.kind is AttentionKind.LATENT
    dense_feed_forward = dense.feed_forward if dense and dense.feed_forward else forward
    latent = dict.fromkeys(("qk_nope_head_dim", *_MLA_SIZES))
    if is_latent:
        latent |= {
            **_fields_of(attention, _MLA_SIZES),
            "q_lora_rank": attention.q_lora_rank or None,
        }
        latent["qk_nope_head_dim"] = attention.head_dim - attention.qk_rope_head_dim
    return {
        "num_hidden_layers": model.num_hidden_layers - model.mtp_num_layers,
        **_fields_of(model, _MODEL_FIELDS),
        "position_embedding": str(model.position_embedding),
        **_fields_of(attention, ("num_attention_heads", "num_key_value_heads", "sliding_window")),
        "head_dim": None if is_latent else attention.head_dim,
        **_fields_of(attention, _ATTENTION_FLAGS),
        "window_skip": skip,
        "norm_bias": main.norm_bias,
        "intermediate_size": dense_feed_forward.intermediate_size or None,
        "gated": forward.gated,
        "mlp_bias": forward.bias,
        **{name: size or None for name, size in _fields_of(forward, _EXPERT_SIZES).items()},
        **_fields_of(forward, _EXPERT_FLAGS),
        **(_fields_of(forward, _GROUPS) if forward.n_group > 1 else dict.fromkeys(_GROUPS)),
        "num_dense_layers": dense.num_hidden_layers if dense else 0,
        **latent,
    }


# Names that a shape and its spec have in common.
_MODEL_FIELDS = ("hidden_size", "vocab_size", "tie_word_embeddings", "max_position_embeddings")
_ATTENTION_FLAGS = ("qkv_bias", "output_bias", "qk_norm", "sinks", "attn_output_gate")
_MLA_SIZES = ("q_lora_rank", "kv_lora_rank", "qk_rope_head_dim", "v_head_dim")
_EXPERT_SIZES = (
    *("num_experts", "num_experts_per_tok", "moe_intermediate_size"),
    *("shared_intermediate_size", "moe_latent_size"),
)
_GROUPS = ("n_group", "topk_group")
_EXPERT_FLAGS = ("shared_expert_gate", "router_bias")


def _fields_of(spec: object, names: Sequence[str]) -> dict[str, object]:
    return {name: getattr(spec, name) for name in names}


def with_sizes(name: str, changed: Mapping[str, object]) -> dict[str, Any] | None:
    """Return the sizes of a known model with the changes of a file; None if nothing changes.

    Parameters
    ----------
    changed : mapping
        By the names of `shape_of`; None: unchanged.

    Raises `LaunchError` or `SpecError`: the model is not known, or its layers differ.
    """
    changed_sizes = {word: size for word, size in changed.items() if size is not None}
    if not changed_sizes:
        load_model(name)
        return None
    sizes = shape_of(load_model(name))
    return None if changed_sizes.items() <= sizes.items() else {**sizes, **changed_sizes}


def _merge_windows(model: ModelSpec) -> tuple[ModelSpec, int | None]:
    """Return the model with one window in all layers, and the period of full-attention layers.

    Unchanged, with None, if its layers differ in more than the window.
    """
    if len(model.layer_groups) != 2:
        return model, None
    windowed, unwindowed = model.layer_groups
    layers = model.num_hidden_layers
    period = layers // unwindowed.num_hidden_layers
    if windowed.attention is None or unwindowed.attention is None or model.mtp_num_layers:
        return model, None
    if windowed.attention.kind is AttentionKind.COMPRESSED:
        return model, None
    has_same_attention = unwindowed.attention == replace(windowed.attention, sliding_window=None)
    if (
        not has_same_attention
        or windowed.attention.sliding_window is None
        or windowed.feed_forward != unwindowed.feed_forward
    ):
        return model, None
    if layers // period != unwindowed.num_hidden_layers:
        return model, None
    return replace(model, layer_groups=(replace(windowed, num_hidden_layers=layers),)), period


def _dense_and_main(model: ModelSpec) -> tuple[LayerGroup | None, LayerGroup]:
    """Return the leading dense layers, None if there are none, and the main layers."""
    first, *others = model.layer_groups
    distinct = [first, *(group for group in others if group.feed_forward != first.feed_forward)]
    if len(distinct) > 2 or any(group.mixers != first.mixers for group in others):
        raise LaunchError(f"{model.name}: its layers differ, only a checkpoint can describe them.")
    if len(distinct) == 1:
        return None, first
    if first.num_experts:
        raise LaunchError(f"{model.name}: dense layers after those with experts are not described.")
    return first, distinct[1]


def model_of(shape: Mapping[str, Any], name: str, source: str) -> ModelSpec:
    """Return a model spec with these sizes; the inverse of `shape_of`.

    Raises SpecError if the options make no model.
    """
    attention = _attention(shape)
    experts = int(shape.get("num_experts") or 0)
    layers = int(shape["num_hidden_layers"])
    dense = layers if not experts else int(shape.get("num_dense_layers") or 0)
    mtp_layers = int(shape.get("mtp_num_layers") or 0)
    groups: list[dict[str, Any]] = [
        {
            "num_hidden_layers": number,
            "attention": attention,
            "feed_forward": _feed_forward(shape, has_experts),
            "norm_bias": bool(shape.get("norm_bias")),
        }
        for number, has_experts in ((dense, False), (layers - dense, True))
        if number > 0
    ]
    skip = int(shape.get("window_skip") or 0)
    if skip > 1 and len(groups) == 1 and shape.get("sliding_window"):
        groups = _split_windows(groups[0], layers // skip)
    table = {
        "name": name,
        "source": source,
        "hidden_size": int(shape["hidden_size"]),
        "vocab_size": int(shape["vocab_size"]),
        "layer_groups": groups,
        "tie_word_embeddings": bool(shape.get("tie_word_embeddings")),
        "position_embedding": PositionEmbedding(shape.get("position_embedding") or "rotary"),
        "max_position_embeddings": shape.get("max_position_embeddings"),
        "final_norm_bias": bool(shape.get("norm_bias")),
        "num_nextn_predict_layers": mtp_layers,
    }
    return check_spec(ModelSpec, table, where=source)


def _split_windows(group: dict[str, Any], full: int) -> list[dict[str, Any]]:
    """Split a layer group: layers with a window, and ``full`` layers without window."""
    unwindowed_attention = {**group["attention"], "sliding_window": None}
    common = {**group, "placement": Placement.INTERLEAVED}
    number = group["num_hidden_layers"] - full
    return [
        {**common, "num_hidden_layers": number},
        {**common, "num_hidden_layers": full, "attention": unwindowed_attention},
    ]


def _attention(shape: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attention fields of a model spec from sizes by the names of `shape_of`."""
    heads = int(shape["num_attention_heads"])
    common: dict[str, Any] = {
        "num_attention_heads": heads,
        "num_key_value_heads": int(shape.get("num_key_value_heads") or heads),
        "sliding_window": shape.get("sliding_window"),
        **{name: bool(shape.get(name)) for name in _ATTENTION_FLAGS},
    }
    if not shape.get("kv_lora_rank"):
        size = int(shape.get("head_dim") or int(shape["hidden_size"]) // max(heads, 1))
        return {**common, "head_dim": size}
    latent = {name: int(shape.get(name) or 0) for name in _MLA_SIZES}
    size = int(shape["qk_nope_head_dim"]) + latent["qk_rope_head_dim"]
    return {**common, **latent, "kind": AttentionKind.LATENT, "head_dim": size}


def _feed_forward(shape: Mapping[str, Any], has_experts: bool) -> dict[str, Any]:
    """Return the feed-forward fields of a model spec from sizes by the names of `shape_of`."""
    common = {"gated": bool(shape.get("gated", True)), "bias": bool(shape.get("mlp_bias"))}
    width = shape.get("intermediate_size") or 0
    if not has_experts:
        return {**common, "intermediate_size": int(width)}
    return {
        **common,
        **{name: int(shape.get(name) or 0) for name in _EXPERT_SIZES},
        "num_experts_per_tok": int(shape.get("num_experts_per_tok") or 2),
        "moe_intermediate_size": int(shape.get("moe_intermediate_size") or width),
        **{name: int(shape.get(name) or 1) for name in _GROUPS},
        **{name: bool(shape.get(name)) for name in _EXPERT_FLAGS},
    }


# Options of frameworks do not have these, or take them from the tokenizer.
_OPTIONAL_SIZES = (*("vocab_size", "max_position_embeddings", "tie_word_embeddings", "n_group"),)


def find_model(
    shape: Mapping[str, object], catalogue: Catalogue, option_name: str, tokens: int = 0
) -> ModelSpec | None:
    """Return the known model with these sizes (unspecified sizes match any); None if none has them.

    ``option_name`` is the source of the sizes for messages. The model must have positions for
    ``tokens``. Of several, the same tying of embeddings comes first, then the nearest vocabulary
    (default: Llama's), then the shortest name.
    """
    open_sizes = [name for name in _OPTIONAL_SIZES if shape.get(name) is None]
    shape_model = model_of({"vocab_size": 32_000, **_without_none(shape)}, option_name, option_name)
    open_tie = "tie_word_embeddings" in open_sizes
    matching = [
        model
        for name in catalogue.names(SpecKind.MODELS)
        if _same_layers(model := catalogue.load_model(name), shape_model, open_sizes)
        and (model.max_position_embeddings or tokens) >= tokens
    ]
    return min(
        matching,
        key=lambda model: (
            (model.max_position_embeddings or 0) < (shape_model.max_position_embeddings or 0),
            not open_tie and model.tie_word_embeddings != shape_model.tie_word_embeddings,
            abs(shape_model.vocab_size - model.vocab_size),
            len(model.name),
            model.name,
        ),
        default=None,
    )


def _without_none(shape: Mapping[str, object]) -> dict[str, Any]:
    return {name: value for name, value in shape.items() if value is not None}


def _same_layers(model: ModelSpec, other: ModelSpec, open_sizes: list[str]) -> bool:
    """True if two models have the same layers, and vocabularies unless in ``open_sizes``."""
    if model.hidden_size != other.hidden_size:
        return False
    if model.num_hidden_layers != other.num_hidden_layers:
        return False
    if "vocab_size" not in open_sizes and not (
        model.vocab_size <= other.vocab_size < model.vocab_size + 1024
    ):
        return False
    groups = {"n_group": 1, "topk_group": 1} if "n_group" in open_sizes else {}
    return _comparable_layers(model, groups) == _comparable_layers(other, groups)


def _comparable_layers(model: ModelSpec, groups: Mapping[str, Any]) -> list[Any]:
    """Return layers without details that configurations spell differently: biases and gates.

    ``groups``: groups of experts, where a configuration does not say them.
    """
    return [
        (
            group.num_hidden_layers,
            None if group.attention is None else _comparable_attention(group.attention),
            group.state,
            None
            if group.feed_forward is None
            else replace(
                group.feed_forward,
                **dict.fromkeys(("bias", *_EXPERT_FLAGS), False),
                **groups,
            ),
        )
        for group in model.layer_groups
    ]


def _comparable_attention(attention: Any) -> Any:
    """Return attention without details that configurations spell differently, such as biases."""
    if attention.kind is AttentionKind.COMPRESSED:
        return attention
    latent = attention.kind is AttentionKind.LATENT
    details = {"sliding_window": None, "qk_norm": False, "qkv_bias": False, "output_bias": False}
    normalized = replace(attention, **details, qk_norm_per_head=False, sinks=False)
    return (
        replace(normalized, num_key_value_heads=attention.num_attention_heads)
        if latent
        else normalized
    )


def write_model(shape: Mapping[str, Any], option_name: str) -> Path:
    """Write a model file of these sizes to the user's cache; return its path.

    Raises SpecError if the shape makes no model.
    """
    text = _to_toml(model_of(_without_none(shape), f"model of {option_name}", option_name))
    folder = Path(cache_file("models"))
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.toml"
    if not os.path.exists(path):
        with write_atomically(path) as file:
            file.write(text)
    return path


def _to_toml(model: ModelSpec) -> str:
    """Return a model as TOML text, without default values."""
    table = _table(model)
    groups = table.pop("layer_groups")
    lines = [f"{name} = {json.dumps(value)}" for name, value in table.items()]
    for group in groups:
        lines += ["", "[[layer_groups]]"]
        inner = {name: value for name, value in group.items() if isinstance(value, dict)}
        lines += [f"{name} = {json.dumps(v)}" for name, v in group.items() if name not in inner]
        for name, values in inner.items():
            lines += ["", f"[layer_groups.{name}]"]
            lines += [f"{key} = {json.dumps(value)}" for key, value in values.items()]
    return "\n".join(lines) + "\n"


def _table(spec: Any) -> dict[str, Any]:
    """Return the fields of a spec that differ from their defaults; nested specs as mappings."""
    values = {field.name: (getattr(spec, field.name), field.default) for field in fields(spec)}
    return {
        name: _to_toml_value(value) for name, (value, default) in values.items() if value != default
    }


def _to_toml_value(value: object) -> Any:
    if is_dataclass(value):
        return _table(value)
    return [_to_toml_value(entry) for entry in value] if isinstance(value, tuple) else value


def config_json(model: ModelSpec) -> Config | None:
    """Return the ``config.json`` of a model; None if no family of Transformers has its shape.

    Numbers that specs do not have, such as the base of rotary embeddings, take the defaults of
    Transformers. Trained modules of multi-token prediction do not count as layers.
    """
    main_model = without_mtp_modules(model)
    for family, config in _family_configs(main_model):
        sizes: Config = {
            "hidden_size": main_model.hidden_size,
            "vocab_size": main_model.vocab_size,
            "num_hidden_layers": main_model.num_hidden_layers,
            "tie_word_embeddings": main_model.tie_word_embeddings,
        }
        if main_model.max_position_embeddings:
            sizes["max_position_embeddings"] = main_model.max_position_embeddings
        full_config = {
            "architectures": [family["architecture"]],
            "model_type": family["family"],
            **sizes,
            **config,
            **require_table(parse_json(family["fixed"], family["family"]), family["family"]),
        }
        if _is_read_back(full_config, main_model):
            return full_config
    return None


def family_of(model: ModelSpec) -> str | None:
    """The ``model_type`` of a model; None if no family of Transformers has its shape."""
    config = config_json(model)
    return None if config is None else str(config["model_type"])


def without_mtp_modules(model: ModelSpec) -> ModelSpec:
    """Return the model without its trained modules of multi-token prediction."""
    if not model.mtp_num_layers:
        return model
    *leading, last = model.layer_groups
    fewer = replace(last, num_hidden_layers=last.num_hidden_layers - model.mtp_num_layers)
    return replace(model, layer_groups=(*leading, fewer), mtp_num_layers=0)


def _is_read_back(config: Config, model: ModelSpec) -> bool:
    """True if planner reads this ``config.json`` as a model with the same layers and sizes."""
    errors: list[str] = []
    table = FAMILIES[config["model_type"]](ConfigReader(config, errors))
    if errors:
        return False
    try:
        read = check_spec(ModelSpec, {**table, "name": model.name, "source": "it"}, where="it")
    except SpecError:
        return False
    names = (
        *("hidden_size", "vocab_size", "layer_groups", "tie_word_embeddings", "position_embedding"),
        *("position_embedding_offset", "embedding_norm", "final_norm_bias", "logits_bias"),
        "num_nextn_predict_layers",
    )
    return _fields_of(read, names) == _fields_of(model, names)


def _family_configs(model: ModelSpec) -> Iterator[tuple[Mapping[str, str], Config]]:
    """Yield possible families of a model, each with keys and values of its ``config.json``.

    A row of ``models/config_json.csv`` has the keys of a family in order, each with our name of
    the size if that differs, and further keys that its code needs.
    """
    first, last = model.layer_groups[0], model.layer_groups[-1]
    attention, forward = last.attention, last.feed_forward
    if attention is None or forward is None or first.feed_forward is None:
        return
    dense = 0 if first.num_experts else first.num_hidden_layers
    width = first.feed_forward.intermediate_size
    sizes = {**vars(attention), **vars(forward), **vars(first.feed_forward)}
    sizes |= {
        name: getattr(forward, name)
        for name in ("num_experts", "num_experts_per_tok", "moe_intermediate_size", *_GROUPS)
    }
    is_latent = attention.kind is AttentionKind.LATENT
    if is_latent:
        expert_width = forward.moe_intermediate_size or 1
        sizes |= {
            "q_lora_rank": attention.q_lora_rank or None,
            "qk_nope_head_dim": attention.head_dim - attention.qk_rope_head_dim,
            "expert_width": expert_width,
            "n_shared_experts": forward.shared_intermediate_size // expert_width,
            "num_nextn_predict_layers": model.num_nextn_predict_layers,
        }
    sizes |= {"dense_layers": dense, "mlp_only_layers": list(range(dense))}
    sizes |= {"decoder_sparse_step": 1, "norm_topk_prob": True}
    sizes["dense_width"] = width or (sizes["expert_width"] if is_latent else model.hidden_size)
    for family in shipped_rows("models/config_json.csv"):
        if is_latent == (family["family"] == "deepseek_v3"):
            pairs = (key.partition("=") for key in family["keys"].split())
            config = {key: sizes[size_name or key] for key, _, size_name in pairs}
            if family["family"].startswith("qwen") and forward.shared_intermediate_size:
                config["shared_expert_intermediate_size"] = forward.shared_intermediate_size
            yield family, config


_MAX_LENGTH = 200
_MAX_WORDS = 12
_NUMBER = re.compile(r"\d")
_NUMBERED = re.compile(r"^([a-z]+)-?(\d)(\d)?(?=[_-]|$)")
_MILLIONS = re.compile(r"(?<![\d.])([1-9])00m\b")
_RUN_SUFFIXES = ("_pretrain", "_sft", "_peft", "_finetune", "_lora")


@cache
def find_model_of_name(text: str) -> str | None:
    """Return the known model that a name means, such as ``llama3.1_405B.yaml``; else None.

    >>> find_model_of_name("llama31_405b")
    'llama-3.1-405b'
    >>> find_model_of_name("qwen3_30b_a3b_pretrain_16gpu_h100_bf16_config")
    'qwen3-30b-a3b'
    >>> find_model_of_name("qwen3_600m_sft_yarn_128k_config")
    'qwen3-0.6b'
    """
    if len(text) > _MAX_LENGTH:
        return None
    for name in _spellings(text):
        try:
            Catalogue(None).load_model(name)
        except (PlannerError, OSError):
            continue
        return name
    return None


def find_model_in_text(text: str) -> str | None:
    """Return the known model that the longest run of words in a text names; None if none.

    >>> find_model_in_text("grpo-deepseek-v3-64n8g.yaml"), find_model_in_text("my-training-of-3")
    ('deepseek-v3', None)
    """
    words = re.split(r"[-_]+", text[:_MAX_LENGTH].lower())[:_MAX_WORDS]
    for size in range(len(words), 1, -1):
        for start in range(len(words) - size + 1):
            run = words[start : start + size]
            if any(map(_NUMBER.search, run)) and (model := find_model_of_name("-".join(run))):
                return model
    return None


def _spellings(text: str) -> Iterator[str]:
    """Yield possible model names for a text: without run suffixes, ``600m`` as ``0.6b``, etc."""
    yield text
    spelling = text.lower().removesuffix(".yaml").removesuffix(".yml").rpartition("/")[2]
    for suffix in _RUN_SUFFIXES:
        spelling = spelling.partition(suffix)[0]
    spelling = spelling.replace("_", "-")
    yield spelling
    spelling = _MILLIONS.sub(r"0.\1b", spelling)
    yield spelling
    yield re.sub(r"^([a-z]+)(\d)", r"\1-\2", spelling)
    match = _NUMBERED.match(spelling)
    if match is not None:
        rest = spelling[match.end() :]
        number = match[2] + (f".{match[3]}" if match[3] else "")
        yield f"{match[1]}-{number}{rest}"
        yield f"{match[1]}{number}{rest}"
