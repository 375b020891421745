"""What it takes to own a GPU: a CSV of quantities, of one GPU or of all, with all its faults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from planner.base.records import record
from planner.base.units import to_si
from planner.errors import SpecError
from planner.specs.cache import kept
from planner.specs.csv_table import Column, Row, are_old, dated, number, one_of, optional, records
from planner.specs.paths import SpecKind, beside_specs, find

OWNERSHIP = "ownership.csv"
ASSUMED = "assumed"
UTILIZATION = "utilization"
PRICES = ("purchase_price", "card_price")
DIMENSIONS = {
    "purchase_price": "usd",
    "card_price": "usd",
    "card_share_of_server": "1",
    "network_and_storage_share": "1",
    "lifetime": "second",
    "residual_after_3_years": "1",
    "financing_rate": "1/year",
    "power_per_gpu": "watt",
    "power_over_tdp": "1",
    "power_share": "1",
    "electricity_price": "usd/J",
    "colocation_price": "usd/watt/s",
    "operations_share": "1",
    "utilization": "1",
}
"""The quantities and what they are; the building's PUE is that of `planner.specs.power`."""

_TABLE = (
    Column("quantity", one_of(DIMENSIONS), needed=True),
    Column("gpu"),
    Column("value", number, needed=True),
    Column("low", optional(number)),
    Column("high", optional(number)),
    Column("unit", needed=True),
    Column("source", needed=True),
    Column("date", dated),
    Column("gpus", optional(number)),
    Column("asked", optional(one_of(("trade", "list", "launch", "street", "used", "estimate")))),
)
_SHARES = ("card_share_of_server", "network_and_storage_share", "residual_after_3_years",
           "power_share", "utilization")  # fmt: skip
_POSITIVE = ("card_share_of_server", "lifetime", "utilization", "power_over_tdp")


@record(kw_only=True)
class Figure:
    """A quantity in SI units, the range that sources give it, who says so and when.

    A price is of a rack, node or kit of so many ``gpus``, and one that the ``trade`` asks, of a
    ``list``, at the ``launch``, on the ``street``, ``used``, or an ``estimate``; empty: unsaid.
    """

    value: float
    low: float
    high: float
    source: str
    date: str
    gpus: int = 1
    asked: str = ""
    is_old: bool = False


@kept
def ownership_of(gpu: str, folder: Path | None = None) -> Mapping[str, Figure]:
    """The quantities of owning a GPU by name: its own, and where it has none those of all GPUs.

    Of several files the first that has a quantity counts.

    Raises
    ------
    SpecError
        A file has faults; the message has one line for each.
    """
    found: dict[str, Figure] = {}
    for path in beside_specs(OWNERSHIP, folder):
        figures = _named(path, folder)
        own = {name: figure for (name, of), figure in figures.items() if of == gpu}
        common = {name: figure for (name, of), figure in figures.items() if not of}
        found = {**common, **own, **found}
    return found


def can_be_owned(gpu: str, folder: Path | None = None) -> bool:
    """Whether a file has what a GPU costs to buy.

    Raises
    ------
    SpecError
        A file has faults.
    """
    return any(name in ownership_of(gpu, folder) for name in PRICES)


@kept
def read_ownership(path: Path) -> Mapping[tuple[str, str], Figure]:
    """The figures of a file by quantity and the word it has for the GPU, empty for all of them.

    Raises
    ------
    SpecError
        With one line per fault: file, line, what is wrong.
    """
    found = records(path, _TABLE, _figure, once=("quantity", "gpu"))
    prices = [(key, figure) for key, figure in found if key[0] in PRICES]
    ages = are_old([figure.date for _, figure in prices])
    dated_prices = zip(prices, ages, strict=True)
    return {**dict(found), **{key: replace(one, is_old=old) for (key, one), old in dated_prices}}


def unknown_owned(path: Path, folder: Path | None = None) -> list[str]:
    """The words of a file for GPUs of which there is no spec, with what they may mean.

    Raises
    ------
    SpecError
        The file has faults.
    """
    found = []
    for word in {gpu for _, gpu in read_ownership(path) if gpu}:
        try:
            find(SpecKind.GPUS, word, folder)
        except SpecError as error:
            found.append(f"{path}: {error}")
    return sorted(found)


def _figure(row: Row) -> tuple[tuple[str, str], Figure]:
    name, unit, value = row["quantity"], row["unit"], row["value"]
    ends = [value if row[end] is None else row[end] for end in ("low", "high")]
    if not ends[0] <= value <= ends[1]:
        raise ValueError(f"value {value:g} is not between low {ends[0]:g} and high {ends[1]:g}")
    if not row["source"]:
        raise ValueError("source is empty: where nobody says so, it is assumed")
    low, middle, high = (to_si(one, unit, DIMENSIONS[name]) for one in (ends[0], value, ends[1]))
    if name in _SHARES and high > 1:
        raise ValueError(f"{name} is a share of at most 1, not {high:g}")
    if name == "network_and_storage_share" and high == 1:
        raise ValueError(f"{name} must be below 1: something is left for the servers")
    if name in _POSITIVE and not low:
        raise ValueError(f"{name} must be above 0")
    if name not in PRICES and (row["gpus"] is not None or row["asked"]):
        raise ValueError("gpus and asked are of prices alone")
    figure = Figure(
        value=middle, low=low, high=high, source=row["source"], date=row["date"],
        gpus=max(int(row["gpus"] or 1), 1), asked=row["asked"] or "",
    )  # fmt: skip
    return (name, row["gpu"]), figure


@kept
def _named(path: Path, folder: Path | None) -> Mapping[tuple[str, str], Figure]:
    """Figures by quantity and the name of the GPU's spec; by its own word where there is none."""
    found = {}
    for (quantity, word), figure in read_ownership(path).items():
        try:
            name = find(SpecKind.GPUS, word, folder).stem if word else ""
        except SpecError:
            name = word
        found[quantity, name] = figure
    return found
