"""What money rests on: whose price, of when, of what; and what a contract makes one sign."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from planner.base import text
from planner.base.enums import Contract
from planner.base.units import DAY, HOUR, YEAR
from planner.question.terms import glossary
from planner.show.views.told import number_of, share, told
from planner.specs.price import Price
from planner.specs.site import Site
from planner.workloads.plan import Plan

_UTILIZATION = glossary()["term_utilization"].option
Row = Mapping[str, object]


def price_words(row: Row) -> str:
    """The price of a row, whose it is and of when: ``3.85 USD (median of 48 offers, 2026-11)``."""
    price = number_of(row, "price_per_gpu_hour_usd")
    if not math.isfinite(price):
        return ""
    offers, basis = number_of(row, "price_offers"), str(row.get("price_basis") or "")
    known = [str(row.get("provider") or ""), basis]
    if offers > 1:
        known.append(f"{offers:g} sources" if basis else f"median of {offers:g} offers")
    known.append(str(row.get("price_date") or ""))
    return f"{price:.2f} USD ({', '.join(filter(None, known)) or 'as given'})"


def prices_lines(rows: Iterable[Row]) -> list[str]:
    """What each GPU costs under each contract, why not to trust that, and what is not alike."""
    by_place = {(str(row["gpu"]), str(row["contract"])): row for row in rows}
    words = [
        f"{gpu} {contract} {price}"
        for (gpu, contract), row in by_place.items()
        if (price := price_words(row))
    ]
    lines = [f"Prices per GPU-hour: {'; '.join(words)}"] if words else []
    doubtful = [
        f"{gpu} {contract}: {doubts}"
        for (gpu, contract), row in by_place.items()
        if (doubts := row.get("price_doubts"))
    ]
    if doubtful:
        lines.append(f"Ask before signing: {'; '.join(doubtful)}")
    if line := basis_line(by_place.values()):
        lines.append(line)
    return lines


def basis_line(rows: Iterable[Row]) -> str:
    """That owned prices are of different things or kinds; empty where they are alike."""
    found = {
        str(row["gpu"]): str(row["price_basis"])
        for row in rows
        if row.get("contract") == Contract.OWNED and row.get("price_basis")
    }
    if len(set(found.values())) < 2:
        return ""
    by_basis: dict[str, list[str]] = {}
    for gpu, basis in found.items():
        by_basis.setdefault(basis, []).append(gpu)
    words = [f"{basis}: {', '.join(gpus)}" for basis, gpus in by_basis.items()]
    return (
        f"Owned prices differ in what was priced ({'; '.join(words)}): compare those of one kind, "
        "or give quotes in an ownership.csv of --specs"
    )


def plan_prices_lines(plan: Plan) -> list[str]:
    """The same of a plan's GPUs where there are several; of one its defaults tell."""
    rows = [
        {"gpu": gpu, **site.columns, **site.grounds}
        for source in plan.problem.sources
        for gpu, site in zip(source.gpus, source.sites, strict=False)
    ]
    return prices_lines(rows) if len({row["gpu"] for row in rows}) > 1 else []


def contract_lines(row: Row, site: Site) -> list[str]:
    """What a run of training makes one sign, how much of that it uses, what it is charged."""
    signed, offer = number_of(row, "signed_gpu_hours"), site.offer
    if offer is None or not signed > 0:
        return []
    used = 1 - number_of(row, "unused_gpu_hours") / signed
    terms = (
        f"{told('outlay_usd', row['outlay_usd'])} for {signed_words(signed, offer)}; "
        f"the run uses {share(used)} of the hours"
    )
    verb = "Bought" if offer.contract == Contract.OWNED else f"Signed for {offer.contract}"
    return [f"{verb}: {terms}, {_charged_words(row, site, offer)}{_even_words(offer)}"]


def signed_words(signed: float, offer: Price) -> str:
    """GPUs and for how long: ``520 GPUs for 1 year``."""
    unit, length = ("year", YEAR) if offer.term >= YEAR else ("day", DAY)
    terms = max(round(signed * HOUR / offer.term / offer.step), 1) * offer.step
    number = offer.term / length
    return f"{text.count(terms)} GPUs for {number:g} {unit}{'s' * (number != 1)}"


def _charged_words(row: Row, site: Site, offer: Price) -> str:
    signed, price = number_of(row, "signed_gpu_hours"), offer.value * offer.in_use * HOUR
    whole = told("cost_usd", signed * price)
    if site.utilization is None:
        used = signed - number_of(row, "unused_gpu_hours")
        part = told("cost_usd", used * price / offer.in_use)
        return (
            f"and is charged all of them ({whole}). With work for {share(offer.in_use)} of them, "
            f"{_UTILIZATION} {offer.in_use:g}, it costs {part}"
        )
    return f"and is charged its part: {share(site.utilization)} have work. Alone it costs {whole}"


def _even_words(offer: Price) -> str:
    even = offer.break_even
    if math.isnan(even):
        return ". No seller of it is known to have it on demand"
    rent = f"on demand ({offer.on_demand * HOUR:.2f} USD/h)" if offer.on_demand else ""
    if even > 1:
        return f". It is never cheaper than {rent}"
    return f". It is cheaper than {rent} from {share(even)} of use on"


def solid(rows: Sequence[Row]) -> list[Row]:
    """Those whose prices nobody needs to doubt."""
    return [row for row in rows if not row.get("price_doubts")]
