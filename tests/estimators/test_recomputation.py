"""Block recomputation is between none and all, and 8-bit attention is faster by its rates."""

from __future__ import annotations

import numpy as np
import pytest
from published_runs import configuration, setting

from planner.enums import ComputePrecision, Recompute
from planner.estimators.estimate import Estimate, evaluate
from planner.estimators.recomputation import Recomputation

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
    assert share.selective.tolist() == [False, False, False, True]


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
