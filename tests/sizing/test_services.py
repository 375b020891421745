"""Several services on GPUs that they share."""

import itertools
import math
from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest

import planner
from planner.decide.sizing.allocation import GpuType, base_gpus_and_cost, cheapest_allocation
from planner.decide.sizing.purchase import PurchaseOption
from planner.decide.sizing.services import read_services, read_stock
from planner.errors import InfeasibleError, SearchSpaceError
from planner.show.presenters.services import PLACED, POOLS, placement_blocks
from planner.show.reports import SizeReport
from planner.show.terminal import terminal_text

CHAT = {"model": "llama-3.1-70b", "request_rate": 10}
SMALL = {"model": "llama-3.1-8b", "request_rate": 40}
COMMON = {"confidence": 0.5, "input_tokens": 2000, "output_tokens": 300}
COMMON |= {"engine": "vllm", "mode": "aggregated"}


def test_what_is_needed_long_enough_is_held():
    """12 h of 2, then 12 h of 6: the first two are needed always, four for half of the time."""
    gpus, hours = np.array([2.0, 6.0]), np.array([12.0, 12.0])
    assert base_gpus_and_cost(gpus, hours, GpuType(stock=9, base=1, hourly=3)) == (6, 6 * 24)
    assert base_gpus_and_cost(gpus, hours, GpuType(stock=9, base=2, hourly=3)) == (
        2,
        2 * 24 * 2 + 4 * 12 * 3,
    )
    assert base_gpus_and_cost(gpus, hours, GpuType(stock=9, base=4, hourly=3)) == (0, (24 + 72) * 3)


def _by_hand(ways, hours, types):
    """All allocations, the best by GPUs beyond the stock and cost."""

    def judged(places):
        used = [np.zeros_like(hours) for _ in types]
        for own, place in zip(ways, places, strict=True):
            for at, gpus in own[place].items():
                used[at] = used[at] + gpus
        pairs = [*zip(used, types, strict=True)]
        beyond = sum(max(gpus.max() - of.stock, 0) for gpus, of in pairs)
        return beyond, sum(base_gpus_and_cost(gpus, hours, of)[1] for gpus, of in pairs)

    return min(judged(places) for places in itertools.product(*(range(len(w)) for w in ways)))


@pytest.mark.parametrize("seed", range(20))
def test_no_other_allocation_is_better(seed):
    random = np.random.default_rng(seed)
    hours = np.array([8.0, 10.0, 6.0])
    types = [
        GpuType(
            stock=float(random.integers(5, 40)),
            base=float(random.uniform(1, 4)),
            hourly=float(random.uniform(1, 6)),
        )
        for _ in range(3)
    ]
    ways = [
        [{at: random.integers(1, 20, 3).astype(float)} for at in range(3)]
        + [{0: random.integers(1, 9, 3).astype(float), 2: random.integers(1, 9, 3).astype(float)}]
        for _ in range(4)
    ]
    found = cheapest_allocation(ways, hours, types)
    assert found.is_proven
    assert (found.beyond, found.cost) == pytest.approx(_by_hand(ways, hours, types))
    own = [[ways[service][place]] for service, place in enumerate(found.places)]
    assert _by_hand(own, hours, types) == pytest.approx((found.beyond, found.cost))


def _where(fleet):
    return {
        one.service.name: {part.gpu: part.peak.num_gpus for part in one.parts}
        for one in fleet.placements
    }


