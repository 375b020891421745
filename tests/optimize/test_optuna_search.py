"""Optuna proposes, the one evaluate function judges: optimum, limits and seeds."""

import numpy as np
import optuna
import pytest
from problems import configurations, front_values, judged, problem

from planner.errors import SearchSpaceError
from planner.optimize.exhaustive import StopSearch, exhaustive_search
from planner.optimize.optuna_search import SAMPLERS, optuna_search, violations

A_THOUSAND = {
    "space": "pretrain_dense",
    "settings": {
        "context_parallel": 1,
        "flash_attention": "true",
        "zero_stage": 1,
        "recompute": ["none", "full"],
        "micro_batch_size": [1, 2, 4],
        "virtual_pipeline": [1, 2, 4, 8, 16],
    },
}
TRIALS = 60


def summary(result):
    return (
        configurations(result.table),
        result.configurations_evaluated,
        result.configurations_feasible,
        result.rejected_by,
    )


@pytest.mark.few(1)
@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("seed", [0, 1])
def test_reaches_the_exhaustive_optimum(sampler, seed):
    searched = problem(**A_THOUSAND, objectives=("step_time",))
    assert searched.num_rows >= 1000
    found = optuna_search(searched, trials=TRIALS, sampler=sampler, seed=seed)
    assert found.configurations_evaluated < searched.num_rows / 2
    best = min(exhaustive_search(searched).table["step_time_s"])
    assert found.table["step_time_s"][0] == pytest.approx(best, rel=1e-9)


@pytest.mark.few(1)
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_comes_close_to_the_exhaustive_front(sampler):
    searched = problem()
    whole = front_values(exhaustive_search(searched))
    found = front_values(optuna_search(searched, trials=200, sampler=sampler))
    scale = np.ptp(whole, axis=0)
    gaps = ((found[None, :, :] - whole[:, None, :]) / scale).max(axis=2).min(axis=1)
    assert np.median(gaps) <= 0.01


def test_finds_the_whole_front_when_trials_suffice_for_every_configuration():
    searched = problem(settings={"micro_batch_size": [1, 2], "tensor_parallel": [2, 4]})
    whole = exhaustive_search(searched)
    found = optuna_search(searched, trials=5000)
    assert set(configurations(found.table)) == set(configurations(whole.table))
    assert found.configurations_evaluated == whole.configurations_evaluated
    assert found.rejected_by == whole.rejected_by


@pytest.mark.few(1)
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_respects_the_constraints(sampler):
    bound = float(np.median(exhaustive_search(problem()).table["step_time_s"]))
    searched = problem(constraints={"step_time": bound})
    found = optuna_search(searched, trials=150, sampler=sampler)
    assert max(found.table["step_time_s"]) <= bound
    rejected = sum(found.rejected_by.values())
    assert found.rejected_by["step_time"] > 0
    assert found.configurations_feasible + rejected == found.configurations_evaluated


def test_violations_grow_with_the_distance():
    searched = problem(constraints={"step_time": 60.0})
    (source,) = searched.sources
    rows = source.mesh.table().rows(np.arange(searched.num_rows))
    candidates, codes = judged(searched, rows)
    graded = violations(searched, candidates, codes)
    full = searched.rejections.index("out_of_memory") + 1
    assert (graded[codes == 0] == 0).all()
    assert (graded[(codes > 0) & (codes < full)] > 2).all()
    assert ((graded[codes == full] > 1) & (graded[codes == full] <= 2)).all()
    slow = codes == full + 1
    assert ((graded[slow] > 0) & (graded[slow] <= 1)).all()
    by_time = np.argsort(candidates.step_time[slow])
    assert (np.diff(graded[slow][by_time]) >= 0).all()


@pytest.mark.few(1)
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_the_seed_decides(sampler):
    searched = problem(**A_THOUSAND)
    runs = [optuna_search(searched, trials=60, sampler=sampler, seed=s) for s in (3, 3, 4)]
    assert summary(runs[0]) == summary(runs[1])
    assert summary(runs[0]) != summary(runs[2])


def test_a_search_that_is_stopped_gives_what_it_found():
    def stop(done):
        raise StopSearch

    searched = problem(**A_THOUSAND)
    found = optuna_search(searched, trials=500, progress=stop)
    assert found.interrupted
    assert 0 < found.configurations_evaluated < 500
    assert found.table


@pytest.mark.few(1)
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_nothing_feasible_is_a_result(sampler):
    searched = problem(model="llama-65b", num_gpus=8)
    found = optuna_search(searched, trials=100, sampler=sampler)
    assert found.fastest is None
    assert found.table == {}
    assert found.configurations_feasible == 0
    assert sum(found.rejected_by.values()) == found.configurations_evaluated > 0
    (miss,) = found.nearest_misses
    assert miss.value > miss.bound


def test_a_space_of_one_configuration_needs_one_evaluation():
    one = dict.fromkeys(("tensor_parallel", "pipeline_parallel", "micro_batch_size"), 1)
    searched = problem(settings={**one, "recompute": "full", "sequence_parallel": "no"})
    found = optuna_search(searched, trials=500)
    assert found.configurations_evaluated == 1
    assert configurations(found.table) == configurations(exhaustive_search(searched).table)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"sampler": "nsga"}, "Unknown sampler 'nsga'. Did you mean nsga2"),
        ({"trials": 0}, "trials must be at least 1"),
        ({"seed": -1}, "seed must be at least 0"),
    ],
)
def test_impossible_arguments_are_refused(arguments, message):
    with pytest.raises(SearchSpaceError, match=message):
        optuna_search(problem(), **arguments)


def test_optuna_stays_silent(capfd, recwarn):
    verbosity = optuna.logging.get_verbosity()
    optuna_search(problem(), trials=60, sampler="tpe")
    assert capfd.readouterr() == ("", "")
    assert not recwarn.list
    assert optuna.logging.get_verbosity() == verbosity
