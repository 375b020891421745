"""Bursts of requests: the queue that a trace makes, and the closed form against its replay."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from event_replica import Lengths, Replica

import planner
from planner.errors import PlannerError
from planner.estimators.inference.replica_simulation import Requests, StepCosts, replay
from planner.formulas.queueing import arrival_noise, fifo_queueing_delays, mean_queueing_delay
from planner.logs.traces import read_trace
from planner.optimize.exhaustive import exhaustive_search
from planner.show.presenters.load_check import (
    LATENCIES,
    SHARES,
    ReplayLatencies,
    replay_blocks,
    replay_result,
    replay_trace,
)
from planner.specs.arrivals import LOADS, Arrivals
from planner.workloads.build_request import make_request
from planner.workloads.make_plan import make_plan
from planner.workloads.serving.traffic import measured_arrivals, shipped_lengths


def times_of(variation: float, number: int, rate: float = 1.0, seed: int = 3) -> np.ndarray:
    """Arrivals [s] whose gaps are gamma of a coefficient of variation."""
    gaps = np.random.default_rng(seed).gamma(1 / variation**2, variation**2 / rate, number)
    return np.cumsum(gaps)


def test_waits_of_one_server_are_lindleys_recursion() -> None:
    chance = random.Random(5)
    service = [chance.expovariate(1.2) for _ in range(500)]
    times = np.cumsum([chance.expovariate(1.0) for _ in range(500)])
    waits = [0.0]
    for (before, after), took in zip(pairwise(times), service, strict=False):
        waits.append(max(0.0, waits[-1] + took - (after - before)))
    found = fifo_queueing_delays(times=times, service=np.array(service))
    np.testing.assert_allclose(found, waits, atol=1e-9)


def test_requests_at_random_are_a_poisson_queue_to_the_last_bit() -> None:
    load, work = np.array([0.2, 0.9]), 0.05
    today = load * work * (1 + np.square(0.7)) / (2 * (1 - load))
    assert (mean_queueing_delay(utilization=load, service_time=work, variation=0.7) == today).all()
    assert (arrival_noise(load=load) == 0.5 * (1 + 1 / (1 - load) ** 2)).all()
    assert Arrivals().bursts_at(load) == Arrivals().dispersion_at(load) == 1.0


@pytest.mark.few(1)
@pytest.mark.parametrize("variation", [1.0, 3.0])
def test_a_trace_tells_its_bursts_at_every_utilization(variation: float) -> None:
    times = times_of(variation, 200_000)
    found = measured_arrivals(times, np.ones(times.size), np.full(times.size, 50.0))
    assert len(found.bursts) == len(LOADS)
    assert float(found.bursts_at(0.8)) == pytest.approx(variation**2, rel=0.1)
    # Of few requests gamma gaps vary less than of many; of 64 nearly as much.
    assert float(found.dispersion_at(64.0)) == pytest.approx(variation**2, rel=0.12)
    # A replica of ten that take requests in turn or at random meets a tenth of what is beyond 1.
    shared = float(found.bursts_at(0.8, 10.0))
    assert shared == pytest.approx(1 + (float(found.bursts_at(0.8)) - 1) / 10)
    cut = found.mean_within(2.0, 0.8, 1.5)
    waits = [
        min(float(found.wait_within(2.0, 0.8, share)), 1.5) for share in np.arange(0.005, 1, 0.01)
    ]
    assert float(cut) == pytest.approx(sum(waits) / len(waits), rel=0.03)


@pytest.mark.parametrize("mixes", [True, False])
def test_the_replay_is_the_simulation_of_the_tests(mixes: bool) -> None:
    costs = {"fixed": 0.01, "slope": 1e-4, "start": 0.002, "token": 2e-5, "mixes": mixes}
    slow = Replica(
        costs=StepCosts(**costs), places=24, step_tokens=2048,
        prompts=Lengths(mean=900, variation=1.0), answers=Lengths(mean=60, variation=1.0),
    )  # fmt: skip
    requests = [slow.request(float(at)) for at in times_of(2.0, 600, rate=12.0)]
    asked = Requests(
        arrivals=np.array([one.arrival for one in requests]),
        prompts=np.array([one.prompt for one in requests], dtype=float),
        answers=np.array([one.answer for one in requests], dtype=float),
    )
    seen = replay(asked, StepCosts(**costs), places=24, step_tokens=2048)
    slow._run(iter(requests), number=len(requests), closed=False)
    first = [one.first - one.arrival for one in requests]
    latency = [one.end - one.arrival for one in requests]
    np.testing.assert_allclose(seen.first, first, atol=1e-6)
    np.testing.assert_allclose(seen.latency, latency, atol=1e-6)
    assert np.isnan(seen.per_token).sum() == sum(one.answer == 1 for one in requests)


ASKED = {
    "workload": "serve", "tuned": True, "model": "llama-3.1-8b", "gpu": "h100-sxm-80gb",
    "engine": "vllm", "num_gpus": 1, "mode": "aggregated", "precision": "w16a16",
    "settings": {"kv_cache": "bf16", "max_num_batched_tokens": 8192},
}  # fmt: skip


def calm(rate: float) -> np.ndarray:
    """At random, 16,000 of them."""
    return times_of(1.0, 16_000, rate)


def drifting(rate: float) -> np.ndarray:
    """At random at a rate that swings by 45 % in 20 minutes."""
    chance = np.random.default_rng(7)
    seconds = 16_000 / rate
    more = np.sort(chance.uniform(0, seconds, 30_000))
    kept = chance.uniform(0, 1.45, more.size) < 1 + 0.45 * np.sin(2 * np.pi * more / 1200)
    times = more[kept]
    return np.asarray(times * (times.size / rate / times[-1]))


def written(path: Path, times: np.ndarray, prompt: float, answer: float) -> Path:
    """A trace of requests with lognormal lengths about a median, at some times."""
    chance = np.random.default_rng(11)
    lines = ["time_s,input_tokens,output_tokens"]
    for time in times:
        lengths = chance.lognormal(np.log(prompt), 0.8), chance.lognormal(np.log(answer), 0.8)
        lines.append(f"{time:.4f}," + ",".join(str(max(round(one), 1)) for one in lengths))
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def compared(path: Path, load: float, **asked: object) -> ReplayLatencies:
    """The replay of a trace beside its closed form at a share of what a replica carries."""
    trace = read_trace(path)
    lengths = {**ASKED, **trace.lengths, **asked, "constraints": {}, "request_rate": 1e-3}
    most = exhaustive_search(make_plan(make_request(lengths)).problem).recommended
    assert most is not None
    rate = load * float(np.ravel(most.row["capacity_requests_per_s"])[0])
    given = {**ASKED, **asked, "constraints": {}, "trace": str(path), "request_rate": rate}
    request = make_request({**given, "replay": True})
    found = exhaustive_search(make_plan(request).problem).recommended
    assert found is not None
    return replay_trace(found, request)


FIRST, TOKEN, LATENCY = "time_to_first_token", "time_per_output_token", "request_latency"
TRACES = {
    "at random": (calm, 1000, 150),
    "in bursts": (lambda rate: times_of(6.0, 12_000, rate), 1300, 20),
    "drifting": (drifting, 800, 150),
    "long prompts": (calm, 9000, 60),
}


@pytest.mark.few(1)
@pytest.mark.parametrize("load", [0.5, 0.7, 0.8])
@pytest.mark.parametrize("name", TRACES)
def test_the_closed_form_of_a_trace_is_near_its_replay(
    name: str, load: float, tmp_path: Path
) -> None:
    times, prompt, answer = TRACES[name]
    found = compared(written(tmp_path / "a.csv", times(8.0), prompt, answer), load)
    # For minutes more come than are carried: a little of the capacity is much of what piles up.
    # The answers that most prompts of several steps stop are stopped for longer than is told.
    near = (0.1, 0.15, 0.25 if name == "long prompts" else 0.15)
    if (name, load) == ("drifting", 0.8):
        near = (0.1, 0.25, 0.3)
    for quantity, most in ((FIRST, near[:2]), (TOKEN, near[::2])):
        predicted, seen = found.predicted[quantity], found.replayed[quantity]
        assert predicted[None] == pytest.approx(seen[None], rel=most[0])
        assert predicted[0.99] == pytest.approx(seen[0.99], rel=most[1])
    assert found.predicted[LATENCY][None] == pytest.approx(found.replayed[LATENCY][None], rel=0.1)
    assert found.predicted[FIRST][0.5] == pytest.approx(found.replayed[FIRST][0.5], rel=0.15)


@pytest.mark.slow
@pytest.mark.few(1)
@pytest.mark.parametrize("engine", ["sglang", "vllm-v0"])
def test_prompts_that_stop_answers_are_in_the_tail_of_their_tokens(
    engine: str, tmp_path: Path
) -> None:
    """An engine that does not mix lets short answers wait for long prompts."""
    path = written(tmp_path / "a.csv", times_of(6.0, 12_000, 8.0), 1300, 20)
    found = compared(path, 0.7, engine=engine)
    for quantity, mean, tail in ((FIRST, 0.15, 0.25), (TOKEN, 0.15, 0.4)):
        predicted, seen = found.predicted[quantity], found.replayed[quantity]
        assert predicted[None] == pytest.approx(seen[None], rel=mean)
        assert predicted[0.99] == pytest.approx(seen[0.99], rel=tail)
    # One of a hundred answers has steps of several times the mean.
    assert found.predicted[TOKEN][0.99] > 3 * found.predicted[TOKEN][None]


@pytest.mark.slow
@pytest.mark.few(1)
@pytest.mark.parametrize(("replicas", "step"), [(2, 0.0), (4, 0.0), (8, 0.0), (8, 3.0)])
def test_replicas_that_take_a_trace_in_turn_meet_fewer_of_its_bursts(
    replicas: int, step: float, tmp_path: Path
) -> None:
    """Of random bursts, and of a trace whose times are whole steps, as Mooncake's."""
    one = {"tensor_parallel": 1, "pipeline_parallel": 1, **ASKED["settings"]}
    traces = []
    for seed in (3, 4, 5):  # the largest bursts of one trace alone decide the tail of its latency
        times = times_of(6.0, 12_000, 8.0, seed)
        if step:
            times = np.floor(times_of(1.0, 12_000, 3.4, seed) / step) * step
        path = written(tmp_path / f"{seed}.csv", times, 1300, 20)
        traces.append(compared(path, 0.7, num_gpus=replicas, settings=one))

    def error(quantity: str, share: float | None) -> float:
        ratios = [one.predicted[quantity][share] / one.replayed[quantity][share] for one in traces]
        return float(np.mean(ratios)) - 1

    for quantity, most in ((FIRST, 0.15), (LATENCY, 0.2)):
        assert abs(error(quantity, None)) < 0.05
        assert abs(error(quantity, 0.99)) < most
    assert abs(error(FIRST, 0.5)) < 0.1


