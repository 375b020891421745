"""Prices of rented or owned GPUs: offers of price lists, and the price under a contract.

A list is a CSV with one offer per row; exchange rates are in another CSV.

Parameters
----------
folder : folder of own spec files, searched first; None: working directory and shipped files
user_folder : CSV file of the user's prices, searched first
gpu : name of the GPU
path : file to read
offers : offers of one GPU under one contract
provider : seller; None: any
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from planner.base.arrays import FloatArray
from planner.base.enums import Contract
from planner.base.records import record
from planner.base.units import DAY, HOUR, YEAR, to_si
from planner.errors import SpecError, did_you_mean
from planner.question.terms import terms_about
from planner.specs.file_cache import cache_between_runs, cache_by_files
from planner.specs.spec_files import (
    UNDATED,
    Column,
    Row,
    SourcedQuantity,
    are_old,
    nonempty_text,
    number,
    one_of,
    optional,
    parse_date,
    read_quantity,
    read_records,
)
from planner.specs.spec_paths import SpecKind, extra_files, find, price_files

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
"""Quantities of ownership with their dimensions; the PUE is that of `planner.specs.power`."""

_OWNERSHIP_TABLE = (
    Column("quantity", one_of(DIMENSIONS), needed=True),
    Column("gpu"),
    Column("value", number, needed=True),
    Column("low", optional(number)),
    Column("high", optional(number)),
    Column("unit", needed=True),
    Column("source", needed=True),
    Column("date", parse_date),
    Column("gpus", optional(number)),
    Column("asked", optional(one_of(("trade", "list", "launch", "street", "used", "estimate")))),
)
_SHARES = ("card_share_of_server", "network_and_storage_share", "residual_after_3_years",
           "power_share", "utilization")  # fmt: skip
_POSITIVE = ("card_share_of_server", "lifetime", "utilization", "power_over_tdp")


@cache_by_files
def ownership_of(gpu: str, folder: Path | None = None) -> Mapping[str, SourcedQuantity]:
    """Return the ownership figures of a GPU by quantity; missing ones are those of all GPUs.

    Of several files the first with a quantity counts.

    Raises SpecError if a file has errors, one line for each.
    """
    quantities: dict[str, SourcedQuantity] = {}
    for path in extra_files(OWNERSHIP, folder):
        figures = _figures_by_gpu(path, folder)
        quantities = {**figures.get("", {}), **figures.get(gpu, {}), **quantities}
    return quantities


@cache_by_files
def _figures_by_gpu(path: Path, folder: Path | None) -> Mapping[str, dict[str, SourcedQuantity]]:
    """Return the ownership figures of a file by spec name, then quantity; "": of all GPUs."""
    figures: dict[str, dict[str, SourcedQuantity]] = {}
    for (quantity, word), figure in read_ownership(path).items():
        figures.setdefault(_spec_name(word, folder) if word else "", {})[quantity] = figure
    return figures


def can_be_owned(gpu: str, folder: Path | None = None) -> bool:
    """Return whether a price file has a purchase price of the GPU.

    Raises SpecError if a file has errors.
    """
    return any(name in ownership_of(gpu, folder) for name in PRICES)


@cache_between_runs
def read_ownership(path: Path) -> Mapping[tuple[str, str], SourcedQuantity]:
    """Return the ownership figures of a file by (quantity, GPU); "" stands for all GPUs.

    Raises SpecError with one line per error: file, line, problem.
    """
    records = read_records(path, _OWNERSHIP_TABLE, _figure, once=("quantity", "gpu"))
    prices = [(key, figure) for key, figure in records if key[0] in PRICES]
    ages = are_old([figure.date for _, figure in prices])
    dated_prices = zip(prices, ages, strict=True)
    return {
        **dict(records),
        **{key: replace(figure, is_old=old) for (key, figure), old in dated_prices},
    }


def _figure(row: Row) -> tuple[tuple[str, str], SourcedQuantity]:
    """Return (quantity, GPU) and the figure of a row in SI units; raise ValueError if invalid."""
    name = row["quantity"]
    figure = read_quantity(
        row,
        DIMENSIONS[name],
        gpus=max(int(row["gpus"] or 1), 1),
        price_basis=row["asked"] or "",
    )
    if not figure.source:
        raise ValueError("source is empty: name a source, or leave the figure to the defaults")
    if name in _SHARES and figure.high > 1:
        raise ValueError(f"{name} is a share of at most 1, not {figure.high:g}")
    if name == "network_and_storage_share" and figure.high == 1:
        raise ValueError(f"{name} must be below 1: something is left for the servers")
    if name in _POSITIVE and not figure.low:
        raise ValueError(f"{name} must be above 0")
    if name not in PRICES and (row["gpus"] is not None or row["asked"]):
        raise ValueError("gpus and asked are only for prices")
    return (name, row["gpu"]), figure


_NINE_OF_TEN = (0.05, 0.95)
USD = "USD"
CURRENCIES = "currencies.csv"
CONTRACTS = tuple(str(contract) for contract in Contract)
"""The words for contracts."""

TERMS = {
    Contract.ON_DEMAND: 0.0,
    Contract.SPOT: 0.0,
    # AWS EC2 user guide: capacity blocks end after whole days.
    Contract.CAPACITY_BLOCK: DAY,
    Contract.RESERVED_1Y: YEAR,
    Contract.RESERVED_3Y: 3 * YEAR,
    Contract.RESERVED_5Y: 5 * YEAR,
    Contract.RESERVED: math.nan,
}
"""Duration of a contract [s]; 0: pay per use, NaN: unknown. Owned GPUs have a lifetime instead."""
ESTIMATE = "estimate"
FEWEST_SELLERS = 3
"""Sellers from which the median of their prices counts as the price of a market."""
LOW_TO_RENT, HIGH_TO_RENT = 0.3, 1.2
"""Plausible range of the cost of owning a GPU over its rent."""

# Order of contracts if none is specified: on demand, then the most similar ones. Owned GPUs are
# only used if requested.
_DEFAULT_ORDER = (
    Contract.ON_DEMAND,
    Contract.CAPACITY_BLOCK,
    Contract.RESERVED_1Y,
    Contract.RESERVED,
    Contract.RESERVED_3Y,
    Contract.RESERVED_5Y,
    Contract.SPOT,
)


@record(kw_only=True)
class Price:
    """Price of one GPU under one contract [USD/s], with its source and its date.

    Parameters
    ----------
    value : price of the offer, or median of ``offers`` [USD/s]; of owned GPUs with work in the
        share ``in_use`` of the hours
    source : publication
    date : day of the newest offer
    low : lowest offer [USD/s]
    high : highest offer [USD/s]
    contract : contract
    provider : seller; empty: several
    region : region of the seller; empty: any
    offers : number of offers
    is_old : no offer is of the last twelve months of its list
    on_demand : on-demand price of the same sellers [USD/s]; None: unknown; of owned GPUs the usual
        on-demand price
    term : duration of the contract [s]; 0: none
    step : GPUs are rented in multiples of this number
    sellers : number of sellers
    spread : factors on ``value`` between which nine of ten sellers ask
    chosen : the user specified the price, its list or its seller
    in_use : of owned GPUs, share of the hours with work
    outlay : of owned GPUs, purchase price of one with its network; None of rented ones [USD]
    basis : of owned GPUs, kind of the purchase price
    market : median on-demand price of all sellers [USD/s]; None: unknown, or it is on demand
    running : of owned GPUs, electricity, room and operations, for all hours [USD/s]
    """

    value: float
    source: str
    date: str
    low: float
    high: float
    contract: str = Contract.ON_DEMAND
    provider: str = ""
    region: str = ""
    offers: int = 1
    is_old: bool = False
    on_demand: float | None = None
    term: float = 0.0
    step: int = 1
    sellers: int = 1
    spread: tuple[float, float] = (1.0, 1.0)
    chosen: bool = False
    in_use: float = 1.0
    outlay: float | None = None
    basis: str = ""
    market: float | None = None
    running: float | None = None

    @property
    def when(self) -> str:
        """The date in words: ``2026-10-24``, ``old: 2024-12``, ``old: undated``."""
        if not self.is_old:
            return self.date
        return f"old: {self.date or UNDATED}"

    @property
    def is_signed(self) -> bool:
        """Whether unused hours are paid: the contract has a term."""
        return self.term > 0

    @property
    def break_even(self) -> float:
        """Busy share of the term above which it beats on-demand; NaN without term or offer."""
        if not self.is_signed or not self.on_demand:
            return math.nan
        return self.value * self.in_use / self.on_demand

    @property
    def doubts(self) -> tuple[str, ...]:
        """Return reasons to doubt the price, as texts; empty if there are none."""
        doubts = []
        is_listed = bool(self.provider or self.basis or self.sellers > 1) and not self.chosen
        if is_listed and self.sellers < FEWEST_SELLERS:
            number = "one" if self.sellers == 1 else str(self.sellers)
            noun = "source" if self.basis else "seller"
            name = f", {self.provider}" if self.provider else ""
            doubts.append(f"{number} {noun}{'s' * (self.sellers > 1)}{name}")
        if self.market and self.term and self.value > self.market:
            above = f"{self.value / self.market - 1:.0%}".replace("%", " %")
            usual = f"{self.market * HOUR:.2f} USD/h on demand"
            text = f"{above} above {usual}: ask other sellers"
            if self.on_demand and self.on_demand > self.value:
                text = (
                    f"{above} above {usual}, as its sellers ask "
                    f"{self.on_demand * HOUR:.2f} on demand"
                )
            doubts.append(text)
        if self.is_old:
            doubts.append(self.when)
        if self.basis.endswith(ESTIMATE):
            doubts.append("an estimate, no offer")
        if self.contract == Contract.SPOT:
            doubts.append("spot capacity of this size and duration is not guaranteed")
        if self.contract == Contract.OWNED and self.on_demand:
            share = self.value / self.on_demand
            if not LOW_TO_RENT <= share <= HIGH_TO_RENT:
                rent = f"{self.on_demand * HOUR:.2f} USD/h on demand"
                doubts.append(f"{share:.2f} x the rent of {rent}: one of the two is wrong")
        return tuple(doubts)


def one_price(value: float, source: str, contract: str) -> Price:
    """Return a current price [USD/s] that the user specified.

    Parameters
    ----------
    value : price [USD/s]
    source : source of the price
    contract : contract
    """
    return Price(
        value=value, low=value, high=value, source=source, date="", contract=contract,
        term=TERMS.get(Contract(contract), math.nan), chosen=True,
    )  # fmt: skip


def typical(offers: Sequence[Price]) -> Price:
    """Return the typical price of one GPU and contract: the median over sellers.

    Only recent offers count, if there are any. A seller counts once, with the median of its
    regions; the range is that of all offers.
    """
    counted = not_outdated(offers)
    sellers = by_seller(counted)
    first = counted[0]
    sources = {offer.source for offer in counted}
    regions = {offer.region for offer in counted}
    price = median(sellers.values())
    interval = _nine_of_ten([*sellers.values()]) / price if price else (1.0, 1.0)
    return replace(
        first,
        value=price,
        low=min(offer.low for offer in counted),
        high=max(offer.high for offer in counted),
        provider=first.provider if len(sellers) == 1 else "",
        region=first.region if len(regions) == 1 else "",
        source=first.source if len(sources) == 1 else f"{len(sources)} sources",
        date=max(offer.date for offer in counted),
        offers=len(counted),
        sellers=len(sellers),
        step=min(offer.step for offer in counted),
        spread=(float(interval[0]), float(interval[1])),
    )


def _nine_of_ten(values: Sequence[float]) -> FloatArray:
    """The 5th and 95th percentile as by `numpy.quantile`, which would load masked arrays."""
    positions = np.multiply(_NINE_OF_TEN, len(values) - 1)
    return np.asarray(np.interp(positions, np.arange(len(values)), np.sort(values)))


def not_outdated(offers: Sequence[Price]) -> list[Price]:
    """Return the offers that are not old; all offers if all are old."""
    return [offer for offer in offers if not offer.is_old] or list(offers)


def by_seller(offers: Sequence[Price]) -> dict[str, float]:
    """Return each seller's price [USD/s]: the median over its regions."""
    prices: dict[str, list[float]] = {}
    for offer in offers:
        prices.setdefault(offer.provider, []).append(offer.value)
    return {seller: median(values) for seller, values in prices.items()}


