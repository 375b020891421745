"""What would help when nothing is feasible: each remedy is tried before it is named."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import compress

from planner.base.csv_cells import number_of_row
from planner.base.records import record
from planner.base.units import DAY, GIB, HOUR
from planner.configurations.configuration_tables import format_value
from planner.decide.fitting import MEMORIES, changes_that_fit, unsupported_memory_savers
from planner.errors import PlannerError
from planner.optimize.exhaustive import without_assumed
from planner.optimize.goals import Constraint
from planner.optimize.problem import is_violated, judged_value
from planner.optimize.result import SearchResult
from planner.question.request import Request, Settings
from planner.question.terms import glossary, remedies_of
from planner.specs.training_workload import TrainingWorkload
from planner.workloads.make_plan import Plan, evaluate, make_plan, make_single_plan
from planner.workloads.saved_plan import SavedPlan

_MAX_DOUBLINGS = 12
_MAX_SUGGESTIONS = 5
# Units of limits in messages by dimension, the largest first.
_SCALES = {
    "byte": ((GIB, "GiB"),),
    "usd": ((1.0, "USD"),),
    "watt": ((1e3, "kW"),),
    "kg": ((1e3, "t"), (1.0, "kg"), (1e-3, "g")),
    "1": ((1.0, ""),),
    "count": ((1.0, ""),),
    "1/s": ((1.0, ""),),
    "second": ((DAY, "d"), (HOUR, "h"), (1.0, "s"), (1e-3, "ms")),
}


@record(kw_only=True)
class _Suggestion:
    """An option and the request with it; ``is_single``: it asks for one configuration."""

    option: str
    request: Request
    is_single: bool


def suggest_feasible(plan: Plan, result: SearchResult) -> list[str]:
    """Return options that make the request feasible, each verified by a search.

    All searches together evaluate at most ``advice_rows`` configurations of the workload.
    """
    options: list[str] = []
    rows = plan.workload.advice_rows
    for candidates in _suggestion_families(plan, result):
        for remedy in candidates:
            helps, rows = _is_feasible_with(remedy, rows)
            if helps:
                options.append(remedy.option)
                break
            if rows <= 0:
                return options
        if len(options) == _MAX_SUGGESTIONS:
            break
    return options


def _suggestion_families(plan: Plan, result: SearchResult) -> Iterator[Iterator[_Suggestion]]:
    """Yield families of suggestions; a caller uses only the first of each that helps."""
    if "request_rate" in result.rejected_by:
        yield _suggest_sizing(plan)
    yield _suggest_relaxed_limits(plan, result)
    yield _suggest_fitting_size(plan, result)
    yield _suggest_one_micro_batch(plan, result)
    meshes = [source.mesh for source in plan.problem.sources if source.mesh is not None]
    lacking = {
        name
        for source in plan.problem.sources
        for name in unsupported_memory_savers(source, max(source.counts, default=1))
    }
    for name, values in remedies_of(plan.workload.name).items():
        if name in lacking:
            continue
        current_values = {
            str(format_value(name, value)).lower() for mesh in meshes for value in mesh.values(name)
        }
        yield iter(
            [
                _suggest_settings(plan, {name: value})
                for value in values
                if value not in current_values
            ]
        )
    yield _suggest_combined_settings(plan, result)
    yield _suggest_freed_settings(plan)
    yield _suggest_more_gpus(plan)
    if _is_single(plan):
        yield _suggest_search(plan)
    if "global_batch_size" in result.rejected_by:
        yield _suggest_batch_sizes(plan)


def _is_feasible_with(remedy: _Suggestion, rows: int) -> tuple[bool, int]:
    """Return True if the suggestion makes a plan feasible, and how many ``rows`` are left."""
    try:
        plan = (make_single_plan if remedy.is_single else make_plan)(remedy.request)
    except PlannerError:
        return False, rows
    problem = without_assumed(plan.problem)
    for source in problem.sources:
        if remedy.is_single and source.mesh is not None:
            table = source.mesh.flat()
            if not source.may_fit(table):
                rows -= table.size
                if rows <= 0:
                    return False, rows
                continue
        for block in source.blocks(problem.objectives, problem.constraints):
            if block.candidates is not None and (problem.codes(block.candidates) == 0).any():
                return True, rows
            size = 0 if block.candidates is None else block.candidates.configurations.size
            rows -= max(block.num_rows, size)
            if rows <= 0:
                return False, rows
    return False, rows


def _is_single(plan: Plan) -> bool:
    return plan.space.name == plan.workload.single


def _make_suggestion(plan: Plan, option: str, **changes: object) -> _Suggestion:
    request = plan.request.changed(**changes)
    return _Suggestion(option=option, request=request, is_single=_is_single(plan))


def _suggest_settings(plan: Plan, settings: Settings) -> _Suggestion:
    option = " with ".join(f"--set {name}={value}" for name, value in settings.items())
    fixed = {name: [value] for name, value in settings.items()}
    return _make_suggestion(plan, option, settings={**plan.request.settings, **fixed})


def _suggest_relaxed_limits(plan: Plan, result: SearchResult) -> Iterator[_Suggestion]:
    """Yield suggestions to relax the limits that a nearest miss violates."""
    for miss in result.nearest_misses:
        if miss.rejection not in plan.request.constraints or not math.isfinite(miss.value):
            continue
        limits, options = dict(plan.request.constraints), []
        violated = (is_violated(miss.candidates, limit).all() for limit in plan.problem.constraints)
        for constraint in compress(plan.problem.constraints, violated):
            value = float(judged_value(miss.candidates, constraint).ravel()[0])
            if constraint.name not in limits or not math.isfinite(value):
                break
            option, limits[constraint.name] = round_limit_outward(constraint, value)
            options.append(option)
        else:
            yield _make_suggestion(plan, " with ".join(options), constraints=limits)


def round_limit_outward(constraint: Constraint, value: float) -> tuple[str, float]:
    """Return a limit just beyond ``value`` (two digits), as an option and in SI units."""
    term = glossary()[constraint.name]
    scale, unit = next(
        (scale, unit)
        for scale, unit in _SCALES[term.type]
        if value >= 2 * scale or unit == _SCALES[term.type][-1][1]
    )
    amount = value / scale
    step = 10.0 ** (math.floor(math.log10(max(amount, 1e-12))) - 1)
    rounding = math.ceil if constraint.sign > 0 else math.floor
    shown = f"{rounding(amount / step) * step:.12g}"
    return f"{term.option_name} {shown}{unit}", float(shown) * scale


def _suggest_fitting_size(plan: Plan, result: SearchResult) -> Iterator[_Suggestion]:
    """Yield settings with which a single configuration that is too large fits."""
    for miss in result.nearest_misses:
        settings = plan.workload.fitting(miss.source, miss.configuration)
        if _is_single(plan) and settings:
            yield _suggest_settings(plan, settings)


def _suggest_one_micro_batch(plan: Plan, result: SearchResult) -> Iterator[_Suggestion]:
    """Yield batches of one micro-batch a step, where whole gradients wait for the last of several.

    Only if the batch is assumed; the second has weights that are trained in 16 bits.
    """
    if plan.request.global_batch_size is not None or not _is_single(plan):
        return
    for miss in result.nearest_misses:
        framework = getattr(miss.source.inputs, "framework", None)
        if framework is None or not framework.states.unsynced_gradient:
            continue
        columns = ("micro_batch_size", "data_parallel")
        size = round(math.prod(number_of_row(miss.row, name) for name in columns))
        option = f"--global-batch-size {size}"
        yield _make_suggestion(plan, option, global_batch_size=size)
        narrow = _suggest_settings(plan, {"main_params_precision": "bf16"})
        yield replace(
            narrow,
            option=f"{option} with {narrow.option}",
            request=narrow.request.changed(global_batch_size=size),
        )


def _suggest_combined_settings(plan: Plan, result: SearchResult) -> Iterator[_Suggestion]:
    """Yield combined settings with which a configuration, or the nearest one, fits its memory."""
    misses = [miss for miss in result.nearest_misses if miss.rejection in MEMORIES]
    if not misses:
        return
    pinned, mesh = plan, misses[0].source.mesh
    if not _is_single(plan):
        pinned = make_single_plan(SavedPlan.of(plan, misses[0].row).request())
    evaluation = evaluate(pinned)
    if evaluation.rejected_by not in MEMORIES or evaluation.source.mesh is None:
        return
    for change in changes_that_fit(pinned, evaluation, lambda *_: True).changes:
        settings = {
            name: str(value).lower()
            for name, (_, value) in change.changed.items()
            if mesh is None or len(mesh.values(name)) == 1  # else the search has tried it
        }
        if len(settings) > 1:
            yield _suggest_settings(plan, settings)


def _suggest_freed_settings(plan: Plan) -> Iterator[_Suggestion]:
    """Yield a suggestion for each setting of the user: plan without this setting."""
    if _is_single(plan):
        return
    settings = plan.request.settings
    for name in settings:
        remaining = {other: value for other, value in settings.items() if other != name}
        yield _make_suggestion(plan, f"leaving out --set {name}", settings=remaining)


def _suggest_search(plan: Plan) -> Iterator[_Suggestion]:
    """Yield searches of the default space in place of a configuration, on ever more GPUs."""
    for count in plan.counts[:1]:
        for power in range(_MAX_DOUBLINGS):
            gpus = count * 2**power
            wider = replace(plan.request, space=None, settings={}, num_gpus=gpus)
            option = f"`planner search` with --gpus {gpus}"
            yield _Suggestion(option=option, request=wider, is_single=False)


def _suggest_sizing(plan: Plan) -> Iterator[_Suggestion]:
    """A rate that is too much for the GPUs: as many of them as it takes."""
    yield _make_suggestion(plan, "leaving out --gpus", num_gpus=None)


def _suggest_more_gpus(plan: Plan) -> Iterator[_Suggestion]:
    """Yield suggestions with more GPUs (full nodes, doublings) and one with fewer."""
    if not plan.counts:
        return
    largest = max(plan.counts)
    per_node = plan.problem.inputs.machine.cluster.gpus_per_node
    next_power = 2 ** math.ceil(math.log2(largest))
    counts = {math.ceil(largest / per_node) * per_node}
    for power in range(_MAX_DOUBLINGS):
        counts |= {largest * 2**power, next_power * 2**power}
    fewer = 2 ** math.floor(math.log2(largest))
    for count in [*sorted(counts - {largest}), fewer]:
        yield _make_suggestion(plan, f"--gpus {count}", num_gpus=count)


def _suggest_batch_sizes(plan: Plan) -> Iterator[_Suggestion]:
    """Yield suggestions with a global batch that the GPUs divide, or that is a power of two."""
    work, gpus = plan.problem.inputs.workload, max(plan.counts)
    if not isinstance(work, TrainingWorkload):
        return
    batch = work.global_batch_size
    for size in (math.ceil(batch / gpus) * gpus, 2 ** math.ceil(math.log2(batch))):
        if size != batch:
            yield _make_suggestion(plan, f"--global-batch-size {size}", global_batch_size=size)
