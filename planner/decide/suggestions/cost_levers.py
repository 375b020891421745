"""What a buyer can change, and what the answer then is: each lever searched anew."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from planner.base import formatting
from planner.base.csv_cells import Row, number_or_nan
from planner.base.enums import Contract
from planner.base.records import record
from planner.confidence.intervals import MEDIAN
from planner.decide.assumptions import MIN_RELATIVE_CHANGE
from planner.decide.explain.plan_comparison import is_better_high
from planner.decide.explain.sensitivity import contract_outcomes, plan_of_request
from planner.errors import PlannerError
from planner.optimize.collector import value_or_none
from planner.optimize.exhaustive import exhaustive_search
from planner.optimize.result_columns import full_row
from planner.question.names import ENGINE
from planner.question.request import ALL, Request
from planner.question.terms import columns_about, glossary
from planner.specs.catalogue import Catalogue
from planner.specs.software_profile import runs_on
from planner.specs.spec_paths import SpecKind
from planner.workloads.make_plan import Plan, make_plan
from planner.workloads.registry import workload_of
from planner.workloads.saved_plan import SavedPlan

if TYPE_CHECKING:
    from planner.optimize.result import SearchResult
    from planner.optimize.source import Candidates

# Cost columns; a plan has at least one, by the load if there is one.
_RUN_COST, _HOURLY_COST = "cost_usd", "cost_per_hour_usd"
_TOKEN_COST = "cost_per_million_tokens_usd"
_COSTS = _RUN_COST, _HOURLY_COST, _TOKEN_COST
_HALVES = 0.5, 2.0
_KEEP = "router", "host cache"
_HIGH_CONFIDENCE = 0.9


@record(kw_only=True)
class CostLever:
    """One changed answer, and the recommended plan with it.

    ``name`` is the question, ``current`` and ``other`` its answers. ``row`` has the result columns
    of the other plan; empty where there is none. ``change`` is that of ``column`` as a share.
    """

    name: str
    current: str
    other: str
    column: str
    row: Row
    change: float

    def to_dict(self) -> dict[str, object]:
        """Return the lever as a dictionary for JSON."""
        return {
            "lever": self.name,
            "own": self.current,
            "other": self.other,
            "column": self.column,
            "value": value_or_none(self.row.get(self.column)),
            "change": value_or_none(self.change),
        }


def cost_levers(plan: Plan, result: SearchResult) -> list[CostLever]:
    """Return answers that change the cost of the recommended plan by over 10 %, largest first.

    Each lever (number format, software, number of GPUs, confidence) has a search of one changed
    answer; contracts only change prices. What cannot be planned is left out.
    """
    if result.recommended is None:
        return []
    base_row = full_row(result.recommended, plan.problem.sources)
    # The cost column that levers are compared by; the time without a price.
    is_rated = plan.request.request_rate is not None
    order = _COSTS if is_rated else (_RUN_COST, _TOKEN_COST, _HOURLY_COST)
    priced = (name for name in order if math.isfinite(number_or_nan(base_row.get(name))))
    column = next(priced, "time_to_train_days" if "time_to_train_days" in base_row else "num_gpus")
    tried = [*contract_levers(plan, base_row, column)]
    for name, current, other, answers in (
        *_searched_levers(plan.request, base_row),
        *_cache_levers(plan, base_row),
    ):
        row = _recommended_row(plan.request.changed(**answers))
        sides = (current, base_row), (other, row)
        first, second = (
            value + _prefix_hit_rate(side_row) if name in _KEEP else value
            for value, side_row in sides
        )
        tried.append(_compare_lever((name, first, second), column, base_row, row))
    significant = [
        lever
        for lever in tried
        if math.isfinite(lever.change) and abs(lever.change) > MIN_RELATIVE_CHANGE
    ]
    return sorted(significant, key=lambda lever: -abs(math.log1p(max(lever.change, -0.999))))


def faster_options(plan: Plan, best: Candidates, column: str) -> list[CostLever]:
    """Return a number format and a current release with which a result is over 10 % better.

    Plans of the same software are searched. Values that were searched are left out.
    """
    sign = 1 if is_better_high(column) else -1
    levers = []
    for tried in (_format_levers(plan, best, column), _release_levers(plan, best, column)):
        better = [lever for lever in tried if sign * lever.change > MIN_RELATIVE_CHANGE]
        levers += sorted(better, key=lambda lever: -sign * lever.change)[:1]
    return levers


def _format_levers(plan: Plan, best: Candidates, column: str) -> Iterator[CostLever]:
    """Yield the other common number formats; none if several were searched."""
    workload, row = plan.workload, best.row
    parameter, request = workload.precision, plan.request
    mesh = best.source.mesh
    if parameter not in row or mesh is None or len(mesh.values(parameter)) > 1:
        return
    software = {workload.profile_kind: row[workload.profile_kind], "precision": None}
    for other in _other_formats(parameter, row):
        settings = {**request.settings, parameter: other}
        changed = _recommended_row(request.changed(**software, settings=settings))
        yield _compare_lever((parameter, str(row[parameter]), other), column, row, changed)


def _release_levers(plan: Plan, best: Candidates, column: str) -> Iterator[CostLever]:
    """Yield the current releases of an engine whose plan has an older one."""
    kind = plan.workload.profile_kind
    if kind != ENGINE:
        return
    catalogue, row = Catalogue(plan.request.specs), best.row
    gpu = best.source.inputs.machine.gpu
    used = catalogue.load_engine(str(row[kind])).spec
    tool = used.since.partition(" ")[0]
    if used.current or not tool:
        return
    for name in catalogue.names(SpecKind.ENGINES):
        profile = catalogue.load_engine(name).spec
        if profile.current and profile.since.startswith(f"{tool} ") and runs_on(profile, gpu):
            changed = _recommended_row(plan.request.changed(engine=name, engine_version=None))
            yield _compare_lever((kind, str(row[kind]), name), column, row, changed)


def _other_formats(parameter: str, row: Row) -> list[str]:
    """Return the common number formats of a parameter other than that of a row."""
    return [name for name in glossary()[parameter].common_values.split() if name != row[parameter]]


def _searched_levers(
    request: Request, base_row: Row
) -> Iterator[tuple[str, str, str, Mapping[str, object]]]:
    """Yield name, current answer, other answer and request fields of each lever to search."""
    workload = workload_of(request.workload)
    parameter = workload.precision
    current = str(base_row.get(parameter, ""))
    if parameter in base_row and parameter not in request.settings:
        for other in _other_formats(parameter, base_row):
            yield "precision", current, other, {"precision": other}
    software = workload.profile_kind
    if isinstance(getattr(request, software), str) and getattr(request, software) != ALL:
        yield software, str(base_row[software]), "any", {software: None}
    count = request.num_gpus
    if isinstance(count, int):
        for factor in _HALVES:
            other_count = int(count * factor)
            if other_count >= 1 and other_count != count:
                yield "number of GPUs", f"{count:,}", f"{other_count:,}", {"num_gpus": other_count}
    if request.request_rate is not None or request.constraints:
        confidence = request.limit_confidence
        other_sure = _HIGH_CONFIDENCE if confidence == MEDIAN else MEDIAN
        yield "confidence", f"{confidence:g}", f"{other_sure:g}", {"confidence": other_sure}


def _cache_levers(
    plan: Plan, base_row: Row
) -> Iterator[tuple[str, str, str, Mapping[str, object]]]:
    """Yield a cache-aware router and a host cache as levers, if the prefix cache is used."""
    if not math.isfinite(number_or_nan(base_row.get("cache_residence_s"))):
        return
    request = plan.request
    if not request.router.startswith("cache"):
        yield "router", request.router, "cache_aware", {"router": "cache_aware"}
    half = plan.source_of(base_row).inputs.machine.host_memory / 2
    if not request.host_cache and 0 < half < math.inf:
        current_and_other = "none", formatting.format_gib(half)
        yield "host cache", *current_and_other, {"host_cache": half}


def _prefix_hit_rate(row: Row) -> str:
    """Return a text with the share of prompt tokens that all prefix caches hold; may be empty."""
    shares = [
        number_or_nan(row.get(name))
        for name in columns_about("prefix_cache")
        if name.endswith("rate")
    ]
    return f" finds {formatting.format_percent(sum(shares))}" if row else ""


def contract_levers(plan: Plan, base_row: Row, column: str) -> Iterator[CostLever]:
    """Yield the cost of the same plan under each other contract."""
    if column not in _COSTS:
        return
    current = str(base_row.get("contract", Contract.ON_DEMAND))
    try:
        pinned = plan_of_request(SavedPlan.of(plan, base_row).request())
    except PlannerError:
        return
    for contract, reached in contract_outcomes(pinned).items():
        if reached.row is not None:
            row = {**base_row, **reached.row}
            yield _compare_lever(("contract", current, contract), column, base_row, row)


def _recommended_row(request: Request) -> Row:
    """Return the result columns of the plan that a search recommends; empty: no plan."""
    try:
        best = exhaustive_search(make_plan(request).problem).recommended
    except PlannerError:
        return {}
    return {} if best is None else best.row


def _compare_lever(names: tuple[str, str, str], column: str, base_row: Row, row: Row) -> CostLever:
    name, current, other = names
    value, before = number_or_nan(row.get(column)), number_or_nan(base_row.get(column))
    change = value / before - 1 if before > 0 else math.nan
    return CostLever(name=name, current=current, other=other, column=column, row=row, change=change)
