"""What a GPU costs: what is typical under each contract, every offer, and what owning it takes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from planner import text
from planner.estimators.ownership import owned, used_figures
from planner.show.page import (
    Block,
    Table,
    Title,
    grid,
    said,
)
from planner.specs.catalogue import Catalogue
from planner.specs.gpu import GpuSpec
from planner.specs.offer import UNDATED, Price
from planner.specs.ownership import ASSUMED, DIMENSIONS, Figure
from planner.specs.price import CONTRACTS, contracts_of
from planner.units import HOUR, KILOWATT_HOUR, MONTH, YEAR

_TYPICAL = ("contract", "typical", "from", "to", "offers", "newest")
_OFFER = ("contract", "USD /h", "provider", "region", "date")
_FIGURE = ("quantity", "value", "unit", "range")
_NUMBERS = ("USD /h", "typical", "from", "to", "offers", "value")
_UNITS = {
    "usd": (1.0, "USD"),
    "1": (1.0, ""),
    "1/year": (1.0, "1/year"),
    "second": (YEAR, "years"),
    "watt": (1.0, "W"),
    "usd/J": (1 / KILOWATT_HOUR, "USD/kWh"),
    "usd/watt/s": (1 / (1e3 * MONTH), "USD/kW/month"),
}


def prices_blocks(gpu: GpuSpec, catalogue: Catalogue) -> Iterator[Block]:
    """The prices of a GPU: one line a contract, then one an offer, the newest in front."""
    yield Title(text="Prices, USD per GPU-hour")
    contracts = contracts_of(gpu.name, catalogue.folder)
    prices = [catalogue.price(gpu.name, contract) for contract in contracts]
    rows = [_typical(price) for price in (*prices, owned(gpu, catalogue)) if price is not None]
    offers = sorted(catalogue.offers(gpu.name), key=lambda offer: offer.provider)
    if rows:
        yield _table(_TYPICAL, rows)
    if not offers:
        yield said("No rent was found.", indent="")
    else:
        yield Title(text="Offers")
        offers.sort(key=lambda offer: offer.date, reverse=True)
        offers.sort(key=lambda offer: (CONTRACTS.index(offer.contract), offer.is_old))
        yield _table(_OFFER, [_offer(offer) for offer in offers])
    if figures := used_figures(gpu, catalogue):
        yield Title(text="To own it")
        yield _table(_FIGURE, [_figure(name, figure) for name, figure in figures.items()])
        for name, figure in figures.items():
            when = f", {figure.date}" if figure.date else ""
            source = "ASSUMED" if figure.source == ASSUMED else figure.source
            yield said(f"[{name}] {source}{when}", indent="")


def _figure(name: str, figure: Figure) -> list[str]:
    scale, unit = _UNITS[DIMENSIONS.get(name, "1")]
    ends = ""
    if figure.low < figure.high:
        ends = f"{figure.low / scale:,.6g} to {figure.high / scale:,.6g}"
    return [name, f"{figure.value / scale:,.6g}", unit, ends]


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


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    return grid(heads, rows, words=[n for n, name in enumerate(heads) if name not in _NUMBERS])