@cache_between_runs
def price_of(
    gpu: str,
    contract: str | None = None,
    provider: str | None = None,
    user_folder: Path | None = None,
    folder: Path | None = None,
) -> Price | None:
    """Return the typical price of a GPU from the first list with offers; None if unknown.

    ``user_folder`` is a price list of the user, read first. Owned GPUs have no offers.

    Raises SpecError if a price list has errors, one line for each.

    Parameters
    ----------
    contract : contract, such as ``spot``; None: the usual contract of the GPU
    """
    for requested in _DEFAULT_ORDER if contract is None else (contract,):
        for offers in _lists(gpu, user_folder, folder):
            matching = [offer for offer in offers if offer.contract == requested]
            if provider is not None:
                matching = [o for o in matching if _is(o.provider, provider)]
                matching = [replace(offer, chosen=True) for offer in matching]
            if matching:
                on_demand = _on_demand(matching, offers)
                return replace(
                    typical(matching), on_demand=on_demand, market=_market(matching, offers)
                )
    return None


def _market(chosen: Sequence[Price], offers: Sequence[Price]) -> float | None:
    """Return the median on-demand price of all sellers; None: unknown, or the offers are it."""
    on_demand = [offer for offer in offers if offer.contract == Contract.ON_DEMAND]
    if chosen[0].contract == Contract.ON_DEMAND or chosen[0].chosen or not on_demand:
        return None
    return median(by_seller(not_outdated(on_demand)).values())


