"""Any problem of the protocol is sampled."""

import time
from itertools import pairwise

import numpy as np
import pytest

from planner.optimize.optuna_search import SAMPLERS, TrialStore, coarse_mesh, neighbours, run_trials

SIZES = (7, 6, 5, 6, 7, 8)
OPTIMUM = np.array([5, 1, 3, 4, 2, 6])


class Toy:
    """A rugged bowl, less good the further from ``OPTIMUM``, and a wish for small positions."""

    objectives = {"gain": "maximize", "size": "minimize"}  # noqa: RUF012
    parameters = {f"p{n}": [f"v{v}" for v in range(size)] for n, size in enumerate(SIZES)}  # noqa: RUF012
    num_rows = int(np.prod(SIZES))

    def __init__(self):
        self.evaluated = []

    def evaluate(self, rows):
        self.evaluated += [tuple(row) for row in rows.tolist()]
        distance = np.abs(rows - OPTIMUM)
        rugged = np.where(rows.sum(axis=1) % 3 == OPTIMUM.sum() % 3, 0.0, 2.5)
        objectives = np.stack([(distance**1.5).sum(axis=1) + rugged, rows.sum(axis=1)], axis=1)
        return objectives, np.where(rows[:, 0] + rows[:, 1] > 9, 1.0, 0.0)


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("seed", range(3))
def test_finds_the_optimum_of_a_rugged_problem(sampler, seed):
    samples = Toy()
    run_trials(samples, trials=100, sampler=sampler, seed=seed)
    assert tuple(OPTIMUM) in samples.evaluated
    assert len(samples.evaluated) < 0.15 * samples.num_rows


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_more_trials_repeat_the_first_ones(sampler):
    short, long = Toy(), Toy()
    run_trials(short, trials=60, sampler=sampler)
    run_trials(long, trials=110, sampler=sampler)
    assert long.evaluated[: len(short.evaluated)] == short.evaluated
    assert len(long.evaluated) > len(short.evaluated)


@pytest.mark.drawn
def test_the_cost_of_a_trial_does_not_grow():
    times = []
    run_trials(Toy(), trials=1500, progress=lambda done: times.append(time.process_time()))
    batches = [after - before for before, after in pairwise(times)]
    assert np.median(batches[-10:]) < 2 * np.median(batches[:10])


def test_the_coarse_mesh_is_small_and_has_the_ends():
    rows = coarse_mesh(SIZES)
    assert len(rows) == len(np.unique(rows, axis=0))
    assert 2 ** len(SIZES) <= len(rows) <= np.prod(SIZES) / 16
    for column, size in zip(rows.T, SIZES, strict=True):
        assert {0, size - 1} <= set(column)
    assert len(coarse_mesh([1000] * 12)) <= 2**13
    assert coarse_mesh([1, 1]).tolist() == [[0, 0]]


def test_neighbours_differ_in_so_many_parameters():
    row = np.array([0, 3, 0, 0])
    sizes = (3, 6, 1, 4)
    for changes, count in ((1, 2 + 5 + 3), (2, 2 * 5 + 2 * 3 + 5 * 3)):
        rows = neighbours(row, sizes, changes)
        assert len(np.unique(rows, axis=0)) == len(rows) == count
        assert ((rows != row).sum(axis=1) == changes).all()
        assert ((rows >= 0) & (rows < sizes)).all()
    long = neighbours(np.array([500]), (1000,), 1)[:, 0]
    assert {0, 499, 501, 999} <= set(long)
    assert len(long) < 30


def test_rows_are_judged_once_and_unknown_values_are_rejected():
    class Unknown(Toy):
        def evaluate(self, rows):
            objectives, violation = super().evaluate(rows)
            return np.where(rows[:, :1] == 0, np.nan, objectives), violation

    met = TrialStore(samples := Unknown())
    rows = np.array([[0, 0, 0, 0, 0, 0], [1, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0]])
    met.evaluate(rows)
    met.evaluate(rows)
    assert len(samples.evaluated) == 2
    assert met.outcome(rows[0])[1] == 1
    assert met.outcome(rows[1])[1] == 0
    assert met.best()[0].tolist() == [1, 0, 0, 0, 0, 0]
