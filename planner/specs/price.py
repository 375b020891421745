"""Prices of GPUs: a CSV of name, quantity, value, unit, source, date, read with every fault."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

from planner.errors import SpecError
from planner.specs.cache import kept
from planner.specs.load import TABLE_BYTES, read_text
from planner.specs.paths import price_files
from planner.units import to_si

COLUMNS = ["name", "quantity", "value", "unit", "source", "date"]
_DIMENSIONS = {"price_per_gpu_hour": "usd/s", "list_price": "usd"}


@dataclass(frozen=True, kw_only=True)
class Price:
    """What something costs, in USD or USD/s, who says so, and of when that is."""

    value: float
    source: str
    date: str


def price_per_gpu_hour(gpu_name: str, folder: Path | None = None) -> Price | None:
    """The rent of one GPU in USD/s, or None where no list has it.

    Raises
    ------
    SpecError
        A price list has faults; the message has one line for each.
    """
    return _price(gpu_name, "price_per_gpu_hour", folder)


def list_price(gpu_name: str, folder: Path | None = None) -> Price | None:
    """What one GPU costs to buy in USD, or None where no list has it.

    Raises
    ------
    SpecError
        A price list has faults; the message has one line for each.
    """
    return _price(gpu_name, "list_price", folder)


@kept
def read_prices(path: Path) -> Mapping[tuple[str, str], Price]:
    """The prices of a file by name and quantity.

    Raises
    ------
    SpecError
        With one line per fault: file, line, what is wrong.
    """
    rows = _rows(path)
    prices: dict[tuple[str, str], Price] = {}
    faults = []
    for line, row in rows:
        try:
            key, price = _parsed(row)
            if key in prices:
                raise ValueError(f"{key[1]} of {key[0]} is given twice")
            prices[key] = price
        except ValueError as error:
            faults.append(f"{path}:{line}: {error}.")
    if faults:
        raise SpecError("\n".join(faults))
    return prices


@kept
def _price(name: str, quantity: str, folder: Path | None) -> Price | None:
    for path in price_files(folder):
        price = read_prices(path).get((name, quantity))
        if price is not None:
            return price
    return None


def _rows(path: Path) -> list[tuple[int, list[str]]]:
    try:
        rows = list(_numbered(StringIO(read_text(path, TABLE_BYTES))))
    except csv.Error as error:
        raise SpecError(f"{path}: is not valid CSV: {error}.") from error
    if not rows or rows[0][1] != COLUMNS:
        raise SpecError(f"{path}:1: the first line must be {','.join(COLUMNS)}.")
    return [(line, row) for line, row in rows[1:] if row]


def _numbered(lines: Iterator[str]) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader(lines, strict=True)
    for row in reader:
        yield reader.line_num, row


def _parsed(row: list[str]) -> tuple[tuple[str, str], Price]:
    if len(row) != len(COLUMNS):
        raise ValueError(f"has {len(row)} fields, not {len(COLUMNS)}")
    name, quantity, value, unit, source, date = (cell.strip() for cell in row)
    if quantity not in _DIMENSIONS:
        raise ValueError(f"quantity {quantity!r} is not one of {', '.join(_DIMENSIONS)}")
    for column, text in (("name", name), ("source", source), ("date", date)):
        if not text:
            raise ValueError(f"{column} is empty")
    number = to_si(_number(value), unit, _DIMENSIONS[quantity])
    if number < 0:
        raise ValueError(f"value {value} is negative")
    return (name, quantity), Price(value=number, source=source, date=date)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"value {text!r} is not a number") from None
