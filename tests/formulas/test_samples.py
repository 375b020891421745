"""Lengths of samples: closed forms against drawn ones."""

import numpy as np
import pytest

from planner.formulas.attention import longest_sample, mean_square_length

MEAN, DEVIATION, LONGEST = 300.0, 240.0, 1024.0


def drawn(count: int) -> np.ndarray:
    """Rows of ``count`` samples, cut off."""
    variance = np.log1p((DEVIATION / MEAN) ** 2)
    rng = np.random.default_rng(7)
    raw = rng.lognormal(np.log(MEAN) - variance / 2, np.sqrt(variance), (200_000, count))
    return np.minimum(raw, LONGEST)


@pytest.mark.parametrize("count", [1, 2, 4, 16])
def test_the_longest_of_drawn_samples(count: int) -> None:
    found = longest_sample(samples=count, mean=MEAN, deviation=DEVIATION, longest=LONGEST)
    assert float(found) == pytest.approx(drawn(count).max(axis=1).mean(), rel=5e-3)


def test_the_mean_square_of_drawn_samples() -> None:
    found = mean_square_length(mean=MEAN, deviation=DEVIATION, longest=LONGEST)
    assert found == pytest.approx((drawn(1) ** 2).mean(), rel=1e-2)


def test_equal_samples_are_their_own_longest() -> None:
    found = longest_sample(samples=np.array([1, 8]), mean=300.0, deviation=0.0, longest=1024.0)
    assert found == pytest.approx([300.0, 300.0], rel=2e-3)
