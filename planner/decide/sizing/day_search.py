"""Search of the cheapest day of a service: its layout, its fleets by rate and its contracts.

The layout is the one whose day costs least, not the one of the fewest GPUs at the peak: what
shrinks in smaller steps, or serves the night on fewer GPUs, may win.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial

import numpy as np

from planner.base.csv_cells import number_or_nan
from planner.base.enums import Contract
from planner.base.units import HOUR
from planner.decide.sizing.autoscaling import LoadProfile, Startup, rolling_maximum
from planner.decide.sizing.daily_schedule import (
    DailySchedule,
    DayPeriod,
    HourlyPrices,
    cheapest_base,
)
from planner.decide.sizing.fleet import MORE_EFFICIENT, FeasiblePlan, gpus_of_workers
from planner.decide.sizing.searches import Searches, best_plan_of_each_engine, plan_with_fewest_gpus
from planner.errors import SearchSpaceError
from planner.optimize.source import at_load
from planner.question.request import Request
from planner.question.terms import terms_of
from planner.workloads.make_plan import make_plan

# Contracts paid all day, busy or idle; others are paid by the hour.
COMMITTED = (
    Contract.RESERVED_1Y,
    Contract.RESERVED,
    Contract.RESERVED_3Y,
    Contract.RESERVED_5Y,
    Contract.OWNED,
)
HOURLY = (Contract.ON_DEMAND, Contract.SPOT)
# Default contracts; longer ones are a separate decision.
_USUAL = (Contract.RESERVED_1Y, Contract.ON_DEMAND)
_NUMBERS = ("replicas", "prefill_replicas")
# A service without requests still holds one replica.
_LEAST_RATE = 1e-6
# Number of rates that are sized of a load with more rates, such as one by the minute.
_MOST_RATES, _LEVELS = 24, 12
# Relative rounding error of a bound on costs.
_ROUNDING = 1e-9
_GPUS, _CAPACITY = "num_gpus", "capacity_requests_per_s"


def daily_schedules(
    request: Request,
    fewest: FeasiblePlan,
    load: LoadProfile,
    contracts: Sequence[str | None],
    searches: Searches,
    startup: Startup,
) -> tuple[DailySchedule, DailySchedule]:
    """Return the cheapest day that serves the load, and the day of the ``fewest`` GPUs.

    Tries the best layout of each serving mode and engine at peak and at mean load. Skips layouts
    that would be too expensive even at full capacity.

    Raises SpecError or SearchSpaceError if a price list is faulty.
    """
    terms = cheapest_contracts(request, contracts)
    first = best = _schedule_of_fleet(request, fewest, load, terms, startup)
    best_by_layout: dict[Hashable, FeasiblePlan] = {}
    hours_at_least = partial(_min_gpu_hours, load=load)
    for rate in dict.fromkeys((load.peak, max(load.mean, _LEAST_RATE))):
        for fleet in best_plan_of_each_engine(replace(request, request_rate=rate), searches):
            name = _layout_key(request, fleet)
            # The most efficient numbers of workers of pools.
            both = (best_by_layout.get(name, fleet), fleet)
            best_by_layout[name] = min(both, key=hours_at_least)
    best_by_layout.pop(_layout_key(request, fewest), None)
    for fleet in sorted(best_by_layout.values(), key=hours_at_least):
        if _min_order(fleet, load, terms) >= best.order:
            continue
        pinned = replace(request_with_layout(request, fleet), request_rate=load.peak)
        if (peak := plan_with_fewest_gpus(pinned)) is not None:
            day = _schedule_of_fleet(request, peak, load, terms, startup)
            best = min(best, day, key=lambda schedule: schedule.order)
    return best, first


def _layout_key(request: Request, fleet: FeasiblePlan) -> Hashable:
    pinned = request_with_layout(request, fleet)
    return pinned.mode, pinned.engine, tuple(sorted(map(str, pinned.settings.items())))


def _min_gpu_hours(fleet: FeasiblePlan, load: LoadProfile) -> float:
    """GPU-hours of a day if they followed the load without steps."""
    return load.requests / HOUR * fleet.num_gpus / number_or_nan(fleet.row[_CAPACITY])


def _min_order(fleet: FeasiblePlan, load: LoadProfile, terms: HourlyPrices) -> tuple[float, float]:
    """Return a lower bound of the sort key of a layout's day: full capacity, no start-up time."""
    hours = []
    for period in load.periods:
        gpus = _min_gpus(fleet, period.request_rate)
        paid = ((period.hours, gpus),)
        hours.append(DayPeriod(period=period, num_gpus=gpus, base=0, capacity=math.nan, paid=paid))
    base = cheapest_base(hours, terms, load.repeats)
    return DailySchedule(load=load, peak=fleet, hours=tuple(hours), base=base, terms=terms).order


