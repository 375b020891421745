"""Bubble and micro-batches in flight of pipeline schedules."""

from __future__ import annotations

import pytest
from rows import each

from planner.formulas.pipeline import bubble_time_1f1b, micro_batches_in_flight


@pytest.mark.parametrize(
    ("p", "v", "m", "expected"),
    [
        pytest.param(4, 1, 8, 3 / 8, id="arXiv:2104.04473 Figure 3: p=4 m=8"),
        pytest.param(4, 2, 8, 3 / 16, id="arXiv:2104.04473 Figure 4: v=2 halves it"),
        pytest.param(8, 1, 64, 0.109375, id="arXiv:2104.04473 section 2.2.1: p=8 m=64"),
        pytest.param(8, 3, 64, 0.109375 / 3, id="arXiv:2104.04473 section 2.2.2: v=3"),
        pytest.param(35, 3, 280, 34 / 840, id="arXiv:2205.05198 Table 3, 530B"),
        pytest.param(1, 1, 4, 0.0, id="one stage has no bubble"),
    ],
)
def test_idle_share_of_a_pipeline(p: int, v: int, m: int, expected: float) -> None:
    idle = bubble_time_1f1b(all_stages=p, slowest_stage=1.0, virtual_pipeline=v)
    assert idle == pytest.approx(expected * m, rel=1e-12)


@pytest.mark.parametrize(
    ("p", "v", "expected"),
    [
        pytest.param(4, 1, 4, id="1F1B holds p"),
        pytest.param(8, 3, 8 * (1 + 7 / 24), id="arXiv:2205.05198 section 4.2.3: 175B"),
        pytest.param(35, 3, 35 * (1 + 34 / 105), id="arXiv:2205.05198 section 4.2.3: 530B"),
    ],
)
def test_first_stage_in_flight(p: int, v: int, expected: float) -> None:
    held = micro_batches_in_flight(pipeline_parallel=p, virtual_pipeline=v, num_micro_batches=999)
    assert held == pytest.approx(expected, rel=1e-12)


def _simulated_1f1b(p: int, m: int, stage: int) -> int:
    """Most forward passes without their backward: p-r-1 warm-up, then one by one."""
    warm_up = min(m, p - stage - 1)
    order = ["F"] * warm_up + ["F", "B"] * (m - warm_up) + ["B"] * warm_up
    held = most = 0
    for pass_ in order:
        held += 1 if pass_ == "F" else -1
        most = max(most, held)
    return most


@each("p", [1, 2, 5, 8])
@each("m", [1, 3, 8, 20])
def test_in_flight_equals_a_played_schedule(p: int, m: int) -> None:
    for stage in range(p):
        held = micro_batches_in_flight(
            pipeline_parallel=p, virtual_pipeline=1, num_micro_batches=m, stage=stage
        )
        assert held == _simulated_1f1b(p, m, stage)


@pytest.mark.parametrize("p", [2, 4, 8])
@pytest.mark.parametrize("v", [2, 3])
def test_interleaved_in_flight_equals_megatron_warm_up(p: int, v: int) -> None:
    """Megatron-LM warms up with 2(p-r-1) + (v-1)p chunk passes, then one more forward."""
    for stage in range(p):
        chunks = 2 * (p - stage - 1) + (v - 1) * p + 1
        held = micro_batches_in_flight(
            pipeline_parallel=p, virtual_pipeline=v, num_micro_batches=99, stage=stage
        )
        assert held * v == pytest.approx(chunks)


def test_in_flight_never_exceeds_the_micro_batches() -> None:
    held = micro_batches_in_flight(pipeline_parallel=8, virtual_pipeline=2, num_micro_batches=3)
    assert held == 3
