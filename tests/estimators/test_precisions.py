"""Training in 32 bits and in integers of 8: bytes by component, and rates of the GPU's peaks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from published_runs import configuration, setting

from planner.base.enums import (
    ComputePrecision,
)
from planner.estimators.training.model_states import ModelStates
from planner.estimators.training.training_estimate import Estimate, evaluate

LLAMA_7B = 6_738_415_616
LAYER, ENDS = 202_383_360, 2 * 32_000 * 4096


def _estimate(*precisions: ComputePrecision, framework: str = "megatron-lm", **of: Any) -> Estimate:
    efficiency = of.pop("flops_efficiency", None)
    layout = {"num_gpus": 8, "global_batch_size": 8, "flash_attention": True, **of}
    world = setting("llama-7b", framework, gpu="a100-sxm-80gb", sequence_length=2048)
    return evaluate(world, configuration(precision=[*precisions], **layout), efficiency)


@pytest.mark.parametrize(
    ("framework", "expected"),
    [
        # Weights, gradients and two moments of 4 bytes each; a copy in more bits is needed nowhere.
        ("megatron-lm", (4, 4, 8)),
        ("deepspeed", (4, 4, 8)),
        ("fsdp-bf16", (4, 4, 8)),
    ],
)
def test_bytes_of_a_parameter_in_32_bits(framework: str, expected: tuple[float, ...]) -> None:
    tf32, fp32 = ComputePrecision.TF32, ComputePrecision.FP32
    memory = _estimate(tf32, fp32, framework=framework).memory.fullest
    for part, width in zip(("weights", "gradients", "optimizer_states"), expected, strict=True):
        held = np.broadcast_to(getattr(memory, part), 2)
        np.testing.assert_allclose(held, width * LLAMA_7B, rtol=1e-3)


@pytest.mark.parametrize(
    ("framework", "expected"),
    [
        # ZeRO, section 3.1: K = 12 bytes, 4 of them the weights in 32 bits.
        ("deepspeed", (12, 8)),
        ("megatron-lm", (12, 8)),
        # Weights that stay in 32 bits are what the optimizer updates.
        ("fsdp", (8, 8)),
        # Everything in 16 bits.
        ("fsdp-bf16", (4, 4)),
    ],
)
def test_moments_are_what_the_optimizer_keeps_beside_the_main_weights(
    framework: str, expected: tuple[float, float]
) -> None:
    world = setting("llama-7b", framework, gpu="a100-sxm-80gb", sequence_length=2048)
    layout = {"num_gpus": 8, "global_batch_size": 8}
    states = ModelStates.of(world, configuration(**layout))
    assert (states.optimizer, states.moments, states.end_moments) == (*expected, expected[1])
    both = ModelStates.of(world, configuration(**layout, precision=[0, ComputePrecision.FP32]))
    assert np.broadcast_to(both.moments, 2).tolist() == [expected[1], 8]


def test_an_update_in_32_bits_writes_no_copy_in_16() -> None:
    """Adam reads the gradient, weight and moments, twice the gradient, and writes the rest."""
    bf16, fp32 = ComputePrecision.BF16, ComputePrecision.FP32
    world = setting("llama-7b", gpu="a100-sxm-80gb", sequence_length=2048)
    table = configuration(num_gpus=8, global_batch_size=8, precision=[bf16, fp32])
    moved = ModelStates.of(world, table).traffic
    np.testing.assert_allclose(moved, [38, 38 - 2])


def test_kept_activations_have_twice_the_bytes_but_for_the_statistics_of_attention() -> None:
    bf16, tf32, fp32, int8 = _estimate(
        *(ComputePrecision[word] for word in ("BF16", "TF32", "FP32", "INT8"))
    ).memory.fullest.activations
    # 32 layers, 2048 tokens: a statistic of 4 bytes for each of 32 heads stays as it is.
    statistics = 32 * 2048 * 32 * 4
    assert tf32 == fp32 == pytest.approx(2 * bf16 - statistics)
    # Inputs of products are kept in 8 bits: of queries and of gate (4096 each) and of down (11008);
    # that of the output is what attention made, and kept as it is.
    assert int8 == pytest.approx(bf16 - 32 * 2048 * (2 * 4096 + 11008))


def test_states_in_integers_are_those_of_16_bits() -> None:
    memory = _estimate(ComputePrecision.BF16, ComputePrecision.INT8).memory.fullest
    for part in ("weights", "gradients", "optimizer_states"):
        same = np.broadcast_to(getattr(memory, part), 2)
        assert same[0] == same[1]


def test_a_flat_efficiency_is_of_the_peak_of_the_precision() -> None:
    """A100: 312, 156, 19.5 and 624 TFLOP/s, as its datasheet has them."""
    words = ("BF16", "TF32", "FP32", "INT8")
    times = _estimate(*(ComputePrecision[word] for word in words), flops_efficiency=0.5).step_time
    flops = 8 * 2048 * (6 * (32 * LAYER + ENDS / 2) + 12 * 32 * 4096 * 2048)
    expected = [flops / (8 * 0.5 * peak * 1e12) for peak in (312, 156, 19.5, 624)]
    np.testing.assert_allclose(times, expected, rtol=2e-3)


def test_a_large_product_takes_as_much_longer_as_its_peak_is_lower() -> None:
    machine = setting("llama-7b", gpu="h100-sxm-80gb").machine
    codes = np.array([ComputePrecision.TF32, ComputePrecision.FP32], dtype=np.int8)
    tf32, fp32 = machine.gemm_time(16384, 16384, 16384, codes, 4.0)
    measured = machine.gpu.efficiency
    share = measured.gemm["bf16"].compute_fraction * measured.sustained_compute_fraction
    assert tf32 == pytest.approx(2 * 16384**3 / (494.5e12 * share), rel=0.03)
    assert fp32 == pytest.approx(2 * 16384**3 / (67e12 * share), rel=0.01)


def test_what_goes_between_tensor_parallel_ranks_has_twice_the_bytes() -> None:
    bf16, fp32 = ComputePrecision.BF16, ComputePrecision.FP32
    parts = _estimate(bf16, fp32, tensor_parallel=8, micro_batch_size=8).time.parts()
    short, long = np.broadcast_to(parts["tensor_parallel"], 2)
    assert long == pytest.approx(2 * short, rel=0.05)


def test_adapters_of_weights_in_32_bits() -> None:
    world = setting(
        "llama-7b", "hf-trainer", gpu="a100-sxm-80gb", sequence_length=2048, adapter="lora"
    )
    table = configuration(num_gpus=1, global_batch_size=1, precision=ComputePrecision.FP32)
    weights = evaluate(world, table).memory.fullest.weights
    assert float(weights) == pytest.approx(4 * LLAMA_7B, rel=0.01)