def _min_gpus(fleet: FeasiblePlan, rate: float) -> int:
    """Return a lower bound of the GPUs that serve a rate [requests/s] with a fleet's workers.

    Separate prefill and decode pools may be more efficient with other numbers of workers.
    """
    workers = gpus_of_workers(fleet.row) or [1]
    max_rate = (
        number_or_nan(fleet.row[_CAPACITY]) * fleet.rate_share_at_confidence * (1 + _ROUNDING)
    )
    if len(workers) > 1:
        max_rate *= MORE_EFFICIENT
    step = math.gcd(*workers)
    return max(step * math.ceil(rate * fleet.num_gpus / max_rate / step), sum(workers))


def _schedule_of_fleet(
    request: Request, peak: FeasiblePlan, load: LoadProfile, terms: HourlyPrices, startup: Startup
) -> DailySchedule:
    """Build the day of a service whose peak load is served by the fleet ``peak``."""
    fleets = fleets_by_rate(request_with_layout(request, peak), peak, load)
    startup_time = startup.seconds(peak.row)
    if startup_time >= HOUR * load.hours:
        raise SearchSpaceError(
            f"{load.name} lasts {load.hours:.3g} h: what starts in {startup_time / HOUR:.3g} h "
            "serves none of it."
        )
    hours = schedule_periods(load, fleets, startup_time)
    base = cheapest_base(hours, terms, load.repeats)
    return DailySchedule(
        load=load,
        peak=peak,
        hours=tuple(replace(hour, base=base) for hour in hours),
        base=base,
        terms=terms,
        startup_time=startup_time,
    )


def schedule_periods(
    load: LoadProfile, fleets: Mapping[float, FeasiblePlan], startup_time: float
) -> list[DayPeriod]:
    """Return each period of a load with its fleet and the GPUs that run in its parts.

    A GPU starts ``startup_time`` seconds before a period that needs it, and keeps running between
    two periods if the gap is shorter than that time.
    """
    starts = [period.start for period in load.periods]
    serving = [fleets[period.request_rate] for period in load.periods]
    gpus = [fleet.num_gpus for fleet in serving]
    running = rolling_maximum(starts, gpus, startup_time / HOUR, load.hours).split(starts)
    paid: list[list[tuple[float, float]]] = [[] for _ in starts]
    for start, end, number_running in running.parts():
        paid[bisect_right(starts, start) - 1].append((end - start, number_running))
    return [
        DayPeriod(
            period=period,
            num_gpus=fleet.num_gpus,
            base=0,
            capacity=number_or_nan(fleet.row[_CAPACITY]),
            paid=tuple(parts),
        )
        for period, fleet, parts in zip(load.periods, serving, paid, strict=True)
    ]


def fleets_by_rate(
    pinned: Request, peak: FeasiblePlan, load: LoadProfile
) -> dict[float, FeasiblePlan]:
    """Return the smallest fleet of one layout for each rate [requests/s] of a load.

    A fleet for a higher rate also serves a lower rate, so that a rate without a feasible fleet
    takes the smallest fleet of the rates above. If a load has many rates, only some levels are
    searched, and the fleets of rates in between are interpolated.
    """
    requested = {period.request_rate for period in load.periods}
    rates, fleets = sorted(requested), {load.peak: peak}
    if len(rates) > _MOST_RATES:
        rates = [load.peak * place / _LEVELS for place in range(1, _LEVELS)] + [load.peak]
    workers, smallest = gpus_of_workers(peak.row) or [1], peak
    for rate in reversed(rates[:-1]):
        if smallest.num_gpus > _min_gpus(smallest, rate):
            at_rate = replace(pinned, request_rate=max(rate, _LEAST_RATE))
            fleet = plan_with_fewest_gpus(at_rate)
            if fleet is None:
                fleet = _smallest_at_load(at_rate, smallest)
            smallest = (
                fleet if fleet is not None and fleet.num_gpus < smallest.num_gpus else smallest
            )
        fleets[rate] = smallest
    step = math.gcd(*workers)
    return {rate: _fleet_between(rates, fleets, rate, step) for rate in requested}


