"""What published models keep: buffers that shrink with the model, experts that are split."""

from typing import Any

import numpy as np
import pytest

import planner
from planner.base.units import GIB


def peak(part: str = "total", **question: Any) -> float:
    """GiB of a part of the memory of the fullest GPU."""
    memory = planner.estimate(**question).estimate.memory
    return float(np.ravel(getattr(memory.fullest, part))[0]) / GIB


@pytest.mark.parametrize(("model", "gib"), [("pythia-410m", 7.55), ("gpt-neox-20b", 9.27)])
def test_buckets_of_megatron_deepspeed_hold_no_more_than_the_model(model: str, gib: float) -> None:
    """5e8 elements each, of 19.9 bytes together; 405 million have fewer."""
    question = {
        "model": model,
        "gpu": "a100-sxm-40gb",
        "num_gpus": 32,
        "framework": "megatron-deepspeed",
        "sequence_length": 2048,
        "global_batch_size": 1024,
        "settings": {"micro_batch_size": 8, "precision": "fp16", "recompute": "none"},
    }
    assert peak("communication_buffers", **question) == pytest.approx(gib, abs=0.01)


def test_experts_of_grok_are_split() -> None:
    """Eight experts on eight ranks: 245 GiB of a GB200's 186; split by four they fit."""
    settings = {"tensor_parallel": 4, "expert_parallel": 8, "micro_batch_size": 1, "zero_stage": 1}
    settings |= {"recompute": "full", "sequence_parallel": True}
    question = {
        "model": "grok-1",
        "gpu": "gb200-nvl72",
        "num_gpus": 256,
        "framework": "megatron-lm",
        "sequence_length": 8192,
        "global_batch_size": 1024,
    }
    whole = planner.estimate(**question, settings=settings)
    split = planner.estimate(**question, settings={**settings, "expert_tensor_parallel": 4})
    assert whole.rejected_by == "out_of_memory"
    assert not split.rejected_by
    assert peak(**question, settings=settings | {"expert_tensor_parallel": 4}) < 100


@pytest.mark.parametrize(("stage", "each"), [(2, 6), (3, 8)])
def test_zero_3_holds_its_gradients_while_it_updates(stage: int, each: int) -> None:
    """Stage 3 keeps a buffer of 16-bit gradients beside those in 32 bits and Adam's temporary.

    8B on 8 x RTX 3090 in fp16 ran out so (hiyouga/LLaMA-Factory issue 5977).
    """
    question = {
        "model": "llama-3-8b",
        "gpu": "rtx3090",
        "num_gpus": 8,
        "framework": "deepspeed",
        "sequence_length": 1024,
        "global_batch_size": 8,
        "settings": {"zero_stage": stage, "precision": "fp16", "recompute": "full"},
    }
    owned = 8_030_261_248 / 8
    updated = min(owned, 1e9) if stage == 3 else owned
    assert peak("working", **question) == pytest.approx(each * updated / GIB, rel=1e-3)
    assert planner.estimate(**question).rejected_by == "out_of_memory"
