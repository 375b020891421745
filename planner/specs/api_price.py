"""Published prices per token of served models; reading reports all errors at once."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import date
from pathlib import Path

from planner.base.records import record
from planner.specs.file_cache import cache_between_runs, cache_by_files
from planner.specs.spec_files import Column, Row, nonempty_text, number, optional, read_records
from planner.specs.spec_paths import SpecKind, aliases_of, api_price_files, names

_MILLION = 1e6
_MOST = 1e6
_DATE = re.compile(r"(<=)?(\d{4}-\d\d-\d\d)")
_OLD_AFTER_DAYS = 365


@record(kw_only=True)
class ApiPrice:
    """Price of one token of a model at one provider [USD], with its source and its date.

    Parameters
    ----------
    provider : seller of the API
    model : name of the model in the catalogue
    release : release of the architecture, such as DeepSeek-V3.1; empty: not specified
    served_as : name that the provider gives the model; it may name a precision or a tier
    input : price of an input token [USD]
    cached_input : price of an input token in the prefix cache [USD]; None: not published
    output : price of an output token [USD]
    source : page of the price
    date : day of the price; after ``<=``: the price is not newer
    is_old : more than a year older than the newest price of its list, or without a date
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


@cache_by_files
def api_prices(model: str, folder: Path | None = None) -> tuple[ApiPrice, ...]:
    """Return the API prices of a model by name or alias; empty if no list has the model.

    If several lists have prices of a provider, the first list counts: in ``folder``, in the working
    directory, then shipped.

    Raises SpecError if a list has errors, one line for each.

    Parameters
    ----------
    model : name or alias of the model
    folder : folder of own spec files, searched first; None: working directory and shipped files
    """
    spec_name = _spec_name(model, folder)
    prices: list[ApiPrice] = []
    for path in api_price_files(folder):
        providers = {price.provider for price in prices}
        prices += [
            price
            for price in read_api_prices(path)
            if price.provider not in providers and _spec_name(price.model, folder) == spec_name
        ]
    return tuple(prices)


def of_release(prices: Sequence[ApiPrice], name: str) -> tuple[ApiPrice, ...]:
    """Return the prices of the release in a name; all prices if none has the release.

    The longest release that the name begins with counts, without its owner. Prices without a
    release are kept.

    Parameters
    ----------
    prices : prices of one model
    name : name of a model or checkpoint
    """
    word = _word(name.rpartition("/")[2])
    releases = {price.release for price in prices if price.release}
    matching = [release for release in releases if f"{word}-".startswith(f"{release}-")]
    if not matching:
        return tuple(prices)
    release = max(matching, key=len)
    return tuple(price for price in prices if price.release in ("", release))


def priced_models(folder: Path | None = None) -> list[str]:
    """Return the sorted models with API prices.

    Raises SpecError if a list has errors, one line for each.

    Parameters
    ----------
    folder : folder of own spec files, searched first; None: working directory and shipped files
    """
    return sorted(
        {price.model for path in api_price_files(folder) for price in read_api_prices(path)}
    )


@cache_between_runs
def read_api_prices(path: Path) -> Sequence[ApiPrice]:
    """Return the API prices of a file, in order.

    Raises SpecError with one line per error: file, line, problem.

    Parameters
    ----------
    path : file to read
    """
    return _aged(read_records(path, _TABLE, _price, once=("provider", "model", "served_as")))


def _spec_name(name: str, folder: Path | None) -> str:
    """Return the spec name of a name or alias; the lower-case name if there is no spec."""
    word = _word(name)
    if word in names(SpecKind.MODELS, folder):
        return word
    return aliases_of(SpecKind.MODELS, folder).get(word, word)


def _word(name: str) -> str:
    return re.sub(r"[\s_]+", "-", name.strip().lower())


def _price(row: Row) -> ApiPrice:
    """Return the API price in one row of the table [USD per million tokens]."""
    return ApiPrice(
        provider=row["provider"],
        model=row["model"],
        release=row["release"],
        served_as=row["served_as"] or row["model"],
        input=row["input_usd_per_mtok"],
        cached_input=row["cached_input_usd_per_mtok"],
        output=row["output_usd_per_mtok"],
        source=row["source"] or "given",
        date=row["date"],
    )


def _amount(cell: str, column: str) -> float:
    """Return USD per token from a cell in USD per million tokens."""
    amount = number(nonempty_text(cell, column), column)
    if amount >= _MOST:
        raise ValueError(f"{column} {cell} is not a price in USD per million tokens")
    return amount / _MILLION


def _date(cell: str, column: str) -> str:
    """Return a date cell, empty or YYYY-MM-DD (also with <=); raise ValueError for other text."""
    match = _DATE.fullmatch(cell)
    with suppress(ValueError):
        if not cell or (match and date.fromisoformat(match[2])):
            return cell
    raise ValueError(f"{column} {cell!r} is not YYYY-MM-DD, nor <=YYYY-MM-DD")


_TABLE = (
    Column("provider", nonempty_text, needed=True),
    Column("model", nonempty_text, needed=True),
    Column("release"),
    Column("served_as"),
    Column("input_usd_per_mtok", _amount, needed=True),
    Column("cached_input_usd_per_mtok", optional(_amount)),
    Column("output_usd_per_mtok", _amount, needed=True),
    Column("source"),
    Column("date", _date),
)
COLUMNS = tuple(column.name for column in _TABLE)


def _aged(prices: Sequence[ApiPrice]) -> tuple[ApiPrice, ...]:
    """Return the prices, old ones marked relative to the newest price of the list."""
    certain = {price.date for price in prices if price.date[:1].isdigit()}
    days = {word: date.fromisoformat(word).toordinal() for word in certain}
    youngest = max(days.values(), default=0) - _OLD_AFTER_DAYS
    old = {word for word, day in days.items() if day < youngest}
    return tuple(
        replace(price, is_old=price.date in old or price.date.startswith("<=")) for price in prices
    )
