"""Names of modules in libraries of adapters, as users of PEFT give them."""

from __future__ import annotations

import pytest

import planner
from planner.base.training_aliases import parse_adapter_targets, saved_modules
from planner.errors import SearchSpaceError

TUNED = {"model": "llama-3.1-8b", "gpu": "h100-sxm", "num_gpus": 8, "adapter": "lora"}


@pytest.mark.parametrize(
    ("given", "read_as"),
    [
        ("q_proj,v_proj", "query_value"),
        ("q_proj, k_proj, v_proj, o_proj", "attention"),
        ("linear_qkv linear_proj", "attention"),
        ("q_proj,v_proj,gate_proj,up_proj,down_proj", "all_linear"),
        ("all-linear", "all_linear"),
        ("q_prj", "q_prj"),
    ],
)
def test_matrices_are_sets_that_are_predicted(given: str, read_as: str) -> None:
    assert parse_adapter_targets(given) == read_as


@pytest.mark.parametrize(
    ("given", "read_as"),
    [("embed_tokens,lm_head", "embeddings"), ("lm_head", "embeddings"), ("", "none"), ("x", "x")],
)
def test_what_is_saved_is_the_embedding_and_the_logits(given: str, read_as: str) -> None:
    assert saved_modules(given) == read_as


def test_names_and_words_are_the_same_question() -> None:
    named, worded = (
        planner.estimate(**TUNED, global_batch_size=64, lora_targets=targets, modules_to_save=saved)
        for targets, saved in (
            ("q_proj,v_proj", "embed_tokens,lm_head"),
            ("query_value", "embeddings"),
        )
    )
    assert named.table()["peak_memory_gib"] == worded.table()["peak_memory_gib"]


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"lora_targets": "q_prj"}, "q_proj,v_proj"),
        ({"modules_to_save": "lm_heads"}, "embed_tokens,lm_head"),
    ],
)
def test_unknown_names_are_told_with_known_ones(asked: dict[str, str], words: str) -> None:
    with pytest.raises(SearchSpaceError, match=words):
        planner.estimate(**TUNED, **asked)
