"""Each limit holds with the confidence asked for; answers say how likely all hold together."""

from __future__ import annotations

import math

import numpy as np
import pytest

import planner
from planner.optimize.problem import joint_probability, with_rate_limit
from planner.optimize.result_columns import full_columns
from planner.question.names import LIMITS_PROBABILITY
from planner.show.presenters.row_tables import with_limits

SERVICE = {
    "workload": "serve",
    "model": "llama-3.1-8b",
    "gpu": "h100-sxm",
    "engine": "vllm",
    "mode": "aggregated",
    "input_tokens": 1000,
    "output_tokens": 300,
    "request_rate": 20.0,
    "confidence": 0.9,
    "settings": {"tensor_parallel": [1, 2], "quantization": "fp8", "kv_cache": "fp8"},
}
LIMITS = {"time_to_first_token": 2.0, "time_per_output_token": 0.04}
FIRST, TOKEN, RATE = "time_to_first_token", "time_per_output_token", "request_rate"


@pytest.mark.parametrize(
    ("names", "different"),
    [
        ((FIRST,), 1),
        ((FIRST, "time_to_first_token_p99"), 1),
        ((FIRST, TOKEN), 2),
        ((FIRST, "request_latency_p95"), 2),
        ((FIRST, TOKEN, RATE), 3),
        ((RATE, "cost_per_million_tokens"), 1),
        (("time_to_train", "calendar_time", "cost"), 1),
        (("time_to_train", "power"), 2),
    ],
)
def test_limits_with_the_same_errors_count_once(names: tuple[str, ...], different: int) -> None:
    assert float(joint_probability(dict.fromkeys(names, 0.9))) == pytest.approx(0.9**different)


def test_an_unknown_chance_counts_for_nothing() -> None:
    known = joint_probability({FIRST: np.array([0.9, np.nan]), TOKEN: np.array([np.nan, np.nan])})
    assert known == pytest.approx([0.9, np.nan], nan_ok=True)


def test_a_size_and_the_row_of_its_plan_say_the_same() -> None:
    (size,) = planner.size(**SERVICE, constraints=LIMITS).sizes
    assert size.fewest is not None
    margins = {margin.name: margin for margin in size.fewest.margins}
    for margin in margins.values():
        assert margin.probability is not None
        kept = margin.sign * (margin.bound - margin.value_at_confidence) >= 0
        assert kept == (margin.probability >= 0.9 - 1e-9)
    together = size.fewest.limits_probability
    assert together == pytest.approx(math.prod(m.probability or 0.0 for m in margins.values()))
    assert together < min(m.probability or 0.0 for m in margins.values())
    found = planner.search(**SERVICE, constraints=LIMITS)
    limits = with_rate_limit(found.problem.constraints, SERVICE["request_rate"])
    table = with_limits(full_columns(found.table, found.problem.sources), limits)
    assert np.min(np.abs(table[LIMITS_PROBABILITY] - together)) < 0.01
