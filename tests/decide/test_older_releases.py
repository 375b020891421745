"""Older releases of an engine with which a server would not start."""

from __future__ import annotations

from typing import Any

import pytest

import planner
from planner.decide.near import older_misfit
from planner.question.request import Request

SERVED: dict[str, Any] = {"workload": "serve", "settings": {"concurrency": 4}}


@pytest.mark.parametrize(
    ("model", "gpu", "longest"),
    [
        ("gpt-oss-120b", "h100", 131_072),
        ("gpt-oss-120b", "h100", 65_536),
        ("gpt-oss-120b", "h100", 180_000),
        ("qwen3-8b", "rtx3090", 8_192),
        ("qwen3-8b", "rtx3090", 32_768),
        ("qwen3-32b", "h100", 32_768),
        ("llama-3.1-8b", "rtx4090", 60_000),
    ],
)
def test_named_releases_are_those_whose_estimate_is_refused(
    model: str, gpu: str, longest: int
) -> None:
    asked = {**SERVED, "model": model, "gpu": gpu, "max_model_len": longest, "engine": "vllm"}
    evaluation = planner.estimate(**asked)
    source = evaluation.source
    older = older_misfit(source.inputs, evaluation.candidates.configurations, Request(**asked))
    refused = {
        release: bool(planner.estimate(**asked, engine_version=release).rejected_by)
        for release in ("0.17", "0.8")
    }
    if older is None:
        assert not any(refused.values())
    else:
        assert refused[older.since]
        assert older.longest < longest
        assert older.since == next(release for release, is_refused in refused.items() if is_refused)


def test_a_stated_release_names_no_other() -> None:
    asked = {**SERVED, "model": "gpt-oss-120b", "gpu": "h100", "max_model_len": 131_072}
    evaluation = planner.estimate(**asked, engine="vllm")
    inputs, c = evaluation.source.inputs, evaluation.candidates.configurations
    assert older_misfit(inputs, c, Request(**asked, engine="vllm")) is not None
    assert older_misfit(inputs, c, Request(**asked, engine="vllm", engine_version="0.33")) is None
