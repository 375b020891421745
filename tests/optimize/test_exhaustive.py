"""The exhaustive search equals looking at one configuration after the other."""

import weakref
from collections import Counter
from dataclasses import replace
from itertools import product
from unittest.mock import patch

import numpy as np
import pytest
from draws import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import configurations, front_values, judged, problem

from planner import Request
from planner.configurations.configuration_tables import NAMES, TrainingConfigurations
from planner.configurations.enumerate import training_mesh
from planner.configurations.training_rules import RULES
from planner.errors import SearchSpaceError
from planner.optimize.exhaustive import StopSearch, exhaustive_search
from planner.optimize.pareto import pareto_front
from planner.optimize.problem import objectives
from planner.question.terms import terms_of
from planner.specs.operating_terms import OperatingTerms
from planner.workloads.make_plan import make_plan
from planner.workloads.training.results import TrainingSource

NARROW = {"micro_batch_size": [1, 4], "pipeline_parallel": [1, 2, 3], "tensor_parallel": [2, 8]}


def one_by_one(searched):
    """Code and objectives of each configuration, evaluated alone from plain numbers."""
    for source in searched.sources:
        for picked in product(*(source.mesh.values(name) for name in NAMES)):
            alone = TrainingConfigurations.of(**dict(zip(NAMES, picked, strict=True)))
            candidates = source.judged(alone)
            codes = searched.codes(candidates).ravel()
            yield int(codes[0]), searched.values(candidates, np.array([0]))[0]


def with_source(searched, **changes):
    (source,) = searched.sources
    return replace(searched, sources=(replace(source, **changes),))


def blockwise(searched, max_rows):
    with patch("planner.workloads.training.results.TrainingSource.block_rows", max_rows):
        return exhaustive_search(searched)


@pytest.mark.parametrize("most", [1, 5])
def test_no_more_is_judged_at_once_than_memory_allows(most):
    searched = problem(settings=NARROW)
    whole = exhaustive_search(searched)
    (source,) = searched.sources
    sizes, earlier = [], []

    def judged(self, configurations, broken=None):
        sizes.append(configurations.size)
        assert not any(candidates() for candidates in earlier)  # one block at a time
        candidates = known(self, configurations, broken)
        earlier.append(weakref.ref(candidates))
        return candidates

    known = type(source).judged
    with (
        patch("planner.optimize.source._MAX_PREDICTED_ROWS", most),
        patch.object(type(source), "judged", judged),
    ):
        parts = exhaustive_search(searched)
        assert max(sizes) <= most
        assert len(sizes) > 6
        assert parts.to_frame().equals(whole.to_frame())
    assert parts.rejected_by == whole.rejected_by
    assert parts.configurations_evaluated == whole.configurations_evaluated


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "request_values",
    [
        {"settings": NARROW},
        {"settings": NARROW, "objectives": ("step_time",)},
        {"settings": {**NARROW, "tensor_parallel": [1, 2]}, "num_gpus": (8, 16)},
        {"settings": NARROW, "objectives": ("cost", "memory_headroom", "num_gpus")},
        {"settings": NARROW, "constraints": {"memory_headroom": 30e9}},
    ],
    ids=["two objectives", "one objective", "GPU counts", "three objectives", "limit"],
)
def test_brute_force_finds_the_same(request_values):
    searched = problem(**request_values)
    result = exhaustive_search(searched)
    rows = list(one_by_one(searched))
    feasible = np.array([objectives for code, objectives in rows if code == 0])
    front = feasible[pareto_front(feasible)]
    # Sums of the same numbers in another order may differ in the last bits.
    expected = np.unique([[float(f"{value:.9e}") for value in row] for row in front], axis=0)
    np.testing.assert_allclose(front_values(result), expected, rtol=1e-8)
    counts = Counter(code for code, _ in rows)
    broken = sum(counts[code] for code in range(1, len(RULES) + 1))
    assert result.configurations_predicted == len(rows) - broken < len(rows)
    assert result.configurations_evaluated == len(rows) == searched.num_rows
    assert result.configurations_feasible == counts.pop(0)
    assert result.rejected_by == {
        searched.rejections[code - 1]: count for code, count in counts.items()
    }


@pytest.fixture(scope="module")
def whole():
    return exhaustive_search(problem())


