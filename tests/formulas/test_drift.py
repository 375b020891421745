"""A fluid of requests that fills and empties a replica, against its steady state and a replay."""

from __future__ import annotations

import numpy as np
import pytest

from planner.base.arrays import FloatArray
from planner.estimators.inference.replica_simulation import Requests, StepCosts, replay
from planner.formulas.trace_queueing import simulate_fluid_queue

FIXED, SLOPE, PROMPT, STEPS, ROOM = 0.01, 1e-4, 0.02, 100, 0.1


def filled(windows: list[float], rate: float, **other: float) -> tuple[FloatArray, FloatArray]:
    each = np.array(windows)
    asked = {
        "seconds": 10.0, "fixed": np.array(FIXED), "slope": np.array(SLOPE), "steps": STEPS,
        "places": 60, "prompt": np.array(PROMPT), "lone": np.array(PROMPT),
        "added": np.array(PROMPT), "fullest": ROOM, **other,
    }  # fmt: skip
    return simulate_fluid_queue(
        requests=each, prompts=each, answers=each, rate=np.array(rate), **asked
    )


@pytest.mark.parametrize("fullest", [ROOM, np.inf])
def test_an_even_rate_stays_at_its_steady_state(fullest: float) -> None:
    """B = rate n (a + b B) / (1 - rate s)."""
    fed = 10.0 * STEPS / (1 - 10.0 * PROMPT)
    running, waits = filled([1.0] * 4, 10.0, fullest=fullest)
    np.testing.assert_allclose(running, fed * FIXED / (1 - fed * SLOPE), rtol=1e-6)
    assert not waits.any()


def test_a_replica_that_was_empty_holds_no_more_than_one_that_was_not() -> None:
    running, _ = filled([1.0, 0.0, 0.0, 1.0, 1.0], 10.0)
    assert running[2] == pytest.approx(0.0, abs=0.01)
    assert 0.6 * running[4] < running[3] < running[4]
    assert running[4] == pytest.approx(running[0], rel=0.1)


@pytest.mark.parametrize("mixes", [True, False])
def test_windows_of_more_than_is_carried_fill_as_in_a_replay(mixes: bool) -> None:
    chance, windows = np.random.default_rng(2), [0.5, 1.6, 1.6, 0.5, 0.3]
    rate, seconds = 24.0, 20.0
    gaps = np.concatenate([np.full(int(one * rate * seconds), 1 / one) for one in windows]) / rate
    arrivals = np.cumsum(gaps)
    answers = np.maximum(chance.exponential(STEPS, arrivals.size).round(), 1) + 1
    seen = replay(
        Requests(arrivals=arrivals, prompts=np.full(arrivals.size, 100.0), answers=answers),
        StepCosts(fixed=FIXED, slope=SLOPE, start=0.0, token=PROMPT / 100, mixes=mixes),
        places=60,
        step_tokens=int(100 * ROOM / PROMPT),
    )
    _, waits = filled(windows, rate, seconds=seconds, fullest=ROOM if mixes else np.inf)
    place = np.minimum((arrivals / seconds).astype(int), len(windows) - 1)
    first = np.array([seen.first[place == one].mean() for one in range(len(windows))])
    np.testing.assert_allclose(waits, first, rtol=0.1, atol=1.0)
