"""Models that were trained further are those of their family, version and size."""

import pytest

from planner.specs.quantization import nearest_model


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("allenai/Llama-3.1-Tulu-3-70B-SFT", "llama-3.1-70b"),
        ("OpenRLHF/Llama-3-8b-sft-mixture", "llama-3-8b"),
        ("axolotl-ai-co/gpt-oss-120b-dequantized", "gpt-oss-120b"),
        ("a/Meta-Llama-3-8B-Instruct-tuned", "llama-3-8b"),
        ("a/Qwen3-30B-A3B-tuned", "qwen3-30b-a3b"),
        ("a/Llama-3.1-Pruned-5B", None),
        ("a/My-Llama-3.1-70B", None),
        ("a/Llama-3.1-tuned", None),
    ],
)
def test_a_name_resembles_the_model_whose_every_word_it_has(name: str, model: str | None) -> None:
    assert nearest_model(name) == model
