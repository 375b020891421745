"""Cost of owned GPUs, and charge of a run under a contract."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import numpy as np

from planner.base.arrays import FloatArray, Numeric
from planner.base.enums import Contract
from planner.base.records import record
from planner.formulas.cost import (
    capital_cost,
    charged_gpu_seconds,
    committed_gpu_seconds,
    gpu_seconds,
    owned_price,
    residual_share,
)
from planner.formulas.power import range_of_product
from planner.question.names import PURCHASE_PRICE
from planner.specs.catalogue import Catalogue
from planner.specs.gpu import GpuSpec
from planner.specs.operating_terms import OperatingTerms
from planner.specs.power import POWER, PUE, PowerProfile
from planner.specs.price import ASSUMED, DIMENSIONS, ESTIMATE, PRICES, Price, ownership_of
from planner.specs.spec_files import UNDATED, SourcedQuantity

Place: TypeAlias = Mapping[str, SourcedQuantity]
"""Figures of a building and its region, by their names, which replace those of all."""
NOWHERE: Place = {}
_MOST_OF_NODE = 16


def owned_gpu_price(gpu: GpuSpec, catalogue: Catalogue, place: Place = NOWHERE) -> Price | None:
    """Return the `Price` of an owned GPU; None if its purchase price or power is unknown.

    ``place`` has the figures that are known of the building and its region. The range is that of
    every figure's own range, one at a time, put together as independent ones are. Raises SpecError
    if a file has faults.
    """
    figures = used_figures(gpu, catalogue, place)
    if not figures:
        return None
    values = {name: figure.value for name, figure in figures.items()}
    value = _owned_price(gpu, values)
    factors = []
    for name, figure in figures.items():
        bounds = (figure.low, figure.high)
        low, high = sorted(_owned_price(gpu, {**values, name: bound}) / value for bound in bounds)
        factors.append((low, high))
    low, high = range_of_product(*factors)
    bought = next(figures[name] for name in PRICES if name in figures)
    prices = len({bought.low, bought.value, bought.high})
    per_gpu = bought.value / values.get("card_share_of_server", 1.0)
    return Price(
        value=value,
        low=value * low,
        high=value * high,
        source=f"bought for {bought.value:,.0f} USD: {bought.source}",
        date="" if bought.date == UNDATED else bought.date,
        contract=Contract.OWNED,
        is_old=bought.is_old,
        offers=prices,
        sellers=prices,
        spread=(low, high),
        step=bought.gpus,
        term=values["lifetime"],
        in_use=values["utilization"],
        outlay=per_gpu / (1 - values["network_and_storage_share"]),
        basis=_price_basis(bought),
        running=value * values["utilization"] - _capital(values),
    )


def _capital(values: Mapping[str, float]) -> float:
    """Return the capital cost of one owned GPU [USD/s], from its purchase figures."""
    price = values.get(PURCHASE_PRICE) or values["card_price"] / values["card_share_of_server"]
    resale = residual_share(
        after_three_years=values["residual_after_3_years"], lifetime=values["lifetime"]
    )
    return float(
        capital_cost(
            all_in_price=price / (1 - values["network_and_storage_share"]),
            lifetime=values["lifetime"],
            residual_share=resale,
            financing_rate=values["financing_rate"],
        )
    )


def _price_basis(bought: SourcedQuantity) -> str:
    """Return the unit and kind of a purchase price, such as "rack of 72, trade price"."""
    if bought.gpus == 1:
        unit = "GPU"
    else:
        unit = f"{'rack' if bought.gpus > _MOST_OF_NODE else 'node'} of {bought.gpus}"
    labels = {"": "price", "used": "price of used ones", ESTIMATE: ESTIMATE}
    return f"{unit}, {labels.get(bought.price_basis, f'{bought.price_basis} price')}"


def used_figures(
    gpu: GpuSpec, catalogue: Catalogue, place: Place = NOWHERE
) -> Mapping[str, SourcedQuantity]:
    """Return the figures behind an owned GPU's price by name; {} if one is unknown.

    Raises SpecError if a file has errors.
    """
    building = {PUE: pue_figure(catalogue.load_power().spec)}
    figures = {**ownership_of(gpu.name, catalogue.folder), **building, **place}
    price, power = next((name for name in PRICES if name in figures), None), "power_per_gpu"
    unused = {name for name in PRICES if name != price}
    unused |= {"card_share_of_server"} if price == PURCHASE_PRICE else set()
    unused |= {"power_over_tdp"} if power in figures else {power}
    needed = [name for name in (*DIMENSIONS, PUE) if name not in unused]
    has_power = power in figures or gpu.thermal_design_power is not None
    if price is None or not has_power or any(name not in figures for name in needed):
        return {}
    return {name: figures[name] for name in needed}


def pue_figure(profile: PowerProfile, source: str = POWER) -> SourcedQuantity:
    """Power usage effectiveness of the building, the same for energy and for ownership."""
    pue = profile.pue
    return SourcedQuantity(value=pue.value, low=pue.low, high=pue.high, source=source, date="")


def assumed_figures(gpu: GpuSpec, catalogue: Catalogue, place: Place = NOWHERE) -> list[str]:
    """Names of the figures of an owned GPU that are assumed, not published."""
    figures = used_figures(gpu, catalogue, place)
    return [name for name, figure in figures.items() if figure.source == ASSUMED]


def _owned_price(gpu: GpuSpec, values: Mapping[str, float]) -> float:
    """Return the price of one owned GPU [USD/s], from its purchase, power and hosting figures."""
    figures = dict(values)
    if "card_price" in figures:
        figures["purchase_price"] = figures.pop("card_price") / figures.pop("card_share_of_server")
    if "power_over_tdp" in figures:
        figures["power_per_gpu"] = figures.pop("power_over_tdp") * (gpu.thermal_design_power or 0.0)
    return float(owned_price(**figures))


@record(kw_only=True)
class Charge:
    """GPU-seconds ``used`` and ``signed`` for, and what a run is charged for them [USD].

    ``outlay`` is the payment for the contract or the purchase. ``break_even`` is the share of the
    term with work above which it is cheaper than on demand. Without a term both are None, or NaN
    where contracts are compared.
    """

    used: FloatArray
    signed: FloatArray
    cost: FloatArray
    outlay: FloatArray | None = None
    break_even: FloatArray | None = None

    @property
    def unused(self) -> FloatArray:
        """GPU-seconds that are signed for and not used by the run."""
        return self.signed - self.used

    def plus(self, other: Charge) -> Charge:
        """Return the charge of both; the outlay is unknown if one has no term."""
        paid = self.outlay, other.outlay
        return Charge(
            used=self.used + other.used,
            signed=self.signed + other.signed,
            cost=self.cost + other.cost,
            outlay=None if paid[0] is None or paid[1] is None else paid[0] + paid[1],
            break_even=None,
        )


def charge(site: OperatingTerms, *, duration: Numeric, num_gpus: Numeric) -> Charge:
    """Return the cost [USD] of a run of ``duration`` [s] on ``num_gpus`` GPUs of a site.

    A term is charged in full, or by the run's part of it if ``site.utilization`` gives the rest
    other work.
    """
    offer, n = site.offer, site.had(num_gpus)
    used = gpu_seconds(duration=duration, num_gpus=n)
    if offer is None or not offer.is_signed:
        unknown = np.full(used.shape, np.nan) if site.is_compared else None
        return Charge(
            used=used, signed=used, cost=used * site.price, outlay=unknown, break_even=unknown
        )
    signed = committed_gpu_seconds(used_gpu_seconds=used, num_gpus=n, term=offer.term)
    charged = charged_gpu_seconds(
        used_gpu_seconds=used, committed_gpu_seconds=signed, utilization=site.utilization or 0.0
    )
    hourly, price = offer.value * offer.in_use, offer.outlay
    return Charge(
        used=used,
        signed=signed,
        cost=charged * hourly,
        outlay=signed * hourly if price is None else np.broadcast_to(n * price, used.shape),
        break_even=np.full(used.shape, offer.break_even),
    )


def outlay(site: OperatingTerms, num_gpus: Numeric) -> FloatArray | None:
    """Payment for one term of so many GPUs, or for buying them [USD]; None without a term."""
    term = 0.0 if site.offer is None or not site.offer.is_signed else site.offer.term
    return charge(site, duration=term, num_gpus=num_gpus).outlay
