"""CUDA graphs of parts of layers, which Megatron-Bridge's recipes of some models have."""

from __future__ import annotations

import pytest

from planner import estimate

_SUMMARY = "NVIDIA-NeMo/Megatron-Bridge@067f987, docs/performance-summary.md"


def _row(model, gpu, framework="megatron-bridge", gpus=8, batch=512, **settings):
    """One configuration's numbers, in 8 bits with sequences of 8,192 tokens."""
    settings = {"precision": "fp8", "recompute": "none", **settings}
    asked = {"model": model, "gpu": gpu, "num_gpus": gpus, "framework": framework}
    asked |= {"sequence_length": 8192, "global_batch_size": batch, "settings": settings}
    (row,) = estimate(**asked).to_frame().to_dict("records")
    return row


@pytest.mark.parametrize(
    ("gpu", "micro_batch_size", "tokens_per_second"),
    [("gb300", 4, 39936), ("gb200", 2, 34816)],
    ids=["26.08", "26.06.01"],
)
def test_nemotron_3_nano_takes_as_long_as_published(gpu, micro_batch_size, tokens_per_second):
    split = {"expert_parallel": 8, "micro_batch_size": micro_batch_size}
    row = _row("nemotron-3-nano-30b-a3b", gpu, **split)
    assert row["tokens_per_s_per_gpu"] == pytest.approx(tokens_per_second, rel=0.1), _SUMMARY


@pytest.mark.parametrize(
    ("model", "gpu", "is_whole"),
    [
        ("qwen3-30b-a3b", "b200", True),
        ("qwen3-30b-a3b", "h100", False),
        ("qwen3-next-80b-a3b", "b200", False),
    ],
)
def test_a_graph_of_the_step_needs_the_gpu_and_the_model(model, gpu, is_whole):
    split = {"expert_parallel": 8, "micro_batch_size": 1}
    bridge, nemo = (_row(model, gpu, name, **split) for name in ("megatron-bridge", "nemo"))
    ratio = bridge["step_time_s"] / nemo["step_time_s"]
    assert (ratio < 0.95) if is_whole else ratio == pytest.approx(1.0, rel=0.02)
