"""Fine-tuning from the command line."""

from __future__ import annotations

import json
import re

import pytest

ON_ONE = ("estimate", "--model", "llama-2-7b", "--gpus", "1", "--global-batch-size", "8")


def test_estimate_says_what_is_trained_and_where_the_rest_comes_from(planner):
    ran = planner(
        *ON_ONE, "--adapter", "qlora", "--lora-rank", "64", "--set", "recompute=full", "--full"
    )
    assert ran.exit_code == 0
    assert "qlora of rank 64 on attention: 67.11 million parameters trained" in ran.out
    assert re.search(r"lora_targets +attention \(default\)", ran.out)
    assert "hf-trainer (default of adapters)" in ran.out
    assert "lora_rank  " not in ran.out
    for module in ("adapter", "dequantize"):
        assert f"\n{module}  " in ran.out


def test_pre_training_mentions_no_adapter(planner):
    out = planner("estimate", "--model", "llama-2-7b", "--gpus", "64").out
    assert "lora" not in out
    assert "adapter" not in out


@pytest.mark.slow
def test_search_of_adapters_can_be_reproduced(planner, tmp_path):
    path = tmp_path / "rows.json"
    asked = ("--adapter", "qlora", "--lora-rank", "8", "--lora-targets", "all-linear")
    ran = planner(
        "search", "--model", "llama-2-70b", "--gpus", "8", "--gpu", "rtx4090-24gb",
        "--global-batch-size", "64", "--sequence-length", "2048", *asked, "--json", path, "--full",
    )  # fmt: skip
    assert ran.exit_code == 0
    document = json.loads(path.read_text())
    assert document["manifest"]["defaults"]["space"].startswith("fine_tune")
    command = re.search(r"planner (estimate (?:[^\\\n]|\\\n)*)", ran.out)
    again = planner(*command[1].replace("\\\n", " ").split(), "--json", "-", "--quiet")
    row = json.loads(again.out)["rows"][0]
    shown = (*document["rows"], document["recommended_row"])
    assert row["step_time_s"] in [found["step_time_s"] for found in shown]


def test_a_framework_of_pre_training_can_tune_adapters(planner):
    ran = planner(
        "search", "--model", "llama-2-70b", "--gpus", "8", "--gpu", "h100-sxm-80gb",
        "--global-batch-size", "8", "--adapter", "lora", "--space", "pretrain_dense",
        "--framework", "nemo", "--set", "precision=fp8",
    )  # fmt: skip
    assert ran.exit_code == 0
    assert "lora of rank 16 on attention: 44.56 million parameters trained" in ran.out


def test_one_end_that_is_saved_alone_is_counted_with_the_other(planner):
    asked = ("estimate", "--model", "llama-2-7b", "--gpus", "4", "--framework", "hf-trainer")
    one, both = (
        planner(*asked, "--adapter", "lora", "--modules-to-save", names, "--full")
        for names in ("lm_head", "embed_tokens,lm_head")
    )
    assert "lm_head alone is not predicted: both are counted" in " ".join(one.out.split())
    assert "alone" not in both.out
    assert "278.9 million parameters" in one.out
    assert "278.9 million parameters" in both.out


def test_a_deviation_of_packed_samples_is_named(planner):
    ran = planner(
        "estimate", "--model", "llama-2-7b", "--gpus", "4", "--adapter", "lora",
        "--sample-length-deviation", "100",
    )  # fmt: skip
    assert "sample_length_deviation needs padding longest, full or none" in " ".join(
        ran.err.split()
    )
