"""Set-ups that nobody tuned take as long as the median of what was measured of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from make_medians import FILE, medians, table
from serving_cases import replicas, serving_setting

import planner
from planner.confidence.medians import Work, median_slowdown
from planner.estimators.inference.closed_loop import served_at_concurrency
from planner.estimators.inference.continuous_batching import decode_batch
from planner.estimators.inference.engine_step import step_time
from planner.estimators.inference.serving_memory import serving_memory

# Of llama-3.1-8b on one H100 before servers were slowed [s].
TUNED_TOKEN_TIME = 0.007009930872640614
TUNED_FIRST_TOKEN_TIME = 0.07082944287549485
SERVE: dict[str, Any] = {
    "model": "llama-3.1-8b",
    "workload": "serve",
    "gpu": "h100-sxm-80gb",
    "num_gpus": 1,
}


def _row(**asked: Any) -> dict[str, Any]:
    (row,) = planner.estimate(**asked).to_frame().to_dict("records")
    return row


def test_the_table_is_what_the_shipped_runs_say(shipped_tables):
    assert table(medians(shipped_tables)) == FILE.read_text(encoding="utf-8")


def test_a_slowdown_scales_the_times_of_a_closed_loop():
    c, tuned = replicas(concurrency=32), serving_setting()
    slow = replace(tuned, slowdown=1.25)
    of_tuned, of_slow = (served_at_concurrency(s, c, serving_memory(s, c)) for s in (tuned, slow))
    for name in ("time_to_first_token", "time_per_output_token"):
        assert getattr(of_slow, name) == pytest.approx(1.25 * getattr(of_tuned, name))
    assert of_slow.request_rate == pytest.approx(of_tuned.request_rate / 1.25)


@pytest.mark.parametrize("stages", [1, 2])
def test_parts_of_a_slowed_step_add_up(stages):
    c = replicas(num_gpus=stages, pipeline_parallel=stages, concurrency=8)
    tuned = serving_setting()
    fast, slow = (
        step_time(s, c, decode_batch(s, np.array(8.0)), decoding=True)
        for s in (tuned, replace(tuned, slowdown=1.25))
    )
    assert slow.untuned == pytest.approx(0.25 * fast.total)
    assert slow.total == pytest.approx(fast.total + slow.untuned)
    assert slow.slowest_stage == pytest.approx(1.25 * fast.slowest_stage)


def test_only_servers_that_are_not_said_to_be_tuned_are_slower():
    slower = median_slowdown(Work.SERVING).slower
    usual, tuned, ideal = _row(**SERVE), _row(**SERVE, tuned=True), _row(**SERVE, ideal=True)
    assert slower > 1
    assert (usual["slowdown"], tuned["slowdown"], ideal["slowdown"]) == (slower, 1, 1)
    assert usual["time_per_output_token_s"] == pytest.approx(
        slower * tuned["time_per_output_token_s"]
    )
    batch = _row(**{**SERVE, "workload": "inference"})
    assert batch["slowdown"] == 1
    assert tuned["time_per_output_token_s"] == pytest.approx(TUNED_TOKEN_TIME, rel=1e-6)
    assert tuned["time_to_first_token_s"] == pytest.approx(TUNED_FIRST_TOKEN_TIME, rel=1e-6)
