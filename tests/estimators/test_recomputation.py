"""Recomputation of some layers or blocks; 8-bit attention is faster by its rates."""

from __future__ import annotations

import numpy as np
import pytest
from published_runs import configuration, setting

from planner.base.enums import (
    ComputePrecision,
    Recompute,
)
from planner.estimators.training.flops import recomputed_flops_per_token
from planner.estimators.training.recomputation import Recomputation
from planner.estimators.training.training_estimate import Estimate, evaluate

LAYERS = 80  # of llama-65b


def _recomputed(**values) -> Estimate:
    layout = {"num_gpus": 64, "tensor_parallel": 8, "pipeline_parallel": 4, "global_batch_size": 64}
    return evaluate(setting("llama-65b"), configuration(**{**layout, **values}))


def test_half_of_the_layers_is_halfway_between_none_and_all() -> None:
    recompute = [Recompute.NONE, Recompute.FULL, Recompute.FULL]
    estimate = _recomputed(recompute=recompute, recompute_num_layers=[0, 10, 0])
    compute = estimate.time.parts()["recompute"]
    none, half, full = np.broadcast_to(compute, 3)
    assert none == 0
    assert half == pytest.approx(full / 2, rel=1e-6)
    none, half, full = estimate.step_time
    assert none < half < full
    memory = estimate.memory.fullest.activations
    assert memory[2] < memory[1] < memory[0]
    assert memory[1] == pytest.approx((memory[0] + memory[2]) / 2, rel=0.05)


def test_counts_are_layers_of_a_stage() -> None:
    table = configuration(
        num_gpus=64,
        global_batch_size=64,
        pipeline_parallel=[1, 4, 4, 1],
        recompute=[Recompute.FULL, Recompute.FULL, Recompute.FULL, Recompute.SELECTIVE],
        recompute_num_layers=[10, 10, 0, 0],
    )
    share = Recomputation.of(table, LAYERS)
    np.testing.assert_allclose(share.full, [1 / 8, 1 / 2, 1, 0])
    assert share.any_full.tolist() == [True, True, True, False]
    assert share.by_share.tolist() == [False, False, False, True]
    assert share.repeats(("core_attn",)).tolist() == [False, False, False, True]


@pytest.mark.parametrize("model", ["llama-65b", "mixtral-8x7b"])
def test_feed_forward_blocks_are_repeated_and_kept_nowhere(model: str) -> None:
    s = setting(model, gpu="h100-sxm-80gb", sequence_length=2048)
    recompute = [Recompute.NONE, Recompute.FEED_FORWARD, Recompute.FULL]
    layout = configuration(
        num_gpus=64, pipeline_parallel=8, expert_parallel=1, global_batch_size=64,
        flash_attention=True, recompute=recompute,
    )  # fmt: skip
    estimate = evaluate(s, layout)
    none, some, full = estimate.memory.fullest.activations
    assert full < some < none
    assert np.all(np.diff(estimate.step_time) > 0)
    times = {
        operator.name: {phase: np.broadcast_to(seconds, 3) for phase, seconds in phases.items()}
        for operator, phases in estimate.time.operator_times()
    }
    attention = times.pop("attention_core"), times.pop("qkv")
    assert all(phases["recompute"][1] == 0 < phases["recompute"][2] for phases in attention)
    for name in ("feed_forward_norm", "experts" if s.model.num_experts else "gate_up"):
        assert times[name]["recompute"][1] == pytest.approx(times[name]["forward"][1])
    assert times["feed_forward_residual"]["recompute"][1] == 0


def test_flops_of_repeated_feed_forward_blocks_by_hand() -> None:
    s = setting("llama-65b")
    layout = configuration(num_gpus=8, global_batch_size=8, recompute=Recompute.FEED_FORWARD)
    again = Recomputation.of(layout, LAYERS)
    flops = recomputed_flops_per_token(s.model, 2048, again, np.bool_(True))
    assert float(flops) == 2 * LAYERS * 3 * 8192 * 22016


def test_attention_in_8_bit_is_faster_by_its_measured_rates() -> None:
    s = setting("llama-3.1-8b", gpu="b200-sxm-180gb", sequence_length=16384)
    layout = configuration(
        num_gpus=8,
        precision=ComputePrecision.FP8,
        fp8_attention=[False, True],
        global_batch_size=64,
    )
    times = {
        operator.name: {phase: np.broadcast_to(seconds, 2) for phase, seconds in phases.items()}
        for operator, phases in evaluate(s, layout).time.operator_times()
    }["attention_core"]
    rates = s.machine.gpu.efficiency.fp8_attention
    assert rates is not None
    ratio = {phase: seconds[0] / seconds[1] for phase, seconds in times.items() if seconds[0]}
    assert ratio["forward"] == pytest.approx(rates.forward, rel=0.02)
    assert ratio["backward"] == pytest.approx(rates.backward, rel=0.02)
