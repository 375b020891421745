"""Paged optimizers of bitsandbytes: states that find no room on the GPU move to the host."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from planner import Request, search
from planner.errors import SearchSpaceError
from planner.workloads.make_plan import evaluate, make_single_plan

GIB = 2**30
# Llama 3.1 8B; a moment in blocks of 256 has 1 + 4 / 256 bytes.
STATES = 8_030_261_248 * 2 * (1 + 4 / 256) / GIB


def _asked(gpu: str = "a100-sxm-40gb", **settings: Any) -> Request:
    framework = settings.pop("framework", "hf-bf16")
    plain = {"recompute": "full", "optimizer_state_precision": "int8", "zero_stage": 0}
    return Request(
        model="llama-3.1-8b",
        gpu=gpu,
        num_gpus=1,
        framework=framework,
        sequence_length=2048,
        global_batch_size=1,
        settings={**plain, **settings},
    )


def _row(**settings: Any) -> dict[str, Any]:
    found = evaluate(make_single_plan(_asked(**settings)))
    row = {name: np.ravel(values)[0] for name, values in found.table().items()}
    return row | {"rejected_by": found.rejected_by}


def test_what_finds_no_room_leaves_and_no_more() -> None:
    """A100 of 40 GB: 46.1 GiB are needed, so that 6.8 of 15.2 GiB of states leave."""
    plain, paged = _row(), _row(paged_optimizer=True)
    assert plain["rejected_by"] == "out_of_memory"
    assert paged["rejected_by"] == ""
    capacity = plain["peak_memory_gib"] + plain["memory_headroom_gib"]
    over = plain["peak_memory_gib"] - capacity
    assert over == pytest.approx(6.8, abs=0.1)
    assert plain["memory_optimizer_states_gib"] == pytest.approx(STATES, rel=1e-3)
    assert paged["paged_states_gib"] == pytest.approx(over, rel=1e-9)
    assert paged["memory_optimizer_states_gib"] == pytest.approx(STATES - over, rel=1e-3)
    assert paged["peak_memory_gib"] == pytest.approx(capacity, rel=1e-9)
    assert paged["host_memory_gib"] - over == pytest.approx(0.0, abs=1e-6)


def test_pages_cross_the_link_twice_in_every_step() -> None:
    """PCIe 4.0 x16, 32 GB/s of which copies reach 0.75: 6.8 GiB there and back take 0.61 s."""
    plain, paged = _row(), _row(paged_optimizer=True)
    seconds = 2 * paged["paged_states_gib"] * GIB / (0.75 * 32e9)
    assert paged["step_time_s"] - plain["step_time_s"] == pytest.approx(seconds, rel=0.01)


def test_with_room_nothing_is_paged() -> None:
    plain, paged = _row(gpu="a100-sxm-80gb"), _row(gpu="a100-sxm-80gb", paged_optimizer=True)
    assert paged["paged_states_gib"] == 0
    assert (paged["step_time_s"], paged["peak_memory_gib"]) == (
        plain["step_time_s"],
        plain["peak_memory_gib"],
    )


def test_a_plan_fits_as_surely_as_without_the_states() -> None:
    """46.1 GiB less 15.2 of states fit 39.4 as surely as 31 GiB do, not as 39.4 of 39.4."""
    assert _row(paged_optimizer=True)["fit_probability"] > 0.8


def test_what_lacks_more_than_the_states_does_not_fit() -> None:
    assert _row(gpu="rtx-4090", paged_optimizer=True)["rejected_by"] == "out_of_memory"


@pytest.mark.parametrize(
    ("settings", "rule"),
    [
        ({"optimizer": "sgd", "optimizer_state_precision": "framework"}, "paged_optimizer"),
        ({"optimizer_state_precision": "framework"}, "paged_optimizer"),  # bf16 of this profile
        ({"optimizer_state_precision": "fp32"}, ""),
        ({"optimizer": "lion"}, ""),
        ({"offload": "optimizer_weights"}, "paged_optimizer"),
        ({"framework": "deepspeed"}, "framework"),
    ],
)
def test_bitsandbytes_has_paged_adam_and_lion_in_8_and_32_bits(
    settings: dict[str, Any], rule: str
) -> None:
    found = _row(gpu="h100-sxm", paged_optimizer=True, **settings)
    assert found["rejected_by"] == rule


def test_a_name_of_bitsandbytes_is_told_as_settings() -> None:
    told = "--set optimizer=adam --set optimizer_state_precision=int8 --set paged_optimizer=true"
    with pytest.raises(SearchSpaceError, match=told):
        make_single_plan(_asked(optimizer="paged_adamw_8bit"))


def test_a_search_has_it_as_an_axis() -> None:
    found = search(
        model="llama-3.1-8b",
        gpu="a100-sxm-40gb",
        num_gpus=1,
        framework="hf-bf16",
        sequence_length=2048,
        global_batch_size=1,
        settings={"paged_optimizer": [True, False], "optimizer_state_precision": "int8"},
    )
    assert {*found.to_frame()["paged_optimizer"]} == {True}
