"""The message when no way to serve keeps all limits."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

from planner.errors import PlannerError
from planner.estimators.inference.estimate import OUT_OF_MEMORY, SERVING_REJECTIONS
from planner.optimize.serving.collector import ServingMiss
from planner.optimize.serving.search import ServingResult, serving_search
from planner.report import text
from planner.report.infeasible import listed, wrapped
from planner.report.remedies import rounded_outward
from planner.report.serving.front import layout
from planner.report.serving.question import describe_serving, where
from planner.request import Request
from planner.serving_plan import ServingPlan, make_serving_plan
from planner.terms import remedies_of
from planner.units import GIB

_MOST_ROWS = 1_000_000
_DOUBLINGS = 6
_PATIENCE = 3.0
_COLUMNS = {
    "time_to_first_token": ("time_to_first_token_s", 1.0),
    "time_per_output_token": ("time_per_output_token_s", 1.0),
    "request_latency": ("request_latency_s", 1.0),
    "cost_per_million_tokens": ("cost_per_million_tokens_usd", 1.0),
    "memory_headroom": ("memory_headroom_gib", GIB),
    "request_rate": ("requests_per_s", 1.0),
    "max_gpus": ("num_gpus", 1.0),
}


@dataclass(frozen=True, kw_only=True)
class _Remedy:
    option: str
    request: Request


def serving_infeasible_message(request: Request, plan: ServingPlan, result: ServingResult) -> str:
    """Counts per rule, nearest misses, and what was found to help."""
    misses = {miss.rejection: miss for miss in result.nearest_misses}
    counts = sorted(result.rejected_by.items(), key=lambda item: -item[1])
    width = max((len(text.count(number)) for _, number in counts), default=1)
    name = plan.problem.setting.model.name
    number = result.configurations_evaluated
    if number == 1:
        lines = [f"The configuration cannot serve {name} on {where(plan)}."]
    else:
        lines = [f"No plan of {text.count(number)} serves {name} on {where(plan)}."]
    for rejection, count in counts:
        before = "  " if number == 1 else f"  {text.count(count):>{width}}  "
        lines.append(wrapped(_sentence(result, rejection, misses.get(rejection)), before))
    helpful = [remedy.option for remedy in _remedies(request, result)]
    if helpful:
        lines.append(wrapped(f"Try {listed(helpful)}.", ""))
    return "\n".join(lines)


def _sentence(result: ServingResult, rejection: str, miss: ServingMiss | None) -> str:
    words = describe_serving(result.problem, rejection)
    limited = any(name not in SERVING_REJECTIONS for name in result.rejected_by)
    if miss is None or (rejection == OUT_OF_MEMORY and limited):
        return words
    row = miss.row
    plan = f"{layout(row)}, {row['quantization']}, {row['kv_cache']} cache"
    if rejection == OUT_OF_MEMORY:
        room = f"room for {row['most_sequences']:,} of {row['concurrency']:,} requests"
        return (
            f"need more than {text.gibibytes(miss.bound)} "
            f"(nearest: {text.gibibytes(miss.value)}, {room}, {plan})"
        )
    unit = next(c.limit.unit for c in result.problem.constraints if c.name == rejection)
    if not math.isfinite(miss.value):
        return f"{words}: {rejection} is unknown, give --price"
    return (
        f"miss {rejection} {text.limit(miss.bound, unit)} "
        f"(nearest: {text.limit(miss.value, unit)}, {plan}, concurrency {row['concurrency']:,})"
    )


def _remedies(request: Request, result: ServingResult) -> Iterator[_Remedy]:
    """Of each family the first that a search of its own finds to help."""
    if result.problem.best_per_gpu or result.problem.num_rows > _MOST_ROWS:
        return
    deadline = time.monotonic() + _PATIENCE
    for family in (_relaxed(request, result), *_smaller(request), _more_gpus(request)):
        for remedy in family:
            if time.monotonic() > deadline:
                return
            if _helps(remedy.request):
                yield remedy
                break


def _helps(request: Request) -> bool:
    try:
        return bool(serving_search(make_serving_plan(request).problem).table)
    except PlannerError:
        return False


def _relaxed(request: Request, result: ServingResult) -> Iterator[_Remedy]:
    """All limits that a nearest miss does not keep, as it would keep them."""
    for miss in result.nearest_misses:
        if miss.rejection not in request.constraints:
            continue
        limits, options = dict(request.constraints), []
        for constraint in result.problem.constraints:
            column, scale = _COLUMNS[constraint.name]
            value, sign = miss.row[column] * scale, constraint.limit.sign
            if constraint.name in limits and not sign * value <= sign * constraint.bound:
                if not math.isfinite(value):
                    break
                option, limits[constraint.name] = rounded_outward(constraint, value)
                options.append(option)
        else:
            yield _Remedy(
                option=" with ".join(options), request=replace(request, constraints=limits)
            )


def _smaller(request: Request) -> Iterator[Iterator[_Remedy]]:
    for name, values in remedies_of("serve").items():
        yield iter(
            [
                _Remedy(
                    option=f"--set {name}={value}",
                    request=replace(request, settings={**request.settings, name: [value]}),
                )
                for value in values
            ]
        )


def _more_gpus(request: Request) -> Iterator[_Remedy]:
    given = request.num_gpus
    if given is None:
        return
    largest = given if isinstance(given, int) else max(given)
    for power in range(1, _DOUBLINGS):
        count = 2 ** (math.ceil(math.log2(largest)) + power)
        yield _Remedy(option=f"--gpus {count}", request=replace(request, num_gpus=count))