def test_the_stock_decides_who_runs_on_which_gpu():
    """What each takes alone, by `size`; of too few of the better GPU who gains most has them."""
    common = {**COMMON, "settings": {"tensor_parallel": 4, "pipeline_parallel": 1}}
    services = {"services": {"chat": CHAT, "small": SMALL}, **common}
    asked = {"price": {"h100": 2, "b200": 3}, "gpu": ["h100", "b200"]}
    alone = {
        name: {
            size.gpu: size.fewest.num_gpus
            for size in planner.size(
                workload="serve", **common, **own, price=2, gpu=["h100", "b200"]
            ).sizes
        }
        for name, own in services["services"].items()
    }
    prices = {"h100-sxm-80gb": 2, "b200-sxm-180gb": 3}
    free = planner.size_services(services, **asked)
    assert _where(free) == {
        name: {(gpu := min(prices, key=lambda g: prices[g] * counts[g])): counts[gpu]}
        for name, counts in alone.items()
    }
    assert free.cost == pytest.approx(
        24 * sum(min(prices[gpu] * counts[gpu] for gpu in prices) for counts in alone.values())
    )
    assert free.of_one_type == pytest.approx(
        {gpu: 24 * prices[gpu] * sum(one[gpu] for one in alone.values()) for gpu in prices}
    )
    # All on the other type where there is none of one.
    h100 = sum(counts["h100-sxm-80gb"] for counts in alone.values())
    bound = planner.size_services(services, stock=f"h100={h100}", price=2)
    assert _where(bound) == {
        name: {"h100-sxm-80gb": counts["h100-sxm-80gb"]} for name, counts in alone.items()
    }
    assert bound.pools[0].peak_gpus == h100
    chat = {"services": {"chat": CHAT}, **common}
    few = alone["chat"]["h100-sxm-80gb"] - 1
    with pytest.raises(InfeasibleError, match="1 more h100-sxm-80gb"):
        planner.size_services(chat, stock=f"h100={few}", price=2)


@pytest.mark.slow
def test_a_service_is_split_where_no_type_has_enough():
    service = {"services": {"chat": {**CHAT, "request_rate": 40}}, **COMMON}
    whole = planner.size_services(service, stock={"h100": 999}, price=2)
    most = whole.pools[0].peak_gpus
    fleet = planner.size_services(service, stock={"h100": most - 2, "b200": 5}, price=2)
    (one,) = fleet.placements
    assert len(one.parts) == 2
    assert sum(part.share for part in one.parts) == 1
    for part in one.parts:
        assert part.peak.row["capacity_requests_per_s"] >= 40 * part.share
    assert all(pool.peak_gpus <= pool.stock for pool in fleet.pools)


@pytest.mark.slow
def test_services_with_peaks_at_other_hours_share_gpus(tmp_path):
    for name, rates in (("day", [2] * 12 + [30] * 12), ("night", [30] * 12 + [2] * 12)):
        lines = "".join(f"{hour},{rate}\n" for hour, rate in enumerate(rates))
        (tmp_path / f"{name}.csv").write_text(f"hour,request_rate\n{lines}")
    path = tmp_path / "services.toml"
    path.write_text(
        'input_tokens = 2000\noutput_tokens = 300\nengine = "vllm"\nmode = "aggregated"\n'
        "[stock]\nh100 = 64\n"
        '[services.work]\nmodel = "llama-3.1-70b"\nload = "day.csv"\n'
        '[services.batch]\nmodel = "llama-3.1-70b"\nload = "night.csv"\n'
    )
    fleet = planner.size_services(path, price=2)
    (pool,) = fleet.pools
    high, low = max(pool.gpus), min(pool.gpus)
    assert high == low == pool.peak_gpus
    assert pool.of_peaks > pool.peak_gpus
    assert pool.held == pool.peak_gpus or pool.cost == pytest.approx(2 * 24 * pool.peak_gpus)
    text = fleet.summary()
    assert "peaks of its services add up" in text
    assert "GPUs that they share" in text
    assert {"service", "share", "num_gpus"} <= {*fleet.to_frame().columns}


def test_a_stock_in_words():
    assert read_stock("h100=64, b200=32") == {"h100": 64, "b200": 32}
    for words in ("h100", "h100=many", "h100=0", "h100=1,h100=2", "=3"):
        with pytest.raises(SearchSpaceError, match="stock"):
            read_stock(words)


@pytest.mark.parametrize(
    ("table", "word"),
    [
        ({}, r"\[services.chat\]"),
        ({"services": {"chat": {"model": "llama-3.1-8b"}}}, "chat: Say what it must serve"),
        ({"services": {"chat": {**SMALL, "tftt": "1s"}}}, "chat: Unknown question or limit 'tftt'"),
        ({"services": {"chat": {"request_rate": 3}}}, "model"),
        ({"services": {str(n): SMALL for n in range(17)}}, "At most 16"),
    ],
)
def test_faults_of_services_are_told(table, word):
    with pytest.raises(Exception, match=word) as error:
        read_services(table, {})
    assert isinstance(error.value, planner.errors.PlannerError)


