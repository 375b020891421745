"""Types of published weights, from the ``quantization_config`` of a ``config.json``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_BITS_OF_WEIGHTS = {4: "w4a16", 8: "w8a16"}
# quant_algo of ModelOpt, and the methods whose name says all.
_ALGORITHMS = {
    "FP8": "fp8", "FP8_PER_CHANNEL_PER_TOKEN": "fp8", "FP8_PB_WO": "fp8_block", "NVFP4": "nvfp4",
    "NVFP4_AWQ": "nvfp4", "W4A16_AWQ": "w4a16", "W4A8_AWQ": "w4a8", "INT4_AWQ": "w4a16",
}  # fmt: skip
_METHODS = {"fbgemm_fp8": "fp8", "ptpc_fp8": "fp8", "eetq": "w8a16"}
# Groups that share a scale in formats of 4-bit floats: part of what these are.
_OWN_GROUPS = ("nvfp4", "mxfp4")
_EXPERT_COUNTS = ("num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts")
_USUAL_GROUP = 128
_LAYER = re.compile(r"layers\.(\d+)(?:\.(\w+))?")
# What a name of a module left out is about; expressions name no layer.
_PARTS = {
    "attention": re.compile(r"attn|attention"),
    "shared_experts": re.compile(r"shared_expert"),
    "feed_forward": re.compile(r"mlp|feed_forward|ffn"),
}


def published_types(values: Mapping[str, Any]) -> dict[str, Any]:
    """``quantization``, ``expert_quantization`` and ``checkpoints`` of a model; empty for 16 bit.

    A method that leaves the attention of a mixture of experts in 16 bit is read as one that
    quantizes the experts alone. Empty for what is unknown, too.
    """
    inner = values.get("text_config")
    of_text = inner if isinstance(inner, dict) else {}
    config = values.get("quantization_config") or of_text.get("quantization_config")
    if not isinstance(config, dict):
        return {}
    if config.get("quant_method") == "mxfp4":
        return {"expert_quantization": "mxfp4"}
    word = _word(config)
    if word is None:
        return {}
    shape = {**of_text, **values}
    left_out = _left_out(config)
    words: dict[str, Any] = {"quantization": word, "expert_quantization": word}
    has_experts = any(shape.get(name) for name in _EXPERT_COUNTS)
    if has_experts and any(_PARTS["attention"].search(name) for name in left_out):
        words = {"expert_quantization": word}
    stored = _kept(left_out, shape.get("num_hidden_layers") or 0)
    if word not in _OWN_GROUPS:
        stored = _groups(config) | stored
    if stored:
        where = "quantization_config of the config.json"
        words["checkpoints"] = [{"quantization": word, "source": where, **stored}]
    return words


def _left_out(config: Mapping[str, Any]) -> list[str]:
    """The names and expressions of modules that stay as they were."""
    names = config.get("ignore") or config.get("modules_to_not_convert") or []
    named = [str(name) for name in names] if isinstance(names, list) else []
    return [name for name in named if "norm" not in name]


def _kept(left_out: list[str], num_layers: int) -> dict[str, Any]:
    """Parts that stay in 16 bit in every layer, and how many layers do as a whole.

    A part that is named for some layers alone counts for none, the dense part of such layers
    for the whole layers.
    """
    parts: list[str] = []
    layers: set[str] = set()
    for part, pattern in _PARTS.items():
        named = [name for name in left_out if pattern.search(name)]
        if part == "feed_forward":
            others = (_PARTS["shared_experts"], re.compile(r"experts|\.gate$|router"))
            named = [name for name in named if not any(other.search(name) for other in others)]
        numbers = {found[1] for name in named if (found := _LAYER.search(name))}
        if named and (not numbers or len(numbers) >= num_layers):
            parts.append(part)
        elif part == "feed_forward":
            layers |= numbers
    layers |= {found[1] for name in left_out if (found := _LAYER.search(name)) and not found[2]}
    kept: dict[str, Any] = {"sixteen_bit": parts} if parts else {}
    return kept | ({"sixteen_bit_layers": len(layers)} if layers else {})


def _groups(config: Mapping[str, Any]) -> dict[str, Any]:
    """The group of weights that share a scale, where it is not the usual one of 128."""
    weights: Mapping[str, Any] = config
    if config.get("quant_method") == "compressed-tensors":
        groups = config.get("config_groups")
        first: Any = next(iter(groups.values()), None) if isinstance(groups, dict) else None
        weights = first.get("weights") or {} if isinstance(first, dict) else {}
    size = weights.get("group_size")
    has_zeros = bool(weights.get("zero_point")) or weights.get("symmetric") is False
    if not isinstance(size, int) or size <= 0 or (size == _USUAL_GROUP and not has_zeros):
        return {}
    return {"group_size": size} | ({"zero_point_bytes": 0.5} if has_zeros else {})


def _word(config: Mapping[str, Any]) -> str | None:
    method = config.get("quant_method")
    if method == "fp8":
        return "fp8_block" if config.get("weight_block_size") else "fp8"
    if method in ("awq", "gptq", "auto-round"):
        return _BITS_OF_WEIGHTS.get(config.get("bits") or config.get("w_bit") or 0)
    if method == "bitsandbytes":
        return "w4a16" if config.get("load_in_4bit") else "w8a16"
    if str(method).startswith("modelopt"):
        return _ALGORITHMS.get(str(config.get("quant_algo")))
    if method in _METHODS:
        return _METHODS[method]
    if method == "compressed-tensors":
        groups = config.get("config_groups")
        first: Any = next(iter(groups.values()), None) if isinstance(groups, dict) else None
        return _compressed(first) if isinstance(first, dict) else None
    return None


def _compressed(group: Mapping[str, Any]) -> str | None:
    weights, inputs = group.get("weights"), group.get("input_activations")
    if not isinstance(weights, dict):
        return None
    bits = weights.get("num_bits")
    if bits == 4 and weights.get("type") == "float":
        return "mxfp4" if weights.get("group_size") == 32 else "nvfp4"
    if not isinstance(inputs, dict):
        return _BITS_OF_WEIGHTS.get(bits or 0)
    if bits == 8 and inputs.get("num_bits") == 8:
        if weights.get("strategy") == "block":
            return "fp8_block"
        return "fp8" if weights.get("type") == "float" else "w8a8"
    return "w4a8" if bits == 4 and inputs.get("num_bits") == 8 else None
