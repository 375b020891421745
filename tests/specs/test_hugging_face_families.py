"""Families read from Hugging Face: counts of models that are not built in, text parts, faults."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hugging_face_configs import CONFIGS
from hugging_face_other_configs import OTHER_CONFIGS
from rows import each

from planner.errors import SpecError
from planner.layers.model import count_parameters
from planner.specs.catalogue import load_model
from planner.specs.hugging_face import read_config
from planner.specs.model import ModelSpec

# Of the language model in the class that transformers 5.23 builds from the config; of
# InternLM2.5 and EXAONE 3.5 those of the checkpoint, of XVERSE those of a Llama of its shape.
COUNTS = {
    "glm-4-9b-chat-hf": 9_399_951_360,
    "glm-4.1v-9b": 9_400_279_040,
    "glm-4.5v": 106_852_251_264,
    "ministral-8b": 8_019_808_256,
    "ministral3-8b": 8_489_553_920,
    "olmo-3-32b": 32_233_522_176,
    "granite-3.1-3b-a800m": 3_298_788_864,
    "granitemoeshared": 3_449_783_808,
    "stablelm-2-1.6b": 1_644_515_328,
    "stablelm-2-12b": 12_143_185_920,
    "ernie-4.5-0.3b": 360_748_032,
    "hunyuan-7b": 7_504_568_320,
    "command-a-vision": 111_057_580_032,
    "nemotron-4-mini-hindi-4b": 4_190_509_056,
    "afm-4.5b": 4_619_189_760,
    "internlm3-8b": 8_804_241_408,
    "internlm2.5-20b": 19_861_149_696,
    "qwen2-vl-2b": 1_543_714_304,
    "qwen3-vl-8b": 8_190_735_360,
    "exaone-3.5-7.8b": 7_818_448_896,
    "exaone-4.0-1.2b": 1_279_391_488,
    "xverse-13b": 13_717_652_480,
}
NESTED = {
    name: config for name, config in (CONFIGS | OTHER_CONFIGS).items() if "text_config" in config
}
WITH_VISION = {name for name in NESTED if NESTED[name]["model_type"] not in ("llama4", "kimi_k25")}


def _read(folder: Path, config: Any) -> ModelSpec:
    path = folder / "config.json"
    path.write_text(json.dumps(config))
    return read_config(path)


def test_every_model_that_is_not_built_in_has_a_count() -> None:
    assert COUNTS.keys() == OTHER_CONFIGS.keys()


@each("name", COUNTS)
def test_a_config_has_the_parameters_of_its_language_model(name: str, tmp_path: Path) -> None:
    assert count_parameters(_read(tmp_path, OTHER_CONFIGS[name])).total == COUNTS[name]


@each("name", NESTED)
def test_a_text_config_alone_is_the_same_language_model(name: str, tmp_path: Path) -> None:
    whole = _read(tmp_path, NESTED[name])
    text = _read(tmp_path, NESTED[name]["text_config"])
    assert text.layer_groups == whole.layer_groups
    assert text.vocab_size == whole.vocab_size


@pytest.mark.parametrize("name", [*sorted(WITH_VISION & OTHER_CONFIGS.keys()), "gemma-3-4b"])
def test_a_model_that_also_sees_says_what_is_left_out(name: str, tmp_path: Path) -> None:
    assert "without the vision tower" in _read(tmp_path, NESTED[name]).notes


@pytest.mark.parametrize("family", ["qwen2_vl_text", "qwen2_5_vl_text"])
def test_a_flat_config_of_qwen_vl_is_its_text_config(family: str, tmp_path: Path) -> None:
    flat = OTHER_CONFIGS["qwen2-vl-2b"]
    nested = {"model_type": "qwen2_vl", "text_config": flat | {"model_type": family}}
    for config in (nested, flat | {"model_type": family}):
        assert _read(tmp_path, config).layer_groups == _read(tmp_path, flat).layer_groups
        assert _read(tmp_path, config).tie_word_embeddings


@pytest.mark.parametrize(
    ("name", "outside", "inside", "tied"),
    [
        ("qwen3-vl-8b", False, None, False),
        ("qwen3-vl-8b", True, None, True),
        ("qwen3-vl-8b", None, True, True),
        ("gemma-3-4b", None, None, True),
        ("mistral-small-3.1-24b", None, None, False),
        ("ministral-3-3b", None, True, True),
    ],
)
def test_embeddings_are_tied_as_either_config_says(
    name: str, outside: bool | None, inside: bool | None, tied: bool, tmp_path: Path
) -> None:
    text = NESTED[name]["text_config"] | {"tie_word_embeddings": inside}
    config = NESTED[name] | {"tie_word_embeddings": outside, "text_config": text}
    assert _read(tmp_path, config).tie_word_embeddings is tied


def _windows(model: ModelSpec) -> list[tuple[int, int | None]]:
    return [
        (group.num_hidden_layers, group.attention.sliding_window if group.attention else None)
        for group in model.layer_groups
    ]


EXAONE_WINDOWS = {"layer_types": None, "sliding_window_pattern": 8}
SMOLLM3_WINDOWS = {"use_sliding_window": True, "sliding_window": 4096, "layer_types": None}


@each(
    ("name", "change", "windows"),
    [
        ("gemma-3-1b", {}, [(22, 512), (4, None)]),
        ("gemma-3-1b", {"sliding_window_pattern": None}, [(22, 512), (4, None)]),
        ("gemma-3-1b", {"sliding_window_pattern": 2}, [(13, 512), (13, None)]),
        ("command-r7b", {}, [(24, 4096), (8, None)]),
        ("command-r7b", {"sliding_window": None}, [(24, 4096), (8, None)]),
        ("olmo-3-32b", {}, [(48, 4096), (16, None)]),
        ("ministral-8b", {}, [(9, None), (27, 32768)]),
        ("ministral-8b", {"layer_types": None}, [(36, 32768)]),
        ("ministral3-8b", {"sliding_window": 8192}, [(34, 8192)]),
        ("exaone-4.0-32b", {"layer_types": None}, [(48, 4096), (16, None)]),
        ("exaone-4.0-32b", EXAONE_WINDOWS, [(56, 4096), (8, None)]),
        ("exaone-4.0-1.2b", {"layer_types": None}, [(30, None)]),
        ("smollm3-3b", SMOLLM3_WINDOWS, [(27, None), (9, 4096)]),
        ("smollm3-3b", SMOLLM3_WINDOWS | {"no_rope_layers": None}, [(27, None), (9, 4096)]),
        ("smollm3-3b", {"sliding_window": 4096}, [(36, None)]),
    ],
)  # fmt: skip
def test_windows_by_layer(
    name: str, change: dict[str, Any], windows: list[tuple[int, int | None]], tmp_path: Path
) -> None:
    assert _windows(_read(tmp_path, (CONFIGS | OTHER_CONFIGS)[name] | change)) == windows


@pytest.mark.parametrize(
    ("name", "change", "layers"),
    [
        ("glm-4.5-air", {"first_k_dense_replace": 2}, [2, 44]),
        ("glm-4.5-air", {"first_k_dense_replace": None}, [1, 45]),
        ("deepseek-moe-16b", {"moe_layer_freq": 2}, [15, 13]),
        ("ernie-4.5-300b-a47b", {"moe_layer_end_index": -1}, [3, 51]),
        ("ernie-4.5-300b-a47b", {"moe_layer_end_index": 52}, [4, 50]),
        ("ernie-4.5-300b-a47b", {"moe_layer_interval": 2}, [28, 26]),
        ("glm-4.7-flash", {"mlp_layer_types": ["dense"] * 2 + ["sparse"] * 45}, [2, 45]),
    ],
)
def test_dense_layers_among_experts(
    name: str, change: dict[str, Any], layers: list[int], tmp_path: Path
) -> None:
    groups = _read(tmp_path, CONFIGS[name] | change).layer_groups
    assert [group.num_hidden_layers for group in groups] == layers
    assert [group.num_experts > 0 for group in groups] == [False, True]


def test_lists_of_hunyuan_may_be_one_number(tmp_path: Path) -> None:
    lists = CONFIGS["hunyuan-a13b"]
    numbers = lists | {"moe_topk": 8, "moe_intermediate_size": None, "num_shared_expert": 1}
    assert _read(tmp_path, numbers).layer_groups == _read(tmp_path, lists).layer_groups


@each(
    ("name", "change", "message"),
    [
        ("baichuan2-7b", {"vocab_size": None}, "vocab_size is missing"),
        ("chatglm3-6b", {"padded_vocab_size": None}, "padded_vocab_size is missing"),
        ("chatglm3-6b", {"rmsnorm": False}, "rmsnorm must be true"),
        ("command-r7b", {"use_qk_norm": True}, "use_qk_norm must be false"),
        ("dots.llm1", {"sliding_window": 4096, "max_window_layers": 8}, "other than full"),
        ("dbrx", {"ffn_config": None}, "ffn_config.moe_num_experts is missing"),
        ("exaone-4.0-32b", {"sliding_window_pattern": "", "layer_types": None}, "whole number"),
        ("gemma-3-4b", {"text_config": {}}, "text_config.hidden_size is missing"),
        ("glm-4.5", {"n_routed_experts": None}, "n_routed_experts is missing"),
        ("granite-4.0-micro", {"layer_types": ["conv"] * 40}, "layer_types may only name full"),
        ("granite-4.0-micro", {"mamba_proj_bias": True}, "other than False is not supported: bia"),
        ("hunyuan-a13b", {"moe_topk": [8] * 31 + [4]}, "moe_topk must be the same in all layers"),
        ("hunyuan-a13b", {"moe_topk": [8] * 31}, "moe_topk has 31 entries for 32 layers"),
        ("hunyuan-a13b", {"use_cla": True}, "use_cla must be false"),
        ("hunyuan-a13b", {"moe_layer_num_skipped": 1}, "other than 0 is not supported"),
        ("mistral-small-3.1-24b", {"text_config": {"model_type": "lfm3"}}, "'lfm3' is not"),
        ("qwen-7b", {"intermediate_size": 22017}, "22017 is not twice a whole number"),
        ("qwen2.5-vl-7b", {"use_sliding_window": True}, "use_sliding_window must be false"),
        ("smollm3-3b", {"attention_bias": True}, "attention_bias must be false"),
    ],
)  # fmt: skip
def test_what_a_model_table_cannot_say_is_refused(
    name: str, change: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(SpecError, match=message):
        _read(tmp_path, CONFIGS[name] | change)


@pytest.mark.parametrize(
    ("repository", "stem"),
    [
        ("google/gemma-3-27b-it", "gemma-3-27b"),
        ("mistralai/Mistral-Small-3.2-24B-Instruct-2506", "mistral-small-3.1-24b"),
        ("zai-org/GLM-4.7-FP8", "glm-4.6"),
        ("CohereForAI/c4ai-command-a-03-2025", "command-a-111b"),
    ],
)
def test_repositories_of_one_shape_are_one_model(repository: str, stem: str) -> None:
    plain = {"quantization": None, "expert_quantization": None}
    found = load_model(repository)
    assert replace(found, **plain) == replace(load_model(stem), **plain)
    assert (found.quantization is not None) == ("FP8" in repository)


def test_positions_of_baichuan_depend_on_its_width(tmp_path: Path) -> None:
    small, large = (_read(tmp_path, CONFIGS[f"baichuan2-{size}b"]) for size in (7, 13))
    assert (small.position_embedding, large.position_embedding) == ("rotary", "alibi")
    assert large.max_position_embeddings == 4096


def test_granite_without_rotary_positions_has_none(tmp_path: Path) -> None:
    config = CONFIGS["granite-4.0-micro"] | {"position_embedding_type": "nope"}
    assert _read(tmp_path, config).position_embedding == "none"


def test_granite_of_attention_alone_may_have_experts(tmp_path: Path) -> None:
    change = {"num_local_experts": 8, "num_experts_per_tok": 2}
    (group,) = _read(tmp_path, CONFIGS["granite-4.0-micro"] | change).layer_groups
    assert group.feed_forward is not None
    assert group.feed_forward.shared_intermediate_size == 8192
    assert group.feed_forward.moe_intermediate_size == 8192
