from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rows import each

import planner
from planner.base.enums import (
    Quantization,
)
from planner.errors import PlannerError, SpecError
from planner.specs.catalogue import copied_from, load_model
from planner.specs.quantization import CheckpointName, checkpoint_of
from planner.specs.spec_paths import SpecKind, aliased, names


@each(
    ("name", "model", "quantization"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", "llama-3.1-8b", None),
        ("NousResearch/Meta-Llama-3.1-8B", "llama-3.1-8b", None),
        ("casperhansen/llama-3-70b-fp16", "llama-3-70b", "w16a16"),
        ("hugging-quants/Meta-Llama-3.1-405B-BNB-NF4-BF16", "llama-3.1-405b", "w4a16"),
        ("nvidia/Llama-3.1-8B-Instruct-FP8", "llama-3.1-8b", "fp8"),
        ("nvidia/Llama-3.3-70B-Instruct-FP4", "llama-3.3-70b", "nvfp4"),
        ("nvidia/DeepSeek-R1-NVFP4", "deepseek-v3", "nvfp4"),
        ("neuralmagic/Meta-Llama-3.1-70B-Instruct-quantized.w8a8", "llama-3.1-70b", "w8a8"),
        ("Qwen/Qwen2.5-72B-Instruct-GPTQ-Int4", "qwen2.5-72b", "w4a16"),
        ("Qwen/Qwen2.5-72B-Instruct-GPTQ-Int8", "qwen2.5-72b", "w8a16"),
        ("Qwen/Qwen2.5-7B-Instruct-AWQ", "qwen2.5-7b", "w4a16"),
        ("/workspace/Qwen2.5-7B-Instruct-bnb-4bit", "qwen2.5-7b", "w4a16"),
        ("/userdata/llms/deepseek-ai/DeepSeek-R1", "deepseek-v3", None),
        ("/m/meta-llama_Llama-3.1-8B-Instruct", "llama-3.1-8b", None),
        ("/m/TinyLlama-TinyLlama-1.1B-Chat-v1.0", "tinyllama-1.1b", None),
        ("./models/Qwen3-30B-A3B/Qwen3-30B-A3B-UD-Q4_K_XL.gguf", "qwen3-30b-a3b", "q4_k_m"),
        ("/models/Meta-Llama-3.1-8B-Instruct-Q8_0.gguf", "llama-3.1-8b", "q8_0"),
        ("/m/Meta-Llama-3.1-8B-Instruct-IQ4_NL-00001-of-00002.gguf", "llama-3.1-8b", "iq4_nl"),
        ("/m/Meta-Llama-3.1-8B-Instruct-Q6_K.gguf", "llama-3.1-8b", "q6_k"),
        ("unsloth/Qwen3-30B-A3B-GGUF:UD-Q8_K_XL", "qwen3-30b-a3b", "q8_0"),
        ("unsloth/DeepSeek-R1-GGUF:UD-IQ1_S", "deepseek-v3", "iq1_s"),
        ("/m/Llama-3.1-8B-Q3_K_L.gguf", "llama-3.1-8b", "q3_k_l"),
        (
            "/opt/models/hub/models--RedHatAI--Llama-3.3-70B-Instruct-FP8-dynamic/snapshots/ddb4",
            "llama-3.3-70b",
            "fp8",
        ),
        ("hf://RedHatAI/Qwen3-32B-FP8-dynamic", "qwen3-32b", "fp8"),
        ("Qwen/Qwen3-235B-A22B-FP8", "qwen3-235b-a22b", "fp8_block"),
        ("/hub/models--Qwen--Qwen3-32B-FP8/snapshots/1", "qwen3-32b", "fp8_block"),
        ("zai-org/GLM-4.5-FP8", "glm-4.5", "fp8"),
        ("unsloth/Llama-3.3-70B-Instruct-bnb-4bit", "llama-3.3-70b", "w4a16"),
        ("Intel/Qwen3-30B-A3B-Instruct-2507-int4-AutoRound", "qwen3-30b-a3b-2507", "w4a16"),
        ("RedHatAI/Qwen3-32B-FP8-block", "qwen3-32b", "fp8_block"),
        ("unsloth/Qwen3-14B-unsloth-bnb-4bit", "qwen3-14b", "w4a16"),
        ("unsloth/llama-3-8b-Instruct-bnb-4bit", "llama-3-8b", "w4a16"),
        ("ISTA-DASLab/gemma-3-27b-it-GPTQ-4b-128g", "gemma-3-27b", "w4a16"),
        ("mlx-community/Llama-3.2-3B-Instruct-8bit", "llama-3.2-3b", "w8a16"),
        ("RedHatAI/Qwen3-32B-NVFP4A16", "qwen3-32b", "nvfp4"),
        ("MiniMaxAI/MiniMax-M3-MXFP8", "minimax-m3", "fp8_block"),
        ("amd/DeepSeek-R1-0528-MXFP4-Preview", "deepseek-v3", "mxfp4"),
        ("amd/DeepSeek-R1-MXFP4-ASQ", "deepseek-v3", "mxfp4"),
        ("mlx-community/gpt-oss-20b-MXFP4-Q8", "gpt-oss-20b", "mxfp4"),
        ("mlx-community/Qwen3-Next-80B-A3B-Instruct-6bit", "qwen3-next-80b-a3b", "q6_k"),
        ("turboderp/Llama-3.1-8B-Instruct-exl3:4.0bpw", "llama-3.1-8b", "w4a16"),
        ("QuantTrio/GLM-4.6-GPTQ-Int4-Int8Mix", "glm-4.6", "w4a16"),
        ("unsloth/Qwen3.6-35B-A3B-NVFP4-Fast", "qwen3.5-35b-a3b", "nvfp4"),
        ("/llm-folder", None, None),
        ("", None, None),
    ],
)
def test_a_name_tells_the_model_and_its_format(
    name: str, model: str | None, quantization: str | None
) -> None:
    assert checkpoint_of(name) == CheckpointName(model=model, quantization=quantization)


