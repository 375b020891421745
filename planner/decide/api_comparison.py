"""Self-host or API: cost of a deployment compared with published API prices of its model."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from planner.base.arrays import first
from planner.base.csv_cells import Row, Value, number_or_nan
from planner.base.records import record
from planner.base.units import HOUR
from planner.errors import SearchSpaceError, did_you_mean
from planner.estimators.inference.continuous_batching import cached_tokens
from planner.formulas.cost import break_even_rate, cost_per_request, request_cost
from planner.optimize.collector import value_or_none
from planner.optimize.result_columns import ends_of, full_columns
from planner.optimize.source import Candidates, first_row
from planner.specs.operating_terms import ApiPrice, api_prices, of_release, priced_models
from planner.workloads.make_plan import Plan
from planner.workloads.serving.results import as_candidates

if TYPE_CHECKING:
    import pandas as pd

COMPARED_WORKLOAD = "serve"
"""The workload that is compared: requests at a rate on GPUs that are paid busy or idle."""

_MILLION, _THOUSAND = 1e6, 1e3
_RATE = "requests_per_s"

_KINDS = ("input", "cached_input", "output")

Ends = tuple[float, float]


@record(kw_only=True)
class Offer:
    """A provider's price for the requests of a deployment.

    Parameters
    ----------
    price : price per token
    cost : cost of a request [USD]
    break_even : request rate from which the deployment costs less [1/s]
    utilization : ``break_even`` over the capacity of the deployment; above 1: never reached
    utilization_ends : 90 % interval of ``utilization``
    """

    price: ApiPrice
    cost: float
    break_even: float
    utilization: float
    utilization_ends: Ends


@record(kw_only=True, repr=False)
class ApiComparison:
    """A deployment compared with API prices for the same requests.

    Parameters
    ----------
    model : name of the model
    input_tokens : mean tokens of a prompt
    cached_tokens : prompt tokens in the prefix cache
    output_tokens : mean tokens of an answer
    cost_rate : cost of all GPUs, busy or idle [USD/s]
    cost_rate_range : range of ``cost_rate`` over sellers [USD/s]
    request_rate : capacity of the deployment [1/s]
    request_rate_ends : 90 % interval of ``request_rate`` [1/s]
    cost : cost of a request at full load [USD]
    cost_ends : 90 % interval of ``cost`` [USD]
    token_costs : cost by kind of token at full load [USD per million tokens]; NaN: no such tokens
    replicas : replicas that could each serve alone
    requested_rate : requested rate [1/s]; None: not specified
    offers : offers of providers, current ones first, each cheapest first
    other_releases : number of offers of other releases of the architecture
    note : why there are no offers
    """

    model: str
    input_tokens: float
    cached_tokens: float
    output_tokens: float
    cost_rate: float
    cost_rate_range: Ends
    request_rate: float
    request_rate_ends: Ends
    cost: float
    cost_ends: Ends
    token_costs: Mapping[str, float]
    replicas: int
    requested_rate: float | None
    offers: tuple[Offer, ...]
    other_releases: int
    note: str

    def __repr__(self) -> str:
        return (
            f"<ApiComparison: {self.model}, {len(self.offers)} offers, {len(self.current)} current>"
        )

    @property
    def current(self) -> tuple[Offer, ...]:
        """The offers that are not old, cheapest first."""
        return tuple(offer for offer in self.offers if not offer.price.is_old)

    @property
    def marked(self) -> Mapping[str, Offer]:
        """Return the cheapest, median and dearest offer by label: current ones, or else old."""
        listed = self.current or self.offers
        if not listed:
            return {}
        places = {"cheapest": 0, "median": (len(listed) - 1) // 2, "dearest": len(listed) - 1}
        return {label: listed[place] for label, place in places.items()}

    @property
    def tokens(self) -> float:
        """Tokens of a request, the cached ones among them."""
        return self.input_tokens + self.output_tokens

    def rows(self) -> list[dict[str, Value]]:
        """A row for each offer; units are in the names of the columns."""
        return [self._row(offer) for offer in self.offers]

    def to_frame(self) -> pd.DataFrame:
        """The offers as a pandas frame, cheapest first, old ones last."""
        import pandas as pd

        return pd.DataFrame(self.rows())

    def to_dict(self) -> dict[str, object]:
        """Return token mix, deployment and offers as a dictionary for JSON; None: unknown."""
        tokens = (self.input_tokens, self.cached_tokens, self.output_tokens)
        rates = (self.request_rate, *self.request_rate_ends)
        columns = {
            "model": self.model,
            **{f"{kind}_tokens": number for kind, number in zip(_KINDS, tokens, strict=True)},
            "cost_per_hour_usd": self.cost_rate * HOUR,
            "cost_per_hour_of_cheapest_gpus_usd": self.cost_rate_range[0] * HOUR,
            "cost_per_hour_of_dearest_gpus_usd": self.cost_rate_range[1] * HOUR,
            **dict(zip((_RATE, *ends_of(_RATE)), rates, strict=True)),
            "replicas": self.replicas,
            "request_rate_asked": self.requested_rate,
            **self._costs(),
            **{
                f"cost_per_million_{kind}_tokens_usd": cost
                for kind, cost in self.token_costs.items()
            },
            "other_releases": self.other_releases,
            "note": self.note,
        }
        values = {name: value_or_none(value) for name, value in columns.items()}
        offers = [
            {name: value_or_none(value) for name, value in row.items()} for row in self.rows()
        ]
        return {**values, "offers": offers}

    def _costs(self) -> dict[str, float]:
        """Return the cost of a thousand requests and a million tokens at full load [USD]."""
        costs: dict[str, float] = {}
        for unit, scale in (
            ("thousand_requests", _THOUSAND),
            ("million_tokens", _MILLION / self.tokens),
        ):
            for end, cost in zip(("", "_low", "_high"), (self.cost, *self.cost_ends), strict=True):
                costs[f"self_host_per_{unit}{end}_usd"] = cost * scale
        return costs

    def _row(self, offer: Offer) -> dict[str, Value]:
        """Return the output row of one API offer: prices, costs [USD] and break-even rate [1/s]."""
        price, (low, high) = offer.price, offer.utilization_ends
        return {
            "provider": price.provider,
            "release": price.release,
            "served_as": price.served_as,
            "input_usd_per_mtok": price.input * _MILLION,
            "cached_input_usd_per_mtok": cached_price(price) * _MILLION,
            "cached_price_is_known": price.cached_input is not None,
            "output_usd_per_mtok": price.output * _MILLION,
            "api_per_thousand_requests_usd": offer.cost * _THOUSAND,
            "api_per_million_tokens_usd": offer.cost * _MILLION / self.tokens,
            **self._costs(),
            "cheaper_at_full_load": self.cheaper_option(offer),
            "break_even_requests_per_s": offer.break_even,
            "break_even_utilization": offer.utilization,
            "break_even_utilization_low": low,
            "break_even_utilization_high": high,
            "source": price.source,
            "date": price.date,
            "is_old": price.is_old,
        }

    def cheaper_option(self, offer: Offer) -> str:
        """Return ``self-host`` or ``api``, ``tie`` within the error, or empty if unknown.

        Parameters
        ----------
        offer : offer of a provider
        """
        if not math.isfinite(self.cost):
            return ""
        low, high = self.cost_ends
        if low <= offer.cost <= high:
            return "tie"
        return "self-host" if self.cost < offer.cost else "api"


def compare_with_apis(plan: Plan, candidates: Candidates) -> ApiComparison:
    """Compare the cost of the first candidate with the published API prices of its model.

    Raises SearchSpaceError if the workload serves no stream of requests; SpecError if a list of
    prices has errors, one line for each.
    """
    require_token_pricing(plan.workload.name)
    # At full load, also if the request states a lower load.
    at_full_load = candidates.source.judged(candidates.configurations)
    table = {**at_full_load.columns(), **getattr(at_full_load, "promised", dict)()}
    loaded = {name: values for name, values in table.items() if not name.startswith("capacity_")}
    row = first_row(full_columns(loaded, plan.problem.sources))
    inputs = as_candidates(candidates).inputs
    work, cached = inputs.workload, first(cached_tokens(inputs))
    cost_rate, rate = number_or_nan(row["cost_per_hour_usd"]) / HOUR, number_or_nan(row[_RATE])
    rates = _ends(row, _RATE)
    cost = float(cost_per_request(cost_rate=cost_rate, request_rate=rate))
    of_million = _ends(row, "cost_per_million_tokens_usd")
    mix = {
        "input_tokens": float(work.input_tokens),
        "cached_tokens": cached,
        "output_tokens": float(work.output_tokens),
    }
    model = str(row["model"])
    prices, others, note = _published_prices(plan, model)
    offers = [_offer(price, mix, cost_rate, rate, rates) for price in prices]
    offers.sort(key=lambda offer: (offer.price.is_old, offer.cost, offer.price.provider))
    return ApiComparison(
        model=model,
        **mix,
        cost_rate=cost_rate,
        cost_rate_range=_price_range(row, cost_rate),
        request_rate=rate,
        request_rate_ends=rates,
        cost=cost,
        cost_ends=(
            of_million[0] * work.output_tokens / _MILLION,
            of_million[1] * work.output_tokens / _MILLION,
        ),
        token_costs={
            kind: number_or_nan(row.get(f"cost_per_million_{kind}_tokens_usd")) for kind in _KINDS
        },
        replicas=int(number_or_nan(row["replicas"])) if row["prefill_gpu"] is None else 1,
        requested_rate=plan.request.request_rate,
        offers=tuple(offers),
        other_releases=others,
        note=note,
    )


def _published_prices(plan: Plan, model: str) -> tuple[Sequence[ApiPrice], int, str]:
    """Return prices of the model's release, how many other releases have, and a note if none."""
    folder = plan.request.specs
    named = plan.words.get("model", {}).get(model, model)
    prices_of_model = api_prices(named, folder) or api_prices(model, folder)
    prices = of_release(prices_of_model, named) if "/" in named else prices_of_model
    note = "" if prices else missing_price_message(named, priced_models(folder))
    return prices, len(prices_of_model) - len(prices), note


