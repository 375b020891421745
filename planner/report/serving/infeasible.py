"""The message when no way to serve keeps all limits."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from planner.errors import PlannerError
from planner.estimators.inference.estimate import OUT_OF_MEMORY
from planner.optimize.serving.collector import ServingMiss
from planner.optimize.serving.search import ServingResult, serving_search
from planner.report import text
from planner.report.infeasible import listed, wrapped
from planner.report.serving.front import layout
from planner.report.serving.question import describe_serving, where
from planner.request import ServingRequest
from planner.serving_plan import ServingPlan, make_serving_plan

_MOST_ROWS = 1_000_000
_DOUBLINGS = 6
_OPTIONS = {
    "time_to_first_token": "--ttft",
    "time_per_output_token": "--tpot",
    "request_latency": "--latency",
    "cost_per_million_tokens": "--cost-per-million",
    "memory_headroom": "--memory-headroom",
    "request_rate": "--request-rate",
}
_SMALLER = (
    ("quantization", ("fp8", "w8a16", "w4a16")),
    ("kv_cache", ("fp8", "int8")),
    ("tensor_parallel", ("2", "4", "8")),
)


@dataclass(frozen=True, kw_only=True)
class _Remedy:
    option: str
    request: ServingRequest


def serving_infeasible_message(
    request: ServingRequest, plan: ServingPlan, result: ServingResult
) -> str:
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
    if miss is None:
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


def _remedies(request: ServingRequest, result: ServingResult) -> Iterator[_Remedy]:
    """Of each family the first that a search of its own finds to help."""
    if result.problem.best_per_gpu or result.problem.num_rows > _MOST_ROWS:
        return
    for family in (_relaxed(request, result), *_smaller(request), _more_gpus(request)):
        for remedy in family:
            if _helps(remedy.request):
                yield remedy
                break


def _helps(request: ServingRequest) -> bool:
    try:
        return bool(serving_search(make_serving_plan(request).problem).table)
    except PlannerError:
        return False


def _relaxed(request: ServingRequest, result: ServingResult) -> Iterator[_Remedy]:
    """The limits as the nearest miss of one of them keeps it."""
    limits = dict(request.constraints)
    for miss in result.nearest_misses:
        if miss.rejection in request.constraints and math.isfinite(miss.value):
            option, bound = _outward(miss)
            yield _Remedy(
                option=option,
                request=replace(request, constraints={**limits, miss.rejection: bound}),
            )


def _outward(miss: ServingMiss) -> tuple[str, float]:
    """A limit with two digits that the miss keeps, as an option and in SI units."""
    scale, unit = {
        "cost_per_million_tokens": (1.0, "USD"),
        "memory_headroom": (2.0**30, "GiB"),
    }.get(miss.rejection, (1.0, "s") if miss.value >= 2 else (1e-3, "ms"))
    amount = max(miss.value / scale, 1e-12)
    step = 10.0 ** (math.floor(math.log10(amount)) - 1)
    upwards = miss.rejection not in ("memory_headroom", "request_rate")
    rounded = (math.ceil if upwards else math.floor)(amount / step) * step
    return f"{_OPTIONS[miss.rejection]} {rounded:.12g}{unit}", float(f"{rounded:.12g}") * scale


def _smaller(request: ServingRequest) -> Iterator[Iterator[_Remedy]]:
    for name, values in _SMALLER:
        yield iter(
            [
                _Remedy(
                    option=f"--set {name}={value}",
                    request=replace(request, settings={**request.settings, name: [value]}),
                )
                for value in values
            ]
        )


def _more_gpus(request: ServingRequest) -> Iterator[_Remedy]:
    given = request.num_gpus
    if given is None:
        return
    largest = given if isinstance(given, int) else max(given)
    for power in range(1, _DOUBLINGS):
        count = 2 ** (math.ceil(math.log2(largest)) + power)
        yield _Remedy(option=f"--gpus {count}", request=replace(request, num_gpus=count))
