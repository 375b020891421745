"""Model tables from a ``config.json`` with the usual names, for the model families to use."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import groupby
from typing import Any, TypeVar

from planner.specs.hugging_face_reader import ConfigReader

Table = dict[str, Any]
Label = TypeVar("Label", bound=Hashable)

TEXT_PART = "Text part alone, without the vision tower."
_PREDICTION_MODULES = (
    "num_nextn_predict_layers",
    "mtp_num_hidden_layers",
    "num_mtp_modules",
    "num_mtp_layers",
)


def decoder(
    config: ConfigReader, layer_groups: Sequence[Table], *, tied: bool = False, **fields: Any
) -> Table:
    """The model table around ``layer_groups``."""
    if config.values.get("per_layer_config"):
        config.fault("per_layer_config", "is not supported with this model_type")
    return {
        "hidden_size": config.size("hidden_size"),
        "vocab_size": config.size("vocab_size"),
        "layer_groups": tuple(layer_groups),
        "tie_word_embeddings": config.flag("tie_word_embeddings", tied),
        "max_position_embeddings": config.optional_size("max_position_embeddings"),
        "num_nextn_predict_layers": _prediction_modules(config),
        **fields,
    }


def _prediction_modules(config: ConfigReader) -> int:
    """Modules of multi-token prediction, by the names that families give them."""
    return max(config.size(name, 0, least=0) for name in _PREDICTION_MODULES)


def attention(config: ConfigReader, **fields: Any) -> Table:
    """Attention by the usual names; ``fields`` are what the family fixes."""
    heads = config.size("num_attention_heads")
    shared = fields.pop("num_key_value_heads", None) or config.size("num_key_value_heads", heads)
    if heads % shared:
        config.fault("num_key_value_heads", f"{shared} does not divide {heads} attention heads")
    return {
        "num_attention_heads": heads,
        "num_key_value_heads": shared,
        "head_dim": config.optional_size("head_dim") or _head_dim(config, heads),
        **fields,
    }


def biased(config: ConfigReader, default: bool = False) -> Table:
    """What ``attention_bias`` says: biases of all four projections, or of none."""
    bias = config.flag("attention_bias", default)
    return {"qkv_bias": bias, "output_bias": bias}


def _head_dim(config: ConfigReader, heads: int) -> int:
    hidden = config.optional_size("hidden_size")
    if hidden is None:
        return 1  # the model table says that it is missing
    if hidden % heads:
        config.fault("hidden_size", f"{hidden} is not divisible by {heads} attention heads")
    return max(hidden // heads, 1)


def group(config: ConfigReader, attention: Table, feed_forward: Table, **fields: Any) -> Table:
    """All layers as one group."""
    return {
        "num_hidden_layers": config.layers(),
        "attention": attention,
        "feed_forward": feed_forward,
        **fields,
    }


def dense(config: ConfigReader, **fields: Any) -> Table:
    """An MLP of ``intermediate_size``."""
    return {"intermediate_size": config.size("intermediate_size"), **fields}


def groups(labels: Sequence[Label], build: Callable[[Label], Table]) -> list[Table]:
    """Layers of equal label as one group: spread where they stand in several runs."""
    runs = [label for label, _ in groupby(labels)]
    return [
        build(label)
        | {"num_hidden_layers": labels.count(label)}
        | ({"placement": "interleaved"} if runs.count(label) > 1 else {})
        for label in dict.fromkeys(labels)
    ]


def windowed(config: ConfigReader, default: Callable[[int], bool]) -> list[bool]:
    """For every layer, whether it attends within a window."""
    known = {"full_attention": False, "sliding_attention": True, "chunked_attention": True}
    return told_apart(config, "layer_types", known, default)


def told_apart(
    config: ConfigReader, key: str, known: Mapping[str, Label], default: Callable[[int], Label]
) -> list[Label]:
    """For every layer, what ``known`` says of its word in the list ``key``."""
    layers = config.layers()
    kinds = config.sequence(key, layers)
    if kinds is None:
        return [default(layer) for layer in range(layers)]
    unknown = [kind for kind in kinds if not isinstance(kind, str) or kind not in known]
    if unknown:
        config.fault(key, f"may only name {', '.join(known)}")
        return [next(iter(known.values()))] * layers
    return [known[kind] for kind in kinds]


def layer_norm_decoder(
    config: ConfigReader,
    attention_table: Table,
    width: int,
    *,
    bias: bool = True,
    norm_bias: bool = True,
    group_fields: Table | None = None,
    tied: bool = True,
    **fields: Any,
) -> Table:
    """The GPT shape: layer norms with biases and an MLP without a gate."""
    mlp = {"intermediate_size": width, "gated": False, "bias": bias}
    layer = group(config, attention_table, mlp, norm_bias=norm_bias, **(group_fields or {}))
    return decoder(config, [layer], tied=tied, final_norm_bias=norm_bias, **fields)
