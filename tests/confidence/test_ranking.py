"""Which of several plans is taken: the best in a bad case, of tied ones the one best known."""

import math
from statistics import NormalDist

import numpy as np
import pytest
from rows import each

import planner
from planner.confidence.intervals import BASES
from planner.confidence.ranking import (
    RankedPlan,
    are_plans_tied,
    evidence_rank,
    expected_regrets,
    recommended_index,
)
from planner.optimize.problem import bad_case_factor
from planner.optimize.recommendation import rank_plans_by_bad_case

PROVEN, UNPROVEN = evidence_rank("measured", 5), evidence_rank("transferred", 0)


def plan(value, *, lack=PROVEN, wide=1.3, kin="a", factor=1.16):
    return RankedPlan(value, value / wide, value * wide, value * wide, (kin,), factor, value, lack)


def test_evidence_shrinks_from_measured_runs_on_the_gpu_to_none():
    of_runs = [evidence_rank(basis, 1) for basis in BASES]
    of_none = [evidence_rank(basis, 0) for basis in BASES]
    assert of_runs + of_none == sorted({*of_runs, *of_none})
    assert evidence_rank("roofline, first run", float("nan")) == evidence_rank("roofline", 3)


@each(
    ("plans", "taken"),
    [
        ([plan(1.0, lack=UNPROVEN), plan(1.02, kin="b")], 1),  # tied: what was measured
        ([plan(1.0), plan(1.02, kin="b")], 0),
        ([plan(1.0), plan(1.02, kin="b", lack=UNPROVEN)], 0),
        ([plan(1.0, lack=UNPROVEN), plan(1.2, kin="b")], 0),  # tied, but dearer in a bad case
        ([plan(1.0, lack=UNPROVEN, wide=1.01), plan(1.1, kin="b", wide=1.01)], 0),  # not tied
        ([plan(1.0, lack=UNPROVEN), plan(1.02, kin="b", lack=1), plan(1.03, kin="c")], 2),
        ([plan(1.0, lack=UNPROVEN), plan(1.02, kin="b"), plan(1.03, kin="c")], 1),
        ([RankedPlan(1.0), RankedPlan(1.1)], 0),  # nothing is known of their errors
    ],
)
def test_of_tied_plans_the_one_best_known_is_taken(plans, taken):
    assert recommended_index(plans) == taken


@pytest.mark.parametrize("wide", [1.05, 1.25, 2.0])
def test_regret_is_that_of_an_option_to_exchange(wide):
    """Of two log-normal errors it has a closed form (Margrabe, 1978)."""
    normal = NormalDist()
    spread = math.log(wide) / normal.inv_cdf(0.95)
    exact = math.exp(spread**2 / 2) * (2 * normal.cdf(spread / math.sqrt(2)) - 1)
    two = [plan(1.0, wide=wide), plan(1.0, wide=wide, kin="b")]
    assert expected_regrets(two) == pytest.approx([exact, exact], rel=1e-3)
    assert expected_regrets(two, -1) == pytest.approx([exact, exact], rel=1e-3)


def test_regret_is_what_draws_of_all_plans_lose():
    plans = [plan(1.0), plan(1.1, wide=1.6, kin="b"), plan(0.95, wide=1.2, kin="c"), plan(0.97)]
    normal = np.random.default_rng(1).standard_normal((3, 200_000))
    a, b, c = (
        one.value * np.exp(math.log(one.high / one.value) / 1.6448536 * draws)
        for one, draws in zip(plans, normal, strict=False)
    )
    drawn = np.array([a, b, c, 0.97 * a])  # errors of one kin are common
    lost = (drawn - drawn.min(axis=0)).mean(axis=1) / [one.value for one in plans]
    assert expected_regrets(plans) == pytest.approx(lost, rel=0.02)


def test_what_nobody_knows_the_errors_of_has_no_regret_and_gives_none():
    alone, with_unknown = (
        expected_regrets([plan(1.0)]),
        expected_regrets([plan(1.0), RankedPlan(0.5, error_group=("b",))]),
    )
    assert alone == pytest.approx([0.0], abs=1e-6)
    assert with_unknown[0] == pytest.approx(0.0, abs=1e-6)
    assert math.isnan(with_unknown[1])


def test_a_search_by_throughput_counts_the_bad_case_of_its_time():
    """A rate has no errors of its own in training: it errs with the time of a step."""
    result = planner.search(model="llama-65b", num_gpus=2048)
    ranked = rank_plans_by_bad_case(result.problem, result.groups)
    (own, chosen), *others = ranked
    sure = chosen.source.confidence(2048)
    slower = bad_case_factor(sure, "step_time", 1)
    assert slower > 1
    assert bad_case_factor(sure, "throughput", -1) == pytest.approx(1 / slower)
    assert own.bad < own.value
    assert all(own.bad > standing.bad for standing, _ in others)
    # A tied plan of software with published runs on this GPU is preferred.
    recommended = result.recommended_row
    (standing,) = (
        plan for plan, choice in ranked
        if choice.judged.row["framework"] == recommended["framework"]
    )  # fmt: skip
    assert standing.evidence_rank <= own.evidence_rank
    better = result.better_tied.row
    assert better["tokens_per_s"] > result.recommended_row["tokens_per_s"]
    assert better["framework"] != result.recommended_row["framework"]


def test_what_is_not_proven_gives_way_to_what_it_is_tied_with():
    """TensorRT-LLM has no runs of serving on RTX 4090, and its predicted lead is within the tie."""
    asked = {"model": "gpt-oss-120b", "workload": "serve", "gpu": "rtx4090", "num_gpus": 8}
    result = planner.search(**asked, input_variation=0, output_variation=0)
    ranked = rank_plans_by_bad_case(result.problem, result.groups)
    first, leading = ranked[0]
    proven = [plan for plan, _ in ranked if plan.is_proven]
    if first.is_proven or not any(are_plans_tied(first, plan) for plan in proven):
        assert result.recommended_row["engine"] == leading.judged.row["engine"]
    else:
        assert result.recommended_row["engine"] != leading.judged.row["engine"]
        assert result.proven is result.recommended
