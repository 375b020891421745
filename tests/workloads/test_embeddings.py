"""Prompts that are embedded or scored: nothing is generated, and nothing is kept for later."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import planner
from planner.errors import PlannerError
from planner.launch.read.read_launch import read_launch
from planner.workloads.serving.wording import inference_steps

ASKED: dict[str, Any] = {
    "workload": "serve",
    "model": "bge-m3",
    "gpu": "h100",
    "num_gpus": 1,
    "engine": "vllm",
    "input_tokens": 512,
    "output_tokens": 0,
    "settings": {"concurrency": 64},
}
ENCODER = 24 * (4 * 1024**2 + 2 * 1024 * 4096)  # weights of the layers' matrices


def embedded(**more: Any) -> planner.api.Estimated:
    return planner.estimate(**{**ASKED, **more})


def test_a_full_engine_embeds_what_its_steps_hold() -> None:
    """16 prompts of 512 tokens fill a step of 8,192; their products alone take 5 ms at the peak."""
    found = embedded()
    row = found.candidates.row
    rate = row["requests_per_s"] * 512
    assert 2 * ENCODER * rate < 989e12
    costs = found.candidates.estimate.served.phases
    assert row["requests_per_s"] == pytest.approx(1 / float(costs.queued[0]), rel=0.02)
    assert 16 * float(costs.queued[0]) > 2 * ENCODER * 8192 / 989e12


def test_every_token_sees_all_of_its_prompt() -> None:
    steps = inference_steps(embedded().candidates)
    assert list(steps) == ["prefill"]
    (_, operators), *_ = steps["prefill"].layers
    attention = next(one for one in operators if one.name == "attention_prefill")
    assert float(np.ravel(attention.flops)[0]) == pytest.approx(4 * 512 * 512 * 1024)


def test_an_encoder_keeps_no_cache_and_a_decoder_that_of_its_prompts() -> None:
    assert embedded().candidates.row["memory_kv_cache_gib"] == 0
    row = embedded(model="qwen3-embedding-0.6b").candidates.row
    of_token = 2 * 2 * 28 * 8 * 128
    assert row["memory_kv_cache_gib"] == pytest.approx(64 * 512 * of_token / 2**30, rel=1e-3)


def test_there_are_no_logits() -> None:
    held = embedded().candidates.row["memory_weights_gib"] * 2**30
    assert held == pytest.approx(2 * 566_706_176, rel=1e-3)  # the embedding among them
    whole = {"model": "qwen2.5-7b", "settings": {"concurrency": 1}}
    generating = embedded(**whole, output_tokens=1).candidates.row
    row = embedded(**whole).candidates.row
    logits = 2 * 3584 * 152_064 / 2**30
    less = generating["memory_weights_gib"] - row["memory_weights_gib"]
    assert less == pytest.approx(logits, rel=1e-3)
    assert row["time_to_first_token_s"] < generating["time_to_first_token_s"]


def test_what_only_answers_have_is_unknown() -> None:
    row = embedded().candidates.row
    assert row["request_latency_s"] == row["time_to_first_token_s"] > 0
    assert row["tokens_per_s"] == pytest.approx(row["requests_per_s"] * 512)
    for name in ("time_per_output_token_s", "output_tokens_per_s", "tokens_per_s_per_user"):
        assert math.isnan(row[name])
    for name in ("cost_per_million_input_tokens_usd", "cost_per_million_tokens_usd"):
        hourly = row[name] * row["tokens_per_s"] * 3600 / 1e6
        assert hourly == pytest.approx(row["cost_per_hour_usd"])


def test_a_search_looks_for_prompts_per_second() -> None:
    result = planner.search(**{**ASKED, "engine": None, "settings": {}})
    frame = result.to_frame()
    assert set(result.comparisons["engine"].table["engine"]) == {"vLLM", "SGLang"}
    best = frame["tokens_per_s_per_gpu"].max()
    assert result.recommended_row["tokens_per_s_per_gpu"] > 0.9 * best
    assert "TPOT" not in result.summary()
    assert "USD/Mtok" in result.summary()
    assert "0.00 " not in result.summary()
    at_rate = planner.search(**{**ASKED, "num_gpus": None, "request_rate": 5000, "settings": {}})
    assert at_rate.recommended_row["num_gpus"] > 1


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"output_tokens": 1}, "generates nothing: give --output-tokens 0"),
        ({"engine": "tensorrt-llm"}, "embeds and scores no prompts"),
        ({"mode": "disaggregated"}, "leave out --mode disaggregated"),
        ({"workload": "inference"}, "A static batch generates"),
        ({"constraints": {"time_per_output_token": "50ms"}}, "is of generated tokens"),
        ({"objectives": ["throughput_per_gpu", "request_latency"]}, "is of generated tokens"),
        ({"model": "llama-3.1-8b", "draft_tokens": 3}, "leave out --draft-tokens"),
        ({"input_tokens": 9000}, "8,192"),
    ],
)
def test_what_prompts_alone_cannot_have_is_refused(more: dict[str, Any], said: str) -> None:
    with pytest.raises(PlannerError, match=re.escape(said)):
        embedded(**more)


@pytest.mark.parametrize(
    ("engine", "option"), [("vllm", "--runner pooling"), ("sglang", "--is-embedding")]
)
def test_a_server_is_told_to_pool_and_read_again(engine: str, option: str, tmp_path: Path) -> None:
    asked = {**ASKED, "engine": engine, "model": "BAAI/bge-m3"}
    planner.write_launch(engine, tmp_path / "out", **asked)
    script = (tmp_path / "out" / "serve.sh").read_text()
    assert option in script
    assert "--endpoint\n" not in script
    assert "/v1/embeddings" in (tmp_path / "out" / "benchmark.sh").read_text()
    alone = tmp_path / "serve.sh"
    alone.write_text(script)
    assert str(read_launch(alone).values["output_tokens"]) == "0"
