"""CUDA graphs of parts of layers, which Megatron-Bridge's recipes of some models have."""

from __future__ import annotations

import pytest

from planner import estimate


def _row(model, gpu, framework="megatron-bridge", gpus=8, batch=512, **settings):
    """One configuration's numbers, in 8 bits with sequences of 8,192 tokens."""
    settings = {"precision": "fp8", "recompute": "none", **settings}
    asked = {"model": model, "gpu": gpu, "num_gpus": gpus, "framework": framework}
    asked |= {"sequence_length": 8192, "global_batch_size": batch, "settings": settings}
    (row,) = estimate(**asked).to_frame().to_dict("records")
    return row


@pytest.mark.parametrize(
    ("model", "gpu", "gpus", "split", "tokens_per_second", "within"),
    [
        ("nemotron-3-nano-30b-a3b", "gb300", 8, (1, 8, 4), 39936, 0.06),
        ("nemotron-3-nano-30b-a3b", "gb200", 8, (1, 8, 2), 34816, 0.06),
        ("nemotron-3-super", "gb300", 64, (1, 64, 1), 9856, 0.15),
        ("nemotron-3-super", "gb200", 64, (2, 64, 1), 7040, 0.25),
    ],
)
def test_hybrids_take_as_long_as_published(model, gpu, gpus, split, tokens_per_second, within):
    """NVIDIA-NeMo/Megatron-Bridge@067f987, docs/performance-summary.md and its archive."""
    names = ("tensor_parallel", "expert_parallel", "micro_batch_size")
    settings = dict(zip(names, split, strict=True)) | {"sequence_parallel": split[0] > 1}
    row = _row(model, gpu, gpus=gpus, **settings)
    assert row["tokens_per_s_per_gpu"] == pytest.approx(tokens_per_second, rel=within)


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