def _on_demand(chosen: Sequence[Price], offers: Sequence[Price]) -> float | None:
    """Return the median on-demand price of the sellers of some offers; None if none has one."""
    if chosen[0].contract == Contract.ON_DEMAND:
        return None
    sellers = by_seller(not_outdated(chosen))
    on_demand = [offer for offer in offers if offer.contract == Contract.ON_DEMAND]
    seller_prices = by_seller(not_outdated([o for o in on_demand if o.provider in sellers]))
    return median(seller_prices.values()) if seller_prices else None


def offers_of(gpu: str, user_folder: Path | None = None, folder: Path | None = None) -> list[Price]:
    """Return all offers of a GPU, in the lookup order of the price lists.

    Raises SpecError if a price list has errors.
    """
    return [offer for offers in _lists(gpu, user_folder, folder) for offer in offers]


def contracts_of(
    gpu: str,
    folder: Path | None = None,
    user_folder: Path | None = None,
    provider: str | None = None,
) -> tuple[str, ...]:
    """Return the contracts with a price of a GPU, only those of ``provider`` if named.

    Raises SpecError if a price list has errors.
    """
    contracts = {
        offer.contract
        for offer in offers_of(gpu, user_folder, folder)
        if provider is None or _is(offer.provider, provider)
    }
    if provider is None and can_be_owned(gpu, folder):
        contracts.add(Contract.OWNED)
    return tuple(contract for contract in CONTRACTS if contract in contracts)


