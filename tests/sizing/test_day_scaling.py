"""Autoscalers that ask when the load has risen, against a simulation in small steps."""

from __future__ import annotations

import json
import math
from bisect import bisect_left
from pathlib import Path

import numpy as np
import pytest

import planner as planning
from planner.decide.sizing.autoscaling import (
    DEFAULT_STARTUP,
    SCALE_DOWN_DELAY,
    LoadPeriod,
    LoadProfile,
    Startup,
    read_startup,
    size_autoscaled,
    traced_load,
)
from planner.errors import SearchSpaceError
from planner.workloads.build_request import make_request

FLEETS = [(10.0 * n, 2 * n, 11.0 * n) for n in range(1, 21)]
STEP = 10.0


def _load(rates: list[float], minutes: float) -> LoadProfile:
    hours = minutes / 60
    return LoadProfile(
        name="drawn",
        periods=tuple(
            LoadPeriod(start=place * hours, hours=hours, request_rate=rate)
            for place, rate in enumerate(rates)
        ),
    )


def _simulated(load: LoadProfile, spare: float, startup: float) -> tuple[float, float, float]:
    """GPU-hours, late share and longest queue, step by step; three times through the load."""
    steps = round(load.hours * 3600 / STEP)
    rates = np.repeat([one.request_rate for one in load.periods], steps // len(load.periods))
    known = [rate for rate, _, _ in FLEETS]
    wanted = [min(bisect_left(known, (1 + spare) * rate), len(known) - 1) for rate in rates]
    hold, begin = round(SCALE_DOWN_DELAY / STEP), round(startup / STEP)
    asked = [max(wanted[(t - k) % steps] for k in range(hold + 1)) for t in range(steps)]
    serving = [min(asked[(t - k) % steps] for k in range(begin + 1)) for t in range(steps)]
    late = longest = waiting = 0.0
    for _ in range(3):
        late = longest = 0.0
        for rate, at in zip(rates.tolist(), serving, strict=True):
            capacity = FLEETS[at][2]
            if rate > capacity:
                late += rate * STEP
            elif waiting:
                late += rate * min(STEP, waiting / max(capacity - rate, 1e-9))
            waiting = max(waiting + (rate - capacity) * STEP, 0.0)
            longest = max(longest, waiting)
    paid = sum(FLEETS[at][1] for at in asked) * STEP / 3600 * 24 / load.hours
    return paid, late / float(rates.sum() * STEP), longest


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", range(6))
def test_late_requests_and_gpu_hours_are_those_of_a_simulation(seed: int) -> None:
    random = np.random.default_rng(seed)
    minutes = float(random.choice([1, 5, 15]))
    rates = (100 + 80 * np.sin(np.arange(72) / 9) + random.uniform(0, 20, 72)).tolist()
    load = _load(rates, minutes)
    for spare in (0.0, 0.2, 1.0):
        for startup in (60.0, 240.0):
            found = size_autoscaled(load, FLEETS, spare, startup)
            hours, late, longest = _simulated(load, spare, startup)
            assert found.gpu_hours == pytest.approx(hours, rel=0.02)
            assert found.late == pytest.approx(late, abs=0.02)
            assert found.longest == pytest.approx(longest, rel=0.1, abs=15 * STEP)


def test_a_step_of_the_load_by_hand() -> None:
    """An hour of 10/s, then one of 100/s, of which two minutes are short of GPUs."""
    load = _load([10.0, 100.0], 60)
    found = size_autoscaled(load, FLEETS, 0.0, 120.0)
    # 100/s against 11/s for 120 s, then 110/s: 10,680 wait, which 10/s serve in 1,068 s.
    assert found.longest == pytest.approx(89 * 120)
    assert found.late == pytest.approx(100 * (120 + 1068) / (110 * 3600))
    # 20 GPUs for an hour and five minutes, 2 for 55.
    assert found.gpu_hours == pytest.approx(12 * (20 * 65 + 2 * 55) / 60)
    enough = size_autoscaled(load, FLEETS[:10], 9.0, 120.0)
    assert (enough.late, enough.gpu_hours) == (0.0, pytest.approx(24 * 20))
    assert size_autoscaled(load, FLEETS, 0.0, 0.0).late == 0


def test_a_start_up_time_has_parts() -> None:
    row = {"memory_weights_gib": 10.0, "num_gpus": 16, "replicas": 4, "prefill_replicas": None}
    parts = read_startup("provision=1min, weights=4GB/s, engine=30s")
    assert parts == Startup(provision=60, bandwidth=4e9, engine=30)
    assert parts.seconds(row) == pytest.approx(90 + 40 * 2**30 / 4e9)
    assert read_startup("weights=4GB/s") == Startup(
        provision=DEFAULT_STARTUP.provision, bandwidth=4e9, engine=DEFAULT_STARTUP.engine
    )
    assert read_startup("auto") == DEFAULT_STARTUP
    assert read_startup("5min").seconds(row) == read_startup(300).seconds(row) == 300
    for words in ("soon", "engine=", "disk=3s", "weights=0GB/s", "engine=-3s", "provision=3GB/s"):
        with pytest.raises(SearchSpaceError, match="startup_time"):
            read_startup(words)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Ten minutes of a request a second, then ten of four."""
    times = [*np.arange(0, 600, 1.0), *np.arange(600, 1200.5, 0.25)]
    path = tmp_path / "trace.csv"
    lines = "".join(f"{time},1000,100\n" for time in times)
    path.write_text(f"time,input_tokens,output_tokens\n{lines}")
    return path


def test_a_trace_is_a_load_by_the_minute(trace: Path) -> None:
    asked = {"workload": "serve", "model": "llama-3.1-8b", "trace": trace}
    request = make_request(asked)
    load, left = traced_load(request)
    rates = [period.request_rate for period in load.periods]
    assert len(rates) == 20
    assert rates[:10] == pytest.approx([1.0] * 10, rel=0.02)
    assert rates[10:] == pytest.approx([4.0] * 10, rel=0.02)
    assert load.hours == pytest.approx(1 / 3, rel=1e-3)
    assert load.mean == pytest.approx(request.request_rate, rel=1e-3)
    # Nothing varies within a minute; the whole does.
    assert (left.request_rate, left.input_tokens) == (None, 1000)
    assert left.arrival_variation < 0.2
    doubled, _ = traced_load(make_request({**asked, "request_rate": 5}))
    assert doubled.mean == pytest.approx(5)


@pytest.mark.slow
def test_a_trace_is_sized_by_the_minute(planner, trace: Path, tmp_path: Path) -> None:
    out = tmp_path / "day.json"
    asked = (
        "size", "--workload", "serve", "--model", "llama-3.1-70b", "--gpu", "h100", "--mode",
        "aggregated", "--engine", "vllm", "--trace", str(trace), "--request-rate", "40",
        "--price", "2", "--set", "tp=4", "--set", "pp=1", "--set", "quantization=fp8",
    )  # fmt: skip
    ran = planner(*asked, "--startup-time", "2min", "--json", str(out), "--full")
    assert ran.exit_code == 0, ran.err
    words = " ".join(ran.out.split())
    assert "An autoscaler that reacts to the load" in words
    assert "of the requests are late" in words
    assert "by 1 min, within which gaps vary by" in words
    found = json.loads(out.read_text())
    (day,) = found["days"]
    assert day["startup_time_s"] == 120
    spares = found["scaled"]
    assert [row["spare_share"] for row in spares] == sorted(row["spare_share"] for row in spares)
    assert spares[0]["late_share"] == day["late_share"] > 0
    assert spares[-1]["late_share"] == 0
    assert spares[-1]["gpu_hours"] <= 24 * day["most_gpus"] + 1e-6
    assert len(found["rows"]) == 20
    page = tmp_path / "day.md"
    ran = planner("report", str(out), "--markdown", str(page), "--quiet")
    assert ran.exit_code == 0, ran.err
    assert "An autoscaler that reacts" in page.read_text()
    ran = planner(*asked, "--plot", str(tmp_path / "day.png"), "--picture", "day")
    assert ran.exit_code == 3
    assert "--picture day draws a load" in ran.err
    ran = planner(*asked, "--startup-time", "1h")
    assert ran.exit_code == 3
    assert "serves none of it" in " ".join(ran.err.split())


@pytest.mark.slow
def test_in_python_too_and_with_the_parts_of_a_start(trace: Path) -> None:
    answer = planning.size(
        workload="serve", model="llama-3.1-8b", gpu="h100", engine="vllm", mode="aggregated",
        trace=trace, request_rate=200, price=2, startup_time="auto",
    )  # fmt: skip
    day = answer.best.day
    weights = day.peak.row["memory_weights_gib"] * 2**30 / DEFAULT_STARTUP.bandwidth
    assert day.startup_time == pytest.approx(
        DEFAULT_STARTUP.provision + DEFAULT_STARTUP.engine + weights
    )
    assert day.with_spare is not None
    assert day.with_spare.late <= 0.01
    assert math.isfinite(day.cost)
    assert day.gpu_hours <= 24 * day.peak.num_gpus


def test_a_short_trace_is_no_load(tmp_path: Path) -> None:
    path = tmp_path / "short.csv"
    path.write_text("time,input_tokens,output_tokens\n0,10,10\n60,10,10\n")
    asked = {"workload": "serve", "model": "llama-3.1-8b", "trace": path}
    with pytest.raises(SearchSpaceError, match=r"short\.csv lasts 60 s"):
        traced_load(make_request(asked))
