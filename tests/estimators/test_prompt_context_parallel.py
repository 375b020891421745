"""Prefill context parallelism of engines: GPUs that split the tokens of prompts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from rows import each
from serving_cases import replicas, serving_setting

from planner.base.enums import Quantization
from planner.estimators.inference.serving_estimate import (
    SERVING_REJECTIONS,
    ServingEstimate,
    evaluate_serving,
)
from planner.question.request import Request
from planner.workloads.make_plan import make_plan


def split(
    model: str, gpu: str, engine: str, context: tuple[int, ...], **more: Any
) -> ServingEstimate:
    """Eight GPUs whose prompts ``context`` of them split, the others matrices."""
    layout = {name: more.pop(name, 1) for name in ("concurrency", "pipeline_parallel")}
    setting = serving_setting(model, gpu, engine, **more)
    ranks = np.array(context, dtype=float)
    is_fp4 = model.startswith("deepseek-v4")
    experts = Quantization.MXFP4 if is_fp4 else Quantization.FP8_BLOCK
    c = replicas(
        num_gpus=8,
        tensor_parallel=8 / ranks / layout["pipeline_parallel"],
        context_parallel=ranks,
        expert_parallel=8 / layout["pipeline_parallel"],
        quantization=Quantization.FP8_BLOCK,
        expert_quantization=experts,
        **layout,
    )
    return evaluate_serving(setting, c)


def test_long_prompts_are_faster_and_answers_slower() -> None:
    found = split("deepseek-v3", "h200-sxm-141gb", "vllm", (1, 2, 4, 8), input_tokens=65_536)
    assert (found.rejected_by == 0).all()
    assert (np.diff(found.served.time_to_first_token) < 0).all()
    assert (np.diff(found.served.time_per_output_token) > 0).all()
    # Matrices of the attention have as many copies as ranks, experts none; caches are copies.
    assert (np.diff(found.memory.weights) > 0).all()
    assert float(found.memory.weights[3]) < 1.3 * float(found.memory.weights[0])
    assert (found.configurations.replica_gpus == 8).all()
    longest = found.memory.room.longest
    assert np.ptp(longest) == pytest.approx(0, abs=1)


def test_gains_as_published() -> None:
    """github.com/sgl-project/sglang/pull/27928: DeepSeek-V4 on eight MI355X, 2 clients, 1,024 out.

    First tokens of 8,192 and 16,384 tokens come 1.33 and 1.57 times as fast, others 0.77 times.
    """
    for tokens, first in ((8192, 1.33), (16_384, 1.57)):
        found = split("deepseek-v4-pro", "mi355x-288gb", "sglang", (1, 8), input_tokens=tokens,
                      output_tokens=1024, concurrency=2)  # fmt: skip
        times = found.served.time_to_first_token, found.served.time_per_output_token
        gains = [float(time[0] / time[1]) for time in times]
        assert gains == pytest.approx([first, 0.77], rel=0.25)


@each(
    ("model", "gpu", "engine", "more", "is_refused"),
    [
        ("deepseek-v3", "h200-sxm-141gb", "vllm", {}, False),
        ("glm-5.2", "h200-sxm-141gb", "sglang", {}, False),
        ("qwen3-235b-a22b", "h200-sxm-141gb", "vllm", {}, True),  # no latent attention
        ("deepseek-v3", "h200-sxm-141gb", "vllm", {"pipeline_parallel": 2}, True),
        ("deepseek-v3", "h200-sxm-141gb", "vllm", {"lora_rank": 8}, True),
        ("deepseek-v4-pro", "mi355x-288gb", "sglang", {}, True),  # deprecated on AMD
    ],
)
def test_engines_split_prompts_of_some_models(
    model: str, gpu: str, engine: str, more: dict[str, int], is_refused: bool
) -> None:
    found = split(model, gpu, engine, (1, 2), **more)
    rule = SERVING_REJECTIONS.index("context_parallel") + 1
    assert (found.rejected_by == rule).tolist() == [False, is_refused]


@each(
    ("asked", "splits"),
    [
        ({"input_tokens": 64_000}, (1, 2, 4, 8)),
        ({"input_tokens": 8_000}, (1,)),  # several fill a step of 8,192 tokens
        ({"input_tokens": 32_000, "model": "qwen3-235b-a22b"}, (1,)),  # no latent attention
        ({"input_tokens": 64_000, "engine": "vllm-0.17"}, (1,)),
        ({"input_tokens": 64_000, "gpu": "mi355x-288gb", "engine": "sglang"}, (1,)),
        ({"input_tokens": 64_000, "settings": {"context_parallel": 2}}, (2,)),
        ({"input_tokens": 64_000, "space": "serve_single"}, (1,)),
    ],
)
def test_a_search_splits_prompts_that_are_longer_than_a_step(
    asked: dict[str, Any], splits: tuple[int, ...]
) -> None:
    usual = {"workload": "serve", "model": "deepseek-v3", "gpu": "h200", "num_gpus": 16}
    plan = make_plan(Request(**{"engine": "vllm", "output_tokens": 500, **usual, **asked}))
    meshes = [source.mesh for source in plan.problem.sources if source.mesh is not None]
    assert meshes
    for mesh in meshes:
        assert tuple(map(int, mesh.values("context_parallel"))) == splits


@each(
    ("asked", "parts"),
    [
        ({"input_tokens": 64_000}, {1, 8}),
        ({"input_tokens": 8_000}, {1}),
        ({"input_tokens": 64_000, "engine": "tensorrt-llm"}, {1}),  # ranks hold copies
        ({"input_tokens": 32_000, "model": "qwen3-235b-a22b"}, {1}),  # no latent attention
        ({"input_tokens": 64_000, "decode_context_parallel": 1}, {1}),
        ({"input_tokens": 1000, "decode_context_parallel": (1, 4)}, {1, 4}),
    ],
)
def test_a_search_over_long_prompts_tries_parts_of_latent_caches(
    asked: dict[str, Any], parts: set[int]
) -> None:
    usual = {"workload": "serve", "model": "deepseek-v3", "gpu": "h200", "num_gpus": 8}
    plan = make_plan(Request(**{"engine": "sglang", "output_tokens": 500, **usual, **asked}))
    sources = plan.problem.sources
    assert {source.inputs.workload.decode_context_parallel for source in sources} == parts
    assert all(source.named.get("decode_context_parallel", 1) in parts for source in sources)


def test_a_cache_has_no_more_parts_than_copies() -> None:
    """An engine refuses more ranks than hold copies, of one latent or of 8 key-value heads."""
    setting = serving_setting("deepseek-v3", "h200-sxm-141gb", "vllm", decode_context_parallel=8)
    dense = serving_setting("llama-3.1-70b", "h200-sxm-141gb", "vllm", decode_context_parallel=8)
    rule = SERVING_REJECTIONS.index("engine") + 1
    for each_setting, refused in ((setting, [True, False]), (dense, [True, True])):
        c = replicas(num_gpus=8, tensor_parallel=np.array([4.0, 8.0]))
        found = evaluate_serving(each_setting, c).rejected_by
        assert (found == rule).tolist() == refused
