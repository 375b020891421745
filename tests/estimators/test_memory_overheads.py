"""What a GPU holds beside the model: less on one small card than on many large ones."""

from __future__ import annotations

from typing import Any

import pytest

import planner
from planner.units import GIB


def _memory(num_gpus: int = 1, gpu: str = "rtx4090", **question: Any) -> Any:
    asked = {"model": "llama-3.1-8b", "gpu": gpu, "sequence_length": 2048, "framework": "hf-bf16"}
    settings = {"recompute": "full", "zero": 0, **question.pop("settings", {})}
    request = {**asked, "global_batch_size": num_gpus, "settings": settings, **question}
    return planner.estimate(num_gpus=num_gpus, **request).candidates.estimate.memory


def test_one_gpu_has_no_buffers_of_collectives() -> None:
    assert _memory().fullest.communication_buffers.max() == 0
    assert _memory(2).fullest.communication_buffers.min() == 0.5 * GIB


def test_a_small_gpu_keeps_its_context_and_less_that_is_idle() -> None:
    """Of 1.5 GiB half a GiB is the context; of the rest 24 of 80 GB."""
    assert _memory(gpu="a100-sxm-80gb").fullest.reserved == pytest.approx(1.5 * GIB)
    small = 0.5 + (1.5 - 0.5) * 25.757 / 80
    assert _memory().fullest.reserved == pytest.approx(small * GIB, rel=0.01)


def test_an_update_in_eight_bits_builds_up_no_copy_of_all_weights() -> None:
    """Two bytes of 8.03 billion parameters: 15 GiB of torch's foreach implementation."""
    usual = _memory(gpu="h200").moments[0][1].working
    narrow = _memory(gpu="h200", settings={"optimizer_state_precision": "int8"})
    assert usual.max() / GIB == pytest.approx(15.0, rel=0.01)
    assert narrow.moments[0][1].working.max() == 0
