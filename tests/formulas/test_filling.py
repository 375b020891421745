"""A replica that fills, and one that empties, step by step."""

from __future__ import annotations

import numpy as np
import pytest
from rows import each

from planner.formulas.queueing import finite_run_time_per_token_ratio

FIXED, SLOPE, STEPS = 7e-3, 8e-5, 255.0


def steady(rate: float, load: float) -> float:
    """B = rate n (a + b B) / (1 - load)."""
    fed = rate * STEPS * SLOPE / (1 - load)
    return FIXED / SLOPE * fed / (1 - fed)


def share(number: float, rate: float, load: float, **other: float) -> float:
    asked = {
        "capacity": 2 * rate, "steady": steady(rate, load), "steps": STEPS, "fixed": FIXED,
        "slope": SLOPE, **other,
    }  # fmt: skip
    return float(finite_run_time_per_token_ratio(number=number, rate=rate, load=load, **asked))


def by_steps(number: float, rate: float, load: float) -> float:
    """The fluid in small parts of the time of an answer: who came until then, and who has ended."""
    parts = 400
    times, came = [0.0], [0.0]
    while came[-1] < number or len(times) <= parts:
        running = came[-1] - (came[-1 - parts] if len(came) > parts else 0.0)
        step = (FIXED + SLOPE * running) / ((1 - load) if came[-1] < number else 1.0)
        times.append(times[-1] + STEPS / parts * step)
        came.append(min(rate * times[-1], number))
    last = len(times) - 1
    for _ in range(parts):
        running = came[-1] - came[-1 - parts]
        times.append(times[-1] + STEPS / parts * (FIXED + SLOPE * running))
        came.append(number)
    weights = np.diff(came)[:last]
    met = np.array([times[at + parts] - times[at] for at in range(last)])
    mean = float(np.sum(weights * met) / np.sum(weights)) / STEPS
    return mean / ((FIXED + SLOPE * steady(rate, load)) / (1 - load))


@each("number", [20, 60, 100, 200, 500, 2000])
@each(("rate", "load"), [(8.0, 0.25), (13.0, 0.4), (16.0, 0.48), (20.0, 0.05)])
def test_few_requests_meet_what_a_fluid_does(number: int, rate: float, load: float) -> None:
    found = share(number, rate, load)
    assert found == pytest.approx(by_steps(number, rate, load), rel=0.07)


def test_steps_that_take_the_same_are_met_by_any_number() -> None:
    for number in (1, 10, 1000):
        assert share(number, 5.0, 0.0, slope=1e-12, steady=9.0) == pytest.approx(1.0, abs=1e-3)


def test_without_an_end_nothing_is_less_and_more_requests_meet_more() -> None:
    assert share(np.inf, 16.0, 0.48) == 1.0
    found = [share(number, 16.0, 0.48) for number in (5, 20, 80, 300, 1000, 10_000)]
    assert found == sorted(found)
    assert found[-1] > 0.99
    assert found[0] > FIXED / ((FIXED + SLOPE * steady(16.0, 0.48)) / 0.52)


def test_far_more_than_can_be_taken_fills_all_places_at_once() -> None:
    """What is left is the end: c (g / 2 - a / 2 - b c / 3) / g N of the steps are not met."""
    places, load, number = 126.0, 0.5, 1000
    whole = (FIXED + SLOPE * places) / (1 - load)
    saved = places * (whole / 2 - FIXED / 2 - SLOPE * places / 3) / whole / number
    found = share(number, 136.0, load, capacity=17.0, steady=places)
    assert found == pytest.approx(1 - saved, abs=1e-3)
