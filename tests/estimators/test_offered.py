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
from planner.estimators.inference.queueing_delay import OfferedLoad

ONE: dict[str, Any] = {
    "workload": "serve", "model": "llama-3.1-8b", "gpu": "h100", "num_gpus": 1,
    "input_tokens": 1000, "output_tokens": 200,
}  # fmt: skip


def row(**asked: Any) -> Any:
    """The one row of a plan."""
    return planner.estimate(**{"tuned": True, **ONE, **asked}).to_frame().iloc[0]


def test_what_piles_up_is_a_fluid():
    # 100 requests in 10 s, of which 5 a second are answered, the last at 20 s; 10 find a place.
    # An answer of the emptying engine takes 1 s: the last, which comes at 10 s, starts at 19 s, the
    # 55th, which comes at 5.5 s, at 10 s.
    some = OfferedLoad(rate=10.0, number=100.0, capacity=5.0, places=10.0, prompt=0.0, answer=1.0)
    assert bool(some.is_beyond)
    assert not bool(some.is_endless)
    assert float(some.last_wait) == pytest.approx(9.0)
    assert float(some.wait_within(0.55)) == pytest.approx(4.5)
    assert float(some.wait_within(0.1)) == 0.0
    # Those from the tenth on wait 0 to 9 s, at an even pace.
    assert float(some.mean_wait) == pytest.approx(0.9 * 4.5)


def test_prompts_of_those_who_find_a_place_wait_for_each_other():
    # 10 a second come and 8 prompts a second are computed: the 20th waits 20 (1/8 - 1/10) = 0.5 s.
    some = OfferedLoad(rate=10.0, number=40.0, capacity=5.0, places=20.0, prompt=0.125)
    assert float(some.wait_within(0.5)) == pytest.approx(0.5)
    assert float(some.wait_within(0.25)) == pytest.approx(0.25)
    assert float(some.last_wait) == pytest.approx(4.0)


def test_without_an_end_all_wait_for_ever():
    endless = OfferedLoad(rate=10.0, number=np.inf, capacity=5.0, places=10.0, prompt=0.0)
    assert float(endless.mean_wait) == float(endless.last_wait) == np.inf
    calm = OfferedLoad(rate=5.0, number=np.inf, capacity=10.0, places=10.0, prompt=0.0)
    assert float(calm.mean_wait) == float(calm.last_wait) == 0.0


@settings(max_examples=examples(300, 60))
@given(
    rate=st.floats(0.01, 1000),
    number=st.integers(1, 100_000),
    capacity=st.floats(0.01, 1000),
    places=st.integers(1, 1000),
    prompt=st.floats(0, 10),
    answer=st.floats(0, 100),
)
def test_the_last_waits_longest(
    rate: float, number: int, capacity: float, places: int, prompt: float, answer: float
) -> None:
    some = OfferedLoad(
        rate=rate,
        number=float(number),
        capacity=capacity,
        places=float(places),
        prompt=prompt,
        answer=answer,
    )
    assert 0 <= float(some.mean_wait) <= float(some.last_wait) * (1 + 1e-9)
    waits = [float(some.wait_within(share)) for share in (0.1, 0.5, 0.9, 0.99, 1.0)]
    assert waits == sorted(waits)
    assert waits[-1] <= float(some.last_wait) * (1 + 1e-9)


@pytest.mark.few(2)
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
    # A few may meet what the last of them does not.
    few = number < 100 or rate < found["capacity_requests_per_s"]
    assert few or (found["time_to_first_token_p99_s"] <= found["last_time_to_first_token_s"] * 1.01)


def test_the_faster_they_come_the_longer_they_wait():
    waits = [row(request_rate=rate, num_requests=1000)["time_to_first_token_s"]
             for rate in (10, 25, 50, 100, 400)]  # fmt: skip
    assert waits == sorted(waits)
    assert waits[-1] > 5 * waits[0]


@pytest.mark.slow
def test_many_requests_below_the_capacity_are_as_those_without_an_end():
    for rate in (2.0, 10.0, 18.0):
        ends, lasts = row(request_rate=rate, num_requests=10**7), row(request_rate=rate)
        for name in ("time_to_first_token_s", "time_per_output_token_s", "requests_per_s"):
            assert ends[name] == pytest.approx(lasts[name], rel=1e-3), name


@pytest.mark.few(1)
@pytest.mark.parametrize("number", [50, 1000, 20_000])
def test_nothing_jumps_where_the_rate_passes_the_capacity(number: int) -> None:
    capacity = row(request_rate=1.0)["capacity_requests_per_s"]
    below, above = (row(request_rate=capacity * by, num_requests=number) for by in (0.998, 1.002))
    for name in ("time_to_first_token_s", "time_to_first_token_p99_s", "makespan_s"):
        assert above[name] == pytest.approx(below[name], rel=0.15), name


@pytest.mark.few(1)
@pytest.mark.parametrize("rate", [10.0, 19.5, 20.0])
def test_those_that_end_wait_no_longer_than_those_without_an_end(rate: float) -> None:
    lasting = row(request_rate=rate)["time_to_first_token_s"]
    waits = [row(request_rate=rate, num_requests=number)["time_to_first_token_s"]
             for number in (100, 1000, 10_000, 10**6)]  # fmt: skip
    assert waits == sorted(waits)
    assert waits[-1] <= lasting * (1 + 1e-9)


def test_a_rate_that_is_carried_has_a_time_to_the_first_token():
    # 19.3 of 19.5 requests a second and few places: long, but known.
    found = row(request_rate=19.3, engine="vllm", max_num_seqs=64, input_tokens=1024,
                output_tokens=128)  # fmt: skip
    assert found["capacity_requests_per_s"] > 19.3
    assert 0 < found["time_to_first_token_s"] < 60


def test_nothing_is_sized_for_a_rate_that_ends():
    asked = {**ONE, "num_gpus": None, "request_rate": 20.0, "num_requests": 100}
    with pytest.raises(SearchSpaceError, match="a rate that lasts"):
        planner.size(**asked)
