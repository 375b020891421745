"""What transformers' classes have where a ``config.json`` does not name a key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from planner.specs.hugging_face_layers import Table
from planner.specs.hugging_face_reader import ConfigReader
from planner.specs.hugging_face_rows import Family

_DEEPSEEK_V3 = {"first_k_dense_replace": 3, "n_shared_experts": 1, "q_lora_rank": 1536}
_VISION_QWEN2 = {"num_key_value_heads": 8}
_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "deepseek_v2": {"n_shared_experts": 2, "q_lora_rank": 1536},
    "deepseek_v3": _DEEPSEEK_V3,
    "deepseek_v32": _DEEPSEEK_V3,
    "dots1": {"n_shared_experts": 1},
    "ernie4_5": {"head_dim": 128, "num_key_value_heads": 2},
    "ernie4_5_moe": {"num_key_value_heads": 4},
    "exaone4": {"sliding_window": 4096},
    "gemma": {"head_dim": 256},
    "gemma2": {"head_dim": 256, "num_key_value_heads": 4},
    "glm": {"num_key_value_heads": 2},
    "glm4": {"num_key_value_heads": 2},
    "glm4_moe": {"num_key_value_heads": 8},
    "glm4_moe_lite": {"n_shared_experts": 1, "q_lora_rank": 768},
    "glm4v_moe_text": {"num_key_value_heads": 8},
    "glm4v_text": {"num_key_value_heads": 2},
    "glm_moe_dsa": {"n_shared_experts": 1, "q_lora_rank": 2048},
    "gpt_oss": {"head_dim": 64, "num_key_value_heads": 8},
    "internlm3": {"num_key_value_heads": 2},
    "kimi_k2": _DEEPSEEK_V3,
    "llama4_text": {"num_key_value_heads": 8},
    "minimax_m2": {"head_dim": 128, "num_key_value_heads": 8},
    "ministral": {"num_key_value_heads": 8, "sliding_window": 4096},
    "ministral3": {"num_key_value_heads": 8},
    "mistral": {"num_key_value_heads": 8},
    "mixtral": {"num_key_value_heads": 8},
    "nemotron_h": {"num_key_value_heads": 8},
    "phi4_multimodal": {"num_key_value_heads": 8},
    "phimoe": {"num_key_value_heads": 8},
    "qwen2_5_vl_text": _VISION_QWEN2,
    "qwen2_vl_text": _VISION_QWEN2,
    "qwen3": {"head_dim": 128},
    "qwen3_5_moe_text": {"head_dim": 256, "num_key_value_heads": 2},
    "qwen3_5_text": {"head_dim": 256, "num_key_value_heads": 4},
    "qwen3_moe": {"num_key_value_heads": 4},
    "qwen3_next": {"head_dim": 256, "num_key_value_heads": 2},
    "qwen3_omni_moe_text": {"num_key_value_heads": 4},
    "qwen3_vl_moe_text": {"head_dim": 128, "num_key_value_heads": 16},
    "qwen3_vl_text": {"head_dim": 128},
    "seed_oss": {"head_dim": 128, "num_key_value_heads": 8},
    "smollm3": {"num_key_value_heads": 4},
    "starcoder2": {"num_key_value_heads": 2},
}


def with_defaults(families: Mapping[str, Family]) -> dict[str, Family]:
    """The families, reading of each config also what transformers has where it is silent."""
    return {name: _completed(family, _DEFAULTS.get(name)) for name, family in families.items()}


def _completed(family: Family, defaults: Mapping[str, Any] | None) -> Family:
    if defaults is None:
        return family

    def read(config: ConfigReader) -> Table:
        return family(config.completed(defaults))

    return read
