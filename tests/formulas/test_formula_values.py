"""Formulas on values worked out by hand; each public formula is compared with numbers."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from rows import each

from planner.formulas import (
    cost,
    draining,
    goodput,
    memory,
    normal,
    pipeline,
    power,
    prefix_cache,
    queueing,
    roofline,
    trace_queueing,
)

_ROOT = Path(__file__).parents[2]

_STEPS = {"decode_step": 2.0, "load": 0.5, "work": 3.0, "variation": 1.0}
_WORKED = [
    # 3 terms of 10 s on 4 GPUs are 120 GPU-s, the first multiple of 40 from 100 up.
    (cost.committed_gpu_seconds, {"used_gpu_seconds": 100, "num_gpus": 4, "term": 10}, 120),
    # 100 s at a quarter of the time: 400, but no more than the commitment; idle: all of it.
    (
        cost.charged_gpu_seconds,
        {"used_gpu_seconds": 100, "committed_gpu_seconds": 1000, "utilization": [0.25, 0.05, 0]},
        [400, 1000, 1000],
    ),
    # 2.5 waves of 8 s take 2 x 8 s and 6 s for the rest: 20 of 22.
    (draining.wave_quantization_ratio, {"waves": 2.5, "full": 8, "last": 6}, 20 / 22),
    # Daly, equation 13: 1 s in 100 s for the checkpoint; one failure in 100 s on average, so that
    # 1 / (e - 1) is not done again; and half of a failure in each recovery of 50 s.
    (
        goodput.training_time_parts,
        {"interval": 99, "blocking_time": 1, "write_time": 1, "recovery_time": 50, "rate": 0.01},
        [0.99, 1 / (math.e - 1), math.exp(-0.5)],
    ),
    # A write that goes on for 20 s beside training adds a fifth of a failure to what is lost.
    (
        goodput.training_time_parts,
        {"interval": 99, "blocking_time": 1, "write_time": 21, "recovery_time": 0, "rate": 0.01},
        [0.99, math.exp(-0.2) / (math.e - 1), 1],
    ),
    # An even distribution from 0 to 2 has the coefficient of variation 1 / sqrt(3).
    # DeepSeek-V3's table 2 on 16 stages: (16 / 2 - 1) (3 + 2 - 3 x 1); two have no bubble.
    (
        pipeline.dualpipe_bubble_time,
        {"stages": [16, 2], "mean_stage": 3.0, "mean_backward": 2.0, "mean_weights": 1.0},
        [14, 0],
    ),
    # The second comes 1 s after the first, which takes 2 s; the third 2 s after the second.
    (
        queueing.fifo_queueing_delays,
        {"times": np.array([0.0, 1, 3]), "service": np.array([2.0, 2, 1])},
        [0, 1, 1],
    ),
    # Middles of the weights at 1/8, 3/8 and 3/4 of all: the half is a third of the way to 4.
    (
        trace_queueing.weighted_quantile,
        {"values": np.array([4.0, 1, 2]), "weights": np.array([2.0, 1, 1]), "share": 0.5},
        2 + 2 / 3,
    ),
    (draining.longest_answer_ratio, {"variation": 1 / math.sqrt(3)}, 2),
    # Dettmers et al., section 3: 0.5 bit per parameter for scales, 0.127 with double quantization.
    (memory.nf4_bytes, {"double_quantization": False}, 4.5 / 8),
    (memory.nf4_bytes, {"double_quantization": True}, (4 + 0.125 + 32 / 16384) / 8),
    (memory.saved_tensor_bytes, {"tokens": 7, "bytes_per_token": 34}, 238),
    (memory.dropout_mask_bytes, {"dropout": [True, False]}, [1, 0]),
    # Korthikanti et al., section 4.1: 5 a s^2 b bytes with dropout, 2 without, in 16 bits.
    (memory.attention_score_bytes, {"num_keys": 100, "dropout": [True, False]}, [500, 200]),
    (memory.attention_score_bytes, {"num_keys": 10, "dropout": True, "element_bytes": 4}, 90),
    # A mean at the capacity: spread / sqrt(2 pi), of a spread of 0.5 / sqrt(4).
    (
        memory.kv_cache_overflow_share,
        {"mean": 100, "variation": 0.5, "sequences": 4, "capacity": 400},
        0.25 / math.sqrt(2 * math.pi),
    ),
    (memory.block_scaled_bytes, {"element_bytes": 1.0, "block": 32}, 1.125),
    # Stages of 5 s in all, the slowest 2 s: it is idle for 3 s in each of 4 micro-batches.
    (
        pipeline.sequential_bubble_time,
        {"all_stages": 5, "slowest_stage": 2, "num_micro_batches": 4},
        12,
    ),
    # Half of lognormal gaps are below the median, m / sqrt(1 + c^2).
    (
        prefix_cache.share_of_gaps_within,
        {"time": 10 / math.sqrt(2), "mean": 10, "variation": 1},
        0.5,
    ),
    (prefix_cache.share_of_gaps_within, {"time": 1, "mean": 0, "variation": 1}, 1),
    # Used once in one of 4 caches; twice: 1 - (3 / 4)^2.
    (prefix_cache.random_routing_hit_probability, {"uses": [1, 2], "caches": 4}, [1 / 4, 7 / 16]),
    # Tables of the normal distribution.
    (
        normal.normal_upper_tail,
        {"score": np.array([0.0, 1.0, 1.959964, -1.0])},
        [0.5, 0.158655, 0.025, 0.841345],
    ),
    (
        prefix_cache.normal_upper_tail,
        {"score": np.array([0.0, 1.0, 1.959964, -1.0])},
        [0.5, 0.158655, 0.025, 0.841345],
    ),
    # rho = 0.5, d = 2, s = 3, c = 1: 2 / 0.5 + 0.5 x 6 / 0.75 = 8.
    (queueing.step_time_at_arrival, {**_STEPS, "mixes": True}, 8),
    # Prompts' steps: (6 + 0.5 x 2 x 0.5) / 0.75 = 26 / 3; half of 2 and half of that.
    (queueing.step_time_at_arrival, {**_STEPS, "mixes": False}, 1 + 13 / 3),
    # Mean 4, variance 16; kappa_3 = (0.5 x 9 x 8 x 4 + 3 x 0.25 x 3 x 2 x 16) / 0.875;
    # E[T^3] = kappa_3 + 3 x 4 x 16 + 64, over the mean, less 8^2.
    (
        queueing.step_time_variance_at_arrival,
        {**_STEPS, "mixes": True},
        ((144 + 72) / 0.875 + 192 + 64) / 4 - 64,
    ),
    # 0.25 x (26 / 3 - 2)^2 between the two kinds, and 0.5 x (26 / 3)^2 within prompts.
    (
        queueing.step_time_variance_at_arrival,
        {**_STEPS, "mixes": False},
        0.25 * (20 / 3) ** 2 + 0.5 * (26 / 3) ** 2,
    ),
    # 50 s of arrivals: 2 / 3 of the queue of sqrt(4 x 3 x 4 x 50 / pi), and 4 leave per second.
    (
        queueing.critical_load_queueing_delay,
        {"number": 100, "rate": 2, "noise": 3, "capacity": 4},
        2 / 3 * math.sqrt(2400 / math.pi) / 4,
    ),
    # x = 0.5: 2 (0.5 - 1 + exp(-0.5)) / 0.25.
    (queueing.averaged_share, {"fixed": 1, "step": 2}, 8 * (math.exp(-0.5) - 0.5)),
    # At load 1 / 2 prompts of 2 s, c = 1: (1)^2 x 3 + (3 + 25) / 12 + 0.5 x 4 x 5 + 4, no queue.
    (
        queueing.first_token_variance,
        {
            "load": 0.5, "step_at_arrival": 5.0, "step_variance_at_arrival": 3.0, "wait": 5.0,
            "prompt": 2.0, "variation": 1.0,
        },
        3 + 28 / 12 + 10 + 4,
    ),
    # 2 ((100 + 28) (50 + 14) + 8) (1000 + 24).
    (
        roofline.tiled_gemm_flops,
        {
            "rows": 100, "columns": 50, "depth": 1000, "row_offset": 28, "column_offset": 14,
            "depth_offset": 24, "area_floor": 8,
        },
        2 * 8200 * 1024,
    ),
]  # fmt: skip


@each("formula, arguments, worked", _WORKED)
def test_formulas_on_worked_values(formula, arguments, worked):
    assert formula(**arguments) == pytest.approx(worked, rel=1e-5)


def test_variance_of_running_sequences():
    """At load 1 / 2 noise is (1 + 4) / 2; 10 sequences of 1 + 10 x 0.1 s: 2.5 x 10 x 2."""
    variance, noise = queueing.running_variance(running=10, load=0.5, fixed=1.0, slope=0.1)
    assert (variance, noise) == (pytest.approx(50), pytest.approx(2.5))


def test_wait_for_a_decode_slot():
    """One sigma from full: 15.8655 % wait; 2.5 / (5 per second); forever without a spare rate."""
    arguments = {"running": 90, "slots": 100, "variance": 100, "noise": 2.5}
    share, time = queueing.slot_queueing_delay(**arguments, spare_rate=[5.0, 0.0])
    assert share == pytest.approx(0.158655, rel=1e-3)
    assert time.tolist() == [0.5, math.inf]


def test_variances_of_an_answers_mean_step():
    by_others, by_prompts = queueing.step_variances(
        fixed=1.0, slope=0.1, step=2.0, load=0.5, running=50, prompts=8.0, steps=100, variation=0.5
    )
    # (0.1 / 0.5)^2 x 50 x the averaged share; 8 / 100 x (1 + 0.5^2).
    assert by_others == pytest.approx(2 * 8 * (math.exp(-0.5) - 0.5))
    assert by_prompts == pytest.approx(0.1)


def test_ranges_of_products_add_squares_of_logarithms():
    """Two factors of 1 / e to e: e^(-sqrt 2) to e^(sqrt 2); a range above 1 moves the middle."""
    low, high = power.ranges_of_products((1 / math.e, math.e), (1 / math.e, math.e))
    assert (low, high) == (
        pytest.approx(math.exp(-math.sqrt(2))),
        pytest.approx(math.exp(math.sqrt(2))),
    )
    low, high = power.ranges_of_products((math.e, math.e**3))
    assert (low, high) == (pytest.approx(math.e), pytest.approx(math.e**3))


def test_counts_without_random_variation():
    """Dispersion 1 in quarters and 4 in windows: s^2 = 4 / 3 (1 - 1 / 4) = 1, all is drift."""
    counts, quarters = np.array([12.0, 20.0]), np.array([2.0, 6.0])  # variance 16, mean 16
    assert trace_queueing.drifting_counts(counts, quarters) == pytest.approx([16.0, 16.0])
    counts = np.array([8.0, 24.0])  # variance 64, mean 16, dispersion 4
    assert trace_queueing.drifting_counts(counts, quarters) == pytest.approx([8.0, 24.0])


def _names(*nodes: ast.AST) -> set[str]:
    """Names and attributes in some code."""
    found = [node for each in nodes for node in ast.walk(each)]
    return {x.id for x in found if isinstance(x, ast.Name)} | {
        x.attr for x in found if isinstance(x, ast.Attribute)
    }


def _compared_with_numbers(path: Path) -> Iterator[str]:
    """Names in tests with a number in an assertion or in a table, and in what the tests call."""
    tree, parts = ast.parse(path.read_text()), dict[str, ast.AST]()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            parts[node.name] = node
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            parts[node.targets[0].id] = node.value
    for name, test in parts.items():
        if not name.startswith("test_") or not isinstance(test, ast.FunctionDef):
            continue
        used = [parts[word] for word in _names(test) & parts.keys()]
        tables = [node for node in used if not isinstance(node, ast.FunctionDef)]
        asserts = [node for node in ast.walk(test) if isinstance(node, ast.Assert)]
        numbers = [
            node
            for part in (*asserts, *test.decorator_list, *tables)
            for node in ast.walk(part)
            if isinstance(node, ast.Constant) and type(node.value) in (int, float)
        ]
        if asserts and numbers:
            yield from _names(test, *used)


def test_each_public_formula_is_compared_with_numbers():
    """A name in a comment, an import or a list of names is no test."""
    tests = [
        path for path in (_ROOT / "tests").rglob("*.py") if "planner.formulas" in path.read_text()
    ]
    compared = {name for path in tests for name in _compared_with_numbers(path)}
    missing = [
        f"{path.stem}.{node.name}"
        for path in sorted((_ROOT / "planner" / "formulas").glob("*.py"))
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef)
        and not node.name.startswith("_")
        and node.name not in compared
    ]
    assert not missing