def test_the_limits_of_a_service_are_its_own():
    services, _ = read_services(
        {"ttft": "2s", "services": {"a": {**SMALL, "ttft": "1s"}, "b": SMALL}},
        {"constraints": {"time_per_output_token": "40ms"}},
    )
    assert [one.request.constraints["time_to_first_token"] for one in services] == [1, 2]
    assert all(one.request.constraints["time_per_output_token"] == 0.04 for one in services)
    assert math.isclose(services[0].of_share(0.25).request.request_rate, 10)


def test_services_are_sized_at_the_confidence_that_their_rows_state():
    """No fleet keeps 150 ms at 90 %: a service is not placed as predicted without a word of it."""
    service = {"model": "llama-3.1-8b", "request_rate": 5, "ttft": "150ms", "engine": "vllm"}
    service |= {"input_tokens": 4000, "output_tokens": 300}
    asked = {"services": {"chat": {**service, "mode": "aggregated"}}}
    with pytest.raises(InfeasibleError, match=r"time to first token .* at 90 %"):
        planner.size_services(asked, gpu="h100")


def test_a_service_above_its_budget_is_not_sized_as_predicted():
    asked = {"workload": "serve", "model": "llama-3.1-8b", "gpu": "h100", "request_rate": 5}
    asked |= {"engine": "vllm", "precision": "fp8", "input_tokens": 4000, "output_tokens": 300}
    asked |= {"mode": "aggregated", "constraints": {"time_to_first_token": "150ms"}}
    (size,) = planner.size(**asked).sizes
    assert size.fewest is not None
    (size,) = planner.size(**asked, budget="1USD/h").sizes
    assert size.fewest is None


def test_the_first_screen_has_24_lines():
    """Of nine services, with the longest advice and many sentences; the GPUs stand in the title."""
    gpu, sentence = "b200-sxm-180gb", "the peaks of its services add up to more than is needed. "
    row = {
        "gpu": gpu, "model": "Llama 3.1 70B", "mode": "aggregated", "engine": "vLLM", "share": 1.0,
        "peak_request_rate": 300.0, "alone_per_day_usd": 14829.0, "num_gpus_predicted": 49,
        "num_gpus_at_90": 91, "confidence": 0.9, "feasible": True, "hours_per_day": 3.0,
        "replicas": 9, "pipeline_parallel": 1, "context_parallel": 1, "tensor_parallel": 8,
        "expert_parallel": 1, "attention_data_parallel": 1,
    }  # fmt: skip
    rows = [{**row, "service": f"service {number}"} for number in range(9)]
    rented = PurchaseOption(gpu=gpu, contract="on-demand", num_gpus=96, price=6, low=5, high=8)
    owned = replace(rented, contract="owned", term=5.0, outlay=9e6, running=40.0)
    ways = [rented, replace(rented, contract="reserved-1y", term=1.0, price=5), owned]
    report = SizeReport(
        rows=rows,
        manifest={},
        answer=(
            f"9 services on 96 {gpu}, 96 h200-sxm-141gb, 96 h100-sxm-80gb",
            *[3 * sentence] * 4,
        ),
        pools=[defaultdict(lambda: 1.0, gpu=gpu)] * 3,
        options=[way.row for way in ways],
        budget_per_year_usd=1e6,
    )
    cuts = [{"prompts_up_to": 500 * number, "cost_per_day_usd": 100.0} for number in range(1, 9)]
    alone = replace(report, options=())
    for shown in (report, alone, replace(alone, rows=rows[:3], cuts=cuts)):
        screen = terminal_text(placement_blocks(shown), 80).splitlines()
        assert len(screen) <= 24
        assert PLACED in screen
        assert POOLS not in screen
        assert "--full" in " ".join(screen[-2:])
    assert POOLS in terminal_text(placement_blocks(report, is_full=True), 80)
