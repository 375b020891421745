"""What would help when nothing is feasible: each remedy is tried before it is named."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

from planner.configurations.table import word
from planner.errors import PlannerError
from planner.optimize.constraints import Constraint
from planner.optimize.problem import Problem, judge
from planner.optimize.result import NearestMiss, SearchResult
from planner.plan import make_plan
from planner.report import text
from planner.request import Request
from planner.terms import glossary, remedies_of
from planner.units import DAY, GIB, HOUR

_MAX_ROWS = 3_000_000
_PATIENCE = 3.0
_MAX_DOUBLINGS = 12
_MAX_REMEDIES = 5
# Units in which the limit of a dimension is told, the largest first.
_SCALES = {
    "byte": ((GIB, "GiB"),),
    "usd": ((1.0, "USD"),),
    "1": ((1.0, ""),),
    "count": ((1.0, ""),),
    "1/s": ((1.0, ""),),
    "second": ((DAY, "d"), (HOUR, "h"), (1.0, "s"), (1e-3, "ms")),
}


@dataclass(frozen=True, kw_only=True)
class _Remedy:
    option: str
    request: Request


def remedies(request: Request, result: SearchResult) -> list[str]:
    """Options that make something feasible, each found so by a search of its own."""
    found: list[str] = []
    deadline = time.monotonic() + _PATIENCE
    for candidates in _families(request, result):
        for remedy in candidates:
            if time.monotonic() > deadline:
                return found
            if _helps(remedy.request):
                found.append(remedy.option)
                break
        if len(found) == _MAX_REMEDIES:
            break
    return found


def _families(request: Request, result: SearchResult) -> Iterator[Iterator[_Remedy]]:
    """Families of remedies; of each the first that helps is enough."""
    yield _relaxed_limits(request, result)
    for name, values in remedies_of("train").items():
        yield _other_values(request, result.problem, name, values)
    yield _freed_settings(request)
    yield _more_gpus(request, result.problem)
    if request.space == "single":
        yield _searches(request, result.problem)
    if "global_batch_size" in result.rejected_by:
        yield _other_batches(request, result.problem)


def _helps(request: Request) -> bool:
    try:
        problem = make_plan(request).problem
    except PlannerError:
        return False
    return _any_feasible(problem)


def _any_feasible(problem: Problem) -> bool:
    rows = 0
    for block in problem.mesh.blocks():
        judged = judge(problem, block)
        if judged.feasible.size:
            return True
        rows += judged.rejected_by.size
        if rows > _MAX_ROWS:
            return False
    return False


def _relaxed_limits(request: Request, result: SearchResult) -> Iterator[_Remedy]:
    """Limits that a nearest miss keeps: as few others as it takes are relaxed with it."""
    problem = result.problem
    for miss in result.nearest_misses:
        if miss.rejection in request.constraints and math.isfinite(miss.value):
            estimate = judge(problem, miss.configuration).estimate
            limits, options = dict(request.constraints), []
            for constraint in problem.constraints:
                if constraint.violated(estimate, problem.price_per_gpu_second).all():
                    value = constraint.limit.value(estimate, problem.price_per_gpu_second)
                    option, bound = rounded_outward(constraint, float(value.ravel()[0]))
                    limits[constraint.name] = bound
                    options.append(option)
            yield _Remedy(
                option=" with ".join(options), request=replace(request, constraints=limits)
            )


def rounded_outward(constraint: Constraint, value: float) -> tuple[str, float]:
    """A limit that ``value`` keeps, with two digits, as an option and in SI units."""
    term = glossary()[constraint.name]
    scale, unit = next(
        (scale, unit)
        for scale, unit in _SCALES[term.type]
        if value >= 2 * scale or unit == _SCALES[term.type][-1][1]
    )
    amount = value / scale
    step = 10.0 ** (math.floor(math.log10(max(amount, 1e-12))) - 1)
    rounding = math.ceil if constraint.limit.sign > 0 else math.floor
    shown = f"{rounding(amount / step) * step:.12g}"
    return f"{term.option_name} {shown}{unit}", float(shown) * scale


def _other_values(
    request: Request, problem: Problem, name: str, values: tuple[str, ...]
) -> Iterator[_Remedy]:
    known = {str(word(name, value)).lower() for value in problem.mesh.values[name]}
    for value in values:
        if value not in known:
            settings = {**request.settings, name: [value]}
            yield _Remedy(
                option=f"--set {name}={value}", request=replace(request, settings=settings)
            )


def _freed_settings(request: Request) -> Iterator[_Remedy]:
    if request.space == "single":
        return
    for name in request.settings:
        kept = {other: value for other, value in request.settings.items() if other != name}
        yield _Remedy(option=f"leaving out --set {name}", request=replace(request, settings=kept))


def _searches(request: Request, problem: Problem) -> Iterator[_Remedy]:
    """For one configuration: the whole default space, on as few GPUs as it takes."""
    (count,) = problem.mesh.values["num_gpus"]
    for power in range(_MAX_DOUBLINGS):
        wider = replace(request, space=None, settings={}, num_gpus=count * 2**power)
        yield _Remedy(option=f"`planner search` with --gpus {count * 2**power}", request=wider)


def _more_gpus(request: Request, problem: Problem) -> Iterator[_Remedy]:
    largest = max(problem.mesh.values["num_gpus"])
    per_node = problem.setting.machine.cluster.gpus_per_node
    next_power = 2 ** math.ceil(math.log2(largest))
    counts = {math.ceil(largest / per_node) * per_node}
    for power in range(_MAX_DOUBLINGS):
        counts |= {largest * 2**power, next_power * 2**power}
    fewer = 2 ** math.floor(math.log2(largest))
    for count in [*sorted(counts - {largest}), fewer]:
        yield _Remedy(option=f"--gpus {count}", request=replace(request, num_gpus=count))


def _other_batches(request: Request, problem: Problem) -> Iterator[_Remedy]:
    batch = problem.setting.workload.global_batch_size
    gpus = max(problem.mesh.values["num_gpus"])
    for size in (math.ceil(batch / gpus) * gpus, 2 ** math.ceil(math.log2(batch))):
        if size != batch:
            yield _Remedy(
                option=f"--global-batch-size {size}",
                request=replace(request, global_batch_size=size),
            )


def limit_texts(miss: NearestMiss, problem: Problem) -> tuple[str, str]:
    """The bound of a miss and its value, with as many digits as tell them apart."""
    units = {c.name: c.limit.unit for c in problem.constraints}
    unit = units.get(miss.rejection, "byte")
    bound, value = text.limit(miss.bound, unit), text.limit(miss.value, unit)
    if bound == value and unit == "byte":
        return f"{miss.bound / GIB:.3f} GiB", f"{miss.value / GIB:.3f} GiB"
    return bound, value
