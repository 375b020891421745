"""What it takes to own a GPU: a CSV of quantities, of one GPU or of all, with all its faults."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from planner.base.records import record
from planner.base.units import to_si
from planner.errors import SpecError, did_you_mean
from planner.specs.cache import kept
from planner.specs.csv_table import number, read_table
from planner.specs.files import find
from planner.specs.offer import month
from planner.specs.paths import SpecKind, beside_specs

OWNERSHIP = "ownership.csv"
COLUMNS = ("quantity", "gpu", "value", "low", "high", "unit", "source", "date")
ASSUMED = "assumed"
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

_SHARES = ("card_share_of_server", "network_and_storage_share", "residual_after_3_years",
           "power_share", "utilization")  # fmt: skip
_POSITIVE = ("card_share_of_server", "lifetime", "utilization", "power_over_tdp")


@record(kw_only=True)
class Figure:
    """A quantity in SI units, the range that sources give it, who says so and when."""

    value: float
    low: float
    high: float
    source: str
    date: str


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
    found: dict[tuple[str, str], Figure] = {}
    faults = []
    for line, row in read_table(path, COLUMNS, ("quantity", "value", "unit", "source")):
        try:
            key = row["quantity"], row.get("gpu", "")
            if key[0] not in DIMENSIONS:
                hint = did_you_mean(key[0], DIMENSIONS)
                raise ValueError(f"quantity {key[0]!r} is not one of {', '.join(DIMENSIONS)}{hint}")
            if key in found:
                raise ValueError(f"{key[0]} of {key[1] or 'all GPUs'} is given twice")
            found[key] = _figure(row)
        except ValueError as error:
            faults.append(f"{path}:{line}: {error}.")
    if faults:
        raise SpecError("\n".join(faults))
    return found


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


def _figure(row: Mapping[str, str]) -> Figure:
    name, unit = row["quantity"], row["unit"]
    value = number(row["value"], "value")
    ends = [number(row[end], end) if row.get(end) else value for end in ("low", "high")]
    if not ends[0] <= value <= ends[1]:
        raise ValueError(f"value {value:g} is not between low {ends[0]:g} and high {ends[1]:g}")
    if not row["source"]:
        raise ValueError("source is empty: where nobody says so, it is assumed")
    month(row.get("date", ""))
    low, middle, high = (to_si(one, unit, DIMENSIONS[name]) for one in (ends[0], value, ends[1]))
    if name in _SHARES and high > 1:
        raise ValueError(f"{name} is a share of at most 1, not {high:g}")
    if name == "network_and_storage_share" and high == 1:
        raise ValueError(f"{name} must be below 1: something is left for the servers")
    if name in _POSITIVE and not low:
        raise ValueError(f"{name} must be above 0")
    return Figure(value=middle, low=low, high=high, source=row["source"], date=row.get("date", ""))


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
