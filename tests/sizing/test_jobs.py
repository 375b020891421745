"""Services and repeating jobs on one stock: which hours a job takes, and what all cost."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import planner
from planner.decide.sizing.allocation import GpuType, JobOption, cheapest_allocation
from planner.decide.sizing.purchase import (
    GpuNeeds,
    PriceChange,
    PurchaseOption,
    break_even_price,
    options_of_needs,
)
from planner.decide.sizing.services import Job, read_services
from planner.decide.sizing.shared_services import SharedFleet
from planner.errors import InfeasibleError, PlannerError
from planner.show.presenters.purchase import recommendation_lines
from planner.show.presenters.services import _fleet_options

HOURS = np.array([8.0, 10.0, 6.0])
NIGHT = JobOption(places=(0,), amounts=(4.0,), hours=5.0)


def test_a_job_takes_the_hours_with_the_fewest_gpus() -> None:
    """5 hours of 4 GPUs fit the last 6 hours, in which services use 2 of 10 GPUs."""
    service = {0: np.array([10.0, 9.0, 2.0])}
    types = [GpuType(stock=10, base=1, hourly=3)]
    allocation = cheapest_allocation([[service], [NIGHT]], HOURS, types)
    assert allocation.needs[1][0].tolist() == [0, 0, 4]
    # 6 of 10 GPUs all 24 h at 1 USD, 3 more for 18 h and 1 for 8 h: all day costs less than 54, 24
    assert allocation.cost == 10 * 24
    assert not allocation.beyond
    # 7 hours need a second part of the time: 9 + 4 GPUs are 3 beyond the stock.
    longer = JobOption(places=(0,), amounts=(4.0,), hours=7.0)
    assert cheapest_allocation([[service], [longer]], HOURS, types).beyond == 3


def _fill(used: Sequence[float], hours: Sequence[float], way: JobOption) -> list[float]:
    """The scalar twin: hour by hour, the part with the fewest GPUs is taken next."""
    taken, left = [0.0] * len(used), way.hours
    while left > 1e-9:
        free = [place for place, gpus in enumerate(taken) if not gpus]
        part = min(free, key=lambda place: (used[place], place))
        taken[part] = way.amounts[0]
        left -= hours[part]
    return taken


def _cost(gpus: Sequence[float], hours: Sequence[float], gpu_type: GpuType) -> float:
    """The scalar twin: each GPU is paid all day, or for the hours in which it is needed."""
    total = 0.0
    for number in range(1, int(max(gpus)) + 1):
        needed = sum(h for h, count in zip(hours, gpus, strict=True) if count >= number)
        total += min(sum(hours) * gpu_type.base, needed * gpu_type.hourly)
    return total


@pytest.mark.parametrize("seed", range(12))
def test_no_other_way_of_services_and_a_job_is_better(seed: int) -> None:
    random = np.random.default_rng(seed)
    types = [
        GpuType(
            stock=float(random.integers(10, 40)),
            base=float(random.uniform(1, 4)),
            hourly=float(random.uniform(2, 6)),
        )
        for _ in range(2)
    ]
    services = [
        [{place: random.integers(1, 20, 3).astype(float)} for place in range(2)] for _ in range(2)
    ]
    jobs = [
        JobOption(
            places=(int(random.integers(2)),),
            amounts=(float(random.integers(1, 9)),),
            hours=float(random.uniform(1, 20)),
        )
        for _ in range(3)
    ]
    best = math.inf, math.inf
    for first, second, job in itertools.product(*services, jobs):
        used = [np.zeros(3), np.zeros(3)]
        for way in (first, second):
            for place, gpus in way.items():
                used[place] = used[place] + gpus
        place = job.places[0]
        used[place] = used[place] + np.array(_fill(used[place], HOURS, job))
        beyond = sum(max(max(u) - t.stock, 0) for u, t in zip(used, types, strict=True))
        cost = sum(_cost(u, HOURS, t) for u, t in zip(used, types, strict=True))
        best = min(best, (beyond, cost))
    allocation = cheapest_allocation([*services, jobs], HOURS, types)
    assert allocation.is_proven
    assert (allocation.beyond, allocation.cost) == pytest.approx(best)


COMMON = 'confidence = 0.5\nengine = "vllm"\nmode = "aggregated"\ninput_tokens = 2000\n'
TUNE = (
    '[jobs.tune]\nmodel = "llama-3.1-8b"\nadapter = "lora"\ntokens = "300M"\n'
    'sequence_length = 2048\nglobal_batch_size = 64\nevery = "7d"\n'
)


@pytest.fixture(scope="module")
def fleets(tmp_path_factory: pytest.TempPathFactory) -> tuple[SharedFleet, SharedFleet]:
    """The fleet of a service with busy days, without and with a weekly fine-tune."""
    folder = tmp_path_factory.mktemp("jobs")
    rates = [2] * 8 + [40] * 12 + [2] * 4
    lines = "".join(f"{hour},{rate}\n" for hour, rate in enumerate(rates))
    (folder / "day.csv").write_text(f"hour,request_rate\n{lines}")
    service = f'{COMMON}output_tokens = 300\n[services.chat]\nmodel = "llama-3.1-70b"\n'
    (folder / "alone.toml").write_text(f'{service}load = "day.csv"\n')
    (folder / "both.toml").write_text(f'{service}load = "day.csv"\n{TUNE}')
    options = {"gpu": "h100", "contract": ["owned", "on-demand"], "purchase_price": 15_000}
    alone, both = (
        planner.size_services(folder / name, **options) for name in ("alone.toml", "both.toml")
    )
    return alone, both


@pytest.mark.slow
def test_a_weekly_fine_tune_runs_at_night_on_gpus_that_are_paid(
    fleets: tuple[SharedFleet, SharedFleet],
) -> None:
    """What is owned for the day is idle at night: the fine-tune costs nothing, and no GPU more."""
    alone, both = fleets
    assert both.cost == pytest.approx(alone.cost)
    assert both.num_gpus == alone.num_gpus
    (pool,) = both.pools
    assert len(pool.gpus) % 7 == 0
    tune = next(placed for placed in both.placements if placed.hours_per_day is not None)
    count = tune.parts[0].peak.num_gpus
    (alone_pool,) = alone.pools
    parts = len(pool.gpus) // 7 // len(alone_pool.gpus)
    services = np.tile(np.repeat(alone_pool.gpus, parts), 7)
    runs = (np.array(pool.gpus) - services) * np.array(pool.hours)
    assert runs.sum() >= 7 * tune.hours_per_day * count
    assert runs.sum() < (7 * tune.hours_per_day + 1) * count


@pytest.mark.slow
def test_a_job_has_the_duration_of_its_own_estimate(
    fleets: tuple[SharedFleet, SharedFleet],
) -> None:
    tune = next(placed for placed in fleets[1].placements if placed.hours_per_day is not None)
    row = tune.parts[0].peak.row
    days = float(str(row["time_to_train_days"]))
    assert tune.hours_per_day == pytest.approx(24 * days / 7, rel=0.3)


def test_an_evaluation_takes_its_requests_over_its_rate() -> None:
    table = {
        "services": {"chat": {"model": "llama-3.1-8b", "request_rate": 5}},
        "jobs": {"eval": {"model": "llama-3.1-8b", "num_requests": 50_000, "every": "1d"}},
        "input_tokens": 2000, "output_tokens": 300, "engine": "vllm", "mode": "aggregated",
        "confidence": 0.5,
    }  # fmt: skip
    fleet = planner.size_services(table, gpu="h100", price=2)
    job = next(placed for placed in fleet.placements if placed.service.name == "eval")
    rate = float(str(job.parts[0].peak.row["requests_per_s"]))
    assert job.hours_per_day == pytest.approx(50_000 / rate / 3600, rel=1e-6)
    assert fleet.pools[0].hours == (1.0,) * 24


@pytest.mark.slow
def test_power_that_is_too_small_says_by_how_much() -> None:
    table = {"services": {"chat": {"model": "llama-3.1-70b", "request_rate": 30}}}
    common = {"gpu": "h100", "price": 2, "engine": "vllm", "input_tokens": 2000}
    common |= {"output_tokens": 300}
    fleet = planner.size_services(table, **common)
    (pool,) = fleet.on_one_type.values()
    enough = planner.size_services(table, **common, constraints={"power": pool.power_kw * 1e3})
    assert enough.num_gpus == fleet.num_gpus
    with pytest.raises(InfeasibleError, match=r"25\.0 % more than"):
        planner.size_services(table, **common, constraints={"power": pool.power_kw * 800})


@pytest.mark.parametrize(
    ("job", "word"),
    [
        ({"model": "llama-3.1-8b", "request_rate": 3}, "tune: A job has no request_rate"),
        ({"model": "llama-3.1-8b", "evry": "7d", "tokens": "1M"}, "tune: Unknown .*evry"),
        ({"model": "llama-3.1-8b", "every": 0, "tokens": "1M"}, "tune: every is a time above 0"),
        ({"model": "llama-3.1-8b", "workload": "serve"}, "tune: Say how many requests"),
    ],
)
def test_faults_of_jobs_name_the_job(job: dict[str, object], word: str) -> None:
    table = {"services": {"chat": {"model": "llama-3.1-8b", "request_rate": 3}}}
    with pytest.raises(PlannerError, match=word):
        read_services({**table, "jobs": {"tune": job}}, {})


def test_limits_of_services_are_not_those_of_jobs(tmp_path: Path) -> None:
    path = tmp_path / "all.toml"
    path.write_text(
        f'{COMMON}ttft = "1s"\n[services.chat]\nmodel = "llama-3.1-8b"\nrequest_rate = 3\n{TUNE}'
    )
    services, _ = read_services(path, {"gpu": "h100"})
    (job,) = (service for service in services if isinstance(service, Job))
    assert job.period == 7 * 86_400
    assert (job.request.workload, job.request.gpu) == ("train", "h100")
    assert not job.request.constraints
    assert services[0].request.constraints == {"time_to_first_token": 1.0}


MIXED = PurchaseOption(
    gpu="g", contract="reserved-3y", num_gpus=10, used=14, price=1.0, low=1.0, high=1.0, term=3.0,
    hourly_gpus=2.0, hourly_price=3.0,
)  # fmt: skip
"""10 GPUs x 1 USD/h and 2 x 3 USD/h in the mean: 16 USD/h are 140,160 USD a year."""


def test_gpus_by_the_hour_have_the_price_of_the_year() -> None:
    assert [MIXED.cost(year) for year in range(1, 6)] == [140_160] * 5
    # 87,600 + 52,560 x 0.5 from the second year; the contract is renewed in the fourth.
    falling = [MIXED.cost(year, PriceChange(share=-0.5)) for year in range(1, 6)]
    assert falling == pytest.approx([140_160, 113_880, 113_880, 70_080, 70_080])
    rent = PurchaseOption(
        gpu="g", contract="on-demand", num_gpus=8, used=14, price=3.0, low=3.0, high=3.0,
        hourly_gpus=4.0, hourly_price=3.0,
    )  # fmt: skip
    # 10 GPUs x 1 USD/h replace 10 of the 12 rented ones.
    assert break_even_price(MIXED, rent) == pytest.approx(1.0)


def test_options_of_a_day_hold_what_pays() -> None:
    """4 GPUs always and 4 more for half of the day: 6 on average when all are rented."""
    request = planner.Request(model="llama-3.1-8b", workload="serve", engine="vllm")
    needs = GpuNeeds(gpus=np.array([4.0, 8.0]), hours=np.array([12.0, 12.0]))
    options = {
        option.contract: option
        for option in options_of_needs(request, "h100", needs, ["on-demand", "owned"])
    }
    rent = options["on-demand"]
    assert (rent.num_gpus, rent.hourly_gpus, rent.used) == (4, 2, 8)
    assert rent.hourly == pytest.approx(6 * rent.price)
    assert options["owned"].num_gpus + options["owned"].hourly_gpus >= 6


def test_the_answer_has_the_decision(fleets: tuple[SharedFleet, SharedFleet]) -> None:
    """The sentence on rent, reserve or own of the screen is that of the options of the fleet."""
    text = fleets[1].summary()
    line = recommendation_lines(_fleet_options(fleets[1]))[0]
    assert line.split(".")[0] in " ".join(text.split())