def require_token_pricing(workload: str, option_name: Callable[[str], str] = str) -> None:
    """Raise SearchSpaceError if APIs do not sell this workload by the token.

    Raises SearchSpaceError if it serves no stream of requests.
    """
    if workload != COMPARED_WORKLOAD:
        raise SearchSpaceError(
            f"{option_name('compare_api')} is for {option_name('workload')} {COMPARED_WORKLOAD}."
        )


def missing_price_message(model: str, priced_models: Sequence[str]) -> str:
    """Return a message that no price list has the model, with similar names."""
    return (
        f"No API price of {model} is known.{did_you_mean(model, priced_models)} "
        f"{len(priced_models)} models have one; an own api_prices.csv in a folder of --specs adds "
        "others."
    )


def cached_price(price: ApiPrice) -> float:
    """USD per cached input token; the price of other input tokens if none is published."""
    return price.input if price.cached_input is None else price.cached_input


def _offer(
    price: ApiPrice, mix: Mapping[str, float], cost_rate: float, rate: float, rates: Ends
) -> Offer:
    """Return the cost of a request at this API price [USD] and the break-even rate [requests/s]."""
    cost = request_cost(
        **mix, input_price=price.input, cached_price=cached_price(price), output_price=price.output
    )
    even = float(break_even_rate(cost_rate=cost_rate, request_cost=cost))
    low, high = rates
    return Offer(
        price=price,
        cost=float(cost),
        break_even=even,
        utilization=even / rate,
        utilization_ends=(even / high, even / low),
    )


