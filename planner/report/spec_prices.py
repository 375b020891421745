"""What a GPU costs: what is typical under each contract, every offer, and what owning it takes."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from planner.base import text
from planner.base.units import HOUR, KILOWATT_HOUR, MONTH, YEAR
from planner.estimators.ownership import owned, used_figures
from planner.report.console import make_table, print_title
from planner.specs.catalogue import Catalogue
from planner.specs.csv_table import UNDATED
from planner.specs.gpu import GpuSpec
from planner.specs.ownership import ASSUMED, DIMENSIONS, Figure
from planner.specs.price import CONTRACTS, Price, contracts_of

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


def print_prices(console: Console, gpu: GpuSpec, catalogue: Catalogue) -> None:
    """The prices of a GPU: one line a contract, then one an offer, the newest in front."""
    print_title(console, "Prices, USD per GPU-hour")
    contracts = contracts_of(gpu.name, catalogue.folder)
    prices = [catalogue.price(gpu.name, contract) for contract in contracts]
    rows = [_typical(price) for price in (*prices, owned(gpu, catalogue)) if price is not None]
    offers = sorted(catalogue.offers(gpu.name), key=lambda offer: offer.provider)
    if rows:
        _print(console, _TYPICAL, rows)
    if not offers:
        console.print("No rent was found.")
    else:
        print_title(console, "Offers")
        offers.sort(key=lambda offer: offer.date, reverse=True)
        offers.sort(key=lambda offer: (CONTRACTS.index(offer.contract), offer.is_old))
        _print(console, _OFFER, [_offer(offer) for offer in offers])
    if figures := used_figures(gpu, catalogue):
        print_title(console, "To own it")
        _print(console, _FIGURE, [_figure(name, figure) for name, figure in figures.items()])
        for name, figure in figures.items():
            when = f", {figure.date}" if figure.date else ""
            source = "ASSUMED" if figure.source == ASSUMED else figure.source
            console.print(f"[{name}] {source}{when}", markup=False)


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


def _print(console: Console, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    table = make_table(console)
    for name in head:
        table.add_column(name, justify="right" if name in _NUMBERS else "left", overflow="fold")
    for row in rows:
        table.add_row(*row)
    console.print(table)
