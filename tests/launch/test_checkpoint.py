from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.enums import Quantization
from planner.launch.checkpoint import Checkpoint, checkpoint_of


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
        ("./models/Qwen3-30B-A3B/Qwen3-30B-A3B-UD-Q4_K_XL.gguf", "qwen3-30b-a3b", "w4a16"),
        ("/models/Meta-Llama-3.1-8B-Instruct-Q8_0.gguf", "llama-3.1-8b", "w8a16"),
        ("/m/Meta-Llama-3.1-8B-Instruct-IQ4_NL-00001-of-00002.gguf", "llama-3.1-8b", "w4a16"),
        ("/m/Meta-Llama-3.1-8B-Instruct-Q6_K.gguf", "llama-3.1-8b", None),
        ("unsloth/Qwen3-30B-A3B-GGUF:UD-Q8_K_XL", "qwen3-30b-a3b", "w8a16"),
        (
            "/opt/models/hub/models--RedHatAI--Llama-3.3-70B-Instruct-FP8-dynamic/snapshots/ddb4",
            "llama-3.3-70b",
            "fp8",
        ),
        ("hf://RedHatAI/Qwen3-32B-FP8-dynamic", "qwen3-32b", "fp8"),
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


@given(st.text(max_size=80))
def test_any_text_ends_with_words_of_the_table(name: str) -> None:
    told = checkpoint_of(name)

    assert told.quantization in {None, *Quantization.words()}
