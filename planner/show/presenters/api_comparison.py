"""Self-host or API as a table: prices of API offers and the break-even load."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from planner.base import formatting
from planner.base.units import HOUR
from planner.decide.api_comparison import ApiComparison, Offer
from planner.show.output_blocks import BEST, GAP, TIE, Block, Cell, Title, make_lines, text_table
from planner.show.presenters.format_results import token_costs

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
    mix = f"{formatting.format_count(compared.input_tokens)} input"
    if compared.cached_tokens:
        mix += f" ({formatting.format_count(compared.cached_tokens)} cached)"
    mix += f" and {formatting.format_count(compared.output_tokens)} output tokens a request"
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
        f"Self-host: {formatting.format_usd(compared.cost_rate * HOUR)} per hour, busy or "
        "not. At full "
        f"load, {formatting.format_significant(compared.request_rate)} requests/s, "
        f"{_usd_per_thousand(compared.cost)}"
        f"{interval} USD per 1,000 requests; at half of it twice as much. "
        f"A million tokens cost {token_costs(compared.token_costs)}."
    ]
    lowest, highest = compared.cost_rate_range
    if lowest < highest:
        lowest_text = formatting.format_usd(lowest * HOUR).removesuffix(" USD")
        lowest_cost, highest_cost = (
            _usd_per_thousand(rate / compared.request_rate) for rate in (lowest, highest)
        )
        lines.append(
            f"These GPUs are offered from {lowest_text} to "
            f"{formatting.format_usd(highest * HOUR)} per hour: {lowest_cost} to "
            f"{highest_cost} USD per 1,000 "
            "requests."
        )
    rate = compared.requested_rate
    if rate is not None and rate < compared.request_rate:
        cost, offers = compared.cost_rate / rate, compared.current or compared.offers
        dearer = sum(offer.cost > cost for offer in offers)
        lines.append(
            f"At the {formatting.format_significant(rate)} requests/s requested "
            f"{_usd_per_thousand(cost)} USD "
            "per 1,000 "
            f"requests: less than {dearer} of {len(offers)} offers."
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
    return f"{thousand:.3g}" if thousand < 1 else formatting.format_significant(thousand)


def _rate(rate: float) -> str:
    """Return a break-even rate as text; ``never`` if infinite, ``-`` if unknown."""
    if math.isnan(rate):
        return "-"
    return (
        "never"
        if math.isinf(rate)
        else f"{rate:.3g}"
        if rate < 1
        else formatting.format_significant(rate)
    )


def _share(share: float) -> str:
    if not math.isfinite(share):
        return "-"
    return f"{100 * share:.0f} %" if share >= 0.1 else f"{100 * share:.2g} %"


def _date(offer: Offer) -> str:
    date = offer.price.date
    if not date or date.startswith("<"):
        return "undated"
    return f"old: {date}" if offer.price.is_old else date
