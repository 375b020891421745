"""What a sweep says of prices: doubtful winners, contracts of the same sellers, whole terms."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from made import plan_of, row_of

import planner as planning
from planner.errors import SearchSpaceError
from planner.sweeps.summary import WorkloadGroup, summarize
from planner.sweeps.summary_blocks import headlines, money_lines, price_difference_lines

OWNED = {"contract": "owned", "price_date": "old: 2024", "price_offers": 1}
PLAN = plan_of(gpu=["a100", "b200"], num_gpus=[8], contract=["on-demand", "owned"])


def group_of(*rows: dict[str, Any]) -> WorkloadGroup:
    (group,) = summarize(rows, PLAN).groups
    return group


def test_beside_a_winner_with_a_doubtful_price_the_best_solid_one_stands() -> None:
    doubt = {**OWNED, "price_doubts": "old: 2024", "price_per_gpu_hour_usd": 1.0}
    solid = {"contract": "on-demand", "price_doubts": "", "price_per_gpu_hour_usd": 2.0}
    group = group_of(
        row_of(0, "a100", 8, 9.0, 2.0, **solid),
        row_of(1, "a100", 8, 5.0, 2.0, **doubt),
        row_of(2, "b200", 8, 7.0, 1.5, **{**solid, "price_offers": 3, "price_date": "2026-09"}),
        row_of(3, "b200", 8, 6.0, 1.0, **doubt),
    )
    found = [(title, row["scenario"]) for title, row in headlines(group)]
    assert found == [
        ("recommended", 2),
        ("cheapest", 1),
        ("cheapest at a solid price", 2),
        ("fastest", 3),
        ("best value", 3),
        ("best value at a solid price", 2),
    ]
    prices, doubts = money_lines(group)
    assert "b200 on-demand 2.00 USD (median of 3 offers, 2026-09)" in prices
    assert doubts == "Ask before signing: a100 owned: old: 2024; b200 owned: old: 2024"


def test_the_price_of_the_fastest_is_doubted_too() -> None:
    solid = {"contract": "on-demand", "price_doubts": "", "price_per_gpu_hour_usd": 2.0}
    alone = {**solid, "price_doubts": "one seller, x"}
    group = group_of(
        row_of(0, "a100", 8, 1.0, 2.0, **solid), row_of(1, "b200", 8, 9.0, 1.0, **alone)
    )
    assert "Ask before signing: b200 on-demand: one seller, x" in money_lines(group)


def test_solid_winners_stand_alone() -> None:
    group = group_of(row_of(0, "a100", 8, 9.0, 2.0, contract="on-demand", price_doubts=""))
    assert [title for title, _ in headlines(group)] == [
        "recommended", "cheapest", "fastest", "best value",
    ]  # fmt: skip


def test_what_other_work_in_a_term_would_change_is_said() -> None:
    signed = {
        "contract": "reserved-1y", "price_doubts": "", "campaign_gpu_hours": 80.0,
        "price_per_gpu_hour_usd": 1.5, "signed_gpu_hours": 8 * 8760.0,
        "unused_gpu_hours": 8 * 8760.0 - 80, "outlay_usd": 8 * 8760 * 1.5,
        "contract_term_days": 365.0, "calendar_time_days": 80 / 8 / 24,
    }  # fmt: skip
    hourly = {"contract": "on-demand", "price_doubts": "", "campaign_gpu_hours": 80.0}
    rows = (
        row_of(0, "a100", 8, 240.0, 2.0, **hourly, price_per_gpu_hour_usd=3.0),
        row_of(1, "b200", 8, 8 * 8760 * 1.5, 1.9, **signed),
    )
    (line,) = (line for line in money_lines(group_of(*rows)) if "full term" in line)
    assert line.endswith("cheapest at a solid price is 8 x b200, reserved-1y: 120 USD")
    given = group_of(rows[0], row_of(1, "b200", 8, 120.0, 1.9, **signed, charged_utilization=1.0))
    assert not [line for line in money_lines(given) if "full term" in line]
    dear = {**signed, "price_per_gpu_hour_usd": 4.0}
    alone = group_of(rows[0], row_of(1, "b200", 8, 8 * 8760 * 4.0, 1.9, **dear))
    assert not [line for line in money_lines(alone) if "full term" in line]


def test_contracts_are_set_against_what_the_same_sellers_ask_on_demand() -> None:
    terms = {"contract": "reserved-1y", "price_per_gpu_hour_usd": 3.0}
    group = group_of(row_of(0, "a100", 8, 9.0, 2.0, **terms, rent_per_gpu_hour_usd=4.0))
    assert price_difference_lines(PLAN, [group]) == [
        "Compared with on-demand prices of the same sellers: reserved-1y a100 -25 %"
    ]


def test_owned_prices_of_different_things_are_named_once() -> None:
    kinds = ("rack of 72, estimate", "node of 8, trade price")
    rows = [
        row_of(n, gpu, 8, 9.0, 2.0, **OWNED, price_basis=kind)
        for n, (gpu, kind) in enumerate(zip(("b200", "a100"), kinds, strict=True))
    ]
    (line, _) = price_difference_lines(PLAN, [group_of(*rows)])
    assert "(rack of 72, estimate: b200; node of 8, trade price: a100)" in line


def test_a_price_of_a_sweep_is_of_the_rented_contract(tmp_path: Path) -> None:
    """At 2 USD an hour on demand; owned GPUs cost what they do without a price."""
    table = {
        "model": "llama-7b", "gpu": "h100", "num_gpus": 64, "total_tokens": "100B",
        "framework": "megatron-lm", "contract": ["on-demand", "owned"],
    }  # fmt: skip
    costs = {}
    for name, price in (("stated", {"price": 2}), ("listed", {})):
        rows = [*planning.sweep({**table, **price}, tmp_path / name, workers=1).rows()]
        costs[name] = {row["contract"]: row["cost_usd"] for row in rows}
        hours = {row["contract"]: row["campaign_gpu_hours"] for row in rows}
    assert costs["stated"]["on-demand"] == pytest.approx(2 * hours["on-demand"])
    assert costs["stated"]["owned"] == costs["listed"]["owned"]
    several = {**table, "contract": ["on-demand", "spot"], "price": 2}
    with pytest.raises(SearchSpaceError, match="name the contract that it is of"):
        planning.sweep(several, tmp_path / "several", workers=1)