def _fleet_between(
    rates: Sequence[float], fleets: Mapping[float, FeasiblePlan], rate: float, step: int
) -> FeasiblePlan:
    """Interpolate GPUs and capacity at a rate between fleets of the two nearest ``rates``."""
    place = bisect_left(rates, rate)
    above = fleets[rates[place]]
    below = fleets[rates[max(place - 1, 0)]]
    more = above.num_gpus - below.num_gpus
    if rate == rates[place] or not more:
        return above
    share = (rate - rates[place - 1]) / (rates[place] - rates[place - 1])
    gpus = below.num_gpus + step * math.ceil(share * more / step)
    low, high = (number_or_nan(fleet.row[_CAPACITY]) for fleet in (below, above))
    capacity = low + (high - low) * (gpus - below.num_gpus) / more
    return replace(above, row={**above.row, _GPUS: gpus, _CAPACITY: capacity})


def _smallest_at_load(request: Request, above: FeasiblePlan) -> FeasiblePlan | None:
    """Search the fewest GPUs on which the limits hold if all replicas share the load; else None.

    A search chooses as few replicas as the rate needs. If bursts are too long for these, more
    replicas, with fewer requests each, may keep the limits.
    """
    step = math.gcd(*(gpus_of_workers(above.row) or [1]))
    counts = range(step, above.num_gpus, step)
    cached_fleet = cache(partial(fleet_on_gpus, request))
    place = bisect_left(counts, True, key=lambda count: cached_fleet(count) is not None)
    return cached_fleet(counts[place]) if place < len(counts) else None


def fleet_on_gpus(request: Request, num_gpus: int) -> FeasiblePlan | None:
    """Return a fleet on ``num_gpus`` GPUs that keeps all limits at the load; None: none does."""
    plan = make_plan(replace(request, num_gpus=num_gpus, objectives=()))
    for source in plan.problem.sources:
        for block in source.blocks((), ()):
            if block.candidates is None:
                continue
            loaded = at_load(block.candidates)
            rows = np.flatnonzero(plan.problem.codes(loaded) == 0)
            if rows.size:
                first = loaded.configurations.rows(rows[:1])
                return FeasiblePlan.of(plan, at_load(source.judged(first)))
    return None


def request_with_layout(request: Request, fleet: FeasiblePlan) -> Request:
    """Return the request with the layout and engine of a fleet fixed, but not its replicas."""
    row = fleet.row
    names = [name for name in terms_of("serve", "parameter") if name != "num_gpus"]
    if row.get("prefill_gpu") is not None:
        names += [name for name in terms_of("serve", "pool") if name not in _NUMBERS]
    settings = {name: row[name] for name in names if row.get(name) is not None}
    engine = str(row["engine"])
    names_by_user = make_plan(request).words.get("engine", {})
    return replace(
        request,
        settings=settings,
        precision=None,
        mode=str(row["mode"]),
        engine=names_by_user.get(engine, engine),
    )


def cheapest_contracts(request: Request, contracts: Sequence[str | None]) -> HourlyPrices:
    """Return the cheapest contract for GPUs all day, and the cheapest by the hour.

    ``contracts`` may be used; None: a year's reservation and on demand. If only one has a price, it
    applies to all GPUs.

    Raises SearchSpaceError if none of the named contracts has a price.
    """
    named = [contract for contract in contracts if contract is not None] or [*_USUAL]
    prices = {name: _price(request, name) for name in named}
    finite_prices = {name: price for name, price in prices.items() if not math.isnan(price)}
    if not finite_prices:
        usual = _price(request, None)
        if math.isnan(usual) and any(contracts):
            listed = ", ".join(map(str, named))
            raise SearchSpaceError(f"{request.gpu}: no price is known under {listed}.")
        return HourlyPrices(base=usual, base_contract="", hourly=usual, hourly_contract="")
    hourly = _cheapest_contract(finite_prices, HOURLY) or min(
        finite_prices, key=finite_prices.__getitem__
    )
    base = _cheapest_contract(finite_prices, COMMITTED) or hourly
    return HourlyPrices(
        base=finite_prices[base],
        base_contract=str(base),
        hourly=finite_prices[hourly],
        hourly_contract=str(hourly),
    )


def _cheapest_contract(prices: dict[str, float], among: Sequence[str]) -> str | None:
    contracts = [name for name in prices if name in among]
    return min(contracts, key=prices.__getitem__, default=None)


def _price(request: Request, contract: str | None) -> float:
    """USD per GPU-second under a contract; NaN where unknown."""
    plan = make_plan(replace(request, contract=contract, constraints={}, objectives=()))
    site = plan.problem.sources[0].site
    return site.charged_price if contract in (None, site.contract) else math.nan