def _price_range(row: Row, cost_rate: float) -> Ends:
    """Return the cost of these GPUs at the lowest and highest price of sellers [USD/s]."""
    parts = {"": cost_rate}
    if row["prefill_gpu"] is not None:
        million = number_or_nan(row["cost_per_million_output_tokens_usd"])
        prefill_excluded = million * number_or_nan(row["output_tokens_per_s"]) / _MILLION
        parts = {"": prefill_excluded, "prefill_": cost_rate - prefill_excluded}

    def rate_at(end: str) -> float:
        """Return the GPU cost [USD/s] if all prices are at this end (``low`` or ``high``)."""
        shares = {
            prefix: number_or_nan(row[f"{prefix}price_{end}_per_gpu_hour_usd"])
            / number_or_nan(row[f"{prefix}price_per_gpu_hour_usd"])
            for prefix in parts
            if parts[prefix] > 0
        }
        return float(sum(parts[prefix] * share for prefix, share in shares.items()))

    return (rate_at("low"), rate_at("high")) if np.isfinite(cost_rate) else (np.nan, np.nan)


def _ends(row: Row, column: str) -> Ends:
    """Ends of the interval of a column; NaN: unknown."""
    low, high = ends_of(column)
    return number_or_nan(row.get(low)), number_or_nan(row.get(high))
