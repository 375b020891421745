"""What a GPU costs: what is typical under each contract, and every offer."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from planner import text
from planner.report.console import make_table, print_title
from planner.specs.catalogue import Catalogue
from planner.specs.offer import UNDATED, Price
from planner.specs.price import CONTRACTS, contracts_of
from planner.units import HOUR

_TYPICAL = ("contract", "typical", "from", "to", "offers", "newest")
_OFFER = ("contract", "USD /h", "provider", "region", "date")
_WORDS = ("contract", "provider", "region", "date", "newest")


def print_prices(console: Console, gpu: str, catalogue: Catalogue) -> None:
    """The prices of a GPU: one line a contract, then one an offer, the newest in front."""
    print_title(console, "Prices, USD per GPU-hour")
    contracts = contracts_of(gpu, catalogue.folder)
    if not contracts:
        console.print("No rent was found.")
        return
    found = [catalogue.price(gpu, contract) for contract in contracts]
    _print(console, _TYPICAL, [_typical(price) for price in found if price is not None])
    print_title(console, "Offers")
    offers = sorted(catalogue.offers(gpu), key=lambda offer: offer.provider)
    offers.sort(key=lambda offer: offer.date, reverse=True)
    offers.sort(key=lambda offer: (CONTRACTS.index(offer.contract), offer.is_old))
    _print(console, _OFFER, [_offer(offer) for offer in offers])


def _typical(price: Price) -> list[str]:
    ends = (price.low, price.high)
    return [
        price.contract,
        _hourly(price.value),
        *map(_hourly, ends),
        text.count(price.offers),
        price.when or UNDATED,
    ]


def _offer(offer: Price) -> list[str]:
    when = offer.when or UNDATED
    return [offer.contract, _hourly(offer.value), offer.provider, offer.region, when]


def _hourly(rate: float) -> str:
    return f"{rate * HOUR:.2f}"


def _print(console: Console, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    table = make_table(console)
    for name in head:
        table.add_column(name, justify="left" if name in _WORDS else "right", overflow="fold")
    for row in rows:
        table.add_row(*row)
    console.print(table)
