"""Rooflines, attention work, overlap and money."""

from __future__ import annotations

import numpy as np
import pytest
from rows import each

from planner.formulas.attention import (
    attention_core_bytes,
    attention_core_flops,
    mean_keys_per_query,
    unfused_softmax_bytes,
    wave_fill_factor,
)
from planner.formulas.collectives import exposed_time, unhidden_time
from planner.formulas.cost import gpu_seconds, time_to_train
from planner.formulas.power import energy
from planner.formulas.roofline import (
    gemm_flops,
    memory_bound_time,
    roofline_time,
    time_with_extra_traffic,
)

# An A100: 312 TFLOP/s, 2 TB/s; the balance is 156 FLOP per byte.
A100 = {
    "peak_flops": 312e12,
    "memory_bandwidth": 2e12,
    "compute_fraction": 1.0,
    "bandwidth_fraction": 1.0,
    "latency": 0.0,
}


@pytest.mark.parametrize("intensity", [1, 156, 10_000])
def test_infinite_sharpness_is_the_classic_roofline(intensity: float) -> None:
    """S. Williams et al., CACM 52(4), Figure 1: the smaller of the two ceilings."""
    time = roofline_time(flops=intensity * 1e9, num_bytes=1e9, sharpness=np.inf, **A100)
    attained = intensity * 1e9 / time
    assert attained == pytest.approx(min(312e12, 2e12 * intensity), rel=1e-12)


def test_sharpness_one_is_the_sum() -> None:
    time = roofline_time(flops=312e9, num_bytes=4e9, sharpness=1, **A100)
    assert time == pytest.approx(1e-3 + 2e-3)


def test_sharpness_two_is_the_euclidean_norm() -> None:
    time = roofline_time(flops=3 * 312e9, num_bytes=4 * 2e9, sharpness=2, **A100)
    assert time == pytest.approx(5e-3)


def test_roofline_lies_between_larger_and_sum_and_falls_with_sharpness() -> None:
    q = np.array([1.0, 1.3, 2.0, 5.0, 30.0, 300.0])
    times = roofline_time(flops=312e9, num_bytes=1.4e9, sharpness=q, **A100)
    assert np.all(np.diff(times) < 0)
    assert np.all((times >= 1e-3) & (times <= 1.7e-3 * (1 + 1e-12)))


def test_more_traffic_joins_as_the_bounds_do() -> None:
    assert time_with_extra_traffic(time=3.0, extra_time=4.0, sharpness=2.0) == 5.0
    assert time_with_extra_traffic(time=3.0, extra_time=0.0, sharpness=1.7) == pytest.approx(3.0)


def test_roofline_neither_overflows_nor_divides_by_zero() -> None:
    huge = roofline_time(flops=1e30, num_bytes=1e3, sharpness=40, **A100)
    assert huge == pytest.approx(1e30 / 312e12)
    assert roofline_time(flops=0.0, num_bytes=0.0, sharpness=2, **A100) == 0


def test_fractions_and_latency() -> None:
    halved = {**A100, "compute_fraction": 0.5, "latency": 7e-6}
    time = roofline_time(flops=312e9, num_bytes=1.0, sharpness=np.inf, **halved)
    assert time == pytest.approx(2e-3 + 7e-6)
    copy = memory_bound_time(
        num_bytes=1e9, memory_bandwidth=2e12, bandwidth_fraction=0.8, latency=3e-6
    )
    assert copy == pytest.approx(625e-6 + 3e-6)


def test_matrix_product_by_hand() -> None:
    """Two multiply-adds counted twice: [2,3] x [3,4] does 24 of them."""
    assert gemm_flops(rows=2, columns=4, depth=3) == 48


@each("s", [1, 2, 7, 64])
@each("window", [1, 3, 7, 100])
def test_mean_keys_equal_a_counted_mask(s: int, window: int) -> None:
    seen = [sum(1 for key in range(s) if 0 <= query - key < window) for query in range(s)]
    mean = mean_keys_per_query(sequence_length=s, sliding_window=window, causal=True)
    assert mean == pytest.approx(sum(seen) / s, rel=1e-12)
    in_block = mean_keys_per_query(sequence_length=s, sliding_window=window, causal=False)
    assert in_block == min(window, s)


