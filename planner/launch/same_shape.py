"""The model that a file describes by its sizes: one that is shipped, or a file of its own."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from planner.base.enums import AttentionKind
from planner.base.files import written_whole
from planner.errors import LaunchError
from planner.launch.shape import model_of
from planner.specs.catalogue import Catalogue
from planner.specs.model import ModelSpec
from planner.specs.paths import SpecKind

# Options of frameworks leave these open, or say them of a tokenizer.
_UNSAID = ("vocab_size", "max_position_embeddings", "tie_word_embeddings")


def find_model(
    shape: Mapping[str, Any], catalogue: Catalogue, said: str, tokens: int = 0
) -> ModelSpec | None:
    """The shipped model, or one of an own folder, of this shape; what it leaves open may be any.

    ``said`` names where the shape stands; it has room for sequences of ``tokens``. Of several
    that of the nearest vocabulary, Llama's where none is said, then of the shortest name.
    """
    open_words = [name for name in _UNSAID if shape.get(name) is None]
    wanted = model_of({"vocab_size": 32_000, **_known(shape)}, said, said)
    same = [
        model
        for name in catalogue.names(SpecKind.MODELS)
        if _alike(model := catalogue.load_model(name), wanted, open_words)
        and (model.max_position_embeddings or tokens) >= tokens
    ]
    return min(
        same,
        key=lambda model: (
            (model.max_position_embeddings or 0) < (wanted.max_position_embeddings or 0),
            abs(wanted.vocab_size - model.vocab_size),
            len(model.name),
            model.name,
        ),
        default=None,
    )


def _known(shape: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in shape.items() if value is not None}


def _alike(model: ModelSpec, wanted: ModelSpec, open_words: list[str]) -> bool:
    """Whether two models have the same layers, and embeddings as far as they are said."""
    if model.hidden_size != wanted.hidden_size:
        return False
    if model.num_hidden_layers != wanted.num_hidden_layers:
        return False
    if "vocab_size" not in open_words and not _pads_to(model.vocab_size, wanted.vocab_size):
        return False
    return _layers(model) == _layers(wanted)


def _pads_to(vocabulary: int, padded: int) -> bool:
    """Whether a vocabulary is the other, or padded to a multiple of a power of two up to it."""
    return vocabulary <= padded < vocabulary + 1024


def _layers(model: ModelSpec) -> list[Any]:
    """The layers in what decides time and memory; who wrote them spells the rest differently."""
    return [
        (
            group.num_hidden_layers,
            None if group.attention is None else _attention(group.attention),
            None if group.feed_forward is None else _feed_forward(group.feed_forward),
        )
        for group in model.layer_groups
    ]


def _attention(attention: Any) -> Any:
    latent = attention.kind is AttentionKind.LATENT
    words = {"sliding_window": None, "qk_norm": False, "qkv_bias": False, "output_bias": False}
    plain = replace(attention, **words, qk_norm_per_head=False, sinks=False)
    return replace(plain, num_key_value_heads=attention.num_attention_heads) if latent else plain


def _feed_forward(feed_forward: Any) -> Any:
    return replace(feed_forward, bias=False, router_bias=False, shared_expert_gate=False)


def write_model(shape: Mapping[str, Any], said: str) -> Path:
    """A model file of this shape among the user's cached files; equal shapes share one.

    Raises
    ------
    SpecError
        The shape makes no model.
    LaunchError
        It leaves the vocabulary open.
    """
    if shape.get("vocab_size") is None:
        raise LaunchError(
            f"{said}: no model that planner knows has its sizes, and its vocabulary is the "
            "tokenizer's: give the model with --model."
        )
    model_of(_known(shape), said, said)
    text = model_text(_known(shape), said)
    folder = _cache() / "planner" / "models"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.toml"
    if not os.path.exists(path):
        with written_whole(path) as file:
            file.write(text)
    return path


def model_text(shape: Mapping[str, Any], said: str) -> str:
    """The text of a model file of this shape."""
    model = model_of(shape, f"model of {said}", said)
    return _toml(model)


def _toml(model: ModelSpec) -> str:
    """A model as TOML; what is as by default is left out."""
    from pydantic import TypeAdapter

    table = TypeAdapter(ModelSpec).dump_python(model, mode="json", exclude_defaults=True)
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


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
