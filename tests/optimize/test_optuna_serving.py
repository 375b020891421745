"""Optuna samples ways to serve: the exhaustive optimum, several engines, limits, resuming."""

import numpy as np
import pytest

from planner.optimize.collector import group_by_cell
from planner.optimize.exhaustive import exhaustive_search
from planner.optimize.optuna_search import SAMPLERS, SampledSpace, optuna_search
from planner.question.request import Request
from planner.workloads.make_plan import make_plan

# Of ties a sampled search may recommend another one: its rate is compared.
RATE = "output_tokens_per_s_per_gpu"
LIMITS = {"time_to_first_token": 1.0, "time_per_output_token": 0.04}
EXAMPLE = {
    "model": "llama-3.1-70b",
    "engine": "vllm",
    "gpu": "h200-sxm-141gb",
    "num_gpus": 32,
    "input_tokens": 4000,
    "output_tokens": 1000,
    "constraints": LIMITS,
}


def problem(**request):
    return make_plan(
        Request(workload="serve", **{**EXAMPLE, "mode": ("aggregated",), **request})
    ).problem


def best(result):
    return {name: values[0] for name, values in result.table.items()}


@pytest.fixture(scope="module")
def searched():
    return problem()


@pytest.mark.few(1)
@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("seed", range(3))
def test_finds_the_exhaustive_optimum_of_the_example(searched, sampler, seed):
    whole = exhaustive_search(searched)
    found = optuna_search(searched, trials=50, sampler=sampler, seed=seed)
    assert best(found) == best(whole)
    assert found.configurations_evaluated < whole.configurations_evaluated / 4


def test_both_modes_share_a_front():
    searched = problem(mode=("aggregated", "disaggregated"))
    whole = exhaustive_search(searched)
    found = optuna_search(searched, trials=50)
    assert best(found) == best(whole)
    modes = [one.comparisons["mode"].table["mode"] for one in (found, whole)]
    assert modes[0] == modes[1]
    assert found.configurations_evaluated < whole.configurations_evaluated


@pytest.mark.slow
def test_engines_are_sampled_together():
    searched = problem(engine=("vllm", "sglang", "tensorrt-llm"))
    assert len(searched.sources) == 3
    found = optuna_search(searched, trials=50)
    mine, whole = (best(one) for one in (found, exhaustive_search(searched)))
    assert mine["engine"] == whole["engine"]
    factor = found.recommended.source.confidence(32).layout_tie_factor
    assert mine[RATE] == pytest.approx(whole[RATE], rel=factor - 1)


def test_each_gpu_has_its_best():
    searched = problem(gpu=("h200-sxm-141gb", "h100-sxm-80gb"), num_gpus=8)
    found = optuna_search(searched, trials=150)
    mine, whole = (one.comparisons["gpu"].table for one in (found, exhaustive_search(searched)))
    assert mine["gpu"] == whole["gpu"] == ["h200-sxm-141gb", "h100-sxm-80gb"]
    factor = found.recommended.source.confidence(8).layout_tie_factor
    assert mine[RATE] == pytest.approx(whole[RATE], rel=factor - 1)


def test_nothing_feasible_names_what_came_closest():
    searched = problem(constraints={"time_per_output_token": 1e-4})
    found = optuna_search(searched, trials=50)
    assert not found.table
    assert found.configurations_feasible == 0
    assert sum(found.rejected_by.values()) == found.configurations_evaluated
    whole = exhaustive_search(searched)
    misses = {miss.rejection: miss for miss in found.nearest_misses}
    (expected,) = [m for m in whole.nearest_misses if m.rejection == "time_per_output_token"]
    assert misses["time_per_output_token"].value == pytest.approx(expected.value, rel=0.2)


def test_what_only_another_engine_has_is_counted_nowhere():
    searched = problem(engine=("vllm", "tensorrt-llm"))
    _, collectors = group_by_cell(searched)
    samples = SampledSpace(searched, collectors)
    sizes = [len(words) for words in samples.parameters.values()]
    place = list(samples.parameters).index("concurrency")
    rows = np.zeros((2 * sizes[place], len(sizes)), dtype=np.intp)
    rows[:, 0] = np.repeat([0, 1], sizes[place])
    rows[:, place] = np.tile(np.arange(sizes[place]), 2)
    _, violation = samples.evaluate(rows)
    own = [len(source.mesh.values("concurrency")) for source in searched.sources]
    assert np.count_nonzero(violation < 4) == sum(own)
    assert own == [collector.counts.sum() for collector in collectors]
    assert len(set(own)) > 1
