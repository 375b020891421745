"""All limits of a plan hold together with the confidence that was asked for."""

from __future__ import annotations

import numpy as np
import pytest

import planner
from planner.confidence.intervals import confidence_of_each
from planner.optimize.problem import confidence_per_limit, joint_probability, with_rate_limit
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


def test_each_of_several_limits_is_kept_more_surely() -> None:
    for confidence in (0.7, 0.9, 0.95):
        each = [confidence_of_each(confidence, limits) for limits in (1, 2, 3, 4)]
        assert each[0] == confidence
        assert np.power(each, [1, 2, 3, 4]) == pytest.approx(confidence)
    assert confidence_of_each(0.5, 3) == 0.5


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
        ((FIRST, "memory_headroom", "max_gpus"), 1),
    ],
)
def test_limits_with_the_same_errors_count_once(names: tuple[str, ...], different: int) -> None:
    assert confidence_per_limit(0.9, names) ** different == pytest.approx(0.9)
    chances = {name: 0.9 ** (1 / different) for name in names if name != "max_gpus"}
    chances.pop("memory_headroom", None)
    assert float(joint_probability(chances)) == pytest.approx(0.9)


def test_a_rate_is_a_limit() -> None:
    assert confidence_per_limit(0.9, [FIRST], 5.0) == confidence_per_limit(0.9, [FIRST, RATE])
    assert confidence_per_limit(0.9, [FIRST, RATE], 5.0) ** 2 == pytest.approx(0.9)


def test_an_unknown_chance_counts_for_nothing() -> None:
    known = joint_probability({FIRST: np.array([0.9, np.nan]), TOKEN: np.array([np.nan, np.nan])})
    assert known == pytest.approx([0.9, np.nan], nan_ok=True)


@pytest.mark.parametrize("counts", [None, (2, 4)])
def test_rows_of_a_search_keep_all_limits_as_surely_as_asked(
    counts: tuple[int, ...] | None,
) -> None:
    result = planner.search(**SERVICE, num_gpus=counts, constraints=LIMITS)
    limits = with_rate_limit(result.problem.constraints, SERVICE["request_rate"])
    table = with_limits(full_columns(result.table, result.problem.sources), limits)
    assert len(table["num_gpus"])
    assert table[LIMITS_PROBABILITY].min() >= 0.9 - 1e-9


def test_a_size_and_the_row_of_its_plan_say_the_same() -> None:
    """The fewest GPUs at 90 % are those of a search; one fewer replica would miss a limit."""
    (size,) = planner.size(**SERVICE, constraints=LIMITS).sizes
    assert size.fewest is not None
    found = planner.search(**SERVICE, constraints=LIMITS)
    assert size.fewest.num_gpus == min(found.to_frame()["num_gpus"])
    rate = next(margin for margin in size.fewest.margins if margin.name == RATE)
    assert rate.value_at_confidence >= rate.bound
    (source,) = {type(source): source for source in found.problem.sources}.values()
    assert source.rate_confidence == pytest.approx(0.9 ** (1 / 3))
