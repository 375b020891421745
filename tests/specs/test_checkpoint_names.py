from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import planner
from planner.base.enums import Quantization
from planner.specs.catalogue import load_model
from planner.specs.checkpoint_names import Checkpoint, checkpoint_of


@pytest.mark.parametrize(
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
        ("/llm-folder", None, None),
        ("", None, None),
    ],
)
def test_a_name_tells_the_model_and_its_format(
    name: str, model: str | None, quantization: str | None
) -> None:
    assert checkpoint_of(name) == Checkpoint(model=model, quantization=quantization)


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


def test_weights_by_name_are_said_as_assumed() -> None:
    found = planner.estimate(
        workload="serve", model="Qwen/Qwen3-32B-FP8", gpu="h100", num_gpus=1, engine="vllm",
        settings={"concurrency": 1},
    )  # fmt: skip
    assert found.table()["quantization"][0] == "fp8_block"
    assert found.plan.defaults["quantization"].startswith("fp8_block")
    assert found.table()["rejected_by"][0] == ""


@given(st.text(max_size=80))
def test_any_text_ends_with_words_of_the_table(name: str) -> None:
    told = checkpoint_of(name)

    assert told.quantization in {None, *Quantization.words()}
