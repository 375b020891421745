"""Rent, reserve or own: cash and cost by year, break-even, price scenarios, worked by hand."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from planner.__main__ import run
from planner.base.units import YEAR
from planner.decide.sizing.purchase import (
    UNCHANGED,
    PriceChange,
    PurchaseOption,
    best_of_each_kind,
    break_even_price,
    break_even_utilization,
    cost_swings,
    read_price_change,
)
from planner.errors import SearchSpaceError
from planner.estimators.ownership_cost import owned_gpu_price, used_figures
from planner.show.presenters.prices import token_cost_line
from planner.show.presenters.purchase import budget_line, choice_line, recommended_option
from planner.specs.catalogue import Catalogue

RENT = PurchaseOption(
    gpu="g", contract="on-demand", num_gpus=10, used=10, price=2.0, low=1.0, high=3.0,
    predicted=6, at_90=10,
)  # fmt: skip
"""10 GPUs x 2 USD/h x 8,760 h = 175,200 USD a year."""
RESERVE = replace(RENT, contract="reserved-3y", price=1.5, term=3.0)
"""131,400 USD a year."""
PURCHASE = replace(
    RENT, contract="owned", num_gpus=16, price=1.0, term=5.0, outlay=500_000, running=4.0
)  # fmt: skip
"""16 GPUs x 1 USD/h = 140,160 USD a year; 35,040 USD a year for power and room."""
FALL = PriceChange(share=-0.3)
YEARLY = PriceChange(share=-0.1, is_yearly=True)


def yearly(option: PurchaseOption, name: str, change: PriceChange = UNCHANGED) -> list[float]:
    return [getattr(option, name)(year, change) for year in range(1, 6)]


def test_cash_and_cost_by_year() -> None:
    assert yearly(RENT, "cost") == yearly(RENT, "cash") == [175_200] * 5
    assert yearly(PURCHASE, "cost") == [140_160] * 5
    assert yearly(PURCHASE, "cash") == [535_040, 35_040, 35_040, 35_040, 35_040]
    assert PURCHASE.total_cash() == 500_000 + 5 * 35_040


def test_what_is_worn_out_is_bought_again() -> None:
    assert yearly(replace(PURCHASE, term=3.0), "cash") == [535_040, 35_040, 35_040, 535_040, 35_040]


def test_prices_that_change() -> None:
    """Rent falls after a year; three years keep their price until they end; owned GPUs do not."""
    assert yearly(RENT, "cost", FALL) == pytest.approx([175_200, *[122_640] * 4])
    assert yearly(RESERVE, "cost", FALL) == pytest.approx([*[131_400] * 3, *[91_980] * 2])
    assert yearly(PURCHASE, "cost", FALL) == [140_160] * 5
    assert yearly(RENT, "cost", YEARLY) == pytest.approx(
        [175_200, 157_680, 141_912, 127_720.8, 114_948.72]
    )
    # 131,400 x 0.9^3 = 95,790.6 for the fourth and the fifth year
    assert yearly(RESERVE, "cost", YEARLY)[3:] == pytest.approx([95_790.6, 95_790.6])


def test_break_even() -> None:
    """140,160 USD a year are 1.60 USD/h for 10 GPUs, which is 80 % of the hours at 2 USD/h."""
    assert break_even_price(PURCHASE, RENT) == pytest.approx(1.6)
    assert break_even_utilization(PURCHASE, RENT) == pytest.approx(0.8)
    assert break_even_price(RESERVE, RENT) == pytest.approx(1.5)


def test_at_the_break_even_price_both_cost_the_same() -> None:
    even = replace(RENT, price=break_even_price(PURCHASE, RENT))
    assert even.total() == pytest.approx(PURCHASE.total())


def test_what_moves_the_cost() -> None:
    """By hand, of 175,200 USD a year: 1 to 3 USD/h, 7 to 13 GPUs, 6 to 10, half of the hours."""
    swings = {swing.name: (swing.low, swing.high) for swing in cost_swings(RENT, {"w16a16": 20})}
    assert swings == {
        "price": (87_600, 262_800),
        "precision": (175_200, 350_400),
        "load": (122_640, 227_760),
        "utilization": (87_600, 175_200),
        "confidence": (105_120, 175_200),
    }
    widths = [high - low for low, high in swings.values()]
    assert widths == sorted(widths, reverse=True)
    assert "utilization" not in {swing.name for swing in cost_swings(PURCHASE)}


def test_the_choice_and_its_reason() -> None:
    options = [RENT, RESERVE, PURCHASE]
    assert [*best_of_each_kind(options)] == ["rent", "reserve", "own"]
    # 5 x 131,400 = 657,000, against 700,800 to own: 6.25 % less
    assert choice_line(options) == (
        "Reserve: 10 x g reserved-3y cost 0.66 M USD in 5 years, 6.2 % less than to own "
        "(16 x g owned)."
    )
    assert choice_line([RENT, PURCHASE]).startswith("Own: 16 x g owned cost 0.70 M USD")
    assert "0.54 M USD are paid in the first year, against 0.18 M USD for rent" in choice_line(
        [RENT, PURCHASE]
    )


def test_a_budget_below_the_purchase_recommends_rent() -> None:
    """A purchase of 535,040 USD in a year is 167.5 % above 200,000 USD."""
    options = [RENT, PURCHASE]
    option = recommended_option(options, UNCHANGED, 200_000)
    assert option is RENT
    line = choice_line(options, UNCHANGED, 200_000)
    assert line.startswith("Rent: 10 x g on-demand cost 0.88 M USD in 5 years.")
    assert "costs 20.0 % less, but takes 0.54 M USD in one year, above the budget" in line
    assert budget_line(options, 200_000) == (
        "Budget 0.20 M USD a year. Payments of a year: rent 0.18 M USD, within it; own 0.54 M USD, "
        "167.5 % above it."
    )


@pytest.mark.parametrize(
    ("text", "change"),
    [
        ("-30%", FALL), ("-30 %", FALL), ("-0.3", FALL), (FALL.text, FALL),
        ("-10%/year", YEARLY), ("-10 % a year", YEARLY), (YEARLY.text, YEARLY),
    ],
)  # fmt: skip
def test_a_change_is_read(text: str, change: PriceChange) -> None:
    assert read_price_change(text) == change


@pytest.mark.parametrize("text", ["-100%", "cheap", "-30%/month", "", "2000%"])
def test_what_is_no_change_is_refused(text: str) -> None:
    with pytest.raises(SearchSpaceError, match="--price-change"):
        read_price_change(text, "--price-change")


RUN = replace(RENT, use=0.25)
"""10 GPUs x 2 USD/h x 2,190 h = 43,800 USD a year: a run of a quarter of a year."""


def test_a_run_pays_rent_for_its_own_hours_and_ownership_for_all() -> None:
    purchase = replace(PURCHASE, use=0.2)
    assert yearly(RUN, "cost") == yearly(RUN, "cash") == [43_800] * 5
    assert yearly(purchase, "cost") == [140_160] * 5
    # 140,160 USD are 3.2 runs a year, 80 % of the hours, or 6.40 USD/h for one run
    assert break_even_utilization(purchase, RUN) == pytest.approx(0.8)
    assert break_even_price(purchase, RUN) == pytest.approx(6.4)
    swings = {swing.name: (swing.low, swing.high) for swing in cost_swings(RUN)}
    assert swings["utilization"] == (43_800, 175_200)
    assert swings["price"] == (21_900, 65_700)
    assert swings["load"] == pytest.approx((30_660, 56_940))


@pytest.mark.slow
def test_a_training_run_has_the_same_page(tmp_path: Path) -> None:
    """Rent of a year is the cost of the run; the runs a year that pay are those of the table."""
    result, text = tmp_path / "run.json", tmp_path / "run.md"
    words = (
        "size", "--model", "llama-3.1-8b", "--tokens", "1T", "--deadline", "30d", "--gpu", "h100",
        "--json", result, "--quiet",
    )  # fmt: skip
    assert run([*map(str, words)]) == 0
    assert run([*map(str, ("report", result, "--markdown", text))]) == 0
    row = json.loads(result.read_text())["rows"][0]
    rent = next(
        row for row in tables(text.read_text(), "Cash and cost by year") if row[0] == "rent"
    )
    share = row["calendar_time_days"] / row["time_to_train_days"]
    assert float(rent[4]) == pytest.approx(row["cost_usd"] / 1e6, rel=0.05 + abs(share - 1))
    (own,) = (r for r in tables(text.read_text(), "It costs less") if r[0] == "own")
    assert own[-1] == "never" or float(own[-1]) > 1
    assert "One run a year" in text.read_text()


BUY = (
    "--workload", "serve", "--model", "llama-3.1-8b", "--gpu", "h100,h200", "--input-tokens", 500,
    "--output-tokens", 100, "--request-rate", 20, "--ttft", "2s", "--tpot", "50ms",
    "--budget", "1MUSD/year", "--power", "100kW", "--engine", "vllm", "--mode", "aggregated",
)  # fmt: skip


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, str]:
    """The file of a size, and its page with lower prices."""
    folder = tmp_path_factory.mktemp("buy")
    result, text = folder / "buy.json", folder / "buy.md"
    words = ("report", result, "--price-change", "-30%", "--markdown", text)
    assert run([*map(str, ("size", *BUY, "--json", result, "--quiet"))]) == 0
    assert run([*map(str, words)]) == 0
    return json.loads(result.read_text()), text.read_text()


def tables(text: str, title: str) -> list[list[str]]:
    """The cells of the table below a title."""
    below = text.partition(f"**{title}")[2].partition("\n\n")[2].partition("\n\n")[0]
    rows = [[cell.strip(" *\\") for cell in line.split("|")[1:-1]] for line in below.splitlines()]
    return rows[2:]


@pytest.mark.slow
def test_the_page_adds_up(written: tuple[Any, str]) -> None:
    """Years add up to their sum, and the sum of the scenario is that of the years."""
    _, text = written
    rows = tables(text, "Cash and cost by year")
    assert {row[0] for row in rows} >= {"rent", "own"}
    for row in rows:
        years = [float(cell) for cell in row[4:9]]
        assert sum(years) == pytest.approx(float(row[9]), abs=0.03)
    costs = {row[0]: row[9] for row in rows if row[3] == "cost"}
    scenario = next(row for row in tables(text, "Cost of 5 years") if row[0] == "-30 %")
    assert {*costs.values()} == {*scenario[1 : 1 + len(costs)]}
    least = min(costs, key=lambda kind: float(costs[kind]))
    assert scenario[-1].startswith(least)


@pytest.mark.slow
def test_every_price_has_its_offers_and_date(written: tuple[Any, str]) -> None:
    result, text = written
    rows = tables(text, "Prices per GPU-hour in USD, without tax")
    assert len(rows) == len(result["options"])
    assert {row[0].split()[1] for row in rows} >= {"on-demand", "reserved-1y", "owned"}
    assert all(re.fullmatch(r"(old: )?\d{4}-\d\d(-\d\d)?|old: undated", row[5]) for row in rows)


def test_cheapest_is_said_of_what_is_cheapest(written: tuple[Any, str]) -> None:
    """Where another contract costs less over the years, the headline names its own contract."""
    result, text = written
    options = [PurchaseOption.of_row(row) for row in result["options"]]
    least = recommended_option(options, FALL)
    headline = text.partition("**")[2].partition("**")[0]
    assert least is not None
    if least.contract != "on-demand":
        assert "is cheapest on-demand on" in headline
        assert "\nCheapest: " not in text


def test_a_million_output_tokens_and_a_million_tokens_are_both_named() -> None:
    """By hand: 36 USD/h are 0.01 USD/s; 1,000 output tokens/s of 6,000 tokens/s."""
    row = {"cost_per_hour_usd": 36, "output_tokens_per_s": 1000, "tokens_per_s": 6000}
    assert token_cost_line(row) == (
        "Cost: 10.0 USD per million output tokens; 1.67 USD per million tokens, input tokens "
        "included"
    )
    assert token_cost_line({"cost_usd": 5}) == ""


def test_an_owned_gpu_runs_on_what_its_capital_does_not_pay() -> None:
    """The price of owning in use is capital and running cost, over the share in use."""
    catalogue = Catalogue(None)
    gpu = catalogue.load_gpu("h100-sxm-80gb").spec
    price = owned_gpu_price(gpu, catalogue)
    assert price is not None
    figures = {name: figure.value for name, figure in used_figures(gpu, catalogue).items()}
    all_in = figures["purchase_price"] / (1 - figures["network_and_storage_share"])
    assert price.outlay == pytest.approx(all_in)
    years, rate = figures["lifetime"] / YEAR, figures["financing_rate"]
    resale = figures["residual_after_3_years"] ** (years / 3)
    annuity = rate / (1 - (1 + rate) ** -years)
    capital = all_in * annuity * (1 - resale * (1 + rate) ** -years) / YEAR
    assert price.value * price.in_use == pytest.approx(capital + (price.running or 0))
    power = figures["power_per_gpu"]
    electricity = power * figures["power_share"] * figures["pue"] * figures["electricity_price"]
    room = power * figures["colocation_price"]
    operations = figures["operations_share"] * capital
    assert price.running == pytest.approx(electricity + room + operations)


@pytest.mark.slow
def test_a_sweep_has_the_same_page(tmp_path: Path) -> None:
    """Every GPU and contract of the sweep has its price, and rent is that of the cheapest row."""
    folder, text = tmp_path / "sweep", tmp_path / "sweep.md"
    words = (
        "sweep", "--model", "llama-3.1-8b", "--gpu", "h100,b200", "--gpus", "64", "--tokens", "1T",
        "--contract", "on-demand,spot", "--output", folder, "--quiet",
    )  # fmt: skip
    assert run([*map(str, words)]) == 0
    assert run([*map(str, ("report", folder, "--markdown", text))]) == 0
    page = text.read_text()
    priced = {row[0] for row in tables(page, "Prices per GPU-hour in USD, without tax")}
    assert priced >= {
        f"{gpu} {contract}"
        for gpu in ("h100-sxm-80gb", "b200-sxm-180gb")
        for contract in ("on-demand", "spot", "owned")
    }
    rent = next(row for row in tables(page, "Cash and cost by year") if row[0] == "rent")
    costs = re.findall(r"64 x \S+, on-demand: (\d+) k USD", page)
    assert float(rent[4]) == pytest.approx(min(map(float, costs)) / 1000, abs=0.006)
