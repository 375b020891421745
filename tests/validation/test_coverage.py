"""How many published runs stay within the quantiles that limits are judged at."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from residuals import Residual, residuals, shares_that_keep_all, shares_within

from planner.confidence.intervals import INFERENCE_TABLES
from planner.validation.accuracy import ComparedRun


@pytest.fixture(scope="module")
def found(shipped_tables: Sequence[Sequence[ComparedRun]]) -> list[Residual]:
    training, *others = shipped_tables
    return [*residuals(training), *residuals([row for rows in others for row in rows])]


@pytest.mark.few(1)
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


def test_servers_sized_at_90_percent_keep_all_their_limits(found: Sequence[Residual]) -> None:
    """Limits on the first token, on each token and on the rate, each at its own 90 %."""
    sides = {"time_to_first_token": 1, "time_per_output_token": 1, "throughput": -1}
    servers = [residual for residual in found if residual.tables is INFERENCE_TABLES]
    kept, fewer = shares_that_keep_all(servers, sides, (0.9, 0.7), "setup")
    total = sum(runs for _, runs in kept.values())
    assert 0.85 <= sum(share * runs for share, runs in kept.values()) / total <= 0.95
    assert 0.85 <= kept["tuned"][0] <= 0.95
    # Of servers that nobody tuned too few publishers are known to reach as many.
    assert 0.75 <= kept["own"][0] <= 0.95
    assert all(fewer[setup][0] < share for setup, (share, _) in kept.items())
