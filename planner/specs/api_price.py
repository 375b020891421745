"""Published prices per token of models that others serve, read with every fault."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path

from planner.base.records import record
from planner.errors import SpecError
from planner.specs.cache import kept
from planner.specs.csv_table import number, read_table
from planner.specs.files import aliases_of, names
from planner.specs.paths import SpecKind, api_price_files

COLUMNS = (
    "provider",
    "model",
    "release",
    "served_as",
    "input_usd_per_mtok",
    "cached_input_usd_per_mtok",
    "output_usd_per_mtok",
    "source",
    "date",
)
NEEDED = ("provider", "model", "input_usd_per_mtok", "output_usd_per_mtok")
"""The columns that a list must have; the others may be left out."""

_MILLION = 1e6
_MOST = 1e6
_DATE = re.compile(r"(<=)?(\d{4}-\d\d-\d\d)")
_OLD_AFTER_DAYS = 365


@record(kw_only=True)
class ApiPrice:
    """What a provider asks for a token of a model, in USD, who says so, and of when that is.

    ``served_as`` is the provider's own name of the model; it tells a precision or a tier.
    ``release`` tells apart releases of one architecture (DeepSeek-R1 and V3.1); empty where nobody
    says it.
    ``cached_input`` is None where no price of input tokens found in a cache is known. A ``date``
    behind ``<=`` says only that the price is not newer. ``is_old``: more than a year older than
    the newest price of its list, or of unknown date.
    """

    provider: str
    model: str
    release: str
    served_as: str
    input: float
    cached_input: float | None
    output: float
    source: str
    date: str
    is_old: bool = False


@kept
def api_prices(model: str, folder: Path | None = None) -> tuple[ApiPrice, ...]:
    """The prices of a model, by name or alias; none where no list has it.

    Where several lists have prices of a provider, those of the first count: of ``folder``, of the
    working directory, of what is shipped.

    Raises
    ------
    SpecError
        A list has faults; the message has one line for each.
    """
    wanted = _known_as(model, folder)
    found: list[ApiPrice] = []
    for path in api_price_files(folder):
        seen = {price.provider for price in found}
        found += [
            price
            for price in read_api_prices(path)
            if price.provider not in seen and _known_as(price.model, folder) == wanted
        ]
    return tuple(found)


def of_release(prices: Sequence[ApiPrice], name: str) -> tuple[ApiPrice, ...]:
    """The prices of the release that a name means; all where it means none that has a price.

    The longest release that the name begins with counts, its owner aside; prices that tell no
    release stay.
    """
    word = _word(name.rpartition("/")[2])
    meant = [price.release for price in prices if _begins(word, price.release)]
    if not meant:
        return tuple(prices)
    release = max(meant, key=len)
    return tuple(price for price in prices if price.release in ("", release))


def _begins(word: str, release: str) -> bool:
    return bool(release) and (word == release or word.startswith(release + "-"))


def priced_models(folder: Path | None = None) -> list[str]:
    """The models that a list has prices of, sorted.

    Raises
    ------
    SpecError
        A list has faults; the message has one line for each.
    """
    return sorted(
        {price.model for path in api_price_files(folder) for price in read_api_prices(path)}
    )


@kept
def read_api_prices(path: Path) -> Sequence[ApiPrice]:
    """The prices of a file, in order.

    Raises
    ------
    SpecError
        With one line per fault: file, line, what is wrong.
    """
    prices: list[ApiPrice] = []
    faults: list[str] = []
    lines: dict[tuple[str, ...], int] = {}
    for line, cells in read_table(path, COLUMNS, NEEDED):
        row = dict.fromkeys(COLUMNS, "") | dict(cells)
        price, wrong = _parsed(row)
        key = tuple(row[name].lower() for name in ("provider", "model", "served_as"))
        if not wrong and key in lines:
            wrong = [f"{row['model']} of {row['provider']} is priced on line {lines[key]} too"]
        lines.setdefault(key, line)
        faults += [f"{path}:{line}: {fault}." for fault in wrong]
        prices += [price] if price else []
    if faults:
        raise SpecError("\n".join(faults))
    return _aged(prices)


def _known_as(name: str, folder: Path | None) -> str:
    """The spec that a name means; the name itself, in lower case, where none has it."""
    word = _word(name)
    if word in names(SpecKind.MODELS, folder):
        return word
    return aliases_of(SpecKind.MODELS, folder).get(word, word)


def _word(name: str) -> str:
    return re.sub(r"[\s_]+", "-", name.strip().lower())


def _parsed(row: Mapping[str, str]) -> tuple[ApiPrice | None, list[str]]:
    """A price, or what is wrong with it."""
    faults = [f"{name} is empty" for name in NEEDED if not row[name]]
    amounts: dict[str, float | None] = {}
    for name in COLUMNS:
        if name.endswith("_usd_per_mtok"):
            try:
                amounts[name] = _amount(name, row[name])
            except ValueError as error:
                faults.append(str(error))
    if row["date"] and not _is_date(row["date"]):
        faults.append(f"date {row['date']!r} is not YYYY-MM-DD, nor <=YYYY-MM-DD")
    input_price, output = amounts.get("input_usd_per_mtok"), amounts.get("output_usd_per_mtok")
    if faults or input_price is None or output is None:
        return None, faults
    price = ApiPrice(
        provider=row["provider"],
        model=row["model"],
        release=row["release"],
        served_as=row["served_as"] or row["model"],
        input=input_price,
        cached_input=amounts["cached_input_usd_per_mtok"],
        output=output,
        source=row["source"] or "given",
        date=row["date"],
    )
    return price, []


def _amount(name: str, text: str) -> float | None:
    """USD per token; None of nothing."""
    if not text:
        return None
    found = number(text, name)
    if found >= _MOST:
        raise ValueError(f"{name} {text} is not a price in USD per million tokens")
    return found / _MILLION


def _is_date(text: str) -> bool:
    match = _DATE.fullmatch(text)
    try:
        return match is not None and date.fromisoformat(match.group(2)) is not None
    except ValueError:
        return False


def _aged(prices: Sequence[ApiPrice]) -> tuple[ApiPrice, ...]:
    """The prices, with which of them are old: the newest of the list is taken for today's."""
    days = {price.date: _day(price.date) for price in prices}
    newest = max((day for day in days.values() if day), default=0)
    return tuple(
        replace(price, is_old=_is_old(price, days[price.date], newest)) for price in prices
    )


def _is_old(price: ApiPrice, day: int, newest: int) -> bool:
    return newest - day > _OLD_AFTER_DAYS if day else price.date.startswith("<=")


def _day(text: str) -> int:
    """The number of a certain day; 0 of none."""
    return 0 if not text or text.startswith("<") else date.fromisoformat(text).toordinal()
