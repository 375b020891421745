"""The GPUs that a service takes: a search finds the replicas or workers that its rate needs."""

from __future__ import annotations

import math
from dataclasses import replace

from planner.optimize.collector import Collector
from planner.optimize.exhaustive import exhaustive_search
from planner.plan import Plan, make_plan
from planner.request import Request
from planner.sizing.fleet import Fleet, Size
from planner.sizing.reasons import Missed, reason_of

_FEWEST = ("num_gpus", "request_latency")
_CHEAPEST = ("cost_per_hour", "num_gpus", "request_latency")


def serving_size(request: Request) -> Size:
    """The fewest GPUs that keep the limits, and the cheapest.

    With one GPU everywhere these are the same; with others for the prompts they need not be.

    Raises
    ------
    SpecError, SearchSpaceError
        Something is unknown, faulty or impossible.
    """
    head = Size(gpu=str(request.gpu), contract=request.contract or "")
    fewest, reason = _best(replace(request, objectives=_FEWEST))
    if fewest is None:
        return replace(head, reason=reason)
    cheapest: Fleet | None = fewest
    if math.isnan(fewest.cost):
        cheapest = None
    elif request.prefill_gpu is not None:
        cheapest, _ = _best(replace(request, objectives=_CHEAPEST))
    return replace(head, fewest=fewest, cheapest=cheapest)


def fleet_of(request: Request) -> Fleet | None:
    """The plan of the fewest GPUs; None where there is none.

    Raises
    ------
    SpecError, SearchSpaceError
        Something is unknown, faulty or impossible.
    """
    return _best(replace(request, objectives=_FEWEST))[0]


def _best(request: Request) -> tuple[Fleet | None, str]:
    """The best plan by the objectives; without one, why there is none."""
    plan = make_plan(request)
    result = exhaustive_search(plan.problem)
    plan = replace(plan, problem=result.problem)
    found = [group.collector for group in result.groups if len(group.collector.values)]
    if not found:
        return None, reason_of([Missed.of(plan, result)])
    return _first(plan, min(found, key=lambda one: tuple(one.values[0]))), ""


def _first(plan: Plan, collector: Collector) -> Fleet:
    source, configuration = collector.place(0)
    return Fleet.of(plan, source.judged(configuration))
