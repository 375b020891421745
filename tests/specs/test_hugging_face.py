"""Hugging Face configs: real shapes, faults, and garbage."""

import copy
import importlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from draws import examples
from hugging_face_composite_configs import COMPOSITE_CONFIGS
from hugging_face_configs import CONFIGS
from hugging_face_dense_row_configs import DENSE_ROW_CONFIGS
from hugging_face_expert_row_configs import EXPERT_ROW_CONFIGS
from hugging_face_newest_configs import NEWEST_CONFIGS
from hugging_face_other_configs import OTHER_CONFIGS
from hugging_face_published_configs import PUBLISHED_CONFIGS
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rows import each

from planner.errors import MissingDependencyError, PlannerError, SpecError
from planner.layers.model import count_parameters
from planner.specs import hugging_face
from planner.specs.catalogue import load_model
from planner.specs.hugging_face import find_config, read_config
from planner.specs.hugging_face_families import COMPOSITES, FAMILIES, OTHER_NAMES
from planner.specs.model import ModelSpec

GPT2 = {
    "model_type": "gpt2", "n_embd": 768, "n_head": 12, "n_layer": 12, "n_positions": 1024,
    "n_ctx": 1024, "vocab_size": 50257,
}  # fmt: skip


_ROWS = DENSE_ROW_CONFIGS | EXPERT_ROW_CONFIGS | COMPOSITE_CONFIGS | NEWEST_CONFIGS
ROW_CONFIGS = {name: config for name, (_, config) in _ROWS.items()}
ALL_CONFIGS = [
    *CONFIGS.values(),
    *OTHER_CONFIGS.values(),
    *PUBLISHED_CONFIGS.values(),
    *ROW_CONFIGS.values(),
    GPT2,
]


def _read(folder: Path, config: Any) -> ModelSpec:
    path = folder / "config.json"
    path.write_text(config if isinstance(config, str) else json.dumps(config))
    return read_config(path)


@each("name", CONFIGS)
def test_a_config_is_the_built_in_model(name: str, tmp_path: Path) -> None:
    read, built_in = _read(tmp_path, CONFIGS[name]), load_model(name)
    assert read.layer_groups == built_in.layer_groups
    assert count_parameters(read) == count_parameters(built_in)
    assert read.position_embedding == built_in.position_embedding


def test_gpt2_has_124_439_808_parameters_hugging_face_checkpoint(tmp_path: Path) -> None:
    assert count_parameters(_read(tmp_path, GPT2)).total == 124_439_808


def test_every_family_has_a_config() -> None:
    parts = [config.get("text_config", {}) for config in ALL_CONFIGS]
    tested = {config.get("model_type") for config in [*ALL_CONFIGS, *parts]}
    untested = set(FAMILIES) - tested - COMPOSITES.keys() - OTHER_NAMES.keys()
    of_their_own = {"bailing_moe_linear", "longcat_flash", "nemotron-nas"}  # tests
    assert untested == {"qwen2_5_vl_text", "qwen2_vl_text"} | of_their_own


