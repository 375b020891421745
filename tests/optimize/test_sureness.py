"""Limits judged at a confidence: the errors of published runs on the side that hurts."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

import planner
from planner.confidence.intervals import MAX_CONFIDENCE, MEDIAN, check_confidence, quantile
from planner.errors import SearchSpaceError
from planner.optimize.exhaustive import exhaustive_search
from planner.optimize.problem import (
    confidence_factor,
    constraints,
    is_violated,
    limit_on_predictions,
)
from planner.workloads.build_request import make_request
from planner.workloads.make_plan import make_plan

TRAINING = {"model": "llama-7b", "gpu": "h100", "total_tokens": "100B", "framework": "megatron-lm"}
SERVING = {
    "model": "llama-3.1-8b",
    "gpu": "h100",
    "workload": "serve",
    "engine": "vllm",
    "input_tokens": 2000,
    "output_tokens": 300,
    "request_rate": 20,
}


def test_quantiles_lie_between_the_prediction_and_the_ends():
    ends = (0.5, 3.0)
    for side, end in ((-1, 0.5), (1, 3.0)):
        assert quantile(ends, MEDIAN, side) == 1.0
        assert quantile(ends, MAX_CONFIDENCE, side) == end
        # z(0.9) / z(0.95) of a table of the normal distribution.
        assert quantile(ends, 0.9, side) == pytest.approx(end ** (1.28155 / 1.64485), rel=1e-4)


def test_an_end_on_the_other_side_of_the_prediction_does_not_help():
    assert quantile((0.4, 0.9), 0.9, 1) == 1.0
    assert quantile((1.1, 1.9), 0.9, -1) == 1.0


def test_an_open_interval_tells_nothing():
    assert quantile((0.0, np.inf), 0.9, 1) is None
    assert quantile((0.0, np.inf), 0.9, -1) is None


@pytest.mark.parametrize("given", [0.49, 0.96, 1.0, 0.0, float("nan")])
def test_a_confidence_beyond_the_intervals_is_refused(given):
    with pytest.raises(SearchSpaceError, match=r"from 0\.5"):
        check_confidence(given)
    with pytest.raises(SearchSpaceError):
        planner.search(**TRAINING, num_gpus=64, confidence=given)


def _source(**asked):
    return make_plan(make_request(asked)).problem.sources[0]


def test_training_limits_follow_the_step_time():
    source = _source(**TRAINING, num_gpus=64)
    low, high = source.confidence(64).factors["step_time"]
    assert confidence_factor(source, "time_to_train", MAX_CONFIDENCE, 1) == high
    slow = source.confidence(64).factors["calendar_time"][1]
    with_price = np.exp(np.hypot(np.log(slow), np.log(source.site.offer.spread[1])))
    assert confidence_factor(source, "cost", MAX_CONFIDENCE, 1) == pytest.approx(with_price)
    assert confidence_factor(
        source, "model_flops_utilization", MAX_CONFIDENCE, -1
    ) == pytest.approx(1 / high)
    assert confidence_factor(source, "memory_headroom", MAX_CONFIDENCE, -1) == 1.0
    assert 0 < low < 1 < high


def test_serving_limits_follow_latencies_and_rates():
    source = _source(**SERVING)
    factors = source.confidence(1).factors
    assert (
        confidence_factor(source, "time_to_first_token", MAX_CONFIDENCE, 1)
        == factors["time_to_first_token"][1]
    )
    assert confidence_factor(source, "request_rate", MAX_CONFIDENCE, -1) == factors["throughput"][0]
    dearer = confidence_factor(source, "cost_per_million_tokens", MAX_CONFIDENCE, 1)
    price = source.site.offer.spread[1]
    assert dearer == pytest.approx(
        np.exp(np.hypot(np.log(factors["throughput"][0]), np.log(price)))
    )


def test_a_limit_of_training_is_kept_by_the_quantile():
    """Feasible at a confidence is what is feasible at the bound divided by the factor."""
    source = _source(**TRAINING, num_gpus=64)
    factor = confidence_factor(source, "time_to_train", 0.9, 1)
    bound = 20 * 86400.0
    asked = {**TRAINING, "num_gpus": 64}
    sure = planner.search(**asked, confidence=0.9, constraints={"time_to_train": bound})
    # A confidence judges the memory too: the same plans are asked to fit as surely.
    problem = make_plan(
        make_request({**asked, "confidence": 0.9, "constraints": {"time_to_train": bound}})
    ).problem
    (limit,) = problem.constraints
    predicted = replace(limit, bound=bound / factor, confidence=0.5)
    hard = exhaustive_search(replace(problem, constraints=(predicted,)))
    loose = planner.search(**asked, constraints={"time_to_train": bound})
    assert 0 < sure.configurations_feasible == hard.configurations_feasible
    assert sure.configurations_feasible < loose.configurations_feasible


@pytest.mark.parametrize("mode", ["aggregated", "disaggregated"])
def test_replicas_serve_the_rate_at_its_lower_quantile(mode):
    asked = {**SERVING, "mode": mode, "request_rate": 100}
    for confidence, column in (
        (0.5, "capacity_requests_per_s"),
        (0.95, "capacity_requests_per_s_low"),
    ):
        frame = planner.search(**asked, confidence=confidence).to_frame()
        assert frame[column].min() >= 100 * (1 - 1e-9)
    assert planner.search(**asked).to_frame()["capacity_requests_per_s_low"].min() < 100


def test_a_bound_on_predictions_rejects_the_same():
    candidates = planner.search(**SERVING).recommended
    predicted = float(np.ravel(candidates.time_per_output_token)[0])
    factor = confidence_factor(candidates.source, "time_per_output_token", 0.9, 1)
    for bound, is_kept in ((predicted * factor * 1.01, True), (predicted * factor * 0.99, False)):
        (limit,) = constraints("serve", {"time_per_output_token": bound}, confidence=0.9)
        alone = limit_on_predictions(limit, candidates.source)
        assert bool(np.ravel(is_violated(candidates, limit))[0]) is not is_kept
        assert bool(np.ravel(is_violated(candidates, alone))[0]) is not is_kept
        assert alone.bound == pytest.approx(bound / factor)


def test_a_latency_errs_as_its_parts_do():
    from planner.optimize.problem import value_at_confidence

    found = planner.search(**SERVING).recommended
    factors = found.source.confidence(1).factors
    expected = found.time_to_first_token * factors["time_to_first_token"][1] + (
        299 * found.time_per_output_token * factors["time_per_output_token"][1]
    )
    got = value_at_confidence(found, "request_latency", MAX_CONFIDENCE, 1)
    assert np.ravel(got) == pytest.approx(np.ravel(expected), rel=1e-12)


@pytest.mark.slow
def test_who_is_surer_never_needs_fewer_gpus():
    asked = {**SERVING, "request_rate": 200, "objectives": ("num_gpus",)}
    limits = {"time_to_first_token": "3s", "time_per_output_token": "60ms"}
    found = [
        planner.search(**asked, constraints=limits, confidence=sure).fastest.num_gpus.min()
        for sure in (0.5, 0.6, 0.75, 0.9, 0.95)
    ]
    assert all(less <= more for less, more in itertools.pairwise(found))
    assert found[0] < found[-1]


def test_where_no_runs_are_published_it_is_said():
    answer = planner.search(
        **TRAINING, num_gpus=64, ideal=True, confidence=0.9, constraints={"time_to_train": "90d"}
    )
    assert "no published runs" in answer.plan.defaults["limits"]
    known = planner.search(
        **TRAINING, num_gpus=64, confidence=0.9, constraints={"time_to_train": "90d"}
    )
    assert "limits" not in known.plan.defaults
    assert "90 % likely to be kept" in known.summary()


def test_a_miss_is_told_at_its_confidence():
    answer = planner.search(
        **TRAINING, num_gpus=8, confidence=0.9, constraints={"time_to_train": "1d"}
    )
    (miss,) = (one for one in answer.nearest_misses if one.rejection == "time_to_train")
    predicted = float(np.ravel(miss.candidates.time_to_train)[0])
    assert miss.value == pytest.approx(
        predicted * confidence_factor(miss.source, "time_to_train", 0.9, 1)
    )
    assert "at 90 %" in answer.summary()
