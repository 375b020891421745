"""Models that MaxText ships a configuration for, by its names of them."""

from __future__ import annotations

import re

from planner.launch.targets.model_names import model_named
from planner.specs.model import ModelSpec

_SHIPPED = (
    *("deepseek2-16b", "deepseek2-236b", "deepseek3-671b", "gemma-2b", "gemma-7b", "gemma2-2b"),
    *("gemma2-9b", "gemma2-27b", "gemma3-4b", "gemma3-12b", "gemma3-27b", "gpt-oss-20b"),
    *("gpt-oss-120b", "gpt3-175b", "kimi-k2-1t", "llama2-7b", "llama2-13b", "llama2-70b"),
    *("llama3-8b", "llama3-70b", "llama3.1-8b", "llama3.1-70b", "llama3.1-405b"),
    *("llama3.3-70b", "mistral-7b", "mixtral-8x7b", "mixtral-8x22b", "olmo3-7b", "olmo3-32b"),
    *("qwen2.5-1.5b", "qwen2.5-7b", "qwen2.5-14b", "qwen3-0.6b", "qwen3-1.7b", "qwen3-4b"),
    *("qwen3-8b", "qwen3-14b", "qwen3-32b", "qwen3-30b-a3b", "qwen3-235b-a22b"),
    *("qwen3-480b-a35b", "qwen3-next-80b-a3b"),
)
# Where no rule of spelling leads from one name to the other.
_OTHERWISE = {
    "deepseek2-16b": "deepseek-v2-lite",
    "deepseek2-236b": "deepseek-v2",
    "deepseek3-671b": "deepseek-v3",
    "gpt3-175b": "gpt-3-175b",
    "kimi-k2-1t": "kimi-k2",
    "llama3-405b": "llama-3.1-405b",
    "qwen3-480b-a35b": "qwen3-coder-480b-a35b",
}


def maxtext_name(model: ModelSpec) -> str | None:
    """What MaxText calls a model; None where it ships no configuration of it."""
    known = _squeezed(model.name)
    for name in _SHIPPED:
        if known in (_squeezed(name), _squeezed(_OTHERWISE.get(name, ""))):
            return name
    return None


def model_of_maxtext(name: str) -> str | None:
    """The model that planner knows by a name of MaxText, or by the file of a configuration."""
    stem = name.rpartition("/")[2].removesuffix(".yml").removesuffix(".yaml")
    if stem in ("base", "default", ""):
        return None
    return model_named(_OTHERWISE.get(stem, stem))


def _squeezed(text: str) -> str:
    return re.sub(r"[^a-z0-9.]", "", text.lower())
