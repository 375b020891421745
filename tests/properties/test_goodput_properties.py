"""Goodput falls with failures, GPUs and recoveries, stays in (0, 1], and is best where told."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from planner.base.units import HOUR
from planner.formulas.goodput import (
    effective_training_time_ratio,
    interruption_rate,
    optimal_interval,
    straggler_ratio,
    training_time_parts,
)

seconds = st.floats(1e-3, 1e5)
rates = st.floats(1e-9, 1e2)
growth = st.floats(1.0, 50.0)


def best(blocking, write, rate):
    return optimal_interval(blocking_time=blocking, write_time=write, rate=rate)


def ratio(interval, blocking, write, recovery, rate):
    return effective_training_time_ratio(
        *training_time_parts(
            interval=interval,
            blocking_time=blocking,
            write_time=write,
            recovery_time=recovery,
            rate=rate,
        )
    )


@given(blocking=seconds, slower=growth, recovery=seconds, rate=rates, factor=growth)
def test_more_failures_and_longer_recoveries_never_help(blocking, slower, recovery, rate, factor):
    write = blocking * slower
    at = ratio(best(blocking, write, rate), blocking, write, recovery, rate)
    often = ratio(best(blocking, write, rate * factor), blocking, write, recovery, rate * factor)
    long = ratio(best(blocking, write, rate), blocking, write, recovery * factor, rate)
    assert 0 < often <= at * (1 + 1e-9)
    assert 0 < long <= at * (1 + 1e-9)
    assert at <= 1


@given(blocking=seconds, rate=st.floats(1e-9, 1e-2), away=st.floats(1.001, 3.0))
def test_the_optimal_interval_is_a_minimum_of_what_is_lost(blocking, rate, away):
    interval = best(blocking, blocking, rate)
    at = ratio(interval, blocking, blocking, 0.0, rate)
    for other in (interval / away, interval * away):
        assert ratio(other, blocking, blocking, 0.0, rate) <= at * (1 + 1e-12)


@given(
    num_gpus=st.integers(1, 10**6),
    hours=st.floats(1.0, 1e6),
    blocking=st.floats(0.0, 1e4),
    recovery=st.floats(0.0, 1e5),
)
def test_it_stays_finite_and_positive_for_a_million_gpus(num_gpus, hours, blocking, recovery):
    rate = interruption_rate(
        num_gpus=float(num_gpus),
        gpu_time_per_interruption=hours * HOUR,
        gpu_time_per_preemption=np.inf,
    )
    found = ratio(best(blocking, blocking, rate), blocking, blocking, recovery, rate)
    assert np.isfinite(found)
    assert 0 < found <= 1


@given(blocking=seconds, recovery=seconds)
def test_without_interruptions_nothing_is_lost(blocking, recovery):
    assert best(blocking, blocking, 0.0) == np.inf
    assert ratio(np.inf, blocking, blocking, recovery, 0.0) == 1


@given(num_gpus=st.floats(1, 1e6), factor=growth, lost=st.floats(0, 1), hours=st.floats(1, 1e6))
def test_stragglers_cost_more_in_larger_jobs(num_gpus, factor, lost, hours):
    left = straggler_ratio(
        num_gpus=np.array([num_gpus, num_gpus * factor]),
        gpu_time_per_slowdown=hours * HOUR,
        slowdown_duration=HOUR,
        lost_share=lost,
    )
    assert 1 - lost - 1e-12 <= left[1] <= left[0] <= 1


@given(count=st.integers(1, 6), blocking=seconds, rate=rates)
def test_arrays_are_their_elements(count, blocking, rate):
    many = rate * 2.0 ** np.arange(count)
    found = ratio(best(blocking, blocking, many), blocking, blocking, 60.0, many)
    alone = [ratio(best(blocking, blocking, one), blocking, blocking, 60.0, one) for one in many]
    assert np.array_equal(found, alone)
