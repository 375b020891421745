"""What GPUs of a request cost: contracts, providers, own prices, and what is said of them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

import planner
from planner.errors import PlannerError, SearchSpaceError, SpecError
from planner.optimize.source import first_row
from planner.show.presenters.search import assumed_line
from planner.specs.catalogue import find
from planner.specs.operating_terms import OperatingTerms
from planner.specs.price import price_of
from planner.workloads.build_request import make_request
from planner.workloads.make_plan import Plan, evaluate, make_plan, make_single_plan
from planner.workloads.saved_plan import SavedPlan

H100, B200, H800 = "h100-sxm-80gb", "b200-sxm-180gb", "h800-sxm-80gb"
QUESTION = {"model": "llama-7b", "num_gpus": 8, "space": "small"}


def plan(**more: Any) -> Plan:
    return make_plan(make_request({**QUESTION, "gpu": "h100", **more}))


def site(**more: Any) -> OperatingTerms:
    found: OperatingTerms = plan(**more).problem.sources[0].site  # type: ignore[attr-defined]
    return found


def hourly(**more: Any) -> float:
    return site(**more).price * 3600


def row_of_one(one: Plan) -> dict[str, Any]:
    return dict(first_row(evaluate(one).table()))


def written(folder: Path, text: str) -> str:
    path = folder / "ours.csv"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_a_price_of_each_gpu() -> None:
    for price in ("h100=1.9,b200=4", {"H100-SXM": 1.9, "b200": "4 USD/h"}, "b200 = 4, h100=1.9"):
        assert hourly(price=price) == pytest.approx(1.9)
        assert hourly(price=price, gpu="b200") == pytest.approx(4)
    listed = price_of("h200-sxm-141gb")
    assert listed is not None
    assert site(price="h100=1.9", gpu="h200").offer == listed
    assert plan(price={"h100": 1.9}).request.price == "h100=1.9"


@pytest.mark.parametrize("usd", [-5, "-5", "h100=-3"])
def test_nothing_is_bought_for_less_than_nothing(usd: Any) -> None:
    with pytest.raises(PlannerError, match="number of at least 0"):
        plan(contract="owned", purchase_price=usd)


@pytest.mark.parametrize(
    ("price", "told"),
    [
        ("h100=", "is a number"),
        ("=2", "as in h100=1.9,b200=4"),
        ("h100=2,h100=3", "gives h100 twice"),
        ("h100=2,1.9", "is a number, not ''"),
        ("h100=-2", "The price is USD per GPU-hour"),
        ("h101=2", "Unknown GPU 'h101'"),
        ("b200=2,h101=2", "Unknown GPU 'h101'"),
        ({"h100": "cheap"}, "is a number, not 'cheap'"),
        (True, "is a number"),
    ],
)
def test_an_impossible_price_is_refused(price: Any, told: str) -> None:
    with pytest.raises(PlannerError) as caught:
        plan(price=price)
    assert told in str(caught.value)


def test_each_contract_has_its_price_and_columns() -> None:
    for contract in ("on-demand", "spot", "reserved-1y", "capacity-block"):
        expected = price_of(H100, contract)
        found = site(contract=contract)
        assert expected is not None
        assert found.offer == expected
        assert found.columns == {
            "contract": contract,
            "provider": "",
            "price_per_gpu_hour_usd": expected.value * 3600,
            "price_low_per_gpu_hour_usd": expected.low * 3600,
            "price_high_per_gpu_hour_usd": expected.high * 3600,
        }
    assert hourly(contract="Reserved 1y") == hourly(contract="reserved_1Y")
    assert hourly(contract="spot") < hourly(contract="owned") * 1.5 < hourly() * 1.5


def test_rows_say_under_which_contract_and_whose_price() -> None:
    frame = planner.search(**QUESTION, gpu="h100", contract="spot", provider="AWS").to_frame()
    assert set(frame["contract"]) == {"spot"}
    assert set(frame["provider"]) == {"aws"}
    (low,), (high,) = (set(frame[f"price_{end}_per_gpu_hour_usd"]) for end in ("low", "high"))
    assert low <= frame["price_per_gpu_hour_usd"].iloc[0] <= high
    cost = frame["campaign_gpu_hours"] * frame["price_per_gpu_hour_usd"]
    assert frame["cost_usd"].to_numpy() == pytest.approx(cost.to_numpy())


def test_pools_have_their_own_prices() -> None:
    frame = planner.search(
        workload="serve", model="llama-2-13b", num_gpus=4, gpu="h100", prefill_gpu="a100",
        mode="disaggregated", input_tokens=512, output_tokens=64, price="a100=1.25",
    ).to_frame()  # fmt: skip
    assert set(frame["prefill_price_per_gpu_hour_usd"]) == {1.25}
    assert set(frame["price_per_gpu_hour_usd"].round(2)) == {3.85}
    assert set(frame["prefill_contract"]) == {"on-demand"}


def test_where_nobody_named_a_contract_the_closest_one_is_taken_and_told() -> None:
    found = plan(gpu="mi350x")
    note = found.defaults["price"]
    assert note.startswith("4.76 USD per GPU-hour reserved-1y (none is on-demand)")
    assert site(gpu="mi350x").contract == "reserved-1y"
    assert math.isnan(hourly(gpu="mi350x", contract="on-demand"))
    assert site(gpu="mi350x", contract="spot").columns["contract"] == "spot"


def test_what_was_not_given_is_told_with_its_range_and_what_it_rests_on() -> None:
    found = plan()
    assert found.defaults["price"] == (
        "3.85 USD per GPU-hour, 1.99 to 12.29 (median of the sellers of 48 offers, 2026-11-09)"
    )
    assert "price 3.85 USD per GPU-hour, 1.99 to 12.29" in assumed_line(found)
    old = plan(gpu="a10g", contract="spot").defaults["price"]
    assert old.endswith(", old: undated (3 offers, old: undated)")
    assert "USD per GPU-hour spot of aws, 0.30 to 1.23" in old
    assert "price" not in plan(price=2).defaults


def test_why_there_is_no_price_is_told() -> None:
    assert plan(gpu="h800").defaults["price"].startswith("unknown (No list has a price of h800")
    for question, told in (
        ({"gpu": "h800"}, "No list has a price of h800-sxm-80gb: give --price."),
        ({"gpu": "gaudi2"}, "give --price, or --contract owned."),
        ({"gpu": "h800", "contract": "owned"}, "The purchase price or the power of h800-sxm-80gb"),
        ({"gpu": "mi350x", "contract": "spot"}, "or --contract reserved-1y."),
        ({"gpu": "mi350x", "provider": "aws"}, "it is sold by "),
    ):
        with pytest.raises(SearchSpaceError) as caught:
            plan(**question, objectives=["cost"])
        assert told in str(caught.value)


def test_an_unknown_provider_or_contract_is_refused() -> None:
    with pytest.raises(SearchSpaceError, match=r"provider 'lamda'\. Did you mean lambda"):
        plan(provider="lamda")
    with pytest.raises(SearchSpaceError, match="Did you mean spot"):
        plan(contract="spott")
    with pytest.raises(SearchSpaceError, match="Owned GPUs have no provider"):
        plan(contract="owned", provider="lambda")


def test_own_prices_replace_and_add(tmp_path: Path) -> None:
    ours = written(
        tmp_path,
        "gpu,price,currency,usd_per_unit,contract,provider\n"
        "h100,2,EUR,,,\n"
        "H800,3,,,,us\n"
        "b200,10,ABC,0.5,reserved-5y,us\n",
    )
    assert hourly(prices=ours) == pytest.approx(2 * 1.1476)
    assert hourly(prices=ours, gpu="h800", provider="US") == pytest.approx(3)
    assert hourly(prices=ours, gpu="b200", contract="reserved-5y") == pytest.approx(5)
    assert hourly(prices=ours, contract="spot") == hourly(contract="spot")
    assert hourly(prices=ours, price=7) == pytest.approx(7)
    changed = plan(prices=ours).digests["price lists"]
    assert changed != plan().digests["price lists"]


def test_faults_of_own_prices_come_together(tmp_path: Path) -> None:
    ours = written(tmp_path, "gpu,price,contract\nh100,x,\nb200,1,never\n")
    with pytest.raises(SpecError) as caught:
        plan(prices=ours)
    assert len(str(caught.value).splitlines()) == 2
    for text, told in (
        ("gpu,price\nh10,1\nb20,2\n", "Unknown GPU 'h10'"),
        ("gpu,prize\nh100,1\n", "column 'prize' is unknown. Did you mean price"),
    ):
        with pytest.raises(SpecError) as caught:
            plan(prices=written(tmp_path, text))
        assert told in str(caught.value)
    with pytest.raises(SpecError, match="cannot be read"):
        plan(prices=str(tmp_path / "none.csv"))


def test_a_gpu_of_a_file_can_have_an_own_price(tmp_path: Path) -> None:
    spec = find("gpus", "h100").read_text(encoding="utf-8")
    mine = tmp_path / "mine.toml"
    lines = [line for line in spec.splitlines() if not line.startswith("aliases")]
    mine.write_text("\n".join(lines).replace(f'name = "{H100}"', 'name = "mine"'))
    ours = written(tmp_path, "gpu,price\nmine,2.5\n")
    assert hourly(gpu=str(mine), prices=ours) == pytest.approx(2.5)
    assert hourly(gpu=str(mine), price="mine=1.5") == pytest.approx(1.5)


# USD/kWh of industry in Virginia, and what Google's building in Belgium draws.
@pytest.mark.parametrize(
    ("asked", "pue", "electricity"),
    [
        ({}, 1.25, 0.0977),
        ({"pue": 1.05}, 1.05, 0.0977),
        ({"region": "US-VA"}, 1.25, 0.0892),
        ({"region": "GCP europe-west1"}, 1.08, 0.0977),
        ({"region": "US-VA", "pue": 1.3}, 1.3, 0.0892),
    ],
    ids=str,
)
def test_an_owned_gpu_stands_in_the_building_and_region_of_its_energy(
    asked: dict[str, Any], pue: float, electricity: float
) -> None:
    """A GPU and its share of a DGX H100 draw 1,275 W x 0.76, paid for 0.85 of the time."""
    found = site(contract="owned", **asked)
    assert found.power is not None
    assert found.power.pue.value == pue
    free = 2.2161 - 1.275 * 0.76 / 0.85 * 1.25 * 0.0977
    drawn = 1.275 * 0.76 / 0.85 * pue * electricity
    assert found.price * 3600 == pytest.approx(free + drawn, abs=5e-4)


def test_a_known_building_and_known_electricity_narrow_the_range_of_owning() -> None:
    wide, narrow = (
        site(contract="owned", **more).offer for more in ({}, {"pue": 1.25, "region": "USA"})
    )
    assert wide is not None
    assert narrow is not None
    assert narrow.value == pytest.approx(wide.value)
    assert wide.low < narrow.low < narrow.high < wide.high


def test_the_price_of_electricity_is_told_where_it_counts() -> None:
    assert "0.0892 USD/kWh" in plan(contract="owned", region="US-VA").defaults["electricity_price"]
    assert "electricity_price" not in plan(region="US-VA").defaults


def test_an_assumed_figure_of_owning_is_named(tmp_path: Path) -> None:
    (tmp_path / "ownership.csv").write_text(
        "quantity,value,unit,source\nutilization,0.5,1,assumed\n", encoding="utf-8"
    )
    own = plan(contract="owned", specs=tmp_path)
    assert "gpu ownership.utilization" in own.assumed
    assert "gpu ownership.utilization" not in plan(specs=tmp_path).assumed
    assert own.digests["ownership figures"] != plan(contract="owned").digests["ownership figures"]


@pytest.mark.parametrize(
    "more",
    [
        {"contract": "spot"},
        {"contract": "owned"},
        {"provider": "lambda"},
        {"price": "h100=1.75,b200=4"},
        {"prices": "ours.csv"},
        {"reliability": "mine.toml"},
    ],
    ids=str,
)
def test_a_plan_file_reads_back_to_the_same_price(
    more: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path, "gpu,price\nh100,1.1\n")
    published = find("reliability", "published").read_text(encoding="utf-8")
    often = published.replace("value = 50700", "value = 30000").replace('"published"', '"mine"')
    Path("mine.toml").write_text(often, encoding="utf-8")
    asked = make_request({"model": "llama-7b", "num_gpus": 8, "gpu": "h100", **more})
    first = make_single_plan(asked)
    row = row_of_one(first)
    path = tmp_path / "plan.toml"
    path.write_text(SavedPlan.of(first, row).to_toml(), encoding="utf-8")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    again = make_single_plan(SavedPlan.read(path).request())
    assert repr(row_of_one(again)) == repr(row)
    assert row["cost_usd"] > 0


YEAR_OF_ONE = {"model": "llama-7b", "space": "small", "num_gpus": 8, "total_tokens": 1e9}


def test_a_short_run_is_charged_the_whole_year_unless_the_rest_has_work() -> None:
    asked = {**YEAR_OF_ONE, "gpu": "h100", "contract": "reserved-1y", "price": 2}
    row = planner.search(**asked).to_frame().iloc[0]
    assert row["cost_usd"] == pytest.approx(8 * 8760 * 2)
    assert row["outlay_usd"] == pytest.approx(8 * 8760 * 2)
    assert row["unused_gpu_hours"] == pytest.approx(8 * 8760 - row["campaign_gpu_hours"])
    assert row["contract_term_days"] == 365
    half = planner.search(**asked, term_utilization="50%").to_frame().iloc[0]
    assert half["cost_usd"] == pytest.approx(half["campaign_gpu_hours"] * 2 / 0.5)
    assert half["charged_utilization"] == 0.5


def test_the_cost_of_a_whole_term_is_as_sure_as_its_price() -> None:
    asked = {**YEAR_OF_ONE, "gpu": "h100", "contract": "reserved-1y"}
    row = planner.search(**asked, price=2).to_frame().iloc[0]
    assert row["cost_low_usd"] == pytest.approx(row["cost_usd"])
    assert row["cost_high_usd"] == pytest.approx(row["cost_usd"])
    listed = planner.search(**asked).to_frame().iloc[0]
    offer = price_of(H100, "reserved-1y")
    assert offer is not None
    assert listed["cost_high_usd"] / listed["cost_usd"] == pytest.approx(offer.spread[1])


@pytest.mark.parametrize("share", [0, "120%", -1])
def test_an_impossible_utilization_is_refused(share: Any) -> None:
    with pytest.raises(PlannerError, match=r"utilization"):
        plan(contract="reserved-1y", term_utilization=share)


def test_rows_say_what_a_price_rests_on() -> None:
    row = planner.search(**QUESTION, gpu="gb200-nvl72", contract="owned").to_frame().iloc[0]
    assert row["price_basis"] == "rack of 72, estimate"
    assert row["price_date"] == "old: 2025-08-20"
    assert row["gpus_sold_together"] == 72
    rent = price_of("gb200-nvl72")
    assert rent is not None
    assert row["rent_per_gpu_hour_usd"] == pytest.approx(rent.value * 3600)
    assert (
        f"{row['price_per_gpu_hour_usd'] / row['rent_per_gpu_hour_usd']:.2f} x the rent"
        in (row["price_doubts"])
    )
    solid = planner.search(**QUESTION, gpu="h100").to_frame().iloc[0]
    assert (solid["price_doubts"], solid["price_offers"]) == ("", 48)


def test_prices_of_few_sellers_and_above_the_market_are_doubtful(tmp_path: Path) -> None:
    """By hand: 3.00 and 5.00 USD for a year are 4.00, a third above the 3.00 of all sellers."""
    lines = ["gpu,provider,contract,price,date"]
    lines += ["h100,a,reserved-1y,3,2026-10", "h100,b,reserved-1y,5,2026-10"]
    lines += ["h100,a,on-demand,6,2026-10", "h100,b,on-demand,6,2026-10"]
    lines += ["h100,c,on-demand,2,2026-10", "h100,d,on-demand,3,2026-10"]
    lines += ["h100,e,on-demand,2,2026-10"]
    (tmp_path / "prices.csv").write_text("\n".join(lines) + "\n")
    reserved = price_of(H100, "reserved-1y", folder=tmp_path)
    assert reserved is not None
    assert reserved.value * 3600 == pytest.approx(4)
    assert (reserved.market or 0) * 3600 == pytest.approx(3)  # of 2, 2, 3, 6, 6
    assert reserved.doubts == (
        "2 sellers",
        "33 % above 3.00 USD/h on demand, as its sellers ask 6.00 on demand",
    )
    on_demand = price_of(H100, folder=tmp_path)
    assert on_demand is not None
    assert not on_demand.doubts


def test_several_owned_gpus_say_that_their_prices_are_of_different_things() -> None:
    asked = {**QUESTION, "gpu": ["h100", "gb200-nvl72"], "contract": "owned"}
    words = " ".join(planner.search(**asked).summary().split())
    assert "Owned prices have different bases (node of 8, trade price: h100" in words
    assert "Ask before signing: gb200-nvl72 owned: old: 2025-08-20; an estimate" in words
    alike_answer = planner.search(**{**asked, "gpu": ["h100", "b200"]})
    alike = " ".join(alike_answer.summary(full=True).split())
    owned = "h100-sxm-80gb owned 2.22 USD (node of 8, trade price"
    assert f"Prices per GPU-hour in USD, without tax: {owned}" in alike
    assert "Owned prices have different bases" not in alike


def test_the_answer_says_what_is_signed() -> None:
    asked = {**YEAR_OF_ONE, "gpu": "h100", "contract": "reserved-1y", "price": 2}
    words = " ".join(planner.search(**asked).summary().split())
    assert "Signed for reserved-1y: 140 k USD for 8 GPUs for 1 year; the run uses" in words
    assert "other work uses the rest (--utilization 1, 100 % in use), it costs" in words


def test_money_is_said_in_another_currency_too() -> None:
    asked = {**YEAR_OF_ONE, "gpu": "h100", "price": 2}
    found = planner.search(**asked, currency="eur")
    row = found.to_frame().iloc[0]
    assert (row["currency"], row["currency_date"]) == ("EUR", "2026-03-13")
    assert row["usd_per_currency"] == 1.1476
    assert "At 1.1476 USD for 1 EUR, 2026-03-13: cost" in " ".join(found.summary().split())
    assert "a GPU-hour 1.74 EUR" in " ".join(found.summary().split())
    given = planner.search(**asked, currency="XYZ=4").summary()
    assert "At 4 USD for 1 XYZ: cost" in given
    assert "a GPU-hour 0.50 XYZ" in given
    assert "currency" not in planner.search(**asked).to_frame()


@pytest.mark.parametrize(
    ("currency", "told"),
    [
        ("XYZ", "currency 'XYZ' is unknown"),
        ("EUR=x", "'X' is not a number"),
        ("EUR=-1", "not a number"),
    ],
)
def test_an_unknown_currency_is_refused(currency: str, told: str) -> None:
    with pytest.raises(SearchSpaceError, match=told):
        plan(currency=currency)


def test_beside_the_cheapest_gpu_with_a_doubtful_price_the_best_solid_one_stands() -> None:
    asked = {**YEAR_OF_ONE, "gpu": ["h100", "gb200-nvl72"], "contract": "owned"}
    asked |= {"term_utilization": 1.0, "objectives": ["cost"], "num_gpus": 72}
    words = " ".join(planner.search(**asked).summary().split())
    assert "RECOMMENDED gb200-nvl72" in words
    assert "At a price without doubts: h100-sxm-80gb" in words
    solid = planner.search(**{**asked, "gpu": ["h100", "b200"]}).summary()
    assert "At a price without doubts" not in solid
