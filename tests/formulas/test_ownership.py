"""What an owned GPU costs: published costs of an H100 from their own inputs, and properties."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.base.units import HOUR, KILOWATT_HOUR, MONTH, YEAR
from planner.formulas.cost import capital_cost, owned_price, residual_share

FREE = {"network_and_storage_share": 0, "lifetime": 3 * YEAR, "residual_after_3_years": 0,
        "financing_rate": 0, "power_per_gpu": 0, "power_share": 1, "pue": 1,
        "electricity_price": 0, "colocation_price": 0, "operations_share": 0,
        "utilization": 1}  # fmt: skip
USUAL = {"purchase_price": 35_000, "network_and_storage_share": 0.2, "lifetime": 5 * YEAR,
         "residual_after_3_years": 0.3, "financing_rate": 0.1, "power_per_gpu": 1275,
         "power_share": 0.76, "pue": 1.5, "electricity_price": 0.1 / KILOWATT_HOUR,
         "colocation_price": 200 / (1000 * MONTH), "operations_share": 0.1,
         "utilization": 0.85}  # fmt: skip


def hourly(**figures: float) -> float:
    return float(owned_price(**{**FREE, **figures})) * HOUR


def test_the_published_cost_of_an_h100_over_three_years() -> None:
    """llm-inference-anatomy.pages.dev/economics: 0.95 USD/h, at 25,000 USD (Raymond James)."""
    assert hourly(purchase_price=25_000) == pytest.approx(0.95, rel=0.005)


# Network 0.10, power 0.03 and 0.07, data center 0.15 and 0.25, operations 0.10 and 0.12 USD/h
# beside the capital of 0.95 and 1.10: 1.33 and 1.64 in all (llm-inference-anatomy, as above).
@pytest.mark.parametrize(
    ("capital", "power", "room", "operations", "total"),
    [(0.95, 0.03, 0.15, 0.10, 1.33), (1.10, 0.07, 0.25, 0.12, 1.64)],
    ids=["owner of the site", "lessee"],
)
def test_published_parts_add_up_to_the_published_total(
    capital: float, power: float, room: float, operations: float, total: float
) -> None:
    network = 0.10
    found = hourly(
        purchase_price=capital * 3 * 8760,
        network_and_storage_share=network / (capital + network),
        power_per_gpu=1000,
        electricity_price=power / KILOWATT_HOUR,
        colocation_price=room / HOUR / 1000,
        operations_share=operations / (capital + network),
    )
    assert found == pytest.approx(total, rel=1e-9)


def test_a_loan_is_paid_back_with_its_interest() -> None:
    """10 % over 5 years: a capital recovery factor of 0.2638, as tables of it print."""
    plain = {"all_in_price": 1.0, "lifetime": 5 * YEAR, "financing_rate": 0.10}
    assert capital_cost(residual_share=0, **plain) * YEAR == pytest.approx(0.2638, abs=5e-5)
    sinking_fund = 0.1638
    left = capital_cost(residual_share=0.25, **plain) * YEAR
    assert left == pytest.approx(0.2638 - 0.25 * sinking_fund, abs=1e-4)


def test_without_interest_it_is_a_straight_line() -> None:
    args = {"all_in_price": 700.0, "lifetime": 7 * YEAR, "residual_share": 0.3}
    assert capital_cost(financing_rate=0, **args) * YEAR == pytest.approx(70)
    assert capital_cost(financing_rate=1e-9, **args) * YEAR == pytest.approx(70, rel=1e-6)


def test_what_is_sold_later_is_worth_less() -> None:
    assert residual_share(after_three_years=0.3, lifetime=3 * YEAR) == pytest.approx(0.3)
    assert residual_share(after_three_years=0.3, lifetime=6 * YEAR) == pytest.approx(0.09)


def test_power_is_paid_for_as_drawn_and_room_for_what_may_be_drawn() -> None:
    power = hourly(
        purchase_price=0, power_per_gpu=1000, power_share=0.5, pue=1.5, electricity_price=0.2
        / KILOWATT_HOUR
    )  # fmt: skip
    assert power == pytest.approx(0.5 * 1.5 * 0.2)
    room = hourly(purchase_price=0, power_per_gpu=2000, colocation_price=146 / (1000 * MONTH))
    assert room == pytest.approx(2 * 146 * 12 / 8760)


COSTLIER = (
    "purchase_price",
    "network_and_storage_share",
    "financing_rate",
    "power_per_gpu",
    "power_share",
    "pue",
    "electricity_price",
    "colocation_price",
    "operations_share",
)
CHEAPER = ("residual_after_3_years", "lifetime", "utilization")


@given(
    st.fixed_dictionaries({name: st.floats(0.8, 1.05) for name in USUAL}),
    st.sampled_from(COSTLIER + CHEAPER),
    st.floats(1.01, 1.1),
)
def test_more_of_anything_moves_the_price_its_way(
    scales: Mapping[str, float], name: str, factor: float
) -> None:
    figures = {key: USUAL[key] * scale for key, scale in scales.items()}
    before = float(owned_price(**figures))
    after = float(owned_price(**{**figures, name: figures[name] * factor}))
    assert (after > before) == (name in COSTLIER)
    assert before > 0


@given(st.fixed_dictionaries({name: st.floats(0.5, 1.1) for name in USUAL}), st.floats(0.1, 9))
def test_twice_as_dear_in_everything_is_twice_the_price(
    scales: Mapping[str, float], factor: float
) -> None:
    figures = {key: USUAL[key] * scale for key, scale in scales.items()}
    money = ("purchase_price", "electricity_price", "colocation_price")
    dearer = {key: figures[key] * (factor if key in money else 1) for key in figures}
    assert owned_price(**dearer) == pytest.approx(factor * float(owned_price(**figures)))