@settings(max_examples=examples(8, 3))
@given(st.integers(3, 400))
def test_block_size_changes_nothing(whole, max_rows):
    parts = blockwise(whole.problem, max_rows)
    assert parts.rejected_by == whole.rejected_by
    assert parts.configurations_evaluated == whole.configurations_evaluated
    assert parts.configurations_predicted == whole.configurations_predicted
    assert parts.configurations_feasible == whole.configurations_feasible
    np.testing.assert_allclose(front_values(parts), front_values(whole), rtol=1e-8)


@settings(max_examples=examples(4, 3))
@given(st.integers(3, 400))
def test_block_size_changes_no_nearest_miss(max_rows):
    searched = problem(constraints={"step_time": 1.0})
    whole, parts = exhaustive_search(searched), blockwise(searched, max_rows)
    assert [miss.rejection for miss in parts.nearest_misses] == ["out_of_memory", "step_time"]
    for one, other in zip(whole.nearest_misses, parts.nearest_misses, strict=True):
        assert one.value == pytest.approx(other.value, rel=1e-9)


@settings(max_examples=examples(15, 3))
@given(st.randoms(use_true_random=False))
def test_order_of_the_values_changes_nothing(whole, random):
    searched = whole.problem
    (source,) = searched.sources
    choices = {name: list(source.mesh.values(name)) for name in NAMES}
    shuffled = {name: random.sample(known, len(known)) for name, known in choices.items()}
    other = exhaustive_search(with_source(searched, mesh=training_mesh(shuffled)))
    np.testing.assert_allclose(front_values(other), front_values(whole), rtol=1e-8)
    assert other.rejected_by == whole.rejected_by


def test_sink_receives_the_feasible_rows_and_progress_all():
    searched = problem()
    kept, done = [], []
    result = exhaustive_search(searched, progress=done.append, sink=kept.append)
    rows = [row for table in kept for row in configurations(table)]
    assert len(rows) == len(set(rows)) == result.configurations_feasible > 0
    assert set(configurations(result.table)) <= set(rows)
    assert done[-1] == searched.num_rows == result.configurations_evaluated


def test_front_starts_with_the_best_of_the_first_objective():
    searched = problem(objectives=("throughput", "memory_headroom"))
    kept = []
    result = exhaustive_search(searched, sink=kept.append)
    fastest = max(max(table["tokens_per_s"]) for table in kept)
    assert result.table["tokens_per_s"][0] == pytest.approx(fastest)
    assert float(result.fastest.throughput[0]) == pytest.approx(fastest)
    assert (np.diff(result.table["tokens_per_s"]) <= 0).all()


@pytest.mark.parametrize("name", terms_of("train", "limit"))
def test_a_limit_rejects_exactly_what_misses_it(name):
    asked = {"price": 2.0, "region": "SE"}
    free = problem(**asked)
    (source,) = free.sources
    everything = source.judged(source.mesh.table())
    fitting = np.flatnonzero(np.broadcast_to(everything.rejected_by, everything.shape) == 0)
    found = everything.at(everything.value(name), fitting)
    bound = float(np.median(found))
    limited = problem(**asked, constraints={name: bound})
    result = exhaustive_search(limited)
    (constraint,) = limited.constraints
    sign = constraint.sign
    assert result.configurations_feasible == np.count_nonzero(sign * found <= sign * bound)
    assert result.rejected_by[name] == np.count_nonzero(sign * found > sign * bound) > 0
    front = float(result.fastest.value(name)[0])
    assert sign * front <= sign * bound * (1 + sign * 1e-12)


def test_an_unknown_cost_does_not_keep_a_limit():
    searched = problem(constraints={"cost": 1e12})
    unpriced = with_source(searched, site=OperatingTerms())
    assert exhaustive_search(searched).configurations_feasible > 0
    assert exhaustive_search(unpriced).configurations_feasible == 0


def test_nearest_misses_are_the_nearest():
    searched = problem(constraints={"step_time": 1.0})
    result = exhaustive_search(searched)
    assert result.fastest is None
    assert result.recommended is None
    assert result.configurations_feasible == 0
    kept = []
    exhaustive_search(problem(), sink=kept.append)
    miss = result.nearest_misses[-1]
    fastest = min(min(table["step_time_s"]) for table in kept)
    assert (miss.rejection, miss.bound) == ("step_time", 1.0)
    assert miss.value == pytest.approx(fastest)
    assert miss.excess == pytest.approx(fastest - 1)
    assert float(miss.candidates.step_time[0]) == pytest.approx(miss.value)
    assert miss.row["step_time_s"] == pytest.approx(miss.value)


