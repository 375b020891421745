"""How many published runs stay within the quantiles that limits are judged at."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from residuals import Residual, residuals, shares_within

from planner.validation.accuracy import ComparedRun


@pytest.fixture(scope="module")
def found(shipped_tables: Sequence[Sequence[ComparedRun]]) -> list[Residual]:
    training, *others = shipped_tables
    return [*residuals(training), *residuals([row for rows in others for row in rows])]


@pytest.mark.parametrize("quantity", ["step_time", "time_per_output_token", "throughput"])
def test_runs_of_a_new_publisher_stay_within_their_quantile(
    found: Sequence[Residual], quantity: str
) -> None:
    """As many as it says, or some more: one normal error on each side is not the whole truth."""
    limits = [(confidence, side) for confidence in (0.7, 0.8, 0.9, 0.95) for side in (1, -1)]
    shares, runs = shares_within(found, quantity, limits)
    assert runs > 800
    for (confidence, side), within in zip(limits, shares, strict=True):
        assert confidence - 0.04 <= within <= confidence + 0.15, (confidence, side)