def test_own_models_are_found_first(tmp_path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "models").mkdir()
    own = tmp_path / "models" / "mine.toml"
    own.write_text('aliases = ["me/Mine-7B"]\n', encoding="utf-8")

    assert checkpoint_of("me/Mine-7B-FP8", tmp_path).model == "mine"
    assert checkpoint_of("me/Mine-7B-FP8").model is None


@pytest.mark.parametrize(
    ("name", "dense", "experts"),
    [
        ("Qwen/Qwen3-235B-A22B-FP8", "fp8_block", "fp8_block"),
        ("Qwen/Qwen3-235B-A22B", None, None),
        ("zai-org/GLM-4.5-FP8", "fp8", "fp8"),
        ("nvidia/Qwen3-32B-NVFP4", "nvfp4", None),
        ("nvidia/DeepSeek-R1-NVFP4", "nvfp4", "nvfp4"),
        ("nvidia/Kimi-K2.5-NVFP4", None, "nvfp4"),
        ("deepseek-ai/DeepSeek-R1", "fp8_block", "fp8_block"),
        ("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", None, None),
    ],
)
def test_a_model_by_the_name_of_a_checkpoint_has_its_weights(
    name: str, dense: str | None, experts: str | None
) -> None:
    model = load_model(name)
    assert (model.quantization, model.expert_quantization) == (dense, experts)


@each(
    ("name", "model"),
    [
        ("llama3.1:8b", "Llama 3.1 8B"),
        ("qwen3:30b-a3b", "Qwen3 30B-A3B"),
        ("gemma3n:e4b", "Gemma 3n E4B"),
        ("deepseek-r1:8b", "Qwen3 8B"),
        ("deepseek-r1:70b", "Llama 3.3 70B"),
        ("qwen2.5vl:7b", "Qwen2.5-VL 7B"),
        ("phi4-mini", "Phi-4 mini"),
        ("deepseek_ref", "DeepSeek-V3"),
        ("minimax_m3", "MiniMax-M3"),
        ("muse-glimmer", "Muse Glimmer 30B"),
        ("stepfun-ai/Step-3.7-Flash-FP8", "Step 3.7 Flash"),
        ("nvidia/NVIDIA-Nemotron-3.5-Lightning-30B-A3B-FP8", "Nemotron 3 Nano 30B-A3B"),
        ("OpenGVLab/InternVL2_5-78B-MPO-AWQ", "InternVL3 78B"),
        ("OpenGVLab/InternVL2_5-8B", "InternVL2.5 8B"),
        ("amd/Qwen3.8-2.4T-A95B-Quark-MXFP4", "Qwen3.8 2.4T-A95B"),
        ("unsloth/DeepSeek-V3.1-GGUF:UD-Q2_K_XL", "DeepSeek-V3"),
    ],
)
def test_names_that_people_write(name: str, model: str) -> None:
    assert load_model(name).name == model


