"""Prices per token: the shipped list, one's own, and how faults in one are reported."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from planner.errors import SpecError
from planner.show.presenters.prices import _usd_per_thousand
from planner.specs.catalogue import names
from planner.specs.operating_terms import (
    COLUMNS,
    api_prices,
    of_release,
    priced_models,
    read_api_prices,
)
from planner.specs.spec_paths import api_price_files

HEADER = "provider,model,input_usd_per_mtok,cached_input_usd_per_mtok,output_usd_per_mtok"


def write(folder: Path, *rows: str, header: str = HEADER) -> Path:
    path = folder / "api_prices.csv"
    path.write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
    return path


def test_shipped_prices_are_of_known_models_and_plausible() -> None:
    prices = read_api_prices(api_price_files()[-1])
    assert {price.model for price in prices} <= set(names("models"))
    assert len(prices) > 500
    assert len({price.provider for price in prices}) > 40
    for price in prices:
        assert price.source, price
        assert re.fullmatch(r"(<=)?2\d{3}-\d\d-\d\d", price.date), price
        assert 1e-9 < price.input <= price.output < 1e-4, price
        assert price.cached_input is None or 0 < price.cached_input <= price.input, price


def test_no_offer_is_shipped_twice() -> None:
    prices = read_api_prices(api_price_files()[-1])
    offers = Counter(
        (p.provider, p.model, p.release, p.input, p.cached_input, p.output) for p in prices
    )
    assert max(offers.values()) == 1
    served = Counter((p.provider, p.model, p.served_as.rpartition("/")[2].lower()) for p in prices)
    assert max(served.values()) == 1


def test_a_price_is_per_token_inside_and_its_date_tells_how_old_it_is() -> None:
    """Together's Llama 3.3 70B, and a price of Groq that nobody dated."""
    found = {price.provider: price for price in api_prices("llama-3.3-70b")}
    together = found["together"]
    assert (together.input, together.output) == pytest.approx((0.88e-6, 0.88e-6))
    assert (together.cached_input, together.date, together.is_old) == (None, "2026-07-02", False)
    assert {found[name].is_old for name in ("avian", "sambanova")} == {True}
    assert {found[name].date for name in ("avian", "sambanova")} == {"<=2026-08-21"}


def test_what_is_a_year_older_than_the_newest_price_is_old(tmp_path: Path) -> None:
    dates = ("2026-09-25", "2025-09-25", "2025-09-24", "")
    rows = [f"p{at},m,1,,1,{date}" for at, date in enumerate(dates)]
    path = write(tmp_path, *rows, header=HEADER + ",date")
    assert [price.is_old for price in read_api_prices(path)] == [False, False, True, False]


def test_aliases_and_names_with_blanks_find_the_same_prices() -> None:
    prices = api_prices("llama-3.3-70b")
    assert api_prices("meta-llama/Llama-3.3-70B-Instruct") == prices
    assert api_prices("Llama 3.3 70B") == prices
    assert api_prices("llama-2-7b") == ()
    assert "llama-3.3-70b" in priced_models()


@pytest.mark.parametrize(
    ("name", "releases"),
    [
        ("deepseek-ai/DeepSeek-R1", {"deepseek-r1"}),
        ("deepseek-ai/DeepSeek-R1-0528", {"deepseek-r1-0528"}),
        ("nvidia/DeepSeek-R1-NVFP4", {"deepseek-r1"}),
        ("deepseek-ai/DeepSeek-V3.1-Terminus", {"deepseek-v3.1-terminus"}),
        ("meta-llama/Llama-3.3-70B-Instruct", {"llama-3.3-70b"}),
    ],
)
def test_a_repository_means_its_release(name: str, releases: set[str]) -> None:
    assert {price.release for price in of_release(api_prices(name), name)} == releases


def test_a_name_of_no_priced_release_means_all_and_own_prices_tell_none(tmp_path: Path) -> None:
    every = api_prices("deepseek-v3")
    assert of_release(every, "deepseek-ai/DeepSeek-V9") == every
    write(tmp_path, "us,deepseek-v3,1,,2")
    found = of_release(api_prices("deepseek-v3", tmp_path), "deepseek-ai/DeepSeek-R1")
    assert {price.release for price in found} == {"", "deepseek-r1"}


