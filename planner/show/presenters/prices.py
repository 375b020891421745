"""Sources of prices, commitments of contracts, and a deployment compared with API prices."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from planner.base.csv_cells import Row
from planner.base.enums import Contract
from planner.base.formatting import format_count, format_significant, format_usd
from planner.base.units import DAY, HOUR, YEAR
from planner.question.names import TERM_UTILIZATION
from planner.question.terms import glossary
from planner.show.output_blocks import BEST, GAP, TIE, Block, Cell, Title, make_lines, text_table
from planner.show.presenters.format_results import (
    ends_in,
    format_result,
    number_of,
    share,
    token_costs,
)
from planner.workloads.make_plan import Plan

if TYPE_CHECKING:
    from planner.decide.api_comparison import ApiComparison, Offer

_UTILIZATION = glossary()[TERM_UTILIZATION].option_name
_MONEY = {
    "cost_usd": "cost",
    "cost_per_hour_usd": "an hour",
    "cost_per_million_tokens_usd": "a million tokens",
    "outlay_usd": "outlay",
}
_MILLION = 1e6
DIFFERENT_BASES = "Owned prices have different bases"
"""The start of `basis_line`."""

_NO_TERMS_OF_A_SELLER = (Contract.OWNED, Contract.ON_DEMAND)


PRICES_TITLE = "Prices per GPU-hour in USD, without tax"
"""The title of a table of prices, and the begin of a sentence of them."""


def format_price(row: Row) -> str:
    """Return the price of a row: ``3.85 USD (median of 48 offers, 2026-11)``."""
    price = number_of(row, "price_per_gpu_hour_usd")
    if not math.isfinite(price):
        return ""
    offers, basis = number_of(row, "price_offers"), str(row.get("price_basis") or "")
    details = [str(row.get("provider") or ""), basis]
    if offers > 1:
        details.append(f"{offers:g} sources" if basis else f"median of {offers:g} offers")
    details.append(str(row.get("price_date") or ""))
    return f"{price:.2f} USD ({', '.join(filter(None, details)) or 'as specified'})"


def prices_lines(rows: Iterable[Row]) -> list[str]:
    """Return lines with the price per GPU-hour of each GPU and contract, and doubts."""
    rows_by_hardware = {(str(row["gpu"]), str(row.get("contract") or "")): row for row in rows}
    texts = [
        " ".join(filter(None, (gpu, contract, price)))
        for (gpu, contract), row in rows_by_hardware.items()
        if (price := format_price(row))
    ]
    lines = [f"{PRICES_TITLE}: {'; '.join(texts)}"] if texts else []
    return [*lines, *_doubts_lines(rows_by_hardware)]


def _doubts_lines(rows_by_hardware: Mapping[tuple[str, str], Row]) -> list[str]:
    """Return a line with the doubtful prices by GPU and contract; empty if there are none."""
    doubtful = [
        f"{gpu} {contract}: {doubts}"
        for (gpu, contract), row in rows_by_hardware.items()
        if (doubts := row.get("price_doubts"))
    ]
    return [f"Ask before signing: {'; '.join(doubtful)}"] if doubtful else []


def basis_line(rows: Iterable[Row]) -> str:
    """Return a warning if owned GPUs are priced on different bases; otherwise ""."""
    basis_by_gpu = {
        str(row["gpu"]): str(row["price_basis"])
        for row in rows
        if row.get("contract") == Contract.OWNED and row.get("price_basis")
    }
    if len(set(basis_by_gpu.values())) < 2:
        return ""
    by_basis: dict[str, list[str]] = {}
    for gpu, basis in basis_by_gpu.items():
        by_basis.setdefault(basis, []).append(gpu)
    texts = [f"{basis}: {', '.join(gpus)}" for basis, gpus in by_basis.items()]
    return (
        f"{DIFFERENT_BASES} ({'; '.join(texts)}): compare prices of one kind, "
        "or give quotes in an ownership.csv of --specs"
    )


def within_sellers_line(rows: Iterable[Row]) -> str:
    """Return contract prices relative to the same sellers' on-demand prices; "" if unknown."""
    by_contract: dict[str, dict[str, None]] = {}
    for row in rows:
        price, rent = (
            number_of(row, name) for name in ("price_per_gpu_hour_usd", "rent_per_gpu_hour_usd")
        )
        if math.isfinite(rent) and row.get("contract") not in _NO_TERMS_OF_A_SELLER:
            change = f"{row['gpu']} {100 * (price / rent - 1):+.0f} %"
            by_contract.setdefault(str(row.get("contract") or ""), {})[change] = None
    if not by_contract:
        return ""
    texts = [f"{contract} {', '.join(gpus)}" for contract, gpus in by_contract.items()]
    return f"Compared with on-demand prices of the same sellers: {'; '.join(texts)}"


