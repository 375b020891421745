"""Results of threads come in order, with their errors, and no more of them than are wanted."""

from __future__ import annotations

import threading
import time

import pytest
from problems import front_values, problem

from planner.optimize import ahead, source
from planner.optimize.exhaustive import StopSearch, exhaustive_search


@pytest.fixture(autouse=True)
def three_cores(monkeypatch):
    monkeypatch.setattr(ahead, "_cores", lambda: 3)


def test_results_keep_the_order_of_their_items():
    def slow(number):
        time.sleep(0.02 if number % 3 == 0 else 0.0)
        return number * number

    assert list(ahead.in_order(slow, range(20))) == [number * number for number in range(20)]
    assert list(ahead.in_order(slow, [])) == []


def test_several_are_computed_at_the_same_time():
    meeting = threading.Barrier(3, timeout=20)
    assert list(ahead.in_order(lambda _: meeting.wait() >= 0, range(3))) == [True] * 3


def test_an_error_comes_where_its_result_would():
    def sometimes(number):
        if number == 5:
            raise ValueError("five")
        return number

    results = ahead.in_order(sometimes, range(10))
    assert [next(results) for _ in range(5)] == [0, 1, 2, 3, 4]
    with pytest.raises(ValueError, match="five"):
        next(results)


def test_who_leaves_early_has_few_results_computed():
    begun = []
    results = ahead.in_order(lambda number: begun.append(number) or number, range(1000))
    assert next(results) == 0
    results.close()
    assert len(begun) <= 5


@pytest.mark.parametrize("limits", [{}, {"step_time": 1.0}])
def test_a_search_on_threads_is_one_on_a_single_core(monkeypatch, limits):
    searched = problem(constraints=limits)
    alone = exhaustive_search(searched)
    monkeypatch.setattr("planner.workloads.training_runs.TrainingSource.block_rows", 20)
    assert searched.num_rows > source._MANY_BLOCKS * 20
    done: list[int] = []
    together = exhaustive_search(searched, progress=done.append)
    assert done == sorted(done)
    assert done[-1] == searched.num_rows
    assert together.rejected_by == alone.rejected_by
    if not limits:
        assert front_values(together).tolist() == front_values(alone).tolist()
    for one, other in zip(alone.nearest_misses, together.nearest_misses, strict=True):
        assert one.value == pytest.approx(other.value, rel=1e-9)


def test_a_search_on_threads_can_be_stopped(monkeypatch):
    monkeypatch.setattr("planner.workloads.training_runs.TrainingSource.block_rows", 20)

    def stop(done):
        raise StopSearch

    found = exhaustive_search(problem(), progress=stop)
    assert found.interrupted
    assert 0 < found.configurations_evaluated < problem().num_rows
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("planner")]
