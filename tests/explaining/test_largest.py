"""The largest batch and length are those after which the very next one fails."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import planner
from planner.decide.explain.largest_fit import largest_batch, largest_length
from planner.show.presenters.largest_fit import largest_lines

TRAINED: dict[str, Any] = {
    "model": "llama-65b",
    "num_gpus": 2048,
    "framework": "megatron-bridge",
    "global_batch_size": 8192,
    "settings": {"tp": 8, "mbs": 1, "sp": True, "zero": 1},
}
DEEPSEEK: dict[str, Any] = {
    "model": "deepseek-v3",
    "gpu": "h800",
    "num_gpus": 2048,
    "framework": "megatron-bridge",
    "precision": "bf16",
    "settings": {"tp": 2, "pp": 16, "ep": 8, "sp": True, "zero": 1, "recompute": "selective"},
}
LONG: dict[str, Any] = {
    "model": "llama-3.1-8b",
    "gpu": "h100",
    "num_gpus": 8,
    "framework": "deepspeed",
    "settings": {"recompute": "full", "zero": 3},
}
SERVED: dict[str, Any] = {
    "workload": "serve",
    "model": "llama-3.1-70b",
    "gpu": "h200",
    "num_gpus": 8,
    "input_tokens": 4000,
    "output_tokens": 1000,
    "settings": {"tp": 4, "concurrency": 64},
}
BATCH = SERVED | {"workload": "inference"}
POOLS = SERVED | {
    "mode": "disaggregated",
    "settings": {
        "tp": 1,
        "quantization": "fp8",
        "concurrency": 16,
        "replicas": 4,
        "prefill_replicas": 4,
    },
}


def batch_of(request: dict[str, Any]) -> Any:
    found = planner.estimate(**request)
    return largest_batch(found.plan, found)


def length_of(request: dict[str, Any], name: str) -> Any:
    found = planner.estimate(**request)
    return largest_length(found.plan, found, name)


def with_setting(request: dict[str, Any], **settings: Any) -> Any:
    return planner.estimate(**{**request, "settings": {**request["settings"], **settings}})


def test_the_largest_micro_batch_fits_and_the_next_does_not():
    found = batch_of(TRAINED)
    assert found.largest == 8
    again = with_setting(TRAINED, mbs=found.largest)
    assert not again.rejected_by
    assert found.row["peak_memory_gib"] == again.table()["peak_memory_gib"][0]
    assert found.row["step_time_s"] == again.table()["step_time_s"][0]
    assert found.following == 16
    assert with_setting(TRAINED, mbs=16).rejected_by == "out_of_memory"
    assert "memory" in found.reason


def test_a_batch_may_end_before_the_memory():
    found = batch_of({**TRAINED, "global_batch_size": 512})
    assert (found.largest, found.following) == (2, None)
    assert "data-parallel rank" in found.ends_at


def test_the_most_requests_are_those_that_find_room():
    found = batch_of(BATCH)
    assert found.largest == planner.estimate(**BATCH).more["largest_batch"][0]
    for number, fits in ((found.largest, True), (found.largest + 1, False)):
        assert bool(with_setting(BATCH, concurrency=number).rejected_by) is not fits


def test_limits_end_it_too():
    found = batch_of({**SERVED, "constraints": {"time_per_output_token": "30ms"}})
    free = batch_of(SERVED)
    assert found.largest < free.largest
    assert "time_per_output_token" in found.reason
    rates = [
        with_setting(SERVED, concurrency=found.largest + more).table()["time_per_output_token_s"][0]
        for more in (0, 1)
    ]
    assert rates[0] <= 0.03 < rates[1]


@pytest.mark.slow
def test_a_larger_headroom_and_a_surer_fit_leave_less():
    plain = length_of(LONG, "sequence_length").largest
    spare = {**LONG, "constraints": {"memory_headroom": "10GiB"}}
    assert length_of(spare, "sequence_length").largest < plain
    assert length_of({**LONG, "confidence": 0.95}, "sequence_length").largest < plain


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("request_", "name"),
    [
        (LONG, "sequence_length"),
        (DEEPSEEK, "sequence_length"),
        (SERVED, "input_tokens"),
        (SERVED, "output_tokens"),
        (BATCH, "input_tokens"),
        (POOLS, "input_tokens"),
    ],
    ids=["long", "deepseek", "served-in", "served-out", "batch-in", "pools-in"],
)
def test_the_longest_fits_and_the_next_does_not(request_, name):
    found = length_of(request_, name)
    fits, fails = (
        planner.estimate(**request_, **{name: n})
        if name not in request_
        else planner.estimate(**{**request_, name: n})
        for n in (found.largest, found.following)
    )
    assert not fits.rejected_by
    assert fails.rejected_by or fails.candidates.waits
    assert found.row["peak_memory_gib"] == fits.table()["peak_memory_gib"][0]


def test_the_next_length_is_one_that_rules_allow():
    found = length_of(DEEPSEEK, "sequence_length")
    assert found.largest % 2 == 0  # tensor-parallel ranks divide sequences
    assert found.following == found.largest + 2


def test_lengths_end_with_learned_positions():
    learned = {"model": "gpt2", "gpu": "h100", "num_gpus": 8, "framework": "fsdp"}
    found = length_of({**learned, "settings": {"zero": 2}}, "sequence_length")
    assert found.largest == 1024
    assert found.following is None
    assert found.ends_at == "the positions of the model"


def test_rotary_positions_end_no_length_and_the_memory_does():
    found = length_of(TRAINED, "sequence_length")
    assert found.largest > 2048
    assert found.reason == ("the fullest GPU needs more memory than is usable")
    plan = planner.estimate(**TRAINED).plan
    words = "beyond the 2,048 positions that LLaMA 65B was trained with"
    assert any(words in line for line in largest_lines(plan, found))


def test_the_most_requests_of_decode_workers():
    found = batch_of(POOLS)
    fits, more = (
        with_setting(POOLS, concurrency=number) for number in (found.largest, found.following)
    )
    assert not fits.rejected_by
    assert not fits.candidates.waits
    # One more than there is room for waits for it.
    assert more.candidates.waits
    assert np.ravel(more.candidates.held.concurrency) == [found.largest]


def test_where_nothing_fits_the_rule_is_told():
    request = {**TRAINED, "settings": {"tp": 1, "zero": 1}}
    found = planner.estimate(**request)
    one = largest_batch(found.plan, found)
    assert one.largest is None
    assert "memory" in one.reason
    assert one.rows == {}


def test_rows_are_those_of_each_number():
    found = batch_of(TRAINED)
    assert list(found.rows) == [1, 2, 4, 8]
    peaks = [row["peak_memory_gib"] for row in found.rows.values()]
    assert peaks == sorted(peaks)
