"""Factors that hold new runs."""

import math

import numpy as np
import pytest
from conformal import conformal_factors
from hypothesis import given, settings
from hypothesis import strategies as st


def test_conformal_ranks_of_few_runs():
    residuals = np.log(np.arange(1.0, 40.0))
    low, high = conformal_factors(residuals, 0.9)
    assert (low, high) == (pytest.approx(2.0), pytest.approx(38.0))
    assert conformal_factors(residuals[:5], 0.9) == (0.0, math.inf)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6), size=st.integers(20, 200), skew=st.floats(0, 2))
def test_conformal_intervals_hold_new_runs(seed, size, skew):
    random = np.random.default_rng(seed)
    drawn = random.normal(size=(400, size + 1))
    drawn = drawn + skew * drawn**2
    held = [
        low <= math.exp(one[-1]) <= high
        for one in drawn
        for low, high in [conformal_factors(one[:-1], 0.9)]
    ]
    assert np.mean(held) > 0.9 - 4 * math.sqrt(0.09 / 400)


def test_a_source_counts_once_however_many_runs_it_has():
    many, few = [0.0] * 100, [math.log(2)] * 2
    weights = [1 / 100] * 100 + [1 / 2] * 2
    _, plain = conformal_factors([*many, *few], 0.9, new_weight=0.0)
    _, balanced = conformal_factors([*many, *few], 0.9, weights, new_weight=0.0)
    assert (plain, balanced) == (pytest.approx(1.0), pytest.approx(2.0))
