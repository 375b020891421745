"""Vision towers of ``config.json``: the same as those of the catalogue."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from planner.layers.model import tower_parameters
from planner.specs.catalogue import load_model
from planner.specs.hugging_face import read_config

TEXT = {
    "num_attention_heads": 32, "num_key_value_heads": 8, "num_hidden_layers": 2, "head_dim": 128,
    "vocab_size": 1000, "intermediate_size": 4096,
}  # fmt: skip
SIGLIP = {
    "hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 27, "patch_size": 14,
    "num_attention_heads": 16,
}  # fmt: skip
CONFIGS: dict[str, tuple[str, int, dict[str, Any], dict[str, Any]]] = {
    # What the published config.json of each says; what it leaves to transformers is left out.
    "qwen2-vl-7b": ("qwen2_vl", 3584, {
        "depth": 32, "embed_dim": 1280, "mlp_ratio": 4, "num_heads": 16, "in_chans": 3,
        "hidden_size": 3584, "patch_size": 14, "spatial_merge_size": 2, "temporal_patch_size": 2,
    }, {}),
    "qwen2.5-vl-7b": ("qwen2_5_vl", 3584, {
        "depth": 32, "hidden_act": "silu", "hidden_size": 1280, "intermediate_size": 3420,
        "num_heads": 16, "out_hidden_size": 3584, "patch_size": 14, "spatial_merge_size": 2,
        "window_size": 112, "fullatt_block_indexes": [7, 15, 23, 31], "temporal_patch_size": 2,
    }, {}),
    "qwen3-vl-8b": ("qwen3_vl", 4096, {
        "deepstack_visual_indexes": [8, 16, 24], "depth": 27, "hidden_size": 1152,
        "intermediate_size": 4304, "num_heads": 16, "num_position_embeddings": 2304,
        "out_hidden_size": 4096, "patch_size": 16, "spatial_merge_size": 2,
        "temporal_patch_size": 2,
    }, {}),
    "qwen3-vl-4b": ("qwen3_vl", 2560, {
        "deepstack_visual_indexes": [5, 11, 17], "depth": 24, "hidden_size": 1024,
        "intermediate_size": 4096, "num_heads": 16, "num_position_embeddings": 2304,
        "out_hidden_size": 2560, "patch_size": 16, "spatial_merge_size": 2,
        "temporal_patch_size": 2,
    }, {}),
    "gemma-3-27b": ("gemma3", 5376, {
        **SIGLIP, "image_size": 896, "vision_use_head": False,
    }, {"mm_tokens_per_image": 256}),
    "mistral-small-3.1-24b": ("mistral3", 5120, {
        "head_dim": 64, "hidden_act": "silu", "hidden_size": 1024, "image_size": 1540,
        "intermediate_size": 4096, "num_attention_heads": 16, "num_hidden_layers": 24,
        "patch_size": 14,
    }, {"spatial_merge_size": 2}),
    "llama-4-scout-17b-16e": ("llama4", 5120, {
        "hidden_size": 1408, "image_size": 336, "intermediate_size": 5632,
        "num_attention_heads": 16, "num_hidden_layers": 34, "patch_size": 14,
        "projector_input_dim": 4096, "projector_output_dim": 4096, "pixel_shuffle_ratio": 0.5,
    }, {}),
    "kimi-vl-a3b": ("kimi_vl", 2048, {
        **SIGLIP, "init_pos_emb_height": 64, "init_pos_emb_width": 64,
        "merge_kernel_size": [2, 2],
    }, {}),
    "glm-4.1v-9b": ("glm4v", 4096, {
        "depth": 24, "hidden_size": 1536, "image_size": 336, "intermediate_size": 13_696,
        "num_heads": 12, "out_hidden_size": 4096, "patch_size": 14, "spatial_merge_size": 2,
        "temporal_patch_size": 2,
    }, {}),
}  # fmt: skip


def _config(family: str, width: int, vision: Any, more: dict[str, Any], folder: Path) -> Path:
    text = {**TEXT, "hidden_size": width, "model_type": "llama"}
    path = folder / "config.json"
    whole = {"model_type": family, "text_config": text, "vision_config": vision, **more}
    path.write_text(json.dumps(whole))
    return path


@pytest.mark.parametrize("name", CONFIGS)
def test_the_tower_of_a_config_is_that_of_the_catalogue(name: str, tmp_path: Path) -> None:
    family, width, vision, more = CONFIGS[name]
    read = read_config(_config(family, width, vision, more, tmp_path)).vision_tower
    listed = load_model(name).vision_tower
    assert read is not None
    assert listed is not None
    assert tower_parameters(read) == tower_parameters(listed)
    assert read.tokens_per_image == listed.tokens_per_image
    for mine, theirs in zip(read.layer_groups, listed.layer_groups, strict=True):
        assert mine.num_hidden_layers == theirs.num_hidden_layers
        assert (mine.attention, mine.feed_forward) == (theirs.attention, theirs.feed_forward)


@pytest.mark.parametrize("vision", [{"depth": "many"}, {"hidden_size": -1}, [], "none"])
def test_a_tower_that_cannot_be_read_leaves_a_text_model(vision: Any, tmp_path: Path) -> None:
    model = read_config(_config("qwen3_vl", 2048, vision, {}, tmp_path))
    assert model.vision_tower is None
    assert model.omitted_parts