def plan_prices_lines(plan: Plan) -> list[str]:
    """Return price lines of a plan's GPUs; a single price is listed with the defaults."""
    rows = [
        {"gpu": gpu, **site.columns, **site.grounds}
        for source in plan.problem.sources
        for gpu, site in zip(source.gpus, source.sites, strict=False)
    ]
    rows_by_hardware = {(str(row["gpu"]), str(row.get("contract") or "")): row for row in rows}
    if len(rows_by_hardware) < 2:
        return _doubts_lines(rows_by_hardware)
    return [*prices_lines(rows), *filter(None, [basis_line(rows)])]


def commitment_lines(row: Row) -> list[str]:
    """Return sentences on a plan's contract: GPUs charged but not used, term and currency."""
    step, needed = number_of(row, "gpus_sold_together"), number_of(row, "num_gpus")
    lines = [*_contract_lines(row), *_currency_lines(row)]
    if step > 1 and needed % step:
        paid = format_count(math.ceil(needed / step) * step)
        lines = [f"GPUs come in multiples of {step:g}: {paid} or more are charged", *lines]
    return lines


def terms_lines(rows: Iterable[Row]) -> list[str]:
    """Return the prices of several plans, and the commitment of each GPU and contract."""
    rows_by_hardware = {f"{row['gpu']} {row.get('contract') or ''}".strip(): row for row in rows}
    lines = prices_lines(rows_by_hardware.values())
    for hardware, row in rows_by_hardware.items():
        prefix = f"{hardware}: " if len(rows_by_hardware) > 1 else ""
        lines += [f"{prefix}{line}" for line in commitment_lines(row)]
    return lines


def token_cost_line(row: Row) -> str:
    """Return the cost of a million output tokens and of a million of all tokens; "" if unknown.

    >>> token_cost_line({"cost_per_hour_usd": 36, "output_tokens_per_s": 1000})
    'Cost: 10.0 USD per million output tokens'
    """
    cost = number_of(row, "cost_per_hour_usd")
    texts = []
    for column, noun in (
        ("output_tokens_per_s", "output tokens"),
        ("tokens_per_s", "tokens, input tokens included"),
    ):
        rate = number_of(row, column)
        if math.isfinite(cost) and rate > 0:
            million = format_significant(cost / HOUR / rate * _MILLION)
            texts.append(f"{million} USD per million {noun}")
    return f"Cost: {'; '.join(texts)}" if texts else ""


def _currency_lines(row: Row) -> list[str]:
    """Return the costs of a plan converted to the requested currency."""
    code, usd = str(row.get("currency") or ""), number_of(row, "usd_per_currency")
    if not (code and usd > 0):
        return []
    columns = [name for name in _MONEY if math.isfinite(number_of(row, name))]
    texts = []
    for name in columns:
        ends = ends_in(name, row)
        scaled = None if ends is None else (ends[0] / usd, ends[1] / usd)
        amount = format_result(name, number_of(row, name) / usd, scaled).replace(" USD", f" {code}")
        unit = "" if code in amount else f" {code}"
        texts.append(f"{_MONEY[name]} {amount}{unit}")
    price = number_of(row, "price_per_gpu_hour_usd") / usd
    texts.append(f"a GPU-hour {price:.2f} {code}")
    date = f", {row['currency_date']}" if row.get("currency_date") else ""
    return [f"At {usd:g} USD for 1 {code}{date}: {'; '.join(texts)}"]


def _contract_lines(row: Row) -> list[str]:
    """Return a sentence on a plan's contract: the amount signed, the used share, the charge."""
    paid, days = number_of(row, "outlay_usd"), number_of(row, "contract_term_days")
    if not (paid > 0 and days > 0):
        return []
    contract = str(row.get("contract") or "")
    verb = "Purchase" if contract == Contract.OWNED else f"Signed for {contract}"
    signed = number_of(row, "signed_gpu_hours")
    if not signed > 0:
        return [
            f"{verb}: {format_result('outlay_usd', paid)} for "
            f"{_format_term(days)}{_format_service(row)}"
        ]
    used = signed - number_of(row, "unused_gpu_hours")
    gpus = max(round(used / (24 * number_of(row, "calendar_time_days"))), 1)
    terms = (
        f"{format_result('outlay_usd', paid)} for {format_count(gpus)} GPUs for "
        f"{_format_term(signed / gpus / 24)}; the run uses {share(used / signed)} of the hours"
    )
    return [f"{verb}: {terms}, {_format_charge(row, signed, used)}{_format_break_even(row)}"]