def test_attention_flops_of_flash_attention_2() -> None:
    """arXiv:2307.08691, section 4.1: 4 s^2 d a forward, half of it under a causal mask."""
    s, d, a = 4096, 128, 16
    flops = attention_core_flops(
        num_queries=s, keys_per_query=s, num_heads=a, qk_head_dim=d, v_head_dim=d
    )
    assert flops == 4 * s**2 * d * a
    keys = mean_keys_per_query(sequence_length=s, sliding_window=s, causal=True)
    assert flops * keys / s == pytest.approx(flops / 2, rel=1 / s)


def test_attention_bytes_of_grouped_queries() -> None:
    """32 query and 8 key-value heads of 128: q, o and k, v of one token in 16 bit."""
    moved = attention_core_bytes(
        num_queries=1, num_heads=32, num_key_value_heads=8, qk_head_dim=128, v_head_dim=128
    )
    assert moved == 2 * (32 + 32 + 8 + 8) * 128
    passes = unfused_softmax_bytes(sequences=2, num_heads=3, sequence_length=10, passes=4)
    assert passes == 2 * 4 * 2 * 3 * 100


def test_wave_fill() -> None:
    """One sequence of 256 on 54 heads makes 108 tiles: one per multiprocessor of an A100."""
    full = {"sequences": 1, "num_heads": 54, "num_multiprocessors": 108, "wave_fill": 1.5}
    assert wave_fill_factor(sequence_length=256, **full) == pytest.approx(2.5)
    assert wave_fill_factor(sequence_length=129, **full) == pytest.approx(2.5)
    assert wave_fill_factor(sequence_length=2560, **full) == pytest.approx(1.15)


@pytest.mark.parametrize(
    ("communication", "computation", "interference", "expected"),
    [
        pytest.param(1.0, 3.0, 0.0, 0.0, id="hidden behind longer computation"),
        pytest.param(3.0, 1.0, 0.0, 2.0, id="what outlasts the computation shows"),
        pytest.param(1.0, 3.0, 1.0, 1.0, id="full interference hides nothing"),
        pytest.param(1.0, 3.0, 0.2, 0.2, id="interference of the shorter one"),
        pytest.param(3.0, 1.0, 0.2, 2.2, id="interference and the rest"),
        pytest.param(3.0, 0.0, 0.2, 3.0, id="nothing to hide behind"),
    ],
)
def test_exposed_time(
    communication: float, computation: float, interference: float, expected: float
) -> None:
    shown = exposed_time(
        communication=communication, computation=computation, interference=interference
    )
    assert shown == pytest.approx(expected)


def test_partly_hidden() -> None:
    assert unhidden_time(communication=4.0, hidden=0.75) == pytest.approx(1.0)


def test_llama_65b_run_by_hand() -> None:
    """arXiv:2302.13971, section 2.4: 380 tokens/s/GPU on 2,048 A100 is 1.4T tokens in 21 days."""
    step = 4 * 2**20 / (380 * 2048)
    run = time_to_train(step_time=step, total_tokens=1.4e12, tokens_per_step=4 * 2**20)
    assert run / 86400 == pytest.approx(21, rel=0.01)
    hours = gpu_seconds(duration=run, num_gpus=2048) / 3600
    assert hours == pytest.approx(1_022_362, rel=0.01)
    joules = energy(power=2048 * 400, duration=run)
    assert joules / 3.6e9 == pytest.approx(hours * 400 / 1e6, rel=1e-12)
    assert joules / 3.6e9 == pytest.approx(449 / 1.1, rel=0.01)  # Table 15, PUE 1.1


def test_runs_take_whole_steps() -> None:
    assert time_to_train(step_time=2.0, total_tokens=101, tokens_per_step=10) == 22
    assert time_to_train(step_time=2.0, total_tokens=100, tokens_per_step=10) == 20
    assert time_to_train(step_time=2.0, total_tokens=1, tokens_per_step=9) == 2
