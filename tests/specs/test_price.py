"""Prices: the shipped list, and how faults in one are reported."""

from __future__ import annotations

from pathlib import Path

import pytest

from planner.errors import SpecError
from planner.specs.catalogue import names
from planner.specs.paths import price_files
from planner.specs.price import COLUMNS, Price, list_price, price_per_gpu_hour, read_prices

HEADER = ",".join(COLUMNS)


def write(folder: Path, *rows: str) -> Path:
    path = folder / "prices.csv"
    path.write_text("\n".join([HEADER, *rows]) + "\n", encoding="utf-8")
    return path


def test_shipped_prices_are_of_known_gpus_and_name_source_and_date() -> None:
    prices = read_prices(price_files()[-1])
    assert {name for name, _ in prices} <= set(names("gpus"))
    assert all(price.value > 0 and price.source and price.date for price in prices.values())
    assert len(prices) >= 20


def test_rent_is_per_second_inside() -> None:
    price = price_per_gpu_hour("h100-sxm-80gb")
    assert price is not None
    assert price.value * 3600 == pytest.approx(2.29)
    assert "skypilot-catalog" in price.source


def test_list_price() -> None:
    price = list_price("rtx4090-24gb")
    assert price is not None
    assert price.value == 1599


def test_a_gpu_without_price_has_none() -> None:
    assert price_per_gpu_hour("h800-sxm-80gb") is None
    assert list_price("no-such-gpu") is None


def test_own_prices_come_before_the_shipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "hardware_specs"
    folder.mkdir()
    write(folder, "h100-sxm-80gb,price_per_gpu_hour,3.6,USD/h,our contract,2026-01-01")
    monkeypatch.chdir(tmp_path)
    expected = Price(value=pytest.approx(0.001), source="our contract", date="2026-01-01")
    assert price_per_gpu_hour("h100-sxm-80gb") == expected
    assert price_per_gpu_hour("h200-sxm-141gb") is not None


def test_faults_come_together_with_line_numbers(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "a,price_per_gpu_hour,1,USD/h,s,2026",
        "a,price_per_gpu_hour,1,USD/h,s,2026",
        "b,price_per_gpu_hour,1,USD,s,2026",
        "c,rent,1,USD/h,s,2026",
        "d,list_price,-1,USD,s,2026",
        "e,list_price,cheap,USD,s,2026",
        "f,list_price,nan,USD,s,2026",
        "g,list_price,1,USD,,2026",
        "h,list_price,1",
    )
    with pytest.raises(SpecError) as caught:
        read_prices(path)
    lines = str(caught.value).splitlines()
    assert [line.removeprefix(f"{path}:").split(":")[0] for line in lines] == [
        str(number) for number in range(3, 11)
    ]
    for line, part in zip(
        lines,
        ["given twice", "unit 'USD'", "quantity 'rent'", "negative", "'cheap' is not a number",
         "not a finite number", "source is empty", "has 3 fields"],
        strict=True,
    ):  # fmt: skip
        assert part in line


@pytest.mark.parametrize("content", [b"", b"name,price\n", b"\xff\xfe", b'name,"quan\n'])
def test_what_is_no_price_list_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "prices.csv"
    path.write_bytes(content)
    with pytest.raises(SpecError, match=r"prices\.csv"):
        read_prices(path)


def test_a_missing_list_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="cannot be read"):
        read_prices(tmp_path / "prices.csv")
