"""Price lists: a CSV of offers, one a row, read with every fault."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from planner.base.enums import Contract
from planner.base.units import to_si
from planner.errors import SpecError, did_you_mean
from planner.specs.cache import kept
from planner.specs.csv_table import number, read_table
from planner.specs.currency import USD, rate
from planner.specs.offer import UNDATED, Price, month, with_age

COLUMNS = (
    "gpu",
    "provider",
    "region",
    "contract",
    "price_per_gpu_hour",
    "currency",
    "gpus_per_instance",
    "source",
    "date",
)
_OTHERS = ("price", "usd_per_unit")
_RENTED = tuple(contract for contract in Contract if contract is not Contract.OWNED)


@kept
def read_prices(path: Path, folder: Path | None = None) -> Mapping[str, tuple[Price, ...]]:
    """The offers of a file by the word it has for the GPU, in USD/s.

    Needed are the columns ``gpu`` and ``price_per_gpu_hour`` (or ``price``); where others are
    missing or empty, the contract is on-demand and the currency USD, whose rates are those of
    ``currencies.csv`` in ``folder`` or of a column ``usd_per_unit``.

    Raises
    ------
    SpecError
        With one line per fault: file, line, what is wrong.
    """
    offers: list[tuple[str, Price]] = []
    faults = []
    for line, row in _priced_rows(path):
        try:
            offers.append((row["gpu"], _offer(row, path, folder)))
        except ValueError as error:
            faults.append(f"{path}:{line}: {error}.")
    if faults:
        raise SpecError("\n".join(faults))
    found: dict[str, list[Price]] = {}
    for (gpu, _), offer in zip(offers, with_age([offer for _, offer in offers]), strict=True):
        found.setdefault(gpu, []).append(offer)
    return {gpu: tuple(of_gpu) for gpu, of_gpu in found.items()}


def _priced_rows(path: Path) -> list[tuple[int, Mapping[str, str]]]:
    rows = read_table(path, (*COLUMNS, *_OTHERS), ("gpu",))
    if rows and not {"price", "price_per_gpu_hour"} & set(rows[0][1]):
        raise SpecError(f"{path}:1: there is no column price.")
    return rows


def _offer(row: Mapping[str, str], path: Path, folder: Path | None) -> Price:
    if not row["gpu"]:
        raise ValueError("gpu is empty")
    asked = number(row.get("price_per_gpu_hour") or row.get("price") or "", "price")
    currency = (row.get("currency") or USD).upper()
    own = row.get("usd_per_unit")
    per_unit = number(own, "usd_per_unit") if own else rate(currency, folder)
    value = to_si(asked * per_unit, "USD/h", "usd/s")
    contract = (row.get("contract") or Contract.ON_DEMAND).lower().replace("_", "-")
    if contract not in _RENTED:
        hint = did_you_mean(contract, _RENTED)
        raise ValueError(f"contract {contract!r} is not one of {', '.join(_RENTED)}{hint}")
    if row.get("gpus_per_instance"):
        number(row["gpus_per_instance"], "gpus_per_instance")
    date = row.get("date", "")
    month(date)
    return Price(
        value=value,
        low=value,
        high=value,
        source=row.get("source") or path.name,
        date="" if date == UNDATED else date,
        contract=contract,
        provider=row.get("provider", ""),
        region=row.get("region", ""),
    )
