"""Types of published weights, from the ``quantization_config`` of a ``config.json``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_BITS_OF_WEIGHTS = {4: "w4a16", 8: "w8a16"}
_ALGORITHMS = {"FP8": "fp8", "NVFP4": "nvfp4"}


def published_types(values: Mapping[str, Any]) -> dict[str, str]:
    """``quantization`` and ``expert_quantization`` of a model; empty for 16 bit or the unknown.

    A method that leaves the attention in 16 bit quantizes the experts alone.
    """
    config = values.get("quantization_config")
    if not isinstance(config, dict):
        inner = values.get("text_config")
        config = inner.get("quantization_config") if isinstance(inner, dict) else None
    if not isinstance(config, dict):
        return {}
    if config.get("quant_method") == "mxfp4":
        return {"expert_quantization": "mxfp4"}
    word = _word(config)
    if word is None:
        return {}
    left_out = config.get("ignore") or config.get("modules_to_not_convert") or []
    if isinstance(left_out, list) and any("attn" in str(name) for name in left_out):
        return {"expert_quantization": word}
    return {"quantization": word, "expert_quantization": word}


def _word(config: Mapping[str, Any]) -> str | None:
    method = config.get("quant_method")
    if method == "fp8":
        return "fp8_block" if config.get("weight_block_size") else "fp8"
    if method in ("awq", "gptq"):
        return _BITS_OF_WEIGHTS.get(config.get("bits") or 0)
    if method == "modelopt":
        return _ALGORITHMS.get(str(config.get("quant_algo")))
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
    if not isinstance(inputs, dict):
        return _BITS_OF_WEIGHTS.get(bits or 0)
    if bits == 8 and inputs.get("num_bits") == 8:
        return "fp8" if weights.get("type") == "float" else "w8a8"
    return None
