"""Which of several plans is taken: the best in a bad case, of tied ones the one best known."""

import pytest
from rows import each

import planner
from planner.confidence.intervals import BASES
from planner.confidence.ranking import Standing, lack_of, most_known
from planner.optimize.groups import ranked_choices
from planner.optimize.sureness import bad_factor

PROVEN, UNPROVEN = lack_of("measured", 5), lack_of("transferred", 0)


def plan(value, *, lack=PROVEN, wide=1.3, kin="a", factor=1.16):
    return Standing(value, value / wide, value * wide, value * wide, (kin,), factor, value, lack)


def test_evidence_shrinks_from_measured_runs_on_the_gpu_to_none():
    of_runs = [lack_of(basis, 1) for basis in BASES]
    of_none = [lack_of(basis, 0) for basis in BASES]
    assert of_runs + of_none == sorted({*of_runs, *of_none})
    assert lack_of("roofline, first run", float("nan")) == lack_of("roofline", 3)


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
        ([Standing(1.0), Standing(1.1)], 0),  # nothing is known of their errors
    ],
)
def test_of_tied_plans_the_one_best_known_is_taken(plans, taken):
    assert most_known(plans) == taken


def test_a_search_by_throughput_counts_the_bad_case_of_its_time():
    """A rate has no errors of its own in training: it errs with the time of a step."""
    result = planner.search(model="llama-65b", num_gpus=2048)
    ranked = ranked_choices(result.problem, result.groups)
    (own, chosen), *others = ranked
    sure = chosen.source.confidence(2048)
    slower = bad_factor(sure, "step_time", 1)
    assert slower > 1
    assert bad_factor(sure, "throughput", -1) == pytest.approx(1 / slower)
    assert own.bad < own.value
    assert all(own.bad > standing.bad for standing, _ in others)
    assert result.recommended_row["framework"] == chosen.judged.row["framework"]
    better = result.better_tied.row
    assert better["tokens_per_s"] > result.recommended_row["tokens_per_s"]
    assert better["framework"] != result.recommended_row["framework"]


def test_what_is_not_proven_gives_way_to_what_it_is_tied_with():
    """vLLM on MI300X has no runs of serving, and is predicted to be better by less than 1 %."""
    asked = {"model": "llama-3.1-70b", "workload": "serve", "gpu": "mi300x", "num_gpus": 8}
    result = planner.search(**asked)
    (first, unproven), *_ = ranked_choices(result.problem, result.groups)
    assert not first.is_proven
    assert result.recommended_row["engine"] != unproven.judged.row["engine"]
    assert result.better_tied.row["engine"] == unproven.judged.row["engine"]
    assert result.proven is result.recommended
