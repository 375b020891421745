"""What runs are charged under contracts, worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from planner.base.units import DAY, HOUR, YEAR
from planner.estimators.ownership_cost import charge, outlay
from planner.specs.operating_terms import OperatingTerms
from planner.specs.price import Price, one_price

USD_PER_HOUR = 3.0
DAYS = 41


def site(contract: str, utilization: float | None = None, **more: Any) -> OperatingTerms:
    offer = replace(one_price(USD_PER_HOUR / HOUR, "given", contract), **more)
    return OperatingTerms(offer=offer, utilization=utilization)


def test_on_demand_pays_what_is_used() -> None:
    found = charge(site("on-demand"), duration=DAYS * DAY, num_gpus=512)
    assert found.cost == pytest.approx(512 * 41 * 24 * 3.0)
    assert found.outlay is None
    assert found.unused == 0


# 512 GPUs for a year at 3 USD: 512 x 8,760 x 3 = 13,455,360 USD, 984 of 8,760 hours are used.
@pytest.mark.parametrize(
    ("utilization", "cost"),
    [
        (None, 13_455_360),
        (1.0, 512 * 984 * 3),
        (0.5, 2 * 512 * 984 * 3),
        (0.01, 13_455_360),  # it uses more than that itself, and pays for no more than all
    ],
)
def test_a_run_of_41_days_under_a_contract_of_a_year(
    utilization: float | None, cost: float
) -> None:
    found = charge(site("reserved-1y", utilization), duration=DAYS * DAY, num_gpus=512)
    assert found.cost == pytest.approx(cost)
    assert found.outlay == pytest.approx(13_455_360)
    assert found.signed / HOUR == pytest.approx(512 * 8760)
    assert found.unused / HOUR == pytest.approx(512 * (8760 - 984))


def test_a_run_beyond_a_term_signs_another() -> None:
    found = charge(site("reserved-1y"), duration=1.1 * YEAR, num_gpus=8)
    assert found.cost == pytest.approx(2 * 8 * 8760 * 3.0)
    block = charge(site("capacity-block"), duration=1.5 * DAY, num_gpus=8)
    assert block.cost == pytest.approx(8 * 48 * 3.0)


def test_racks_are_had_whole() -> None:
    racks = site("on-demand", step=72)
    found = charge(racks, duration=np.full(3, 10 * HOUR), num_gpus=np.array([72.0, 73.0, 512.0]))
    assert found.cost == pytest.approx([72 * 30, 144 * 30, 576 * 30])
    assert racks.rate(512) * HOUR == pytest.approx(576 * 3.0)


def test_what_is_bought_is_an_outlay_and_an_hour_of_it_costs_less_than_one_in_use() -> None:
    terms = {"term": 5 * YEAR, "in_use": 0.8, "outlay": 50_000.0, "on_demand": 6.0 / HOUR}
    found = charge(site("owned", **terms), duration=DAYS * DAY, num_gpus=8)
    assert found.outlay == 8 * 50_000
    assert found.cost == pytest.approx(8 * 5 * 8760 * 3.0 * 0.8)
    assert found.break_even == pytest.approx(3.0 * 0.8 / 6.0)
    half = site("owned", 0.5, **terms)
    assert charge(half, duration=DAY, num_gpus=1).cost == pytest.approx(24 * 3.0 * 0.8 / 0.5)
    assert half.rate(1) * HOUR == pytest.approx(3.0 * 0.8 / 0.5)


def test_a_service_pays_for_a_term_and_for_its_idle_hours() -> None:
    assert outlay(site("reserved-1y", step=8), 5) == pytest.approx(8 * 8760 * 3.0)
    assert outlay(site("on-demand"), 5) is None
    assert outlay(site("reserved"), 5) is None  # of a term that nobody says
    assert site("reserved-1y").rate(4) * HOUR == pytest.approx(12.0)
    assert site("reserved-1y", 0.25).rate(4) * HOUR == pytest.approx(48.0)
    assert site("on-demand", 0.25).rate(4) * HOUR == pytest.approx(12.0)


def test_only_what_follows_the_time_is_as_unsure_as_it() -> None:
    assert site("on-demand").follows_time
    assert site("capacity-block").follows_time
    assert not site("reserved-1y").follows_time
    assert site("reserved-1y", 0.8).follows_time


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"chosen": False, "provider": "x"}, "one seller, x"),
        ({"chosen": False, "provider": "", "sellers": 1}, ""),
        ({"is_old": True, "date": "2024-05"}, "old: 2024-05"),
        ({"contract": "spot"}, "spot capacity"),
        ({"contract": "owned", "on_demand": 10.01 / HOUR}, "0.30 x the rent of 10.01 USD/h"),
        ({"contract": "owned", "on_demand": 9.9 / HOUR}, ""),
        ({"contract": "owned", "on_demand": 2.4 / HOUR}, "1.25 x the rent"),
        ({"contract": "owned", "on_demand": 2.6 / HOUR}, ""),
        ({"contract": "owned", "basis": "rack of 72, estimate"}, "an estimate, no offer"),
        ({"contract": "reserved-1y", "on_demand": 30.0 / HOUR}, ""),
    ],
)
def test_doubts_of_a_price(more: dict[str, Any], words: str) -> None:
    price: Price = replace(one_price(USD_PER_HOUR / HOUR, "given", "on-demand"), **more)
    assert (words in "; ".join(price.doubts)) if words else not price.doubts