def charged_in_full_line(rows: Mapping[str, Row]) -> str:
    """Return a line on contracts that charge a run their full term; "" if there are none."""
    contracts = [
        contract
        for contract, row in rows.items()
        if number_of(row, "signed_gpu_hours") > 0
        and math.isnan(number_of(row, "charged_utilization"))
    ]
    if not contracts:
        return ""
    return (
        f"Charged for the whole term: {', '.join(contracts)}. Where other work fills the rest, "
        f"{_UTILIZATION} charges the run its part"
    )


def _format_charge(row: Row, signed: float, used: float) -> str:
    """Return how a contract charges a plan: all ``signed`` GPU-hours, or the used part."""
    price, in_use = (
        number_of(row, name) for name in ("price_per_gpu_hour_usd", "priced_utilization")
    )
    full_cost = format_result("cost_usd", signed * price * in_use)
    utilization = number_of(row, "charged_utilization")
    if math.isnan(utilization):
        part = format_result("cost_usd", used * price)
        return (
            f"and pays all of them ({full_cost}). If other work uses the rest "
            f"({_UTILIZATION} {in_use:g}, {share(in_use)} in use), it costs {part}"
        )
    return f"and pays its part: {share(utilization)} have work. Alone it costs {full_cost}"


def _format_service(row: Row) -> str:
    utilization = number_of(row, "charged_utilization")
    if math.isnan(utilization):
        return f", assumed to be used the whole time (change with {_UTILIZATION})"
    return f"; {share(utilization)} of its hours have work and pay for all"


def _format_term(days: float) -> str:
    number, unit = (days * DAY / YEAR, "year") if days * DAY >= 0.99 * YEAR else (days, "day")
    return f"{number:.3g} {unit}{'s' * (f'{number:.3g}' != '1')}"


def _format_break_even(row: Row) -> str:
    """Return from which use the contract costs less than on-demand GPUs, as text."""
    even = number_of(row, "contract_break_even")
    if math.isnan(even):
        return ". No seller is known to offer it on demand"
    rent = f"on demand ({number_of(row, 'rent_per_gpu_hour_usd'):.2f} USD/h)"
    if even > 1:
        return f". It is never cheaper than {rent}"
    return f". It is cheaper than {rent} from {share(even)} of use on"


_MOST = 6
_THOUSAND = 1e3
_HEADS = (
    "offer", "USD/1,000\nrequests", "cheaper\nfull load", "break-even\nrequests/s", "load",
    "priced",
)  # fmt: skip
_CHEAPER = {"self-host": "self-host", "api": "API", "tie": "tie", "": "-"}
_MARKS = {"self-host": BEST, "tie": TIE}


def api_comparison_blocks(compared: ApiComparison, *, is_full: bool = False) -> Iterator[Block]:
    """Yield the token mix, the cost of self-hosting, and a table row for each API offer.

    The short form shows the cheapest, the median and the dearest offers that are not old.
    """
    mix = f"{format_count(compared.input_tokens)} input"
    if compared.cached_tokens:
        mix += f" ({format_count(compared.cached_tokens)} cached)"
    mix += f" and {format_count(compared.output_tokens)} output tokens a request"
    yield Title(text=f"Self-host or API: {mix}")
    for line in _deployment_lines(compared):
        yield make_lines(line)
    if not compared.offers:
        yield make_lines(compared.note)
        return
    shown = compared.offers if is_full else _shown_offers(compared)
    yield from _offers_blocks(compared, shown)
    for line in _note_lines(compared, shown):
        yield make_lines(line)


def _deployment_lines(compared: ApiComparison) -> list[str]:
    """Return sentences on the self-hosting cost at full load and at the requested load."""
    if not math.isfinite(compared.cost_rate):
        return ["Self-host: the price of the GPUs is unknown: give --price."]
    low, high = compared.cost_ends
    interval = (
        f" ({_usd_per_thousand(low)} to {_usd_per_thousand(high)})" if math.isfinite(low) else ""
    )
    lines = [
        f"Self-host: {format_usd(compared.cost_rate * HOUR)} per hour, busy or not. At full load, "
        f"{format_significant(compared.request_rate)} requests/s, "
        f"{_usd_per_thousand(compared.cost)}{interval} USD per 1,000 requests; at half of it twice "
        f"as much. A million tokens cost {token_costs(compared.token_costs)}."
    ]
    lowest, highest = compared.cost_rate_range
    if lowest < highest:
        lowest_text = format_usd(lowest * HOUR).removesuffix(" USD")
        lowest_cost, highest_cost = (
            _usd_per_thousand(rate / compared.request_rate) for rate in (lowest, highest)
        )
        lines.append(
            f"These GPUs are offered from {lowest_text} to {format_usd(highest * HOUR)} per hour: "
            f"{lowest_cost} to {highest_cost} USD per 1,000 requests."
        )
    rate = compared.requested_rate
    if rate is not None and rate < compared.request_rate:
        cost, offers = compared.cost_rate / rate, compared.current or compared.offers
        dearer = sum(offer.cost > cost for offer in offers)
        lines.append(
            f"At the {format_significant(rate)} requests/s requested {_usd_per_thousand(cost)} USD "
            f"per 1,000 requests: less than {dearer} of {len(offers)} offers."
        )
    return lines