def test_own_prices_add_and_replace_by_provider(tmp_path: Path) -> None:
    shipped = {price.provider for price in api_prices("llama-3.1-8b")}
    write(
        tmp_path,
        "us,meta-llama/Llama-3.1-8B-Instruct,1,,2",
        "groq,llama-3.1-8b,0.5,0.25,0.5",
        "us,our-own,3,,4",
    )
    found = {price.provider: price for price in api_prices("llama-3.1-8b", tmp_path)}
    assert set(found) == shipped | {"us"}
    assert found["groq"].input == pytest.approx(0.5e-6)
    assert found["groq"].cached_input == pytest.approx(0.25e-6)
    assert (found["us"].source, found["us"].date, found["us"].is_old) == ("given", "", False)
    assert [price.output for price in api_prices("Our Own", tmp_path)] == [pytest.approx(4e-6)]
    assert "our-own" in priced_models(tmp_path)


def test_faults_come_together_with_line_numbers(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "a,llama-7b,1,,2,2026-01-01",
        "a,llama-7b,1,,3,2026-01-01",
        ",llama-7b,-1,x,,2026-13-01",
        "b,llama-7b,nan,,1e9,yesterday",
        header=HEADER + ",date",
    )
    with pytest.raises(SpecError) as raised:
        read_api_prices(path)
    assert str(raised.value).splitlines() == [
        f"{path}:3: a, llama-7b is also on line 2.",
        f"{path}:4: provider is empty.",
        f"{path}:4: input_usd_per_mtok -1 is negative, or not finite.",
        f"{path}:4: cached_input_usd_per_mtok 'x' is not a number.",
        f"{path}:4: output_usd_per_mtok is empty.",
        f"{path}:4: date '2026-13-01' is not YYYY-MM-DD, nor <=YYYY-MM-DD.",
        f"{path}:5: input_usd_per_mtok nan is negative, or not finite.",
        f"{path}:5: output_usd_per_mtok 1e9 is not a price in USD per million tokens.",
        f"{path}:5: date 'yesterday' is not YYYY-MM-DD, nor <=YYYY-MM-DD.",
    ]


@pytest.mark.parametrize(
    ("header", "fault"),
    [
        ("model", "there is no column provider."),
        ("provider,model,input_usd_per_mtok", "there is no column output_usd_per_mtok."),
        (HEADER + ",sauce", "column 'sauce' is unknown. Did you mean source?"),
        (HEADER + ",model", "column model is there twice."),
    ],
)
def test_a_wrong_head_is_a_fault(tmp_path: Path, header: str, fault: str) -> None:
    with pytest.raises(SpecError, match=re.escape(f"api_prices.csv:1: {fault}")):
        read_api_prices(write(tmp_path, header=header))


def test_rows_are_read_as_those_of_other_tables(tmp_path: Path) -> None:
    """Short rows are filled up and the case of the header does not matter, as in price lists."""
    (price,) = read_api_prices(
        write(tmp_path, "a,llama-7b,1,,2", header=HEADER.upper() + ",source,date")
    )
    assert (price.output, price.source, price.date) == (2e-6, "given", "")
    with pytest.raises(SpecError) as raised:
        read_api_prices(write(tmp_path, "a,b,1,,2,3", "a,b,1,,2,3,4"))
    faults = str(raised.value).splitlines()
    assert [fault.partition("csv")[2] for fault in faults] == [
        ":2: has 6 fields, not 5.",
        ":3: has 7 fields, not 5.",
    ]


def test_the_shipped_columns_are_all_there() -> None:
    first = api_price_files()[-1].read_text(encoding="utf-8").partition("\n")[0]
    assert first.split(",") == list(COLUMNS)


def test_a_price_of_a_thousand_requests_has_three_digits() -> None:
    costs = (0.000123, 0.0009, 0.0015, 2.5)
    assert [_usd_per_thousand(cost) for cost in costs] == ["0.123", "0.9", "1.50", "2,500"]
