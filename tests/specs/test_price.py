"""Prices: the shipped catalogue, what is typical of offers, and how faults in a list are told."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import SpecError
from planner.specs.catalogue import names
from planner.specs.price import (
    COLUMNS,
    CONTRACTS,
    Price,
    contracts_of,
    gpus_of,
    offers_of,
    price_of,
    providers_of,
    read_prices,
    typical,
    unknown_gpus,
)
from planner.specs.spec_files import are_old, month
from planner.specs.spec_paths import price_files

H100 = "h100-sxm-80gb"
NOT_RENTED = ("a800-sxm-80gb", "h800-sxm-80gb", "h20-96gb", "h100-sxm-96gb", "gaudi2", "gaudi3",
              "max1550-128gb", "mi210", "mi250")  # fmt: skip
CENT = 0.005 / 3600


def write(folder: Path, *rows: str, head: Sequence[str] = COLUMNS) -> Path:
    path = folder / "prices.csv"
    path.write_text("\n".join([",".join(head), *rows]) + "\n", encoding="utf-8")
    return path


def offer(value: float, provider: str = "a", date: str = "2026-10", **more: object) -> Price:
    fields = {"source": "s", "low": value, "high": value, **more}
    return Price(value=value, provider=provider, date=date, **fields)  # type: ignore[arg-type]


def test_shipped_offers_are_of_known_gpus_and_name_seller_source_and_date() -> None:
    path = price_files()[-1]
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == list(COLUMNS)
    assert len(rows) > 800
    assert all(row["provider"] and row["source"] and row["date"] for row in rows)
    assert set(read_prices(path)) <= set(names("gpus"))
    assert unknown_gpus(path) == []


def test_every_gpu_that_is_rented_has_a_price_and_the_others_have_none() -> None:
    assert len(list(gpus_of())) == 42
    for gpu in gpus_of():
        price = price_of(gpu)
        assert price is not None
        assert 0 < price.low <= price.value <= price.high
    for gpu in NOT_RENTED:
        assert price_of(gpu) is None
        assert set(contracts_of(gpu)) <= {"owned"}


# The medians of 2026 that `hardware_specs/prices.csv` was compiled with, by a second way below.
@pytest.mark.parametrize(
    ("gpu", "contract", "expected"),
    [
        (H100, "on-demand", (3.85, 1.99, 12.29, 48)),
        (H100, "spot", (2.36, 1.50375, 6.987, 9)),
        ("h200-sxm-141gb", "on-demand", (4.7722, 2.25, 14.33625, 29)),
        ("a100-sxm-80gb", "on-demand", (2.745, 1.39, 5.06875, 14)),
    ],
)
def test_typical_prices(gpu: str, contract: str, expected: Sequence[float]) -> None:
    price = price_of(gpu, contract)
    assert price is not None
    hourly = [rate * 3600 for rate in (price.value, price.low, price.high)]
    assert hourly == pytest.approx(expected[:3], abs=0.005)
    assert (price.offers, price.is_old) == (expected[3], False)


def test_a_typical_price_is_that_of_a_plain_count_of_the_file() -> None:
    with price_files()[-1].open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    dates = [row["date"] for row in rows if row["date"] != "undated"]
    newest = max(int(date[:4]) * 12 + int(date[5:7] or 1) for date in dates)
    sellers: dict[str, list[float]] = {}
    for row in rows:
        date = row["date"]
        if (row["gpu"], row["contract"]) != (H100, "on-demand") or date == "undated":
            continue
        if newest - int(date[:4]) * 12 - int(date[5:7] or 1) <= 12:
            sellers.setdefault(row["provider"], []).append(float(row["price_per_gpu_hour"]))
    price = price_of(H100)
    assert price is not None
    assert price.value * 3600 == pytest.approx(median(map(median, sellers.values())))


def test_a_seller_counts_once_however_many_regions_it_has() -> None:
    found = typical([offer(9, "a"), offer(9, "a"), offer(11, "a"), offer(1, "b"), offer(2, "c")])
    assert (found.value, found.low, found.high, found.offers) == (2, 1, 11, 5)
    assert found.provider == ""
    alone = typical([offer(9, "a", region="x"), offer(11, "a", region="y")])
    assert (alone.value, alone.provider, alone.region) == (10, "a", "")


def test_old_offers_count_only_where_there_is_no_newer_one() -> None:
    listed = [
        offer(1, "a", "2024-12"),
        offer(2, "b", ""),
        offer(5, "c", "2025-10-31"),
        offer(6, "d", "2026-10-01"),
    ]
    ages = are_old([one.date for one in listed])
    assert ages == [True, True, False, False]
    aged = [replace(one, is_old=is_old) for one, is_old in zip(listed, ages, strict=True)]
    assert typical(aged).value == 5.5
    old = typical(aged[:2])
    assert (old.value, old.when) == (1.5, "old: 2024-12")
    assert typical(aged[1:2]).when == "old: undated"
    assert not any(are_old(["", ""]))


def test_gpus_with_old_offers_alone_say_so() -> None:
    price = price_of("a10g-24gb")
    assert price is not None
    assert price.is_old
    assert price.when == "old: undated"


@given(st.lists(st.tuples(st.floats(0.1, 99), st.sampled_from("abcd")), min_size=1, max_size=12))
def test_what_is_typical_lies_in_the_range_whatever_the_order(
    listed: list[tuple[float, str]],
) -> None:
    offers = [offer(value, provider) for value, provider in listed]
    found = typical(offers)
    assert found.low <= found.value <= found.high
    assert found.value == typical(offers[::-1]).value
    assert typical([*offers, *offers]).value == pytest.approx(found.value)


def test_months_are_counted() -> None:
    assert month("") is month("undated") is None
    assert [month(date) for date in ("2026", "2026-01", "2026-02-28")] == [24312, 24312, 24313]
    for faulty in ("today", "2026-13", "2026-1", "26", "2026-02-32"):
        with pytest.raises(ValueError, match="is not a year, a month or a day"):
            month(faulty)


def test_a_contract_that_is_not_there_is_not_replaced_unless_nobody_named_one() -> None:
    assert contracts_of("mi350x") == ("reserved-1y",)
    assert contracts_of("gaudi2") == ("owned",)
    assert contracts_of("gaudi2", provider="aws") == ()
    usual = price_of("mi350x")
    assert usual is not None
    assert usual.contract == "reserved-1y"
    assert price_of("mi350x", "on-demand") is None
    assert contracts_of(H100) == CONTRACTS


def test_a_provider_has_its_own_price() -> None:
    own = price_of(H100, provider="Lambda")
    assert own is not None
    assert own.provider == "lambda"
    listed = [one for one in offers_of(H100) if one.provider == "lambda" and not one.is_old]
    values = [one.value for one in listed if one.contract == "on-demand"]
    assert own.value == median(values)
    assert own.offers == len(values)
    assert price_of(H100, provider="nobody") is None
    assert "lambda" in providers_of(H100)


def test_own_prices_come_before_the_shipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "hardware_specs"
    folder.mkdir()
    head = ("gpu", "price", "source")
    write(folder, "h100,3.6,our contract", head=head)
    monkeypatch.chdir(tmp_path)
    found = price_of(H100)
    expected = one_like(0.001, "our contract")
    assert found == expected
    others = price_of(H100, "spot"), price_of("h200-sxm-141gb")
    assert all(other is not None for other in others)
    own = write(tmp_path, "H100,7.2,mine", head=head)
    assert price_of(H100, user_folder=own) == replace(one_like(0.002, "mine"), chosen=True)


def one_like(value: float, source: str) -> Price:
    near = pytest.approx(value)
    return Price(value=near, low=near, high=near, source=source, date="")


def test_an_old_price_of_the_users_own_is_his_price(tmp_path: Path) -> None:
    head = ("gpu", "price", "date")
    own = write(tmp_path, "h100,1,2020-01", "b200,2,2026-01", head=head)
    found = price_of(H100, user_folder=own)
    assert found is not None
    assert not found.is_old


def test_faults_come_together_with_line_numbers(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "a,p,,on-demand,1,USD,8,s,2026",
        ",p,,on-demand,1,USD,8,s,2026",
        "b,p,,on-demand,cheap,USD,8,s,2026",
        "c,p,,on-demand,-1,USD,8,s,2026",
        "d,p,,on-demand,nan,USD,8,s,2026",
        "e,p,,monthly,1,USD,8,s,2026",
        "f,p,,owned,1,USD,8,s,2026",
        "g,p,,spot,1,XXX,8,s,2026",
        "h,p,,spot,1,USD,8,s,today",
        "i,p,,spot,,USD,8,s,2026",
        "j,p,,spot,1,USD,many,s,2026",
    )
    with pytest.raises(SpecError) as caught:
        read_prices(path)
    lines = str(caught.value).splitlines()
    assert [line.removeprefix(f"{path}:").split(":")[0] for line in lines] == [
        str(number) for number in range(3, 13)
    ]
    for line, part in zip(
        lines,
        ["gpu is empty", "'cheap' is not a number", "negative", "not finite",
         "contract 'monthly' is not one of", "contract 'owned' is not one of",
         "currency 'XXX' is unknown", "date 'today'", "price '' is not a number",
         "gpus_per_instance 'many'"],
        strict=True,
    ):  # fmt: skip
        assert part in line


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "no column gpu"),
        (b"name,price\n", "column 'name' is unknown"),
        (b"gpu,provider\na,b\n", "price '' is not a number"),
        (b"gpu,price,price\na,1,2\n", "column price is there twice"),
        (b"gpu,price\na,1,2\n", "has 3 fields, not 2"),
        (b"\xff\xfe", "not UTF-8"),
        (b'gpu,"quan\n', "not valid CSV"),
    ],
)
def test_what_is_no_price_list_is_refused(content: bytes, told: str, tmp_path: Path) -> None:
    path = tmp_path / "prices.csv"
    path.write_bytes(content)
    with pytest.raises(SpecError, match=r"prices\.csv") as caught:
        read_prices(path)
    assert told in str(caught.value)


def test_a_missing_list_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="cannot be read"):
        read_prices(tmp_path / "prices.csv")


def test_a_contract_says_what_its_sellers_ask_on_demand(tmp_path: Path) -> None:
    sold = [("a", "on-demand", 4.0), ("b", "on-demand", 1.0), ("a", "reserved-1y", 3.0)]
    sold += [("c", "reserved-1y", 2.0), ("a", "on-demand", 6.0)]
    rows = [f"h100,{who},{contract},{price}" for who, contract, price in sold]
    own = tmp_path / "own.csv"
    own.write_text("\n".join(["gpu,provider,contract,price", *rows]) + "\n", encoding="utf-8")
    reserved = price_of("h100-sxm-80gb", "reserved-1y", user_folder=own)
    usual = price_of("h100-sxm-80gb", "on-demand", user_folder=own)
    assert reserved is not None
    assert usual is not None
    assert reserved.value * 3600 == pytest.approx(2.5)
    assert reserved.on_demand == pytest.approx(5.0 / 3600)
    assert usual.on_demand is None


def test_a_list_of_a_spreadsheet_is_read(tmp_path: Path) -> None:
    own = tmp_path / "own.csv"
    own.write_text("gpu,price\nh100,1.5\n", encoding="utf-8-sig")
    price = price_of("h100-sxm-80gb", user_folder=own)
    assert price is not None
    assert price.value * 3600 == pytest.approx(1.5)
