"""Families read by rows of a table: counts of transformers, built-in models, faults."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hugging_face_composite_configs import COMPOSITE_CONFIGS
from hugging_face_configs import CONFIGS
from hugging_face_dense_row_configs import DENSE_ROW_CONFIGS
from hugging_face_expert_row_configs import EXPERT_ROW_CONFIGS
from hugging_face_newest_configs import NEWEST_CONFIGS
from hugging_face_other_configs import OTHER_CONFIGS
from hugging_face_published_configs import PUBLISHED_CONFIGS
from rows import each

from planner.errors import SpecError
from planner.layers.model import count_parameters
from planner.specs.attention import AttentionSpec
from planner.specs.catalogue import load_model
from planner.specs.hugging_face import read_config
from planner.specs.hugging_face_families import COMPOSITES, FAMILIES, ROWS, UNMODELLED, named
from planner.specs.hugging_face_reader import ConfigReader
from planner.specs.hugging_face_rules import where_any
from planner.specs.model import FeedForwardSpec, LayerGroup, ModelSpec
from planner.specs.validated import field_types

ROW_CONFIGS = DENSE_ROW_CONFIGS | EXPERT_ROW_CONFIGS | COMPOSITE_CONFIGS | NEWEST_CONFIGS
# Parameters counted beyond those of transformers, which a note of the model explains.
INEXACT = {
    "apertus": -12,
    "apertus1p5_text": -8,
    "bailing_hybrid": -573_440,
    "beam": -288,
    "bitnet": -41_472,
    "chameleon": -49_152,
    "dots3_note_text": -2_949_504,
    "falcon_h1": 135_168,
    "fuyu": -768,
    "gemma4-26b": 2_865_920,
    "glm5_next_text": -5_724_155,
    "gpt_neox_japanese": -2_560,
    "hy_v4": 12_255_300,
    "jamba": -8_064,
    "jamba-3b": -7_488,
    "kimi_k3": -329_728,
    "laguna-gate-per-head": -589_824,
    "mistral_large4_text": -889_504,
    "mllama_text_model": -32_784,
    "modernbert-decoder": -589_824,
    "molmo2": -524_288,
    "nanochat": 9_984,
    "olmo": 53_248,
    "openai-gpt": 1_536,
    "persimmon": -768,
    "roberta": 768,
    "step3p7": -2_097_152,
    "xlm-roberta": 1_024,
}


FP8_BLOCK = {"quant_method": "fp8", "weight_block_size": [128, 128]}


def _read(folder: Path, config: Any) -> ModelSpec:
    path = folder / "config.json"
    path.write_text(json.dumps(config))
    return read_config(path)


def test_the_number_of_types_that_are_read() -> None:
    assert len(FAMILIES) == 278
    assert not FAMILIES.keys() & UNMODELLED.keys()


def test_types_by_other_names_and_models_that_are_not_modelled(tmp_path: Path) -> None:
    sizes = {"hidden_size": 512, "num_hidden_layers": 4, "num_attention_heads": 8}
    text = {**sizes, "model_type": "minimax_m3", "intermediate_size": 64, "vocab_size": 1024}
    text |= {"num_local_experts": 8, "num_experts_per_tok": 2}
    whole = {"model_type": "minimax_m3_vl", "text_config": text, "vision_config": {}}
    alone, inside = _read(tmp_path, text), _read(tmp_path, whole)
    assert alone.layer_groups == inside.layer_groups
    with pytest.raises(SpecError, match="not modelled are tables of n-grams"):
        _read(tmp_path, {**sizes, "model_type": "deepseek_v41"})
    for name in ("deepseek-v4.1-flash", "deepseek-ai/DeepSeek-V4.1-Flash"):
        with pytest.raises(SpecError, match="not modelled are tables of n-grams"):
            load_model(name)


FIELDS = {
    "attention": AttentionSpec,
    "in_windows": AttentionSpec,
    "state": AttentionSpec,
    "feed_forward": FeedForwardSpec,
    "experts": FeedForwardSpec,
    "layer": LayerGroup,
    "sparse_layer": LayerGroup,
    "model": ModelSpec,
}
RULES = ("windows", "states", "sparse", "modern", "base", "blocks")
OTHERS = {"hybrid", "windows_if", "beside", "defaults", "or_else", "only", "note"}
TERM = re.compile(r"[\w.]+(=\w+)?(>=\d+)?\??")


@each("name", ROWS)
def test_a_row_says_only_what_is_read(name: str) -> None:
    row = ROWS[name]
    assert row.keys() <= {*FIELDS, *RULES, *OTHERS}
    for part in set(RULES) & row.keys():
        given = row[part]
        assert named(given if isinstance(given, str) else given[0])
    for part in FIELDS.keys() & row.keys():
        for field, given in (row[part] or {}).items():
            assert field in field_types(FIELDS[part])
            if isinstance(given, str) and given.startswith("@"):
                assert named(given[1:])
            elif isinstance(given, str):
                terms = re.split(r" or | \* ", given.removeprefix("not "))
                assert all(TERM.fullmatch(term) for term in terms)


@each("name", ROW_CONFIGS)
def test_a_config_has_the_parameters_of_transformers(name: str, tmp_path: Path) -> None:
    parameters, config = ROW_CONFIGS[name]
    model = _read(tmp_path, config)
    beyond = count_parameters(model).total - parameters
    assert beyond == INEXACT.get(name, 0)
    assert abs(beyond) < 0.005 * parameters
    assert not beyond or "counted" in model.notes


@each("name", PUBLISHED_CONFIGS)
def test_a_published_config_is_the_built_in_model(name: str, tmp_path: Path) -> None:
    read, built_in = _read(tmp_path, PUBLISHED_CONFIGS[name]), load_model(name)
    assert sorted(map(repr, read.layer_groups)) == sorted(map(repr, built_in.layer_groups))
    assert count_parameters(read) == count_parameters(built_in)
    for field in ("position_embedding", "max_position_embeddings", "tie_word_embeddings"):
        assert getattr(read, field) == getattr(built_in, field)


def _texts() -> dict[str, dict[str, Any]]:
    """A config of each language model that a type of several modes has by default."""
    whole = [
        *CONFIGS.values(),
        *OTHER_CONFIGS.values(),
        *(config for _, config in ROW_CONFIGS.values()),
    ]
    whole += [config | {"model_type": f"{config['model_type']}_text"} for config in whole]
    parts = [config["text_config"] for config in whole if "text_config" in config]
    return {config.get("model_type", ""): config for config in [*whole, *parts]}


@each("name", COMPOSITES)
def test_a_model_of_several_modes_is_its_language_model(name: str, tmp_path: Path) -> None:
    texts = _texts()
    text = texts[COMPOSITES[name]]
    alone = _read(tmp_path, text)
    whole = _read(tmp_path, {"model_type": name, "text_config": text})
    assert whole.layer_groups == alone.layer_groups
    assert whole.tie_word_embeddings == alone.tie_word_embeddings
    assert "without the vision tower" in whole.notes


def test_a_note_names_the_parts_that_are_left_out(tmp_path: Path) -> None:
    text = CONFIGS["qwen2.5-0.5b"]
    parts = {"audio_config": {"d_model": 1280}, "text_config": text}
    hears = _read(tmp_path, {"model_type": "qwen2_audio", **parts})
    both = _read(tmp_path, {"model_type": "internvl", "vision_config": {"depth": 2}, **parts})
    assert hears.notes == "Text part alone, without the audio tower."
    assert both.notes == "Text part alone, without the vision tower and the audio tower."


def test_windows_of_dots_have_heads_of_their_own(tmp_path: Path) -> None:
    _, saved = EXPERT_ROW_CONFIGS["dots3_note_text"]
    silent = {key: value for key, value in saved.items() if key not in ("per_layer_config",)}
    read = _read(tmp_path, silent | {"layer_types": None})
    assert read.layer_groups == _read(tmp_path, saved).layer_groups
    full, windowed = read.layer_groups[1].attention, read.layer_groups[2].attention
    assert full is not None
    assert windowed is not None
    assert (full.num_attention_heads, full.index_topk, full.sliding_window) == (128, 2048, None)
    assert (windowed.num_attention_heads, windowed.index_topk) == (64, 0)
    assert windowed.sliding_window == 512


@pytest.mark.parametrize(
    ("old", "new"), [("num_experts", "num_local_experts"), ("torch_dtype", "dtype")]
)
@pytest.mark.parametrize("name", ["qwen3-30b-a3b", "qwen3-vl-30b-a3b"])
def test_keys_of_either_version_of_transformers(
    name: str, old: str, new: str, tmp_path: Path
) -> None:
    def renamed(config: dict[str, Any]) -> dict[str, Any]:
        return {
            new if key == old else key: renamed(value) if isinstance(value, dict) else value
            for key, value in config.items()
        }

    saved = renamed(CONFIGS[name]) | {"rope_parameters": {"rope_theta": 1e6}}
    assert _read(tmp_path, saved).layer_groups == load_model(name).layer_groups


def test_early_files_leave_the_sizes_of_llama_out(tmp_path: Path) -> None:
    text = {"model_type": "llama", "max_position_embeddings": 4096, "vocab_size": 32064}
    llava = _read(tmp_path, {"model_type": "llava", "text_config": text})
    assert llava.layer_groups == load_model("llama-2-7b").layer_groups


def test_the_language_model_may_be_of_another_family(tmp_path: Path) -> None:
    text = CONFIGS["qwen2.5-0.5b"]
    internvl = _read(tmp_path, {"model_type": "internvl", "text_config": text})
    llava = _read(tmp_path, {"model_type": "llava", "text_config": text})
    assert internvl.layer_groups == llava.layer_groups == load_model("qwen2.5-0.5b").layer_groups


def test_a_layer_may_have_heads_of_its_own(tmp_path: Path) -> None:
    own = {"per_layer_config": {"03": {"num_key_value_heads": 2}, "7": {}}}
    groups = _read(tmp_path, PUBLISHED_CONFIGS["apertus-8b"] | own).layer_groups
    heads = [(group.num_hidden_layers, group.attention) for group in groups]
    assert [(number, own and own.num_key_value_heads) for number, own in heads] == [(31, 8), (1, 2)]


@pytest.mark.parametrize("name", ["qwen3-next-80b-a3b", "qwen3-vl-30b-a3b"])
def test_layers_of_qwen_without_experts(name: str, tmp_path: Path) -> None:
    config = CONFIGS[name]
    text = config.get("text_config", config) | {"mlp_only_layers": [0], "intermediate_size": 6144}
    groups = _read(tmp_path, text).layer_groups
    dense = [group for group in groups if not group.num_experts]
    assert [group.num_hidden_layers for group in dense] == [1]
    assert [group.feed_forward and group.feed_forward.intermediate_size for group in dense] == [
        6144
    ]
    assert sum(group.num_hidden_layers for group in groups) == 48


def test_null_is_none_where_silence_is_the_default(tmp_path: Path) -> None:
    config = PUBLISHED_CONFIGS["minicpm3-4b"]
    silent = {key: value for key, value in config.items() if key != "q_lora_rank"}
    ranks = [
        _read(tmp_path, one).attentions[0].q_lora_rank
        for one in (silent, silent | {"q_lora_rank": None})
    ]
    assert ranks == [768, 0]


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("apertus-8b", {"per_layer_config": {"a": {}}}, "an object for each number of a layer"),
        ("apertus-8b", {"per_layer_config": [1]}, "per_layer_config must be an object"),
        ("a.x-k1", {"attention_bias": True}, "attention_bias other than False is not supported"),
        ("trinity-mini", {"layer_types": ["conv"] * 32}, "layer_types may only name full_attent"),
        ("mimo-v2-flash", {"v_head_dim": 127}, "v_head_dim 127 and head_dim 192 have no whole"),
        ("mimo-v2-flash", {"moe_layer_freq": [1]}, "moe_layer_freq has 1 entries for 48 layers"),
        ("k-exaone-236b-a23b", {"sliding_window_pattern": 1.5}, "must be a whole number"),
    ],
)
def test_what_a_row_cannot_say_is_refused(
    name: str, change: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(SpecError, match=message):
        _read(tmp_path, PUBLISHED_CONFIGS[name] | change)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "lfm3"}, "text_config.model_type 'lfm3' is not supported: .*convolutions"),
        ({"model_type": "gemma4_txt"}, "Did you mean gemma4_text"),
    ],
)
def test_what_a_language_model_cannot_be_is_refused(
    change: dict[str, Any], message: str, tmp_path: Path
) -> None:
    config = PUBLISHED_CONFIGS["gemma-4-31b"]
    with pytest.raises(SpecError, match=message):
        _read(tmp_path, config | {"text_config": config["text_config"] | change})


@pytest.mark.parametrize(
    ("family", "reason"),
    [
        ("rwkv", "recurrent layers"),
        ("qwen4_exp", "several streams of residuals"),
        ("zamba2", "attention layers that share weights"),
        ("inkling_text", "short convolutions"),
        ("deberta", "encoders"),
    ],
)
def test_a_known_type_says_what_is_not_modelled(family: str, reason: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=f"'{family}' is not supported: .*{reason}"):
        _read(tmp_path, {"model_type": family})


def test_blocks_of_minimax_are_chosen_in_the_layers_that_a_published_file_names(
    tmp_path: Path,
) -> None:
    _, config = NEWEST_CONFIGS["minimax_m3-sparse"]
    own = {"layer_types", "index_n_heads", "index_head_dim", "index_block_size"}
    sparse = {
        "sparse_attention_freq": [0, 1, 1, 1, 1, 1], "sparse_num_index_heads": 4,
        "sparse_index_dim": 128, "sparse_block_size": 128, "sparse_topk_blocks": 16,
    }  # fmt: skip
    published = {key: value for key, value in config.items() if key not in own}
    read = _read(tmp_path, published | {"sparse_attention_config": sparse})
    assert read.layer_groups == _read(tmp_path, config).layer_groups
    chosen = [group.attention.index_topk for group in read.layer_groups if group.attention]
    assert chosen == [0, 16 * 128]


def test_layers_of_glm_share_what_an_indexer_chose(tmp_path: Path) -> None:
    _, config = NEWEST_CONFIGS["glm_moe_dsa-shared"]
    kinds = ["full", "full"] + ["shared", "shared", "full"] * 2
    words = config | {"indexer_types": kinds, "index_topk_freq": None}
    letters = config | {"index_topk_pattern": "FFSSFSSF", "index_topk_freq": None}
    by_step = _read(tmp_path, config)
    for other in (words, letters):
        assert _read(tmp_path, other).layer_groups == by_step.layer_groups
    attends = [group for group in by_step.layer_groups if group.attention]
    shared = [group for group in attends if not group.attention.index_n_heads]
    assert sum(group.num_hidden_layers for group in shared) == 4
    assert all(group.attention.index_topk == 2048 for group in attends)


def test_layers_of_deepseek_v4_by_the_ratios_of_a_published_file(tmp_path: Path) -> None:
    _, config = NEWEST_CONFIGS["deepseek_v4"]
    published = {key: value for key, value in config.items() if not key.endswith("layer_types")}
    # The last one is that of the module of multi-token prediction.
    published |= {"compress_ratios": [0, 128, 4, 128, 4, 0, 0], "num_hash_layers": 2}
    published |= {"expert_dtype": "fp4", "quantization_config": FP8_BLOCK}
    read, saved = _read(tmp_path, published), _read(tmp_path, config)
    assert read.layer_groups == saved.layer_groups
    assert (read.quantization, read.expert_quantization) == ("fp8_block", "mxfp4")
    assert {group.residual_streams for group in read.layer_groups} == {4}


def test_the_last_layers_of_gemma_4_have_no_cache_of_their_own(tmp_path: Path) -> None:
    _, config = NEWEST_CONFIGS["gemma4-e2b"]
    read = _read(tmp_path, config)
    attends = [group for group in read.layer_groups if group.attention]
    shared = [group for group in attends if group.attention.shares_cache]
    assert sum(group.num_hidden_layers for group in shared) == 20
    assert {g.feed_forward.intermediate_size for g in shared if g.feed_forward} == {2 * 6144}
    assert read.per_layer_inputs == 35 * 256


def test_layers_of_kimi_linear_by_the_numbers_of_a_published_file(tmp_path: Path) -> None:
    _, config = NEWEST_CONFIGS["kimi_linear"]
    kinds = (["linear_attention"] * 3 + ["full_attention"]) * 2
    saved = {key: value for key, value in config.items() if key != "linear_attn_config"}
    read = _read(tmp_path, config)
    assert _read(tmp_path, saved | {"layer_types": kinds}).layer_groups == read.layer_groups
    assert {each.kind for each in read.attentions} == {"linear", "latent"}


def test_convolutions_of_lfm2_by_the_numbers_of_a_published_file(tmp_path: Path) -> None:
    _, config = NEWEST_CONFIGS["lfm2"]
    kinds = ["conv" if layer not in config["full_attn_idxs"] else "full_attention"
             for layer in range(16)]  # fmt: skip
    saved = {key: value for key, value in config.items() if key != "full_attn_idxs"}
    read = _read(tmp_path, config)
    assert _read(tmp_path, saved | {"layer_types": kinds}).layer_groups == read.layer_groups
    # Two thirds of 12,288, a multiple of 256.
    assert read.feed_forwards[0].intermediate_size == 8192


def test_layers_of_longcat_are_two_and_some_experts_do_nothing(tmp_path: Path) -> None:
    """LongCat-Flash: arXiv:2509.01322, abstract: 560B, of which 27B are active on average."""
    config = {
        "model_type": "longcat_flash", "expert_ffn_hidden_size": 2048, "ffn_hidden_size": 12288,
        "hidden_size": 6144, "kv_lora_rank": 512, "moe_topk": 12, "n_routed_experts": 512,
        "num_attention_heads": 64, "num_layers": 28, "q_lora_rank": 1536, "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64, "v_head_dim": 128, "vocab_size": 131072, "zero_expert_num": 256,
    }  # fmt: skip
    read = _read(tmp_path, config)
    counted = count_parameters(read)
    assert read.num_hidden_layers == 2 * 28
    assert counted.total == pytest.approx(560e9, rel=0.005)
    assert counted.active == pytest.approx(27e9, rel=0.005)


def test_layers_of_a_nemotron_that_a_search_left(tmp_path: Path) -> None:
    """Widths as DeciLM rounds them: 2/3 of the multiple of the hidden size, by 256 up."""
    linear = {"attention": {"replace_with_linear": True}, "ffn": {"ffn_mult": 1.0}}
    blocks = [
        {"attention": {"n_heads_in_group": 8, "no_op": False}, "ffn": {"ffn_mult": 5.25}},
        {"attention": {"no_op": True}, "ffn": {"ffn_mult": 1.3125}},
        {"attention": {"n_heads_in_group": 16}, "ffn": {"no_op": True}},
    ]
    config = {
        "model_type": "nemotron-nas", "hidden_size": 8192, "num_attention_heads": 64,
        "num_hidden_layers": 3, "vocab_size": 128256, "block_configs": blocks,
    }  # fmt: skip
    whole, forward, attends = _read(tmp_path, config).layer_groups
    assert whole.attention
    assert whole.feed_forward
    assert (whole.attention.num_key_value_heads, whole.feed_forward.intermediate_size) == (8, 28672)
    assert (forward.attention, forward.norms_per_layer) == (None, 1)
    assert forward.feed_forward
    assert forward.feed_forward.intermediate_size == 7168
    assert attends.attention
    assert (attends.attention.num_key_value_heads, attends.feed_forward) == (4, None)
    with pytest.raises(SpecError, match="replace_with_linear must be false"):
        _read(tmp_path, config | {"block_configs": [linear] * 3})


def test_attention_and_state_of_falcon_h1_stand_in_one_layer(tmp_path: Path) -> None:
    _, config = NEWEST_CONFIGS["falcon_h1"]
    (group,) = _read(tmp_path, config).layer_groups
    assert group.attention
    assert group.state
    assert (group.attention.kind, group.state.kind) == ("standard", "mamba2")
    assert group.state.linear_values == 3072
    silent = {key: value for key, value in config.items() if key != "mamba_d_head"}
    assert _read(tmp_path, silent).layer_groups == (group,)


def test_linear_layers_of_ling_stand_before_each_full_one(tmp_path: Path) -> None:
    """Ring-mini-linear-2.0: 16.4B in 20 layers; a group that is not whole has full attention."""
    linear = PUBLISHED_CONFIGS["ling-mini-2.0"] | {"model_type": "bailing_moe_linear"}
    read = _read(tmp_path, linear | {"layer_group_size": 5})
    assert count_parameters(read).total == pytest.approx(16.4e9, rel=0.005)
    for size, expected in {5: [4, 16], 6: [5, 15], 7: [8, 12], 8: [6, 14]}.items():
        groups = _read(tmp_path, linear | {"layer_group_size": size}).layer_groups
        found = [
            sum(g.num_hidden_layers for g in groups if g.attention and g.attention.kind == kind)
            for kind in ("standard", "lightning")
        ]
        assert found == expected
    config = NEWEST_CONFIGS["bailing_hybrid"][1] | {"group_norm_size": 4}
    ling_2_5 = {key: value for key, value in config.items() if key != "short_conv_kernel_size"}
    with pytest.raises(SpecError, match=r"Ling 2\.5 is not read"):
        _read(tmp_path, ling_2_5)


@pytest.mark.parametrize("part", ["text_config", "llm_config", "language_config"])
def test_a_language_model_by_the_name_that_its_code_gives_it(part: str, tmp_path: Path) -> None:
    text = CONFIGS["qwen2.5-0.5b"]
    read = _read(tmp_path, {"model_type": "internvl_chat", part: text})
    assert read.layer_groups == load_model("qwen2.5-0.5b").layer_groups


def test_every_second_layer_of_mistral_large_reads_the_cache_of_another(tmp_path: Path) -> None:
    _, config = NEWEST_CONFIGS["mistral_large4_text"]
    read = _read(tmp_path, config)
    numbers = {(True, 0): 18, (False, 64): 36, (True, 64): 18}
    found: dict[tuple[bool, int], int] = {}
    for group in read.layer_groups:
        assert group.attention
        key = (group.attention.shares_cache, group.attention.qk_rope_head_dim)
        found[key] = found.get(key, 0) + group.num_hidden_layers
        assert group.attention.head_dim == 128
    assert found == numbers  # each fourth has no rotary part
    own = _read(tmp_path, config | {"kv_source_layers": None})
    assert not any(each.shares_cache for each in own.attentions)
    # 1T-A52B, as it is called.
    assert count_parameters(own).active == pytest.approx(52e9, rel=0.005)


@each("values, sparse", [({}, True), ({"experts": 0}, False), ({"experts": 1}, True)])
def test_layers_have_experts_from_one_on(values, sparse):
    """`GraniteMoeHybridDecoderLayer` of transformers: ``num_local_experts > 0``."""
    errors = []
    assert where_any("experts", 8)(ConfigReader(values, errors), 3) is sparse
    assert not errors
