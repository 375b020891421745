"""Experts in a loop, as Transformers before 5 computes them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from planner import Request
from planner.workloads.make_plan import evaluate, make_plan, make_single_plan

ASKED: dict[str, Any] = {
    "model": "qwen3-30b-a3b",
    "gpu": "a800-sxm-80gb",
    "num_gpus": 16,
    "framework": "deepspeed",
    "sequence_length": 8192,
    "global_batch_size": 16,
}


def _row(asked: dict[str, Any] = ASKED, **settings: Any) -> dict[str, Any]:
    plan = make_single_plan(Request(**asked, settings={"recompute": "full", **settings}))
    found = evaluate(plan)
    return {
        "rejected_by": found.rejected_by,
        **{name: np.ravel(values)[0] for name, values in found.table().items()},
    }


def test_zero_3_gathers_each_matrix_of_each_expert_by_itself() -> None:
    """48 layers x 128 experts, forward, again and twice backward: 24,576 x (95.4 us + 3 x 1.2 ms).

    ms-swift measured 91.2 s of this run, and 9.6 s in Megatron with a grouped product.
    """
    loop, grouped = (_row(zero_stage=3, expert_compute=word) for word in ("loop", "grouped"))
    host = 4 * 48 * 128 * (95.4e-6 + 3 * 1.2e-3)
    assert host == pytest.approx(90.8, abs=0.1)
    assert loop["step_time_s"] == pytest.approx(host, rel=0.03)
    assert loop["step_time_s"] == pytest.approx(91.2, rel=0.05)
    assert grouped["step_time_s"] < 10


def test_without_zero_3_a_loop_costs_its_launches_alone() -> None:
    loop, sharded = (_row(zero_stage=stage, expert_compute="loop") for stage in (2, 3))
    launches = 4 * 48 * 128 * 95.4e-6
    assert launches < loop["step_time_s"] < 3 * launches
    assert loop["step_time_s"] < sharded["step_time_s"] / 10


def test_a_few_large_experts_hide_their_launches() -> None:
    asked = {**ASKED, "model": "mixtral-8x7b", "framework": "hf-fsdp"}
    loop, grouped = (_row(asked, zero_stage=3, expert_compute=word) for word in ("loop", "grouped"))
    assert loop["step_time_s"] == pytest.approx(grouped["step_time_s"], rel=0.02)


def test_what_a_framework_does_by_default_is_told_and_is_a_grouped_product() -> None:
    told = make_plan(Request(**ASKED)).defaults
    assert told["expert_compute"] == "grouped (Transformers from 5 on; loop before)"
    assert (
        _row(zero_stage=3)["step_time_s"]
        == _row(zero_stage=3, expert_compute="grouped")["step_time_s"]
    )
    dense = {**ASKED, "model": "qwen2.5-14b"}
    assert "expert_compute" not in make_plan(Request(**dense)).defaults


def test_a_loop_needs_experts_and_a_framework_that_has_one() -> None:
    dense = {**ASKED, "model": "qwen2.5-14b"}
    assert _row(dense, zero_stage=3, expert_compute="loop")["rejected_by"] == "expert_routing"
    megatron = {**ASKED, "framework": "megatron-lm"}
    assert _row(megatron, zero_stage=1, expert_compute="loop")["rejected_by"] == "framework"


def test_hooks_of_zero_3_are_called_again_for_the_matrices_of_repeated_blocks() -> None:
    """Of 7 matrices of a layer of Llama its feed-forward has 3, and half of the launches."""
    asked = {**ASKED, "model": "llama-3.1-8b", "sequence_length": 128}
    times = {
        recompute: _row(asked, zero_stage=3, recompute=recompute)["step_time_s"]
        for recompute in ("none", "feed_forward", "full")
    }
    hook, launch, layers = 0.4e-3, 0.583e-3, 32
    full, block = (times[name] - times["none"] for name in ("full", "feed_forward"))
    assert full == pytest.approx(layers * (7 * hook + launch), rel=0.02)
    assert block == pytest.approx(layers * (3 * hook + launch / 2), rel=0.02)
