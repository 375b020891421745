"""GPU-hours and cost of a day with a start-up time, against a simulation minute by minute."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

import planner
from planner.decide.sizing import day_search
from planner.decide.sizing.autoscaling import LoadPeriod, LoadProfile
from planner.decide.sizing.daily_schedule import DailySchedule, HourlyPrices, cheapest_base
from planner.decide.sizing.day_search import (
    fleet_on_gpus,
    fleets_by_rate,
    request_with_layout,
    schedule_periods,
)
from planner.decide.sizing.fleet import FeasiblePlan
from planner.question.request import Request
from planner.workloads.build_request import make_request
from tests.reference.scalar_day import paid_hours, rises

HOURLY = HourlyPrices(base=2 / 3600, base_contract="", hourly=2 / 3600, hourly_contract="")
MIXED = HourlyPrices(base=1 / 3600, base_contract="", hourly=2.5 / 3600, hourly_contract="")


def _fleet(gpus: int, each: float = 1.0) -> FeasiblePlan:
    """GPUs that serve so many requests/s each."""
    row = {
        "gpu": "a", "num_gpus": gpus, "replicas": gpus, "capacity_requests_per_s": each * gpus,
    }  # fmt: skip
    return FeasiblePlan(row=row, margins=())


def _day(
    starts: list[int], gpus: list[int], startup: int, terms: HourlyPrices = HOURLY
) -> DailySchedule:
    """A day of periods that begin at these minutes, each with so many GPUs at 1 request/s each."""
    ends = [*starts[1:], 24 * 60]
    periods = tuple(
        LoadPeriod(start=start / 60, hours=(end - start) / 60, request_rate=float(rate))
        for start, end, rate in zip(starts, ends, gpus, strict=True)
    )
    load = LoadProfile(name="drawn", periods=periods)
    hours = schedule_periods(load, {float(rate): _fleet(rate) for rate in gpus}, 60.0 * startup)
    base = cheapest_base(hours, terms)
    return DailySchedule(
        load=load, peak=_fleet(max(gpus)), hours=tuple(replace(one, base=base) for one in hours),
        startup_time=60.0 * startup, base=base, terms=terms,
    )  # fmt: skip


def _by_minute(starts: list[int], gpus: list[int]) -> list[int]:
    lengths = np.diff([*starts, 24 * 60])
    return np.repeat(gpus, lengths).tolist()


@pytest.mark.parametrize("terms", [HOURLY, MIXED])
@pytest.mark.parametrize("seed", range(8))
def test_a_day_is_paid_as_minute_by_minute(seed: int, terms: HourlyPrices) -> None:
    """Neighbours of equal size are common: hours with the same GPUs must not be paid twice."""
    random = np.random.default_rng(seed)
    number = int(random.integers(2, 30))
    starts = [0, *sorted(random.choice(np.arange(1, 24 * 60), number - 1, replace=False).tolist())]
    gpus = random.integers(1, 4, number).tolist()
    startup = int(random.integers(0, 90))
    day, minutes = _day(starts, gpus, startup, terms), _by_minute(starts, gpus)
    assert day.gpu_hours == pytest.approx(paid_hours(minutes, startup, day.base))
    serving = sum(max(one, day.base) for one in minutes) / 60
    assert serving - 1e-9 <= day.gpu_hours <= serving + rises(minutes) * startup / 60 + 1e-9
    for hour in day.hours:  # each period pays its own hours
        assert sum(hours for hours, _ in hour.paid) == pytest.approx(hour.period.hours)
    assert sum(row["cost_usd"] for row in day.rows()) == pytest.approx(day.cost)
    beyond = day.gpu_hours - 24 * day.base
    assert day.cost == pytest.approx(3600 * (24 * day.base * terms.base + beyond * terms.hourly))


def test_a_start_of_two_hours_by_hand() -> None:
    """2 GPUs until 8:00, 10 until 20:00, 2 again: 8 GPUs start once, ten minutes early.

    2 x 12 h + 10 x 12 h + 8 x 1/6 h = 145.33 GPU-hours, at 2 USD 290.67 USD.
    """
    for starts, gpus in (
        ([0, 480, 1200], [2, 10, 2]),
        ([60 * hour for hour in range(24)], [2] * 8 + [10] * 12 + [2] * 4),
    ):
        day = _day(starts, gpus, 10)
        assert day.gpu_hours == pytest.approx(24 + 120 + 8 / 6)
        assert day.cost == pytest.approx(2 * (24 + 120 + 8 / 6))


@pytest.mark.parametrize("terms", [HOURLY, MIXED])
def test_a_flat_load_is_paid_once(terms: HourlyPrices) -> None:
    """8 GPUs for 24 hours are 192 GPU-hours, whatever they take to start."""
    starts = [60 * hour for hour in range(24)]
    plain, started = (_day(starts, [8] * 24, minutes, terms) for minutes in (0, 10))
    assert started.gpu_hours == plain.gpu_hours == pytest.approx(192)
    assert started.cost == pytest.approx(plain.cost)
    assert started.starting_hours == pytest.approx(0)


@pytest.mark.slow
def test_a_flat_load_costs_the_same_with_a_start_up_time(tmp_path) -> None:
    path = tmp_path / "flat.csv"
    path.write_text("hour,request_rate\n" + "".join(f"{hour},20\n" for hour in range(24)))
    asked = {
        "workload": "serve", "model": "llama-3.1-8b", "gpu": "h100", "engine": "vllm",
        "mode": "aggregated", "price": 2, "load": path,
    }  # fmt: skip
    plain, started = (
        planner.size(**asked, startup_time=time).sizes[0].day for time in ("0s", "10min")
    )
    assert started.gpu_hours == plain.gpu_hours == 24 * plain.peak.num_gpus
    assert started.cost == plain.cost == pytest.approx(2 * plain.gpu_hours)


@pytest.mark.parametrize("seed", range(6))
def test_fleets_grow_with_the_load_and_a_quiet_minute_takes_no_peak(monkeypatch, seed) -> None:
    """Some rates have no fleet of their own: they take the smallest one of a higher rate."""
    random = np.random.default_rng(seed)
    rates = np.sort(random.choice(np.arange(1, 400), 20, replace=False)).astype(float)
    needed = {rate: max(int(rate / 10 * random.uniform(0.8, 1.2)), 1) for rate in rates}
    without = {*rates[:2].tolist(), *random.choice(rates[:-1], 5).tolist()}

    def searched(request: Request) -> FeasiblePlan | None:
        rate = request.request_rate
        return None if rate in without else _fleet(needed[rate], each=25.0)

    monkeypatch.setattr(day_search, "plan_with_fewest_gpus", searched)
    monkeypatch.setattr(day_search, "_smallest_at_load", lambda *_: None)
    periods = tuple(
        LoadPeriod(start=hour, hours=1, request_rate=rate)
        for hour, rate in enumerate(rates.tolist())
    )
    load = LoadProfile(name="drawn", periods=periods)
    request = Request(model="llama-3.1-8b", workload="serve")
    fleets = fleets_by_rate(request, _fleet(needed[load.peak], each=25.0), load)
    for rate in rates.tolist():
        enough = [needed[one] for one in rates if one >= rate and one not in without]
        assert fleets[rate].num_gpus == min(enough)


BURSTY = {
    "workload": "serve", "model": "llama-3.1-70b", "gpu": "h100", "engine": "vllm",
    "mode": "aggregated", "arrival_variation": 4, "confidence": 0.9, "price": 2,
    "constraints": {"ttft_p99": "1500ms", "tpot": "40ms"},
}  # fmt: skip


@pytest.mark.slow
def test_a_quiet_hour_that_bursts_takes_as_many_replicas_as_keep_its_limits(tmp_path) -> None:
    """A day of 115/s at its peak and 10/s at night, in bursts.

    The replicas that 10/s fill are too few for a burst. More of them keep the limits, and one
    replica less does not.
    """
    path = tmp_path / "day.csv"
    path.write_text("time,request_rate\n00:00,10\n08:00,40\n12:00,115\n16:00,40\n20:00,10\n")
    (size,) = planner.size(**BURSTY, load=path).sizes
    day = size.day
    fleets = {hour.period.request_rate: hour.num_gpus for hour in day.hours}
    assert fleets[10] < fleets[40] < fleets[115] == day.peak.num_gpus
    step = day.peak.num_gpus // day.peak.row["replicas"]
    pinned = request_with_layout(make_request({**BURSTY, "request_rate": 10}), day.peak)
    assert fleet_on_gpus(pinned, fleets[10]) is not None
    assert fleet_on_gpus(pinned, fleets[10] - step) is None
    # 12 h at 10/s, 8 h at 40/s, 4 h at 115/s.
    by_hand = 12 * fleets[10] + 8 * fleets[40] + 4 * fleets[115]
    assert day.gpu_hours == pytest.approx(by_hand)
    assert day.cost == pytest.approx(2 * by_hand)


def test_rates_that_take_the_same_fleet_are_not_searched(monkeypatch):
    """From 2.05 to 3 requests/s three GPUs of 1 request/s each are needed; at 1.5 two do."""
    searched = []

    def search(request: Request) -> FeasiblePlan:
        searched.append(request.request_rate)
        return _fleet(math.ceil(request.request_rate))

    monkeypatch.setattr(day_search, "plan_with_fewest_gpus", search)
    rates = [1.5, *np.linspace(2.05, 3, 20).tolist()]
    periods = tuple(
        LoadPeriod(start=hour, hours=1, request_rate=rate) for hour, rate in enumerate(rates)
    )
    load = LoadProfile(name="drawn", periods=periods)
    fleets = fleets_by_rate(Request(model="llama-3.1-8b", workload="serve"), _fleet(3), load)
    assert [fleets[rate].num_gpus for rate in rates] == [2, *[3] * 20]
    assert searched == [1.5]


@pytest.mark.slow
def test_layouts_that_cannot_cost_less_are_left_out(monkeypatch, tmp_path):
    """The day is the same as where every layout is searched, with less than half of the days."""
    path = tmp_path / "day.csv"
    rates = [2 + 18 * math.sin(math.pi * hour / 24) ** 4 for hour in range(24)]
    path.write_text(
        "hour,request_rate\n" + "".join(f"{hour},{rate}\n" for hour, rate in enumerate(rates))
    )
    made, make_day = [], day_search._schedule_of_fleet

    def counted(*given):
        made.append(make_day(*given))
        return made[-1]

    monkeypatch.setattr(day_search, "_schedule_of_fleet", counted)
    asked = {
        "workload": "serve", "model": "llama-3.1-8b", "gpu": "l40s", "load": path,
        "input_tokens": 1000, "output_tokens": 200, "mode": "aggregated", "precision": "bf16",
        "settings": {"concurrency": 64, "tensor_parallel": (1, 2)},
    }  # fmt: skip
    day = planner.size(**asked).sizes[0].day
    number = len(made)
    monkeypatch.setattr(day_search, "_min_order", lambda *_: (0.0, 0.0))
    every = planner.size(**asked).sizes[0].day
    assert (every.cost, every.hours) == (day.cost, day.hours)
    assert str(every.peak.row) == str(day.peak.row)
    assert number <= (len(made) - number) / 2
