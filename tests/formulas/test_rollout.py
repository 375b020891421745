"""Batches of generated answers against list scheduling, closed values and what must hold."""

from __future__ import annotations

import heapq

import numpy as np
import pytest

from planner.formulas import rollout


def lengths_of(mean=1000.0, variation=0.8, cap=8000.0):
    lengths, longer = rollout.answer_lengths(mean=mean, variation=variation, cap=cap)
    return {"lengths": lengths, "longer": longer}


@pytest.mark.parametrize(
    ("mean", "variation", "cap"), [(1000, 0.8, 8000), (3154, 0.8, 3986), (500, 1.5, 4096)]
)
def test_answers_have_the_mean_that_was_given_after_the_cut(mean, variation, cap):
    found = lengths_of(mean, variation, cap)
    assert rollout.expected_longest(**found, number=1.0) == pytest.approx(mean, rel=0.01)
    assert found["lengths"].max() <= cap


def test_the_longest_of_equal_answers_is_as_long_as_each():
    found = lengths_of(mean=1000, variation=0.0, cap=4000)
    for number in (1, 10, 8192):
        assert rollout.expected_longest(**found, number=number) == pytest.approx(1000, rel=1e-6)


def test_the_longest_of_uniform_lengths():
    lengths = np.linspace(0, 100, 2001)
    found = rollout.expected_longest(
        lengths=lengths, longer=1 - lengths / 100, number=np.array([1.0, 4.0, 99.0])
    )
    assert found == pytest.approx([50, 80, 99], rel=1e-3)


def test_the_longest_grows_with_the_number_and_the_cap():
    numbers = np.array([1.0, 8, 64, 512, 4096])
    found = rollout.expected_longest(**lengths_of(), number=numbers)
    wider = rollout.expected_longest(**lengths_of(cap=16000), number=numbers)
    assert np.all(np.diff(found) > 0)
    assert np.all(wider[2:] > found[2:])
    assert found[-1] == pytest.approx(8000, rel=0.05)


def test_residuals_of_equal_answers_are_uniform():
    found = lengths_of(variation=0.0, cap=4000)
    lengths = np.linspace(0, 1000, 101)
    longer = np.append(np.ones(100), 0.0)
    left = rollout.residual_lengths(lengths=lengths, longer=longer)
    assert left[50] == pytest.approx(0.5, abs=0.01)
    assert rollout.residual_lengths(**found)[0] == 1


def test_a_wave_of_equal_answers_takes_their_steps():
    found = lengths_of(mean=1000, variation=0.0, cap=4000)
    seconds = rollout.tail_time(
        **found,
        sequences=np.array([64.0]),
        replicas=np.array([4.0]),
        sizes=np.array([[1.0], [64.0]]),
        times=np.array([[0.010], [0.020]]),
    )
    assert seconds == pytest.approx([1000 * 0.020], rel=1e-3)


def scheduled(drawn, places):
    """Steps of list scheduling: each answer takes the place that is free first."""
    free = [0.0] * places
    heapq.heapify(free)
    for tokens in drawn:
        heapq.heappush(free, heapq.heappop(free) + tokens)
    return max(free)


@pytest.mark.parametrize("variation", [0.4, 0.8])
@pytest.mark.parametrize("share", [1, 4, 16])
def test_steps_are_those_of_list_scheduling(variation, share):
    mean, cap, places = 1000.0, 8000.0, 64
    found = lengths_of(mean, variation, cap)
    draw = np.random.default_rng(3)
    sigma = np.sqrt(np.log1p(variation**2))
    mu = np.log(mean) - sigma**2 / 2
    number = places * share
    drawn = [
        scheduled(np.minimum(draw.lognormal(mu, sigma, number), cap), places) for _ in range(60)
    ]
    full = rollout.full_batch_steps(sequences=number, slots=places, mean=mean)
    shape = found if share == 1 else {**found, "longer": rollout.residual_lengths(**found)}
    last = rollout.expected_longest(**shape, number=places)
    whole = max(full + last, rollout.expected_longest(**found, number=number))
    assert whole == pytest.approx(np.mean(drawn), rel=0.08)


def test_many_answers_take_the_steady_time():
    found = lengths_of()
    places, number, step = 32.0, 32.0 * 400, 0.02
    full = rollout.full_batch_steps(sequences=number, slots=places, mean=1000.0)
    drain = rollout.tail_time(
        lengths=found["lengths"],
        longer=rollout.residual_lengths(**found),
        sequences=np.asarray(places),
        replicas=np.asarray(1.0),
        sizes=np.array([1.0, 32.0]),
        times=np.array([step, step]),
    )
    steady = rollout.steady_time(sequences=number, slots=places, mean=1000.0, step=step, prompt=0.0)
    assert full * step + drain == pytest.approx(steady, rel=0.02)


def test_a_sync_of_nothing_takes_its_start():
    assert rollout.weight_sync_time(num_bytes=0.0, start=3.0, rate=1e9) == 3
    assert rollout.weight_sync_time(num_bytes=5e9, start=3.0, rate=1e9) == 8


def test_the_balanced_share_is_kept_where_both_take_equally_long():
    assert rollout.balanced_training_share(generating=60.0, training=60.0, share=0.25) == 0.25
    assert rollout.balanced_training_share(
        generating=120.0, training=60.0, share=0.5
    ) == pytest.approx(1 / 3)