def test_the_nearest_miss_of_a_limit_from_below_is_the_largest_value():
    (source,) = problem().sources
    everything = source.judged(source.mesh.table())
    fitting = np.flatnonzero(np.broadcast_to(everything.rejected_by, everything.shape) == 0)
    best = everything.at(everything.model_flops_utilization, fitting).max()
    result = exhaustive_search(problem(constraints={"model_flops_utilization": 0.99}))
    miss = result.nearest_misses[-1]
    assert (miss.rejection, miss.bound) == ("model_flops_utilization", 0.99)
    assert miss.value == pytest.approx(best)


def test_out_of_memory_names_the_smallest_need():
    searched = problem(model="llama-65b", num_gpus=8)
    result = exhaustive_search(searched)
    (miss,) = result.nearest_misses
    (source,) = searched.sources
    usable = source.sure_share(8.0) * searched.inputs.machine.gpu.allocatable_memory
    assert miss.rejection == "out_of_memory"
    assert miss.value > miss.bound == usable
    everything, codes = judged(searched, source.mesh.table())
    full = searched.rejections.index("out_of_memory") + 1
    needs = everything.at(everything.memory[1][0], np.flatnonzero(codes == full))
    assert miss.value == pytest.approx(min(needs))


def test_no_nearest_miss_when_something_is_feasible(whole):
    assert whole.nearest_misses == ()
    assert blockwise(whole.problem, 40).nearest_misses == ()


@pytest.mark.parametrize(
    "request_values",
    [
        {"settings": NARROW},
        {"workload": "serve", "space": None, "model": "llama-3.1-8b", "gpu": "h100", "num_gpus": 8},
        {
            "workload": "inference",
            "space": None,
            "model": "llama-3.1-8b",
            "gpu": "h100",
            "num_gpus": 8,
        },
    ],
    ids=["train", "serve", "inference"],
)
def test_a_search_that_is_stopped_gives_what_it_found(request_values):
    searched = problem(**request_values)
    whole = exhaustive_search(searched)

    def stop(done):
        raise StopSearch

    with patch.object(type(searched.sources[0]), "block_rows", 40):
        part = exhaustive_search(searched, progress=stop)
    assert part.interrupted
    assert 0 < part.configurations_evaluated < whole.configurations_evaluated
    assert not whole.interrupted


def test_numbers_of_gpus_are_predicted_together_and_found_apart(monkeypatch):
    """A collector has the rows, misses and counts of its own number of GPUs alone."""
    sizes = []
    known = TrainingSource.judged

    def judged(self, configurations, broken=None):
        sizes.append(configurations.size)
        return known(self, configurations, broken)

    monkeypatch.setattr(TrainingSource, "judged", judged)
    counts, rest = (64, 128, 256), {"model": "llama-7b", "gpu": "h100", "framework": "megatron-lm"}
    together = exhaustive_search(make_plan(Request(num_gpus=counts, **rest)).problem)
    number = len(sizes)
    assert number == 1
    for count, group in zip(counts, together.groups, strict=True):
        alone = exhaustive_search(make_plan(Request(num_gpus=count, **rest)).problem).groups[0]
        assert group.collector.counts.tolist() == alone.collector.counts.tolist()
        np.testing.assert_allclose(group.collector.values, alone.collector.values, rtol=1e-12)
        for collector in (group.collector, alone.collector):
            source, row = collector.configuration_at(0)
            assert source.counts == (count,)
            assert row.num_gpus.tolist() == [count]
    assert len(sizes) > number


def test_a_search_has_one_to_three_different_objectives():
    names = ["throughput", "cost_per_hour", "num_gpus", "interactivity"]
    assert [objective.name for objective in objectives("serve", names[:3])] == names[:3]
    for wrong in ([], names, ["num_gpus", "num_gpus"]):
        with pytest.raises(SearchSpaceError, match="Give one to 3 different objectives"):
            objectives("serve", wrong)
