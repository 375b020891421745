"""What one GPU costs for an hour, and what is typical of several such offers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from statistics import median

from planner.base.enums import Contract
from planner.base.records import record

UNDATED = "undated"
_MONTHS = 12
_DATE = re.compile(r"(\d{4})(?:-(0[1-9]|1[0-2])(?:-(?:0[1-9]|[12]\d|3[01]))?)?")


@record(kw_only=True)
class Price:
    """What one GPU costs in USD/s under a contract, who says so, and of when that is.

    ``value`` is that of one offer, or what is typical of ``offers`` of them, which ask from
    ``low`` to ``high`` USD/s. ``provider`` is empty where several sell; ``date`` is that of the
    newest offer, and ``is_old`` tells that there is none of the last twelve months of its list.
    ``on_demand`` is what the same sellers ask on demand in USD/s, None where that is unknown:
    contracts have different sellers, so that a longer one may cost more than is usual on demand.
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

    @property
    def when(self) -> str:
        """The date in words: ``2026-10-24``, ``old: 2024-12``, ``old: undated``."""
        if not self.is_old:
            return self.date
        return f"old: {self.date or UNDATED}"


def one_price(value: float, source: str, contract: str) -> Price:
    """A single price in USD/s that somebody states, today's."""
    return Price(value=value, low=value, high=value, source=source, date="", contract=contract)


def typical(offers: Sequence[Price]) -> Price:
    """What is usual among offers of one GPU and contract: the median of their sellers.

    Recent offers count alone where there are any. A seller counts once, with the median of its
    regions; the range is that of all offers.
    """
    counted = recent(offers)
    sellers = by_seller(counted)
    first = counted[0]
    sources = {offer.source for offer in counted}
    regions = {offer.region for offer in counted}
    return replace(
        first,
        value=median(sellers.values()),
        low=min(offer.low for offer in counted),
        high=max(offer.high for offer in counted),
        provider=first.provider if len(sellers) == 1 else "",
        region=first.region if len(regions) == 1 else "",
        source=first.source if len(sources) == 1 else f"{len(sources)} sources",
        date=max(offer.date for offer in counted),
        offers=len(counted),
    )


def recent(offers: Sequence[Price]) -> list[Price]:
    """Those that are not old, or all where every one is."""
    return [offer for offer in offers if not offer.is_old] or list(offers)


def by_seller(offers: Sequence[Price]) -> dict[str, float]:
    """What each seller asks, the median of its regions, in USD/s."""
    asked: dict[str, list[float]] = {}
    for offer in offers:
        asked.setdefault(offer.provider, []).append(offer.value)
    return {seller: median(values) for seller, values in asked.items()}


def month(date: str) -> int | None:
    """The number of a date's month, that of January where only the year is known; None undated.

    Raises
    ------
    ValueError
        It is no date.

    >>> month("2026-01-31") - month("2025")
    12
    """
    if date in ("", UNDATED):
        return None
    match = _DATE.fullmatch(date)
    if match is None:
        raise ValueError(f"date {date!r} is not a year, a month or a day, as in 2026-10-24")
    return int(match[1]) * _MONTHS + int(match[2] or 1) - 1


def with_age(offers: Sequence[Price]) -> list[Price]:
    """Offers of a list, each told whether it is old: a year behind the newest, or undated.

    Today's date does not matter, so that answers do not change with it. A list without dates
    has no old offers.
    """
    months = [month(offer.date) for offer in offers]
    newest = max((number for number in months if number is not None), default=None)
    if newest is None:
        return list(offers)
    return [
        replace(offer, is_old=number is None or number < newest - _MONTHS)
        for offer, number in zip(offers, months, strict=True)
    ]
