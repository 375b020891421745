"""What currencies are worth in USD."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from planner.errors import SpecError, did_you_mean
from planner.specs.cache import kept
from planner.specs.csv_table import number, read_table
from planner.specs.offer import month
from planner.specs.paths import beside_specs

USD = "USD"
CURRENCIES = "currencies.csv"
COLUMNS = ("currency", "usd", "date", "source")


def rate(currency: str, folder: Path | None = None) -> float:
    """USD for one unit of a currency.

    Raises
    ------
    ValueError
        No list has it.
    SpecError
        A list has faults.
    """
    if currency == USD:
        return 1.0
    known: dict[str, float] = {}
    for path in beside_specs(CURRENCIES, folder):
        known = {**read_currencies(path), **known}
    if currency not in known:
        hint = did_you_mean(currency, known)
        raise ValueError(
            f"currency {currency!r} is unknown.{hint} Known: {', '.join([USD, *sorted(known)])}; "
            "a column usd_per_unit says what one unit of another is worth"
        )
    return known[currency]


@kept
def read_currencies(path: Path) -> Mapping[str, float]:
    """USD for one unit of each currency of a file.

    Raises
    ------
    SpecError
        With one line per fault.
    """
    found: dict[str, float] = {}
    faults = []
    for line, row in read_table(path, COLUMNS, COLUMNS):
        try:
            name = row["currency"].upper()
            if not name or name in found:
                raise ValueError(f"currency {name!r} is empty or given twice")
            found[name] = number(row["usd"], "usd")
            month(row["date"])
            if not found[name] or not row["source"]:
                raise ValueError(f"usd of {name} is 0, or its source is empty")
        except ValueError as error:
            faults.append(f"{path}:{line}: {error}.")
    if faults:
        raise SpecError("\n".join(faults))
    return found
