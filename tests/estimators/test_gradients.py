"""Gradients of DeepSpeed in bf16 and fp16, and products that have no tensor cores."""

from __future__ import annotations

import numpy as np
import pytest
from published_runs import configuration, setting

from planner.base.enums import (
    ComputePrecision,
    Recompute,
)
from planner.configurations.configuration_tables import TrainingConfigurations
from planner.estimators.training.bytes_per_element import GradientBytes
from planner.estimators.training.training_estimate import Estimate, evaluate

BLOOM = {
    "num_gpus": 384,
    "tensor_parallel": 8,
    "pipeline_parallel": 12,
    "micro_batch_size": 4,
    "global_batch_size": 2048,
    "zero_stage": 1,
    "recompute": Recompute.FULL,
    "flash_attention": False,
}
PRECISIONS = [ComputePrecision.BF16, ComputePrecision.FP16]


def _table(**values: object) -> TrainingConfigurations:
    return configuration(**{**BLOOM, **values})


def _estimate(model: str, framework: str = "megatron-deepspeed", **values: object) -> Estimate:
    return evaluate(setting(model, framework, gpu="a100-sxm-80gb"), _table(**values))


def _seconds(estimate: Estimate, name: str) -> float:
    """Of an operator in a step, forward, backward and repeated."""
    return sum(
        float(np.max(seconds))
        for operator, times in estimate.time.operator_times()
        if operator.name == name
        for seconds in times.values()
    )


def test_bf16_adds_gradients_in_fp32_and_all_reduces_them() -> None:
    """DeepSpeed's BF16_Optimizer: 18 bytes per parameter and micro-batch; 4 on the wire, twice."""
    estimate = _estimate("bloom-176b", precision=PRECISIONS)
    in_bf16, in_fp16 = estimate.time.data_parallel
    # An all-reduce of 4 bytes and a gather of 2 against a scatter and a gather of 2 each.
    assert in_bf16 / in_fp16 == pytest.approx((2 * 4 + 2) / (2 + 2), rel=0.1)
    in_bf16, in_fp16 = estimate.time.parts()["backward"]
    assert in_bf16 > 1.01 * in_fp16


def test_the_first_micro_batch_of_a_step_is_added_to_nothing() -> None:
    """m micro-batches are m - 1 sums."""
    times = [
        _seconds(
            _estimate("bloom-176b", precision=ComputePrecision.BF16, global_batch_size=16 * m),
            "gradient_accumulation",
        )
        for m in (1, 2, 5)
    ]
    assert times[0] == 0.0
    assert times[2] == pytest.approx(4 * times[1])


def test_the_sum_takes_18_bytes_per_parameter_at_the_speed_of_memory() -> None:
    estimate = _estimate("bloom-176b", precision=ComputePrecision.BF16)
    per_gpu = 176.2e9 / 96  # the first and the last stage hold an embedding beside their layers
    seconds = 127 * 18 * per_gpu / (0.78 * 2.039e12)
    assert _seconds(estimate, "gradient_accumulation") == pytest.approx(seconds, rel=0.25)


def test_a_framework_without_kernels_for_it_takes_no_time_for_it() -> None:
    estimate = _estimate("bloom-176b", "megatron-lm")
    names = {operator.name for operator, _ in estimate.time.operator_times()}
    assert "gradient_accumulation" not in names


def test_fp16_states_count_where_a_framework_has_them() -> None:
    precision = np.asarray(PRECISIONS, dtype=np.int8)
    of_deepspeed = GradientBytes.of(setting("llama-7b", "megatron-deepspeed").framework, precision)
    assert list(np.asarray(of_deepspeed.stored_bytes)) == [6, 2]
    assert list(np.asarray(of_deepspeed.on_wire)) == [4, 2]
    assert GradientBytes.of(setting("llama-7b", "torchtitan").framework, precision).scattered == 1


def test_heads_of_150_leave_the_tensor_cores() -> None:
    """Published: 72 layers of width 14,400 take 163.32 s, of width 14,336 take 123.69 s."""
    wide, usual = (
        float(_estimate(model, precision=ComputePrecision.FP16).step_time) / of_the_fullest_stage
        for model, of_the_fullest_stage in (("bigscience-gpt-205b", 7), ("bloom-176b", 6))
    )
    assert wide / usual == pytest.approx(163.32 / 123.69, rel=0.1)


def test_fused_attention_pads_its_heads() -> None:
    fused = _estimate("bigscience-gpt-205b", flash_attention=True)
    unfused = _estimate("bigscience-gpt-205b")
    assert _seconds(unfused, "attention_core") > 3 * _seconds(fused, "attention_core")


@pytest.mark.parametrize(
    ("framework", "each"), [("hf-fsdp", 2), ("litgpt", 2), ("nemo-automodel", 4)]
)
def test_gradients_wait_unsharded_for_the_last_micro_batch(framework: str, each: int) -> None:
    """Transformers, Fabric and AutoModel turn off FSDP's reduction until then (no_sync)."""
    batches = [8, 16]
    c = configuration(
        num_gpus=8, micro_batch_size=1, global_batch_size=batches, zero_stage=3,
        recompute=Recompute.FULL,
    )  # fmt: skip
    inputs = setting("llama-3-8b", framework, gpu="h100-sxm-80gb")
    backward, update, *_ = evaluate(inputs, c).memory.moments[0]
    at_once, later = backward.gathered
    assert at_once < 4.5e9
    assert each * 8.03e9 - at_once < later - at_once < each * 8.03e9
    # Shards are made of them after that: they have none beside them, and are there at the update.
    assert not np.any(backward.gradients)
    assert np.all(update.gradients > 0)


def test_one_rank_of_fsdp_reduces_each_micro_batch_in_torchtitan() -> None:
    """pytorch/torchtitan pull request 1710: it reduces by default, which is hidden."""
    c = configuration(num_gpus=8, micro_batch_size=1, global_batch_size=[8, 16], zero_stage=3)
    inputs = setting("llama-3-8b", "torchtitan", gpu="h100-sxm-80gb")
    at_once, later = evaluate(inputs, c).memory.fullest.gathered
    assert at_once == later
