"""Requests that come at a rate: what holds of them whatever the engine is, and worked values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from draws import examples
from hypothesis import given, settings
from hypothesis import strategies as st

import planner
from planner.errors import SearchSpaceError
from planner.estimators.inference.offered import Offered

ONE: dict[str, Any] = {
    "workload": "serve", "model": "llama-3.1-8b", "gpu": "h100", "num_gpus": 1,
    "input_tokens": 1000, "output_tokens": 200,
}  # fmt: skip


def row(**asked: Any) -> Any:
    """The one row of a plan."""
    return planner.estimate(**{**ONE, **asked}).to_frame().iloc[0]


def test_what_piles_up_is_a_fluid():
    # 100 requests in 10 s, of which 5 a second are answered and 10 have a place. The last comes
    # after 10 s; the 90 others of those before it leave after 20 - 2 s: it waits 8 of them less
    # what the first ten do not wait.
    some = Offered(rate=10.0, number=100.0, capacity=5.0, places=10.0, prompt=0.0)
    assert bool(some.is_beyond)
    assert not bool(some.is_endless)
    assert float(some.waiting_share) == pytest.approx(0.8)
    assert float(some.last_wait) == pytest.approx(100 * 0.1 * 0.8)
    assert float(some.mean_wait) == pytest.approx(0.8 * 8.0 / 2)
    assert float(some.wait_within(0.2)) == 0.0
    assert float(some.wait_within(0.6)) == pytest.approx(4.0)


def test_without_an_end_all_wait_for_ever():
    endless = Offered(rate=10.0, number=np.inf, capacity=5.0, places=10.0, prompt=0.0)
    assert float(endless.mean_wait) == float(endless.last_wait) == np.inf
    calm = Offered(rate=5.0, number=np.inf, capacity=10.0, places=10.0, prompt=0.0)
    assert float(calm.mean_wait) == float(calm.last_wait) == 0.0


@settings(max_examples=examples(300, 60))
@given(
    rate=st.floats(0.01, 1000),
    number=st.integers(1, 100_000),
    capacity=st.floats(0.01, 1000),
    places=st.integers(1, 1000),
    prompt=st.floats(0, 10),
)
def test_the_last_waits_longest(
    rate: float, number: int, capacity: float, places: int, prompt: float
) -> None:
    some = Offered(
        rate=rate, number=float(number), capacity=capacity, places=float(places), prompt=prompt
    )
    assert 0 <= float(some.mean_wait) <= float(some.last_wait) * (1 + 1e-9)
    waits = [float(some.wait_within(share)) for share in (0.1, 0.5, 0.9, 0.99, 1.0)]
    assert waits == sorted(waits)
    assert waits[-1] <= float(some.last_wait) * (1 + 1e-9)


@pytest.mark.parametrize("rate", [5, 15, 25, 100, 1000])
@pytest.mark.parametrize("number", [50, 1000, 20_000])
def test_a_number_of_requests_ends_no_sooner_than_they_come_or_are_answered(
    rate: float, number: int
) -> None:
    found = row(request_rate=rate, num_requests=number)
    seconds = found["makespan_s"]
    assert seconds >= number / rate * (1 - 1e-9)
    assert seconds >= number / found["capacity_requests_per_s"] * (1 - 1e-9)
    assert found["requests_per_s"] == pytest.approx(number / seconds)
    assert found["last_time_to_first_token_s"] >= found["time_to_first_token_s"]
    assert found["time_to_first_token_p99_s"] <= found["last_time_to_first_token_s"] * 1.01 or (
        rate < found["capacity_requests_per_s"]
    )


def test_the_faster_they_come_the_longer_they_wait():
    waits = [row(request_rate=rate, num_requests=1000)["time_to_first_token_s"]
             for rate in (10, 25, 50, 100, 400)]  # fmt: skip
    assert waits == sorted(waits)
    assert waits[-1] > 5 * waits[0]


def test_many_requests_below_the_capacity_are_as_those_without_an_end():
    for rate in (2.0, 10.0, 18.0):
        ends, lasts = row(request_rate=rate, num_requests=10**7), row(request_rate=rate)
        for name in ("time_to_first_token_s", "time_per_output_token_s", "requests_per_s"):
            assert ends[name] == pytest.approx(lasts[name], rel=1e-3), name


def test_nothing_is_sized_for_a_rate_that_ends():
    asked = {**ONE, "num_gpus": None, "request_rate": 20.0, "num_requests": 100}
    with pytest.raises(SearchSpaceError, match="a rate that lasts"):
        planner.size(**asked)
