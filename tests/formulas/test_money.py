"""What GPU time and tokens cost, by hand and for any prices."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.formulas.cost import (
    break_even_rate,
    cost_per_million,
    cost_per_pflop_day,
    cost_per_request,
    request_cost,
)

USD = st.floats(1e-9, 1e3)
TOKENS = st.integers(0, 10**7)


def test_a_million_tokens_at_a_thousand_a_second_take_a_thousand_seconds() -> None:
    assert cost_per_million(cost_rate=3.6 / 3600, token_rate=1000.0) == pytest.approx(1.0)
    assert np.isnan(cost_per_million(cost_rate=1.0, token_rate=0.0))


def test_a_pflop_day_of_an_h100_at_half_its_peak_is_two_days_of_one_gpu() -> None:
    """At 500 TFLOP/s two GPUs reach 1e15 FLOP/s: 48 GPU-hours of 2 USD."""
    assert cost_per_pflop_day(cost=48 * 2.0, flops=1e15 * 86_400) == pytest.approx(96.0)


def test_a_request_pays_computed_cached_and_generated_tokens() -> None:
    """DeepSeek-V3 at its list price of 2025: 0.27, 0.07, 1.10 USD per million tokens."""
    cost = request_cost(
        input_tokens=10_000,
        cached_tokens=8_000,
        output_tokens=1_000,
        input_price=0.27e-6,
        cached_price=0.07e-6,
        output_price=1.10e-6,
    )
    assert cost == pytest.approx(2_000 * 0.27e-6 + 8_000 * 0.07e-6 + 1_000 * 1.10e-6)
    assert cost == pytest.approx(0.0022)


def test_eight_gpus_break_even_with_an_api() -> None:
    """8 GPUs at 2.25 USD are 18 USD/h, what 5 requests/s at a tenth of a cent cost in an hour."""
    assert break_even_rate(cost_rate=18 / 3600, request_cost=0.001) == pytest.approx(5.0)
    assert break_even_rate(cost_rate=1.0, request_cost=0.0) == np.inf


@given(rate=st.floats(1e-6, 1e6), input_tokens=TOKENS, cached=st.floats(0, 1), output=TOKENS,
       prices=st.tuples(USD, USD, USD), gpus=st.floats(1e-6, 1e6))  # fmt: skip
def test_at_the_load_of_break_even_both_cost_the_same(
    rate: float, input_tokens: int, cached: float, output: int,
    prices: tuple[float, float, float], gpus: float,
) -> None:  # fmt: skip
    price = request_cost(
        input_tokens=input_tokens + 1,
        cached_tokens=cached * input_tokens,
        output_tokens=output,
        input_price=prices[0],
        cached_price=prices[1],
        output_price=prices[2],
    )
    even = break_even_rate(cost_rate=gpus, request_cost=price)
    assert cost_per_request(cost_rate=gpus, request_rate=even) == pytest.approx(float(price))
    dearer = cost_per_request(cost_rate=gpus, request_rate=even * 0.9)
    assert dearer > price
    assert cost_per_request(cost_rate=gpus, request_rate=rate) * rate == pytest.approx(gpus)
