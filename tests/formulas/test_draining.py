"""A number of requests that start together: closed forms against drawn numbers."""

from __future__ import annotations

import numpy as np
import pytest

from planner.formulas.draining import (
    client_burst_wait,
    client_burst_wait_quantile,
    client_burst_wait_variance,
    drain_steps,
    mean_overlap_share,
    synchronized_share,
)


def lognormal(variation: float, shape: tuple[int, ...]) -> np.ndarray:
    """Lengths of mean 1."""
    spread = float(np.sqrt(np.log1p(variation**2)))
    return np.exp(np.random.default_rng(3).normal(-(spread**2) / 2, spread, shape))


def test_a_wave_that_keeps_nobody_together_is_the_first_alone() -> None:
    assert synchronized_share(waves=5.0, still_together=0.0) == 0.2
    later = sum(0.9**wave for wave in range(5)) / 5
    assert synchronized_share(waves=5.0, still_together=0.9) == pytest.approx(later)


@pytest.mark.parametrize("variation", [0.0, 0.3, 1.0])
def test_a_token_of_a_burst_shares_its_step_with_those_that_are_left(variation: float) -> None:
    drawn = lognormal(variation, (100_000, 2))
    expected = np.minimum(drawn[:, 0], drawn[:, 1]).mean()
    assert mean_overlap_share(variation) == pytest.approx(expected, rel=0.02)
    assert mean_overlap_share(1.0) == pytest.approx(0.556, abs=0.001)


@pytest.mark.parametrize("variation", [0.1, 0.5, 1.0])
@pytest.mark.parametrize("running", [10, 200])
def test_the_end_waits_for_the_longest_answer(variation: float, running: int) -> None:
    random, order = np.random.default_rng(3), 1 / variation**2
    fresh = random.gamma(order, 1 / order, (1000, running))
    # At a random time long answers are met more often.
    left = random.gamma(order + 1, 1 / order, fresh.shape) * random.random(fresh.shape)
    ends = {
        1.0: fresh.max(axis=1).mean() - 1,
        1e9: left.max(axis=1).mean() - (1 + variation**2) / 2,
    }
    for waves, steps in ends.items():
        found = drain_steps(waves=waves, running=running, variation=variation)
        assert found == pytest.approx(steps * (1 - 1 / running), rel=0.08), waves


def test_the_longest_answer_is_that_of_public_traces() -> None:
    """Azure 2023 conversations: of 19,366 answers of 211 tokens the longest has 1,000."""
    found = drain_steps(waves=1.0, running=19_366, variation=0.77)
    assert 4 < found + 1 < 8  # 4.7; lognormal lengths would have 12


@pytest.mark.parametrize(("number", "clients"), [(300, 300), (900, 300), (300, 40)])
def test_the_waits_in_a_line_are_those_of_its_requests(number: int, clients: int) -> None:
    places, rate, delay = 50, 4.0, 3.0
    start = np.arange(1, clients + 1)
    waits = np.where(start > places, delay + (start - places) / rate, 0.0)
    later = np.full(number - clients, max(clients - places, 0) / rate)
    each = np.sort(np.concatenate([waits, later]))
    line = {"number": number, "clients": clients, "places": places, "rate": rate, "delay": delay}
    assert client_burst_wait(**line) == pytest.approx(each.mean(), rel=0.01, abs=1e-9)
    assert client_burst_wait_variance(**line) == pytest.approx(each.var(), rel=0.02, abs=1e-9)
    for share in (0.05, 0.5, 0.9, 0.99):
        found = client_burst_wait_quantile(share=share, **line)
        assert found == pytest.approx(np.quantile(each, share), rel=0.02, abs=0.3)


def test_a_line_without_an_end_is_always_as_long() -> None:
    line = {"number": np.inf, "clients": 90.0, "places": 50.0, "rate": 4.0, "delay": 3.0}
    assert client_burst_wait(**line) == client_burst_wait_quantile(share=0.01, **line) == 10.0
    assert client_burst_wait_variance(**line) == 0