def _shown_offers(compared: ApiComparison) -> list[Offer]:
    """Return a few offers: the cheapest one of each provider, the median and the dearest."""
    offers = compared.current or compared.offers
    marked = [*compared.marked.values()]
    first = {offer.price.provider: offer for offer in reversed(offers)}
    others = [offer for offer in first.values() if offer not in marked]
    others.sort(key=offers.index)
    chosen = [*marked, *others[: max(_MOST - len(marked), 0)]]
    return [offer for offer in offers if offer in chosen]


def _offers_blocks(compared: ApiComparison, offers: Sequence[Offer]) -> Iterator[Block]:
    """Yield a table of API offers: price, verdict against self-hosting, and break-even load."""
    median = compared.marked["median"]
    rows = [
        (
            f"{offer.price.provider}{' (median)' * (offer is median)} "
            f"{offer.price.served_as.rpartition('/')[2]}",
            _usd_per_thousand(offer.cost) + "*" * _is_charged_in_full(compared, offer),
            Cell(text=_CHEAPER[cheaper], mark=_MARKS.get(cheaper, "")),
            _rate(offer.break_even),
            _share(offer.utilization),
            _date(offer),
        )
        for offer in offers
        for cheaper in [compared.cheaper_option(offer)]
    ]
    yield GAP
    yield replace(text_table(_HEADS, rows, text_columns=(0, 2, 5)), is_low=True)


def _note_lines(compared: ApiComparison, shown: Sequence[Offer]) -> list[str]:
    """Return notes below the table: marks, break-even, and offers that are not shown."""
    lines = []
    if any(_is_charged_in_full(compared, offer) for offer in shown):
        lines.append("* no price for cached tokens is published: they are charged as other input")
    if any(compared.cheaper_option(offer) == "tie" for offer in shown):
        lines.append("tie: the offer is inside the interval of the self-hosting cost")
    if math.isfinite((compared.current or compared.offers)[0].break_even):
        lines.append(_break_even(compared))
    if others := compared.other_releases:
        lines.append(f"{others} offers are for other releases of the same architecture.")
    hidden = [offer for offer in compared.offers if offer not in shown]
    if hidden:
        old = sum(offer.price.is_old for offer in hidden)
        lines.append(f"{len(hidden)} more offers, {old} of them old or undated: --full, --json.")
    return lines


def _break_even(compared: ApiComparison) -> str:
    """Return a sentence on the load above which self-hosting costs less than any offer."""
    cheapest, replicas = (compared.current or compared.offers)[0], compared.replicas
    low, high = cheapest.utilization_ends
    interval = f" ({_share(low)} to {_share(high)})" if math.isfinite(low) else ""
    load, name = _share(cheapest.utilization), f"the cheapest ({cheapest.price.provider})"
    if cheapest.utilization > 1:
        text = f"These GPUs never cost less than {name}: they would have to serve {load}"
        text += f"{interval} of their capacity."
    else:
        text = f"These GPUs cost less than {name} from {load}{interval} of full load."
    if replicas > 1:
        replica_rate = _rate(cheapest.break_even / replicas)
        text += f" One of the {replicas} replicas alone would need {replica_rate} requests/s."
    return text


def _is_charged_in_full(compared: ApiComparison, offer: Offer) -> bool:
    return bool(compared.cached_tokens) and offer.price.cached_input is None


def _usd_per_thousand(cost: float) -> str:
    """USD of 1,000 requests from the USD of one request, as text."""
    thousand = cost * _THOUSAND
    return f"{thousand:.3g}" if thousand < 1 else format_significant(thousand)


def _rate(rate: float) -> str:
    """Return a break-even rate as text; ``never`` if infinite, ``-`` if unknown."""
    if math.isnan(rate):
        return "-"
    return "never" if math.isinf(rate) else f"{rate:.3g}" if rate < 1 else format_significant(rate)


def _share(share: float) -> str:
    if not math.isfinite(share):
        return "-"
    return f"{100 * share:.0f} %" if share >= 0.1 else f"{100 * share:.2g} %"


def _date(offer: Offer) -> str:
    date = offer.price.date
    if not date or date.startswith("<"):
        return "undated"
    return f"old: {date}" if offer.price.is_old else date