def providers_of(
    gpu: str | None = None, user_folder: Path | None = None, folder: Path | None = None
) -> list[str]:
    """Return the sorted sellers of a GPU, or of all GPUs if ``gpu`` is None.

    Raises SpecError if a price list has errors.

    Parameters
    ----------
    gpu : name of the GPU; None: any
    """
    names = [gpu] if gpu is not None else [*gpus_of(user_folder, folder)]
    offers = (offer for name in names for offer in offers_of(name, user_folder, folder))
    return sorted({offer.provider for offer in offers} - {""})


def gpus_of(user_folder: Path | None = None, folder: Path | None = None) -> Iterable[str]:
    """The GPUs that some list has an offer of."""
    return dict.fromkeys(
        name for path in _files(user_folder, folder) for name in _named(path, folder)
    )


@cache_by_files
def unknown_gpus(path: Path, folder: Path | None = None) -> list[str]:
    """Return an error for each GPU in a price or ownership file that has no spec.

    Raises SpecError if the file has errors.
    """
    if path.name == OWNERSHIP:
        words = sorted({gpu for _, gpu in read_ownership(path) if gpu})
    else:
        words = [*read_prices(path, folder)]
    errors = []
    for word in words:
        try:
            find(SpecKind.GPUS, word, folder)
        except SpecError as error:
            errors.append(f"{path}: {error}")
    return errors


def _lists(gpu: str, user_folder: Path | None, folder: Path | None) -> Iterator[tuple[Price, ...]]:
    """Yield a GPU's offers from each price list; those of ``user_folder`` count as current."""
    for path in _files(user_folder, folder):
        offers = _named(path, folder).get(gpu, ())
        # Prices of the user count as current, whatever their date.
        user_offers = (replace(offer, is_old=False, chosen=True) for offer in offers)
        yield tuple(user_offers) if path == user_folder else offers


def _files(user_folder: Path | None, folder: Path | None) -> list[Path]:
    return [*([] if user_folder is None else [user_folder]), *price_files(folder)]


@cache_by_files
def _named(path: Path, folder: Path | None) -> dict[str, tuple[Price, ...]]:
    """Return the offers of a list by spec name; by the list's name if there is no spec."""
    by_gpu: dict[str, tuple[Price, ...]] = {}
    for word, offers in read_prices(path, folder).items():
        name = _spec_name(word, folder)
        by_gpu[name] = (*by_gpu.get(name, ()), *offers)
    return by_gpu


def _spec_name(word: str, folder: Path | None) -> str:
    """Return the spec name of a GPU in a list; the list's name if there is no spec."""
    try:
        return find(SpecKind.GPUS, word, folder).stem
    except SpecError:
        return word


