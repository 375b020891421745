"""The built-in models: every file loads, names are unique, counts match what is published."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from rows import each

from planner.errors import SpecError
from planner.layers.model import count_parameters
from planner.specs.catalogue import load_model, names
from planner.specs.model import ModelSpec
from planner.specs.spec_files import check_spec, read_spec, read_toml
from planner.specs.spec_paths import SpecKind, spec_folders

FILES = sorted(spec_folders(SpecKind.MODELS)[-1].glob("*.toml"))


@each("path", FILES)
def test_every_file_loads_and_names_its_sources(path: Path) -> None:
    model = read_spec(ModelSpec, path)
    assert model.source.strip()
    if model.published_parameters is not None:
        assert model.published_parameters_source
        counted = "checkpoint" in model.published_parameters_source
        published = pytest.approx(model.published_parameters, rel=1e-4 if counted else 0.03)
        assert count_parameters(model).total == published


def test_names_and_aliases_are_unique() -> None:
    words = Counter(path.stem.lower() for path in FILES)
    for path in FILES:
        aliases = [alias.lower() for alias in read_toml(path).get("aliases", [])]
        repositories = {alias.rpartition("/")[2] for alias in aliases if "/" in alias}
        words.update([*aliases, *(repositories - {path.stem.lower()})])
    assert [word for word, times in words.items() if times > 1] == []


def test_a_model_is_found_by_name_alias_repository_and_path(tmp_path: Path) -> None:
    by_name = load_model("llama-65b")
    copy = tmp_path / "mine.toml"
    copy.write_text((spec_folders("models")[-1] / "llama-65b.toml").read_text())
    assert by_name.num_hidden_layers == 80
    for other in ("llama-1-65b", "LLaMA-65B", "huggyllama/llama-65b", str(copy)):
        assert load_model(other) == by_name


def test_repositories_find_their_models_without_a_network() -> None:
    for path in FILES:
        repositories = [word for word in read_toml(path).get("aliases", []) if "/" in word]
        for repository in repositories[:1]:
            found = load_model(repository), load_model(repository.rpartition("/")[2])
            assert found[0] == found[1] == load_model(path.stem)


def test_an_unknown_name_gets_a_close_match() -> None:
    with pytest.raises(SpecError, match="llama-65b"):
        load_model("lama-65b")


def test_the_catalogue_lists_the_shipped_models() -> None:
    assert {path.stem for path in FILES} <= set(names(SpecKind.MODELS))


@pytest.mark.parametrize(
    ("stem", "sequence_length", "global_batch_tokens", "total_tokens"),
    [
        pytest.param("llama-65b", 2048, 2**22, 1.4e12, id="arXiv:2302.13971-table-2"),
        pytest.param("llama-2-70b", 4096, 2**22, 2e12, id="arXiv:2307.09288-table-1"),
        pytest.param("llama-3.1-405b", 8192, 2**24, 15.6e12, id="arXiv:2407.21783-3.4.1"),
        pytest.param("gpt-3-175b", 2048, 3.2e6, 300e9, id="arXiv:2005.14165-table-2.1"),
        pytest.param("mt-nlg-530b", 2048, 1920 * 2048, 270e9, id="arXiv:2201.11990-2.3"),
        pytest.param("deepseek-v3", 4096, 15360 * 4096, 14.8e12, id="arXiv:2412.19437-4.2"),
    ],
)
def test_training_defaults_are_the_published_ones(
    stem: str, sequence_length: int, global_batch_tokens: float, total_tokens: float
) -> None:
    training = load_model(stem).training
    assert training is not None
    assert training.sequence_length == sequence_length
    assert training.global_batch_tokens == global_batch_tokens
    assert training.total_tokens == total_tokens


@each(
    ("table", "field", "value", "message"),
    [
        ("attention", "num_key_value_heads", 3, "3 does not divide num_attention_heads 8"),
        ("attention", "head_dim", 10**6, "head_dim 1000000 is more than"),
        ("attention", "kv_lora_rank", 512, 'kv_lora_rank needs kind = "latent"'),
        ("attention", "kind", "latent", "needs kv_lora_rank"),
        ("attention", "qk_norm_per_head", True, "needs qk_norm"),
        ("attention", "compress_ratio", 4, 'compress_ratio needs kind = "compressed"'),
        ("attention", "index_n_heads", 4, "an indexer of sparse attention needs index_head_dim"),
        ("attention", "kind", "compressed", 'kind = "compressed" needs q_lora_rank'),
        ("attention", "linear_num_key_heads", 8, 'linear_num_key_heads needs kind = "lin'),
        ("attention", "kind", "linear", 'kind = "linear" needs linear_conv_kernel_dim'),
        ("feed_forward", "intermediate_size", 0, "needs intermediate_size"),
        ("feed_forward", "intermediate_size", 10**9, "more than 256 times hidden_size"),
        ("feed_forward", "intermediate_size", "2048", "a whole number"),
        ("feed_forward", "moe_latent_size", 512, "moe_latent_size needs num_experts"),
        ("feed_forward", "num_experts", 8, "num_experts needs moe_intermediate_size"),
        ("feed_forward", "num_experts_per_tok", 2, "num_experts_per_tok needs num_experts"),
        ("layer", "num_hidden_layers", 20_000, "20000 layers are more than"),
        ("model", "hidden_size", 10**7, "hidden_size 10000000 is more than"),
        ("model", "layer_groups", [], "layer_groups is empty"),
        ("model", "position_embedding", "learned", "needs max_position_embeddings"),
        ("model", "position_embedding_offset", 2, 'position_embedding = "learned"'),
        ("model", "published_parameters", float("inf"), "must be less than"),
        ("training", "global_batch_tokens", 100, "less than one sequence"),
        ("training", "total_tokens", 5000, "less than global_batch_tokens"),
    ],
)
def test_a_model_that_lies_is_refused(table: str, field: str, value: object, message: str) -> None:
    tables = _tables()
    tables[table][field] = value
    with pytest.raises(SpecError, match=message):
        check_spec(ModelSpec, tables["model"], where="tiny.toml")


LATENT = {"kind": "latent", "kv_lora_rank": 64, "v_head_dim": 64, "q_lora_rank": 96}
COMPRESSED = {
    "kind": "compressed", "num_key_value_heads": 1, "q_lora_rank": 96, "o_groups": 4,
    "o_lora_rank": 32, "sliding_window": 16,
}  # fmt: skip
INDEXER = {"index_n_heads": 8, "index_head_dim": 32, "index_topk": 128}
LINEAR = {
    "kind": "linear", "linear_num_key_heads": 4, "linear_num_value_heads": 8,
    "linear_key_head_dim": 32, "linear_value_head_dim": 32, "linear_conv_kernel_dim": 4,
}  # fmt: skip


@each(
    ("attention", "message"),
    [
        (LATENT | {"sinks": True}, 'sinks does not go with kind = "latent"'),
        (LINEAR | {"kind": "mamba1"}, 'kind = "mamba1" needs linear_gate_rank'),
        (LINEAR | {"kind": "lightning"}, "linear_conv_kernel_dim needs kind = "),
        (LINEAR | {"kind": "mamba2", "linear_full_gate": True}, "linear_full_gate needs kind = "),
        (LATENT | INDEXER | {"index_n_heads": 0}, "an indexer of sparse attention needs index_n_h"),
        (COMPRESSED | {"o_groups": 3}, "o_groups 3 does not divide 8 heads"),
        (COMPRESSED | INDEXER, "an indexer of compressed attention needs compress_ratio"),
        (COMPRESSED | {"qk_norm": True}, 'qk_norm does not go with kind = "compressed"'),
        (COMPRESSED | INDEXER | {"q_lora_rank": 0}, 'kind = "compressed" needs q_lora_rank'),
        (LATENT | INDEXER | {"index_n_heads": 10**6}, "more than 256 times hidden_size"),
        (LINEAR | {"linear_num_key_heads": 3}, "3 does not divide linear_num_value_heads 8"),
        (LINEAR | {"linear_key_head_dim": 10**6}, "linear_key_head_dim 1000000 is more than"),
        (LINEAR | {"linear_conv_kernel_dim": 10**6}, "more than 256 times hidden_size"),
        (LINEAR | {"sliding_window": 128}, 'sliding_window does not go with kind = "linear"'),
        (LINEAR | {"qk_norm": True}, 'qk_norm does not go with kind = "linear"'),
        (LINEAR | {"kv_lora_rank": 64}, 'kv_lora_rank needs kind = "latent"'),
        (LINEAR | {"kind": "mamba2", "qk_norm": True}, 'qk_norm does not go with kind = "mamba2"'),
        ({"kind": "mamba2"}, 'kind = "mamba2" needs linear_key_head_dim'),
    ],
)
def test_kinds_of_attention_do_not_mix(attention: dict, message: str) -> None:
    tables = _tables()
    tables["attention"].update(attention)
    with pytest.raises(SpecError, match=message):
        check_spec(ModelSpec, tables["model"], where="tiny.toml")


@pytest.mark.parametrize(
    ("dropped", "change", "message"),
    [
        (("attention", "feed_forward"), {}, "needs attention, feed_forward, or both"),
        (("attention",), {"parallel_residual": True}, "parallel_residual needs both"),
    ],
)
def test_a_layer_is_one_block_or_two(dropped: tuple[str, ...], change: dict, message: str) -> None:
    tables = _tables()
    for name in dropped:
        del tables["layer"][name]
    tables["layer"].update(change)
    with pytest.raises(SpecError, match=message):
        check_spec(ModelSpec, tables["model"], where="tiny.toml")


def test_some_layer_has_attention() -> None:
    tables = _tables()
    del tables["layer"]["attention"]
    with pytest.raises(SpecError, match="no layer group has attention"):
        check_spec(ModelSpec, tables["model"], where="tiny.toml")


MAMBA2 = LINEAR | {"kind": "mamba2"}


@pytest.mark.parametrize("attention", [LATENT, LATENT | INDEXER, LINEAR, MAMBA2])
def test_each_kind_of_attention_is_accepted(attention: dict) -> None:
    tables = _tables()
    tables["attention"].update(attention)
    assert check_spec(ModelSpec, tables["model"], where="tiny.toml").name == "tiny"


@pytest.mark.parametrize(
    ("name", "stem"),
    [
        ("zhipuai/GLM-5", "glm-5"),
        ("zai-org/GLM-5-FP8", "glm-5"),
        ("moonshotai/Kimi-K2.5", "kimi-k2.5"),
        ("Qwen/Qwen3.5-397B-A17B", "qwen3.5-397b-a17b"),
        ("Qwen/Qwen3-Next-80B-A3B-Instruct", "qwen3-next-80b-a3b"),
        ("deepseek-ai/DeepSeek-V3.2-Exp", "deepseek-v3.2"),
        ("nvidia/DeepSeek-R1-NVFP4", "deepseek-v3"),
        ("nvidia/Qwen3-32B-NVFP4", "qwen3-32b"),
        ("nvidia/Llama-3.1-8B-Instruct-FP8", "llama-3.1-8b"),
        ("meta-llama/Llama-3.1-70B", "llama-3.1-70b"),
        ("MiniMaxAI/MiniMax-M2.5", "minimax-m2.5"),
    ],
)
def test_served_checkpoints_are_built_in(name: str, stem: str) -> None:
    types = {"quantization": None, "expert_quantization": None}
    assert replace(load_model(name), **types) == replace(load_model(stem), **types)


def test_more_experts_per_token_than_experts_are_refused() -> None:
    tables = _tables()
    tables["layer"]["feed_forward"] = {
        "num_experts": 4,
        "num_experts_per_tok": 6,
        "moe_intermediate_size": 32,
    }
    with pytest.raises(SpecError, match="num_experts_per_tok 6 must be from 1 to num_experts 4"):
        check_spec(ModelSpec, tables["model"], where="tiny.toml")


def test_faults_of_one_file_are_reported_together() -> None:
    tables = _tables()
    tables["attention"]["num_key_value_heads"] = 3
    tables["feed_forward"]["intermediate_size"] = 0
    with pytest.raises(SpecError) as caught:
        check_spec(ModelSpec, tables["model"], where="tiny.toml")
    assert len(str(caught.value).splitlines()) == 2


def _tables() -> dict[str, dict]:
    attention = {"num_attention_heads": 8, "num_key_value_heads": 8, "head_dim": 64}
    feed_forward = {"intermediate_size": 2048}
    layer = {"num_hidden_layers": 2, "attention": attention, "feed_forward": feed_forward}
    training = {"sequence_length": 1024, "global_batch_tokens": 8192, "source": "a paper"}
    model = {
        "name": "tiny",
        "source": "made up",
        "hidden_size": 512,
        "vocab_size": 1000,
        "layer_groups": [layer],
        "training": training,
    }
    return {
        "attention": attention,
        "feed_forward": feed_forward,
        "layer": layer,
        "training": training,
        "model": model,
    }
