"""The GPUs that a service takes: a search finds the replicas or workers that its rate needs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from planner.base.cells import number
from planner.decide.sizing.fleet import Fleet, Size
from planner.decide.sizing.floor import MORE_EFFICIENT, Missed, reason_of
from planner.decide.sizing.searches import Searches
from planner.optimize.collector import Collector
from planner.optimize.result import SearchResult
from planner.question.request import Request
from planner.workloads.deployments import DISAGGREGATED
from planner.workloads.plan import Plan

_FEWEST = ("num_gpus", "request_latency")
_CHEAPEST = ("cost_per_hour", *_FEWEST)

# How often the GPUs of a plan that waits too long are doubled.
_DOUBLINGS = 6
# So many numbers of GPUs are searched at once.
_AT_ONCE = 4


def serving_size(request: Request, searches: Searches) -> Size:
    """The fewest GPUs that keep the limits, and the cheapest.

    With one GPU everywhere these are the same; with others for the prompts they need not be.
    ``searches`` are shared with the same request under other contracts.

    Raises
    ------
    SpecError, SearchSpaceError
        Something is unknown, faulty or impossible.
    """
    head = Size(gpu=str(request.gpu), contract=request.contract or "")
    fewest, reason = _fewest(request, searches)
    if fewest is None:
        return replace(head, reason=reason)
    cheapest: Fleet | None = fewest
    if math.isnan(fewest.cost):
        cheapest = None
    elif request.prefill_gpu is not None:
        cheapest = _best(*searches.of(replace(request, objectives=_CHEAPEST)))
    return replace(head, fewest=fewest, cheapest=cheapest)


def fleet_of(request: Request) -> Fleet | None:
    """The plan of the fewest GPUs; None where there is none.

    Raises
    ------
    SpecError, SearchSpaceError
        Something is unknown, faulty or impossible.
    """
    return _fewest(request, Searches((request.contract,)))[0]


def _fewest(request: Request, searches: Searches) -> tuple[Fleet | None, str]:
    """The plan of the fewest GPUs; without one, why there is none.

    A rate takes so many workers that the queue of prompts stays bounded. Fewer may keep every
    limit too, and a short wait may take more: pools are then searched on numbers of GPUs.
    """
    request = replace(request, objectives=_FEWEST)
    plan, result = searches.of(request)
    best, reason = _best(plan, result), ""
    if best is None:
        reason = reason_of([Missed.of(plan, result)])
    if all(getattr(source, "mode", "") != DISAGGREGATED for source in plan.problem.sources):
        return best, reason
    limits = plan.problem.constraints
    pools = replace(request, mode=DISAGGREGATED)
    if best is None:
        for count in _beyond(plan, result):
            if best := _best(*searches.of(replace(pools, num_gpus=count), limits)):
                break
    if best is None:
        return None, reason
    failed = 1
    while failed < best.num_gpus - 1:
        # Halved while many are open; the next few below the fewest must all fail.
        open_below = range(max(failed + 1, _least(best, request)), best.num_gpus)
        if len(open_below) > 2 * _AT_ONCE:
            open_below = open_below[len(open_below) // 2 :][:1]
        on_these = replace(pools, num_gpus=tuple(open_below))
        fewer = _best(*searches.of(on_these, limits)) if open_below else None
        if fewer is None:
            failed = max(open_below, default=best.num_gpus)
        best = fewer or best
    return best, ""


def _least(fleet: Fleet, request: Request) -> int:
    """The fewest GPUs that may be looked at, by the rate of each of a plan's."""
    share = (request.request_rate or 0.0) / number(fleet.row["capacity_requests_per_s"])
    return math.ceil(fleet.num_gpus * share / MORE_EFFICIENT)


def _beyond(plan: Plan, result: SearchResult) -> Iterator[int]:
    """Numbers of GPUs beyond what comes nearest to keeping a limit of latency."""
    limits = {limit.name for limit in plan.problem.constraints} - {"max_gpus"}
    misses = (one for one in result.nearest_misses if one.rejection in limits)
    near = [number(miss.row["num_gpus"]) for miss in misses]
    most = plan.problem.setting.machine.cluster.max_gpus or math.inf
    for doubling in range(_DOUBLINGS if near else 0):
        if (count := min(near) * 2**doubling) <= most:
            yield int(count)


def _best(plan: Plan, result: SearchResult) -> Fleet | None:
    """The best plan by the objectives, None without one."""
    found = [group.collector for group in result.groups if len(group.collector.values)]
    return _first(plan, min(found, key=lambda one: tuple(one.values[0]))) if found else None


def _first(plan: Plan, collector: Collector) -> Fleet:
    source, configuration = collector.place(0)
    return Fleet.of(plan, source.judged(configuration))