@each(
    ("name", "stored"),
    [
        ("zai-org/GLM-5.3", ("fp8_block", "fp8_block")),
        ("zai-org/GLM-5.3-FP8", ("fp8_block", "fp8_block")),
        ("zai-org/GLM-5.2-FP8", ("fp8_block", "fp8_block")),
        ("zai-org/GLM-5.2", (None, None)),
        ("MiniMaxAI/MiniMax-M3-MXFP8", ("fp8_block", "fp8_block")),
    ],
)
def test_a_known_checkpoint_has_its_own_format(
    name: str, stored: tuple[str | None, str | None]
) -> None:
    model = load_model(name)
    assert (model.quantization, model.expert_quantization) == stored


def test_letters_of_two_models_name_neither() -> None:
    """llama-3-18b would be 3.1 8b without what is between the words."""
    with pytest.raises(SpecError, match="Did you mean"):
        load_model("llama3")


@given(st.sampled_from(sorted(names(SpecKind.MODELS))), st.sampled_from(["", "_", " ", ":"]))
def test_a_name_of_the_catalogue_stays_its_own(name: str, between: str) -> None:
    found = aliased(SpecKind.MODELS, name.replace("-", between))
    assert found is None or found.stem == name or between == ""


def test_a_repository_that_is_out_of_reach_is_refused_with_close_names(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(PlannerError, match=r"Did you mean .*qwen3\.5-35b-a3b"):
        load_model("Qwen/Qwen3.9-35B-A3B")


def test_weights_by_name_are_said_as_assumed() -> None:
    found = planner.estimate(
        workload="serve", model="Qwen/Qwen3-32B-FP8", gpu="h100", num_gpus=1, engine="vllm",
        settings={"concurrency": 1},
    )  # fmt: skip
    assert found.table()["quantization"][0] == "fp8_block"
    assert found.plan.defaults["quantization"].startswith("fp8_block")
    assert found.table()["rejected_by"][0] == ""


@pytest.mark.parametrize("name", ["Qwen/Qwen3-32B-AWQ", "Qwen3-32B-AWQ"])
def test_a_copy_is_its_base_without_a_network_and_this_is_said(name: str) -> None:
    found = planner.estimate(
        workload="serve", model=name, gpu="h100", num_gpus=1, settings={"concurrency": 1}
    )
    assert found.table()["quantization"][0] == "w4a16"
    told = f"Qwen3 32B: {name} is a copy, judging by its name"
    assert found.plan.defaults["model"] == told
    assert found.plan.defaults["quantization"].endswith("(the name of the copy)")


def test_a_config_at_hand_counts_before_the_name_of_a_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    snapshot = tmp_path / "models--someone--Qwen3-32B-AWQ" / "snapshots" / "1"
    snapshot.mkdir(parents=True)
    small = {
        "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "vocab_size": 32,
        "num_attention_heads": 4, "num_hidden_layers": 2,
    }  # fmt: skip
    (snapshot / "config.json").write_text(json.dumps(small), encoding="utf-8")
    assert load_model("someone/Qwen3-32B-AWQ").num_hidden_layers == 2
    assert load_model("another/Qwen3-32B-AWQ").num_hidden_layers == 64


@pytest.mark.parametrize("name", ["qwen3-32b", "Qwen/Qwen3-32B", "Qwen/Qwen3-32B-FP8", "x.toml"])
def test_a_name_or_alias_of_its_own_is_no_copy(name: str) -> None:
    assert copied_from(name) is None


@given(st.text(max_size=80))
def test_any_text_ends_with_words_of_the_table(name: str) -> None:
    told = checkpoint_of(name)

    assert told.quantization in {None, *Quantization.words()}
