"""Models of several modes whose language model is one of a family with a type of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from planner.errors import did_you_mean
from planner.specs.hugging_face_layers import Table
from planner.specs.hugging_face_reader import ConfigReader
from planner.specs.hugging_face_rows import Family
from planner.specs.hugging_face_towers import vision_tower
from planner.specs.hugging_face_unmodelled import UNMODELLED

# What transformers has where the part of the language model is silent, as in early files.
_LLAMA = {
    "vocab_size": 32_000,
    "hidden_size": 4096,
    "intermediate_size": 11_008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "max_position_embeddings": 2048,
}
_TEXT_PART = "Text part alone, without {}."
_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "llama": _LLAMA,
    "mistral": _LLAMA | {"intermediate_size": 14_336, "max_position_embeddings": 131_072},
    "qwen2": _LLAMA | {"vocab_size": 151_936, "intermediate_size": 22_016},
}
_PARTS = {"vision_config": "vision", "audio_config": "audio"}
_THINKER = "thinker_config"
_LARGEST_SIZE = 1e6

# The type that transformers gives the language model where its part names none.
COMPOSITES = {
    "aria": "aria_text",
    "audioflamingo3": "qwen2",
    "aya_vision": "cohere2",
    "blip-2": "opt",
    "cohere2_vision": "cohere2",
    "cohere_compass": "cohere_compass_text",
    "cosmos3_edge": "cosmos3_edge_text",
    "cosmos3_omni": "qwen3_vl_text",
    "deepseek_ocr2": "deepseek_ocr2_text",
    "deepseek_vl": "llama",
    "deepseek_vl_hybrid": "llama",
    "dots3_note": "dots3_note_text",
    "emu3": "emu3_text_model",
    "exaone4_5": "exaone4",
    "fast_vlm": "qwen2",
    "fun_asr_nano": "qwen3",
    "fuyu": "persimmon",
    "gemma3": "gemma3_text",
    "gemma4": "gemma4_text",
    "gemma4_unified": "gemma4_unified_text",
    "glm46v": "glm4v_text",
    "glm4v": "glm4v_text",
    "glm4v_moe": "glm4v_moe_text",
    "glm_ocr": "glm_ocr_text",
    "glmasr": "llama",
    "glmga": "glm4v_text",
    "got_ocr2": "qwen2",
    "granite4_vision": "granite4_vision_text",
    "granite_docling": "granite_docling_text",
    "granite_speech": "granite",
    "granite_speech_plus": "granite",
    "hunyuan_vl": "hunyuan_vl_text",
    "hyperclovax_vision_v2": "hyperclovax",
    "idefics2": "mistral",
    "idefics3": "llama",
    "instructblip": "opt",
    "instructblipvideo": "opt",
    "internvl": "qwen2",
    "janus": "llama",
    "kimi_k25": "kimi_k2",
    "kimi_vl": "deepseek_v3",
    "lighton_ocr": "qwen3",
    "llama4": "llama4_text",
    "llava": "llama",
    "llava_next": "llama",
    "llava_next_video": "llama",
    "llava_onevision": "qwen2",
    "minicpm_ocr": "qwen3_5_text",
    "minicpmv4_6": "qwen3_5_text",
    "minicpmv4_7": "qwen3_5_text",
    "minimax_m3_vl": "minimax_m3_vl_text",
    "mistral3": "mistral",
    "molmo2": "molmo2_text",
    "moss_transcribe_diarize": "qwen3",
    "muse_glimmer": "muse_glimmer_text",
    "muse_spark": "muse_spark_text",
    "musicflamingo": "qwen2",
    "nemo_speechlm": "nemotron_h",
    "nemotron_h_omni": "nemotron_h",
    "ovis2": "qwen2",
    "paddleocr_vl": "paddleocr_vl_text",
    "paligemma": "gemma",
    "perception_lm": "llama",
    "pp_chart2table": "qwen2",
    "qianfan_ocr": "qwen3",
    "qwen2_5_omni": "qwen2_5_omni_text",
    "qwen2_5_omni_thinker": "qwen2_5_omni_text",
    "qwen2_5_vl": "qwen2_5_vl_text",
    "qwen2_audio": "qwen2",
    "qwen2_vl": "qwen2_vl_text",
    "qwen3_5": "qwen3_5_text",
    "qwen3_5_moe": "qwen3_5_moe_text",
    "qwen3_asr": "qwen3",
    "qwen3_omni_moe": "qwen3_omni_moe_text",
    "qwen3_omni_moe_thinker": "qwen3_omni_moe_text",
    "qwen3_vl": "qwen3_vl_text",
    "qwen3_vl_moe": "qwen3_vl_moe_text",
    "shieldgemma2": "gemma3_text",
    "smolvlm": "llama",
    "step3p7": "step3p5",
    "vibevoice_asr": "qwen2",
    "video_llama_3": "qwen2",
    "video_llava": "llama",
    "vipllava": "llama",
    "voxtral": "llama",
}


def composites(families: Mapping[str, Family]) -> dict[str, Family]:
    """One family per type of `COMPOSITES`; the language models are read by ``families``."""
    return {name: _composite(name, usual, families) for name, usual in COMPOSITES.items()}


def _composite(whole_name: str, usual: str, families: Mapping[str, Family]) -> Family:
    def read(config: ConfigReader) -> Table:
        whole = config.table(_THINKER) if config.values.get(_THINKER) is not None else config
        text = whole.text()
        given = text.values.get("model_type")
        name = usual if given is None or text is whole else str(given)
        if name not in families:
            text.fault("model_type", f"{name[:40]!r} is not supported{_why(name, families)}")
            return {}
        table = families[name](text.completed(_DEFAULTS.get(name, {})))
        tied = whole.flag("tie_word_embeddings", table["tie_word_embeddings"])
        notes = f"{_note(whole)} {table.get('notes', '')}".rstrip()
        omitted: Table = {"omitted_parts": _parts(whole), "omitted_parameters": _tower_size(whole)}
        if tower := vision_tower(whole_name, whole, table["hidden_size"]):
            omitted |= {"vision_tower": tower, "omitted_parameters": None}
        return table | {"tie_word_embeddings": tied, "notes": notes, **omitted}

    return read


def _note(whole: ConfigReader) -> str:
    return _TEXT_PART.format(" and ".join(f"the {part}" for part in _parts(whole)))


def _parts(whole: ConfigReader) -> list[str]:
    parts = [word for key, word in _PARTS.items() if whole.values.get(key) is not None]
    return [f"{part} tower" for part in parts or ["vision"]]


def _tower_size(whole: ConfigReader) -> float | None:
    """About the parameters of a vision transformer: its layers and the embedding of patches.

    A layer of width h has 4 h^2 parameters of attention and 2 h f, gated 3 h f, of the feed-forward
    block (arXiv:2010.11929, section 3.1); norms, biases and the projector are left out. None where
    the sizes are not those of one tower of equal layers.
    """
    tower = whole.values.get("vision_config")
    if not isinstance(tower, Mapping) or whole.values.get("audio_config") is not None:
        return None
    layers = tower.get("num_hidden_layers", tower.get("depth"))
    sizes = [layers, *(tower.get(name) for name in ("hidden_size", "intermediate_size"))]
    patch = tower.get("patch_size", 0)
    if not all(type(size) is int and 0 < size < _LARGEST_SIZE for size in sizes):
        return None
    depth, h, f = (float(size) for size in sizes)
    side = float(patch) if type(patch) is int and 0 < patch < _LARGEST_SIZE else 0.0
    matrices = 3 if tower.get("hidden_act") == "silu" else 2
    return depth * (4 * h**2 + matrices * h * f) + 3 * side**2 * h


def _why(name: str, families: Mapping[str, Family]) -> str:
    if name in UNMODELLED:
        return f": not modelled are {UNMODELLED[name]}"
    hint = did_you_mean(name[:40], families)
    return f" ({hint.strip()})" if hint else ""