def test_a_trace_at_a_low_rate_is_near_its_replay(tmp_path: Path) -> None:
    """Its bursts are all that waits, and what stops answers, of which few run at once."""
    path = written(tmp_path / "a.csv", times_of(6.0, 800, 8.0), 1300, 20)
    found = compared(path, 0.02)
    for quantity in (FIRST, TOKEN, LATENCY):
        predicted, seen = found.predicted[quantity], found.replayed[quantity]
        assert predicted[None] == pytest.approx(seen[None], rel=0.1)


@pytest.mark.slow
def test_a_replica_in_turn_waits_for_less_than_one_of_requests_at_equal_gaps() -> None:
    """Requests that come together go to different replicas: no variation is little enough."""
    times = np.repeat(np.arange(2000) * 3.0, 8)
    work = np.random.default_rng(3).lognormal(0, 0.8, times.size)
    paths = measured_arrivals(times, work, np.full(times.size, 50.0)).paths
    assert float(paths.bursts_at(1, 0.5)) > 4
    variation = np.square(work.std() / work.mean())
    assert -variation < float(paths.bursts_at(8, 0.5)) < -0.1
    between = [float(paths.bursts_at(number, 0.5)) for number in (4, 2**2.5, 8)]
    assert between[1] == pytest.approx((between[0] + between[2]) / 2, rel=0.01)


