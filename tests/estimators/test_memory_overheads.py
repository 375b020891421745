"""What a GPU holds beside the model: less on one small card than on many large ones."""

from __future__ import annotations

from typing import Any

import pytest

import planner
from planner.base.units import GIB


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


DEEPSPEED = {"framework": "deepspeed", "gpu": "a100-sxm-80gb"}
PARAMETERS = 8_030_261_248


def _sharded(zero: int = 3, **settings: Any) -> Any:
    return _memory(8, settings={"zero": zero, **settings}, **DEEPSPEED)


def test_the_step_of_zero_3_makes_gradients_of_a_sub_group() -> None:
    """A rank owns 1,003,782,656 parameters, and a sub-group has 10^9 (DeepSpeed's config.py).

    Of each number a flat copy in 16 bits, and one in 32: 2 + 4 bytes.
    """
    assert _sharded().moments[0][1].working.max() == pytest.approx(6e9)
    small = _sharded(sub_group_size=100_000_000)
    assert small.moments[0][1].working.max() == pytest.approx(6e8)
    whole = _sharded(zero=2, sub_group_size=100_000_000)
    assert whole.moments[0][1].working.max() == pytest.approx(6 * PARAMETERS / 8)


def test_the_step_of_zero_makes_gradients_for_an_optimizer_in_8_bits_too() -> None:
    narrow = _sharded(zero=2, optimizer_state_precision="int8")
    assert narrow.moments[0][1].working.max() == pytest.approx(6 * PARAMETERS / 8)


def test_the_step_of_zero_2_holds_what_a_failure_of_it_tells() -> None:
    """hiyouga/LLaMA-Factory issue 1221: LLaMA-7B, ZeRO-2 on 8 V100, 28.28 GiB allocated in Adam.

    16-bit weights 12.55, three states of 3.14 each, gradients in 32 bits 3.14, and the first of two
    temporaries of that PyTorch's Adam, 3.14: the flat and the 16-bit gradients are as much.
    """
    memory = planner.estimate(
        model="llama-7b",
        gpu="v100-sxm-32gb",
        num_gpus=8,
        framework="deepspeed",
        sequence_length=512,
        global_batch_size=8,
        settings={"zero": 2, "recompute": "full", "precision": "fp16"},
    ).candidates.estimate.memory
    step = memory.moments[0][1]
    held = step.weights + step.gradients + step.optimizer_states + step.working
    assert held.max() / GIB == pytest.approx(28.28, rel=0.01)


def test_zero_3_keeps_as_many_whole_parameters_as_may_live() -> None:
    gradients = 2 * 128_256 * 4096  # those of the embedding are more than two layers'
    most = _sharded().fullest.gathered.max()
    assert most == pytest.approx(2e9 + gradients)
    few = _sharded(stage3_max_live_parameters=1).fullest.gathered.max()
    assert few == pytest.approx(2 * 128_256 * 4096 + gradients)
    every = _sharded(stage3_max_live_parameters=10**12).fullest.gathered.max()
    assert every == pytest.approx(2 * PARAMETERS + gradients)


def test_buckets_are_as_large_as_told() -> None:
    usual = _sharded().fullest.communication_buffers.max()
    assert usual == pytest.approx(2 * GIB)
    told = _sharded(reduce_bucket_size=4096**2).fullest.communication_buffers.max()
    assert told == pytest.approx(usual * 4096**2 / 5e8)
    assert _sharded(zero=2).fullest.communication_buffers.max() == pytest.approx(GIB)


def test_full_fine_tuning_of_8b_by_zero_3_with_default_buckets_overfills_24_gb() -> None:
    """As people found: eight cards of 24 GB run out in the step of ZeRO-3."""
    found = planner.estimate(
        model="llama-3.1-8b",
        gpu="rtx4090",
        num_gpus=8,
        framework="deepspeed",
        sequence_length=2048,
        global_batch_size=8,
        settings={"zero": 3, "recompute": "full"},
    )
    assert found.rejected_by == "out_of_memory"