def test_indexers_and_hybrid_layers_by_default(tmp_path: Path) -> None:
    glm = CONFIGS["glm-5"]
    silent = {key: glm[key] for key in glm if not key.startswith(("index_", "first_k"))}
    assert _read(tmp_path, silent).layer_groups == load_model("glm-5").layer_groups
    kinds = {"mlp_layer_types": ["dense"] * 3 + ["sparse"] * 75}
    assert _read(tmp_path, silent | kinds).layer_groups == load_model("glm-5").layer_groups
    text = CONFIGS["qwen3.5-397b-a17b"]["text_config"] | {"layer_types": None}
    built_in = load_model("qwen3.5-397b-a17b")
    assert _read(tmp_path, text).layer_groups == built_in.layer_groups


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("glm-5", {"indexer_types": ["shared"] * 78}, "indexer_types of the first layer"),
        ("glm-5", {"index_topk_pattern": "FX" * 39}, "may only name full, shared"),
        ("glm-5", {"mlp_layer_types": ["moe"] * 78}, "mlp_layer_types may only name dense, sparse"),
        ("qwen3-next-80b-a3b", {"linear_num_key_heads": None}, "linear_num_key_heads is missing"),
        ("qwen3-next-80b-a3b", {"linear_num_key_heads": 7}, "7 does not divide"),
        ("qwen3-next-80b-a3b", {"layer_types": ["mamba"] * 48}, "layer_types may only name"),
        ("nemotron-h-8b", {"hybrid_override_pattern": "M-X"}, "may only name M, \\*, - and E"),
        ("nemotron-h-8b", {"hybrid_override_pattern": None}, "is missing, and so is layers_block"),
        ("nemotron-h-8b", {"num_hidden_layers": 50}, "contradicts the pattern of 52 layers"),
        ("nemotron-h-8b", {"mamba_proj_bias": True}, "mamba_proj_bias must be false"),
    ],
)
def test_faults_of_indexers_and_hybrid_layers(
    name: str, change: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(SpecError, match=message):
        _read(tmp_path, CONFIGS[name] | change)


def test_dense_layers_among_experts_become_groups(tmp_path: Path) -> None:
    config = CONFIGS["qwen3-30b-a3b"] | {"decoder_sparse_step": 2}
    dense, sparse = _read(tmp_path, config).layer_groups
    assert (dense.num_hidden_layers, sparse.num_hidden_layers) == (24, 24)
    assert dense.feed_forward.intermediate_size == 6144
    assert dense.placement == sparse.placement == "interleaved"


def test_windows_of_the_last_layers_are_one_run(tmp_path: Path) -> None:
    config = CONFIGS["qwen2.5-0.5b"] | {"use_sliding_window": True, "max_window_layers": 20}
    full, windowed = _read(tmp_path, config).layer_groups
    assert (full.num_hidden_layers, full.attention.sliding_window) == (20, None)
    assert (windowed.num_hidden_layers, windowed.attention.sliding_window) == (4, 32768)
    assert windowed.placement == "contiguous"


@each(
    ("change", "message"),
    [
        ({"hidden_size": 8190}, "hidden_size 8190 is not divisible by 64 attention heads"),
        ({"num_attention_heads": 0}, "num_attention_heads must be from 1"),
        ({"num_key_value_heads": 7}, "num_key_value_heads 7 does not divide 64"),
        ({"hidden_size": "8192"}, "hidden_size must be a whole number, not '8192'"),
        ({"vocab_size": float("nan")}, "vocab_size is not a finite number"),
        ({"vocab_size": -1}, "vocab_size must be from 1"),
        ({"vocab_size": None}, "vocab_size is missing"),
        ({"vocab_size": 10**18}, "vocab_size must be from 1 to"),
        ({"vocab_size": 10**30}, "vocab_size is a whole number beyond"),
        ({"intermediate_size": {"a": [1]}}, "must be a whole number, not an object"),
        ({"intermediate_size": True}, "must be a whole number, not True"),
        ({"num_hidden_layers": 10**8}, "num_hidden_layers 100000000 is more than"),
        ({"tie_word_embeddings": "no"}, "tie_word_embeddings must be true or false"),
        ({"n_embd": 4096}, "contradicts itself: hidden_size = 8192 and n_embd = 4096"),
        ({"head_dim": 10**6}, "head_dim 1000000 is more than"),
        ({"is_encoder_decoder": True}, "is_encoder_decoder must be false"),
    ],
)
def test_a_faulty_value_names_file_and_key(
    change: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(SpecError) as caught:
        _read(tmp_path, CONFIGS["llama-2-70b"] | change)
    assert message in str(caught.value)
    assert str(tmp_path / "config.json") in str(caught.value)


def test_faults_are_reported_together(tmp_path: Path) -> None:
    config = CONFIGS["llama-2-70b"] | {"vocab_size": "x", "hidden_size": None, "mlp_bias": 3}
    with pytest.raises(SpecError) as caught:
        _read(tmp_path, config)
    assert len(str(caught.value).splitlines()) == 3


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "not valid JSON"),
        ("[1, 2]", "must hold a JSON object"),
        ("[" * 100_000, "not valid JSON"),
        ('{"hidden_size": ' + "9" * 5000 + "}", "not valid JSON"),
        ("{}", "model_type is missing. Supported: afmoe"),
        ('{"model_type": "lama"}', "Did you mean llama"),
        ('{"model_type": ["llama"]}', "is not supported"),
        ('{"model_type": "zzzz"}', "is not supported. Supported: afmoe"),
        ('{"model_type": "t5"}', "not modelled are encoders in addition to the decoder"),
    ],
)
def test_what_is_not_a_config_is_refused(content: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=message.replace("[", r"\[")):
        _read(tmp_path, content)