def _is(name: str, provider: str) -> bool:
    return name.casefold() == provider.strip().casefold()


@cache_between_runs
def read_prices(path: Path, folder: Path | None = None) -> Mapping[str, tuple[Price, ...]]:
    """Return the offers in a price file [USD/s], by GPU name in the file.

    Required columns are ``gpu`` and ``price_per_gpu_hour`` (or ``price``). The default contract is
    on-demand, the default currency USD. Exchange rates are in ``currencies.csv`` of ``folder``, or
    in a column ``usd_per_unit``.

    Raises SpecError with one line per error: file, line, problem.
    """
    offers = read_records(path, _PRICES, lambda row: (row["gpu"], _offer(row, path, folder)))
    prices: dict[str, list[Price]] = {}
    ages = are_old([offer["date"] for _, offer in offers])
    for (gpu, offer), is_old in zip(offers, ages, strict=True):
        prices.setdefault(gpu, []).append(Price(**offer, is_old=is_old))
    return {gpu: tuple(of_gpu) for gpu, of_gpu in prices.items()}


def _offer(row: Row, path: Path, folder: Path | None) -> dict[str, Any]:
    """Return the fields of one offer, without its age."""
    price = number(row["price_per_gpu_hour"] or row["price"], "price")
    per_unit = row["usd_per_unit"]
    if per_unit is None:
        per_unit = rate(row["currency"], folder).usd
    value = to_si(price * per_unit, "USD/h", "usd/s")
    return {
        "value": value,
        "low": value,
        "high": value,
        "source": row["source"] or path.name,
        "date": "" if row["date"] == UNDATED else row["date"],
        **{name: row[name] for name in ("contract", *terms_about("price_offer"))},
        "step": max(int(row["gpus_per_instance"] or 1), 1),
        "term": TERMS[Contract(row["contract"])],
    }


_OFFERED = one_of([contract for contract in Contract if contract is not Contract.OWNED])


def _contract(cell: str, column: str) -> str:
    return _OFFERED((cell or Contract.ON_DEMAND).lower().replace("_", "-"), column)


@record(kw_only=True)
class Currency:
    """Exchange rate of a currency.

    Parameters
    ----------
    code : code, such as ``EUR``
    usd : value of one unit [USD]
    date : day of the rate
    source : publication
    """

    code: str
    usd: float
    date: str = ""
    source: str = "given"


def rate(currency: str, folder: Path | None = None) -> Currency:
    """Return the currency of a code, with its exchange rate.

    Raises ValueError if no list has the currency; SpecError if a list has errors.

    Parameters
    ----------
    currency : code, such as ``EUR``
    """
    if currency == USD:
        return Currency(code=USD, usd=1.0)
    currencies: dict[str, Currency] = {}
    for path in extra_files(CURRENCIES, folder):
        currencies = {**read_currencies(path), **currencies}
    if currency not in currencies:
        hint = did_you_mean(currency, currencies)
        raise ValueError(
            f"currency {currency!r} is unknown.{hint} Known: "
            f"{', '.join([USD, *sorted(currencies)])}; "
            "a column usd_per_unit sets the value of one unit of another currency"
        )
    return currencies[currency]


@cache_between_runs
def read_currencies(path: Path) -> Mapping[str, Currency]:
    """Return the currencies in a file by code.

    Raises SpecError with one line per error.
    """
    return dict(read_records(path, _RATES, _rate, once=("currency",)))


def _rate(row: Row) -> tuple[str, Currency]:
    if not row["usd"]:
        raise ValueError(f"usd of {row['currency']} is 0")
    code = row["currency"].upper()
    return code, Currency(code=code, usd=row["usd"], date=row["date"], source=row["source"])


_PRICES = (
    Column("gpu", nonempty_text, needed=True),
    Column("provider"),
    Column("region"),
    Column("contract", _contract),
    Column("price_per_gpu_hour"),
    Column("currency", lambda cell, _: (cell or USD).upper()),
    Column("gpus_per_instance", optional(number)),
    Column("source"),
    Column("date", parse_date),
    Column("price"),
    Column("usd_per_unit", optional(number)),
)
COLUMNS = tuple(column.name for column in _PRICES[:-2])
"""Columns of a price list; in files of users, the last two columns may replace two of these."""
_RATES = (
    Column("currency", nonempty_text, needed=True),
    Column("usd", number, needed=True),
    Column("date", parse_date, needed=True),
    Column("source", nonempty_text, needed=True),
)