def test_random_requests_of_which_each_replica_is_drawn_stay_random() -> None:
    times = times_of(1.0, 800)
    drawn, in_turn = (
        measured_arrivals(times, np.ones(times.size), np.full(times.size, 20.0), drawn)
        for drawn in (True, False)
    )
    assert float(drawn.paths.bursts_at(4, 0.5)) == pytest.approx(1, abs=0.15)
    assert drawn != in_turn


def test_random_requests_drift_nowhere() -> None:
    times = calm(8.0)
    windows = measured_arrivals(times, np.ones(times.size), np.ones(times.size)).paths.windows
    assert np.abs(windows - 1).max() < 0.15
    swings = drifting(8.0)
    found = measured_arrivals(swings, np.ones(swings.size), np.ones(swings.size)).paths.windows
    assert 1.4 < found.max() < 1.65
    assert 0.4 < found.min() < 0.65


def test_a_trace_answers_what_is_not_given(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("time,input_tokens,output_tokens\n0,100,10\n1,300,30\n2,200,20\n")
    request = make_request({**ASKED, "trace": str(path), "output_tokens": 50})
    assert (request.request_rate, request.input_tokens, request.output_tokens) == (1.5, 200, 50)
    assert request.input_variation == 0.408


def test_shipped_lengths_are_named(tmp_path: Path) -> None:
    request = make_request({**ASKED, "lengths": "azure-code", "request_rate": 2.0})
    assert (request.input_tokens, request.output_tokens) == (2048, 28)
    assert request.output_variation == pytest.approx(2.147)
    assert {"azure-conversation", "servegen-r1"} <= {*shipped_lengths()}
    with pytest.raises(PlannerError, match="Did you mean azure-code"):
        make_request({**ASKED, "lengths": "azur-code", "request_rate": 2.0})


def test_what_a_replay_needs_is_said(tmp_path: Path) -> None:
    with pytest.raises(PlannerError, match="trace"):
        planner.search(**ASKED, replay=True, request_rate=2.0)
    path = tmp_path / "a.csv"
    path.write_text("input_tokens,output_tokens\n100,10\n")
    with pytest.raises(PlannerError, match="has no times of requests"):
        planner.search(**ASKED, trace=str(path))
    path.write_text("time,input_tokens,output_tokens\n3,100,10\n3,100,10\n")
    with pytest.raises(PlannerError, match="has no requests at different times"):
        planner.search(**ASKED, trace=str(path))
    with pytest.raises(PlannerError, match="cannot be read"):
        planner.search(**ASKED, trace=str(tmp_path / "none.csv"))


@pytest.mark.parametrize(
    ("is_pipeline", "why"), [(True, "as if its prompts passed one stage"), (False, "other hours")]
)
def test_why_a_replay_differs_is_said(
    is_pipeline: bool, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = {name: dict.fromkeys((None, *SHARES), 1.0) for name in LATENCIES}
    found = ReplayLatencies(
        requests=9,
        hit_rates=None,
        is_pipeline=is_pipeline,
        predicted=seconds,
        replayed=seconds | {FIRST: dict.fromkeys((None, *SHARES), 0.5)},
    )
    monkeypatch.setattr("planner.show.presenters.load_check.replay_trace", lambda *_: found)
    told = [
        str(block) for block in replay_blocks(replay_result(SimpleNamespace(request=None), None))
    ]
    assert "mean TTFT" in told[-1]
    assert why in told[-1]


def test_the_variation_of_arrivals_has_an_end() -> None:
    with pytest.raises(PlannerError, match="arrival_variation must be at most 100, not 101"):
        planner.search(**ASKED, request_rate=2.0, arrival_variation=101)