def test_a_missing_file_is_a_spec_error(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="cannot be read"):
        load_model(str(tmp_path / "config.json"))


GARBAGE = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([0, -1, 10**9, 10**9 + 1, 10**40]),
    st.floats(),
    st.text(max_size=5),
    st.lists(st.integers(), max_size=3),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)


@st.composite
def mutated_configs(draw: st.DrawFn) -> dict[str, Any]:
    config = copy.deepcopy(draw(st.sampled_from(ALL_CONFIGS)))
    inner = config.get("text_config", config)
    for key in draw(st.lists(st.sampled_from(sorted(inner)), min_size=1, max_size=4)):
        if draw(st.booleans()):
            inner.pop(key, None)
        else:
            inner[key] = draw(GARBAGE)
    return config


@settings(
    max_examples=examples(400, 25),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(config=mutated_configs())
def test_a_mutated_config_is_read_or_refused(config: dict[str, Any], tmp_path: Path) -> None:
    try:
        sound = count_parameters(_read(tmp_path, config)).total > 0
    except PlannerError as error:
        sound = "config.json" in str(error)
    assert sound


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    return tmp_path


def test_a_cached_config_is_found_without_the_package(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    folder = cache / "models--someone--small"
    snapshot = folder / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text("abc")
    (snapshot / "config.json").write_text(json.dumps(GPT2))
    assert find_config("someone/small") == snapshot / "config.json"
    assert load_model("someone/small").name == "someone/small"


def test_a_download_without_the_package_says_what_to_install(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(MissingDependencyError, match="huggingface-hub"):
        find_config("someone/unknown")


@pytest.mark.parametrize("name", ["llama", "a/b/c", "../x", "a/..", ""])
def test_only_organisation_and_name_are_looked_up(name: str) -> None:
    with pytest.raises(SpecError, match="ORG/NAME"):
        find_config(name)


@pytest.mark.parametrize(
    ("error_name", "message"),
    [
        ("GatedRepoError", "needs permission"),
        ("RepositoryNotFoundError", "has no model"),
        ("LocalEntryNotFoundError", "not reachable"),
        ("EntryNotFoundError", "has no config.json"),
        ("OfflineModeIsEnabled", "cannot be downloaded"),
    ],
)
def test_a_failed_download_says_what_to_do(
    error_name: str, message: str, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = pytest.importorskip("huggingface_hub")
    kind = getattr(importlib.import_module("huggingface_hub.errors"), error_name)

    def fail(*_: object, **__: object) -> str:
        raise kind.__new__(kind)

    monkeypatch.setattr(hub, "hf_hub_download", fail)
    monkeypatch.setattr(hugging_face, "_is_offline", lambda endpoint: False)
    with pytest.raises(SpecError, match=message):
        find_config("someone/unknown")


def test_nobody_waits_for_a_host_that_no_name_server_knows(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = pytest.importorskip("huggingface_hub")
    monkeypatch.setattr(hub, "hf_hub_download", lambda *_, **__: pytest.fail("it was asked"))
    monkeypatch.setattr(hub.constants, "ENDPOINT", "https://nowhere.invalid")
    monkeypatch.setattr("urllib.request.getproxies", dict)
    with pytest.raises(SpecError, match="not reachable"):
        find_config("someone/unknown")


def test_an_infinite_limit_is_none(tmp_path: Path) -> None:
    """time_step_limit of Nemotron's config.json is [0.0, Infinity]."""
    limits = {"time_step_limit": [0.0, float("inf")]}
    plain = CONFIGS["llama-2-70b"]
    assert _read(tmp_path, plain | limits) == _read(tmp_path, plain)
