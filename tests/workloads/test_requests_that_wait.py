"""How many requests are held at once where more come than there is room for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from planner.estimators.inference.serving_memory import serving_memory
from planner.optimize.source import first_row
from planner.question.request import Request
from planner.workloads.make_plan import evaluate, make_plan, make_single_plan


@pytest.mark.parametrize("asked", [13, 14, 64, 500, 5000])
def test_as_many_are_held_as_have_room_and_no_more(asked: int) -> None:
    """Of few requests each counts at nearly its full length, so that fewer have room for them."""
    request = Request(
        workload="serve",
        model="llama-2-70b",
        gpu="a100-sxm-80gb",
        num_gpus=2,
        engine="vllm",
        input_tokens=2000,
        output_tokens=1000,
        mode="aggregated",
        settings={"tensor_parallel": 2, "concurrency": asked},
    )
    found = evaluate(make_single_plan(request))
    held = found.candidates.held
    assert found.candidates.waits
    assert not found.rejected_by
    room = [
        serving_memory(
            found.source.inputs, replace(held, concurrency=held.concurrency + more)
        ).most_sequences
        for more in (0, 1)
    ]
    assert np.all(room[0] >= held.concurrency)
    assert np.all(room[1] < held.concurrency + 1)


@pytest.mark.parametrize("rate", [None, 2.0])
def test_what_is_accepted_is_predicted_alike_where_rejections_are_known(rate: float | None) -> None:
    """A search knows what has no room before it predicts, and one plan does not."""
    request = Request(
        workload="serve",
        model="llama-3.1-70b",
        gpu="h100",
        num_gpus=4,
        engine="vllm",
        input_tokens=2000,
        output_tokens=500,
        request_rate=rate,
        mode="aggregated",
    )
    source = make_plan(request).problem.sources[0]
    [(possible, codes)], _ = source.possible(source.mesh.table())
    known, alone = source.judged(possible, codes), source.judged(possible)
    accepted = np.flatnonzero(codes == 0)
    assert 0 < accepted.size < codes.size
    assert (np.broadcast_to(alone.rejected_by, known.shape) == known.rejected_by).all()
    for name in ("time_to_first_token", "time_per_output_token", "request_rate"):
        one, other = (each.at(each.value(name), accepted) for each in (known, alone))
        np.testing.assert_allclose(one, other, rtol=1e-9)
    few, many = (each.estimate.served.phases.fixed.size for each in (known, alone))
    assert few < many


def pools(concurrency: int | None, **asked: object) -> Request:
    """A prefill and a decode worker of one H100 each."""
    own = {} if concurrency is None else {"concurrency": concurrency}
    question: dict[str, object] = {
        "input_tokens": 4096,
        "output_tokens": 512,
        "settings": {"replicas": 1, "prefill_replicas": 1, **own},
        **asked,
    }
    return Request(
        workload="serve", model="llama-3.1-8b", gpu="h100", num_gpus=2, engine="sglang",
        mode="disaggregated", **question,
    )  # fmt: skip


def test_requests_of_pools_wait_for_room_as_those_of_replicas_do() -> None:
    found = evaluate(make_single_plan(pools(2000)))
    held = found.candidates.held
    (room,) = np.ravel(held.concurrency)
    assert found.candidates.waits
    assert not found.rejected_by
    assert 50 < room < 200
    # With one request more there is no room for all: judged where nobody waits.
    alone = found.source.with_immediate_admission
    fewer, more = (
        alone.judged(replace(held, concurrency=held.concurrency + one)).rejected_by
        for one in (0, 1)
    )
    assert not fewer.any()
    assert more.all()
    # All places are taken, and what all requests meet is as long as 2,000 of them last.
    row, decode = first_row(found.candidates.columns()), found.candidates.decode
    assert row["concurrency"] == 2000
    assert row["requests_per_s"] == pytest.approx(float(decode.request_rate[0]), rel=0.01)
    assert row["time_per_output_token_s"] == pytest.approx(
        float(decode.time_per_output_token[0]), rel=0.01
    )
    met = row["time_to_first_token_s"] + 511 * row["time_per_output_token_s"]
    assert row["requests_per_s"] * met == pytest.approx(2000, rel=0.02)


def test_a_burst_on_pools_waits_for_places_too() -> None:
    """As many rounds of the places as 2,000 requests take, whether they are asked for or not."""
    asked = evaluate(make_single_plan(pools(2000), 2000), 2000)
    chosen = evaluate(make_single_plan(pools(None), 2000), 2000)
    assert not asked.rejected_by
    rounds = np.ceil(2000 / asked.detail.in_a_wave)
    answer = asked.detail.makespan - asked.detail.first_within(1.0)
    assert asked.detail.makespan > (rounds - 1) * answer
    assert asked.detail.makespan == pytest.approx(chosen.detail.makespan, rel=0.02)


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ((), "The cache holds 101 of 2,000 requests in each replica, the others queue"),
        (("--request-rate", 1), "The cache holds 101 of 2,000 requests in each replica."),
        (
            ("--request-rate", 50, "--num-requests", 2000),
            "The cache holds 101 of 2,000 requests in each replica.",
        ),
        (("--burst", 2000), "101 requests a replica"),
    ],
)
def test_pools_say_how_many_have_room(planner, asked: tuple[object, ...], told: str) -> None:
    words = (
        "estimate", "--workload", "serve", "--mode", "disaggregated", "--model", "llama-3.1-8b",
        "--engine", "sglang", "--gpu", "h100", "--gpus", 2, "--input-tokens", 4096,
        "--output-tokens", 512, "--input-variation", 0, "--output-variation", 0,
        "--set", "replicas=1", "--set", "prefill_replicas=1", "--set", "concurrency=2000",
    )  # fmt: skip
    ran = planner(*words, *asked)
    assert ran.exit_code == 0, ran.err
    assert told in " ".join(ran.out.split())
