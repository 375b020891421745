"""What to change: each lever of a buyer, and the fewest parameters that make a plan fit."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from planner.base.csv_cells import Row, Value, number_or_nan
from planner.base.enums import Contract
from planner.base.formatting import format_gib, format_percent
from planner.base.records import record
from planner.confidence.intervals import MEDIAN
from planner.decide.assumptions import MIN_RELATIVE_CHANGE
from planner.decide.explain.sensitivity import contract_outcomes, plan_of_request
from planner.decide.fitting import (
    MEMORIES,
    MoreGpus,
    adapter_that_fits,
    changes_that_fit,
    gpus_that_fit,
    relief_values,
    without_formats,
)
from planner.decide.near import (
    TARGET_FIT_PROBABILITY,
    WORTH,
    Change,
    MayBe,
    best_by_distance,
    make_change,
    plans_around,
)
from planner.errors import PlannerError
from planner.estimators.training.micro_batch_share import TrainingInputs
from planner.optimize.collector import full_rows, value_or_none
from planner.optimize.exhaustive import exhaustive_search
from planner.optimize.problem import Problem
from planner.optimize.result_columns import fit_probability, full_row
from planner.question.names import ENGINE
from planner.question.request import ALL, Answers, Request
from planner.question.terms import columns_about, glossary, is_better_high
from planner.specs.catalogue import Catalogue
from planner.specs.software_profile import runs_on
from planner.specs.spec_paths import SpecKind
from planner.workloads.make_plan import Plan, make_plan
from planner.workloads.registry import workload_of
from planner.workloads.saved_plan import SavedPlan
from planner.workloads.workload import Evaluation

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


def _searched_levers(request: Request, base_row: Row) -> Iterator[tuple[str, str, str, Answers]]:
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


def _cache_levers(plan: Plan, base_row: Row) -> Iterator[tuple[str, str, str, Answers]]:
    """Yield a cache-aware router and a host cache as levers, if the prefix cache is used."""
    if not math.isfinite(number_or_nan(base_row.get("cache_residence_s"))):
        return
    request = plan.request
    if not request.router.startswith("cache"):
        yield "router", request.router, "cache_aware", {"router": "cache_aware"}
    half = plan.source_of(base_row).inputs.machine.host_memory / 2
    if not request.host_cache and 0 < half < math.inf:
        current_and_other = "none", format_gib(half)
        yield "host cache", *current_and_other, {"host_cache": half}


def _prefix_hit_rate(row: Row) -> str:
    """Return a text with the share of prompt tokens that all prefix caches hold; may be empty."""
    shares = [
        number_or_nan(row.get(name))
        for name in columns_about("prefix_cache")
        if name.endswith("rate")
    ]
    return f" finds {format_percent(sum(shares))}" if row else ""


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


_ENOUGH = 0.9
_CAP = "concurrency"


@record(kw_only=True)
class Attempts:
    """What was tried of a plan that no small change makes fit, and what fits.

    ``tried`` has the values of small changes by parameter. ``other`` is another plan of the same
    GPUs; ``adapter`` the kind of adapter with which the plan fits as it is, with its row;
    ``unsaid`` a change that the launch file has no words for; ``gpus`` is None where another
    plan fits.
    """

    tried: Mapping[str, Sequence[Value]]
    other: tuple[Plan, Change] | None = None
    adapter: tuple[str, Row] | None = None
    unsaid: Change | None = None
    gpus: MoreGpus | None = None


def attempts_of(
    plan: Plan, evaluation: Evaluation, may_be: MayBe, profiles: Iterable[str] = ()
) -> Attempts:
    """Try changes, other plans, adapters (LoRA) and more GPUs for a plan that lacks memory."""
    if evaluation.source.mesh is None:
        return Attempts(tried={})
    tried = changes_that_fit(plan, evaluation, may_be).tried
    other = best_other_plan(plan, evaluation, profiles, may_be)
    return Attempts(
        tried=tried,
        other=other,
        adapter=adapter_that_fits(plan),
        unsaid=next(iter(changes_that_fit(plan, evaluation, lambda *_: True).changes), None),
        gpus=None if other else gpus_that_fit(plan, evaluation, may_be),
    )


def allowed_changes(
    request: Request,
    row: Row,
    can_say: Callable[[str, str | int | float], bool],
    defaults: Collection[str],
) -> MayBe:
    """Return a function: True if the launch file can express a value that keeps its load.

    The load is the number of concurrent requests per replica, which no change may raise; with a
    request rate, that of ``row``. ``defaults`` are options that the file leaves to the engine;
    ``can_say`` returns True if the file can express a value.
    """
    max_concurrency = math.inf
    if request.workload == "serve":
        cap = request.settings.get(_CAP) if _CAP not in defaults else None
        if request.request_rate is not None:
            max_concurrency = number_or_nan(row[_CAP])
        elif cap is not None:
            max_concurrency = float(str(cap[0] if isinstance(cap, tuple | list) else cap))

    def may_be(name: str, value: Value) -> bool:
        fits = name != _CAP or number_or_nan(value) <= max_concurrency
        return value is not None and can_say(name, value) and fits

    return may_be


def best_changes(
    plan: Plan, evaluation: Evaluation, may_be: MayBe = lambda *_: True
) -> list[Change]:
    """Return the best change of one, two and three parameters; more only if it gains more.

    ``plan`` and ``evaluation`` have one configuration; ``may_be`` returns True if a parameter may
    have a value. Number formats and batch stay, and the fit probability does not fall below the
    lower of 90 % and its present value. If memory is too small, formats may change, too. If nothing
    is faster and the plan is less than 90 % likely to fit: changes with which it is. Empty: nothing
    is better, or prefill and decode workers are separate.
    """
    if evaluation.source.mesh is None:
        return []
    if evaluation.rejected_by in MEMORIES:
        return [*changes_that_fit(plan, evaluation, may_be).changes]
    base_row = evaluation.candidates.row
    problem = plans_around(plan, base_row, may_be)
    if problem is None:
        return []
    # Plans are compared by what they carry at most, also where a load is stated.
    at_capacity = evaluation.source.judged(evaluation.candidates.configurations)
    now = float(np.ravel(at_capacity.value(problem.objectives[0].name))[0])
    if evaluation.rejected_by:
        return _changes(problem, base_row, np.nan, TARGET_FIT_PROBABILITY) or _changes(
            problem, base_row, np.nan, MEDIAN
        )
    (row,) = full_rows(evaluation.table(), [evaluation.source])
    fits = fit_probability(row)  # as surely as it fits now, where published runs tell
    min_fit_probability = (
        max(min(TARGET_FIT_PROBABILITY, fits), MEDIAN)
        if np.isfinite(fits)
        else TARGET_FIT_PROBABILITY
    )
    if changes := _changes(problem, base_row, now, min_fit_probability):
        return changes
    if not fits < TARGET_FIT_PROBABILITY:
        return []
    surer = changes_that_fit(plan, evaluation, may_be).changes
    return [change for change in surer if change.fit_probability >= TARGET_FIT_PROBABILITY]


def best_other_plan(
    plan: Plan,
    evaluation: Evaluation,
    profiles: Iterable[str] = (),
    may_be: MayBe = lambda *_: True,
) -> tuple[Plan, Change] | None:
    """Return the best plan that fits on these GPUs, with its changes; None: nothing fits.

    Keeps framework or engine and batch; tries first without memory-saving options. If nothing fits,
    tries ``profiles`` whose weights and optimizer states have as many bits.
    """
    if evaluation.source.mesh is None:
        return None
    base_row, name = evaluation.candidates.row, evaluation.source.profile
    relief = relief_values(evaluation.source, base_row, may_be)
    for more in ({}, without_formats(relief), relief):
        if best := _best_of(name, plan, base_row, may_be, more):
            return best
    others = (
        _best_of(other_profile, plan, base_row, may_be)
        for other_profile in profiles
        if other_profile != name
    )
    fit = (other_plan for other_plan in others if other_plan is not None)
    return max(fit, key=lambda plan_and_change: plan_and_change[1].value, default=None)


def _best_of(
    profile: str,
    plan: Plan,
    base_row: Row,
    may_be: MayBe,
    more: Mapping[str, Sequence[Value]] = MappingProxyType({}),
) -> tuple[Plan, Change] | None:
    """Return the best fitting plan of a framework or engine with states of no fewer bits."""
    problem = plans_around(plan, base_row, may_be, profile, more)
    if problem is None or _state_bytes(problem) < _state_bytes(plan.problem):
        return None
    for min_fit_probability in (TARGET_FIT_PROBABILITY, MEDIAN):
        best_by_count = best_by_distance(
            problem, base_row, min_fit_probability, range(len(base_row))
        )
        if best := max(best_by_count.values(), key=lambda candidate: candidate[2], default=None):
            return replace(plan, problem=problem), make_change(*best[:2], base_row, best[2], np.nan)
    return None


def _state_bytes(problem: Problem) -> float:
    """Return the bytes of weights and optimizer states per parameter; 0 without training."""
    inputs = problem.sources[0].inputs
    if not isinstance(inputs, TrainingInputs):
        return 0.0
    states = inputs.framework.states
    return states.weight + states.optimizer


def _changes(
    problem: Problem, base_row: Row, before: float, min_fit_probability: float
) -> list[Change]:
    """Return the best change per number of parameters, without those that gain no more."""
    changes: list[Change] = []
    reached = before if np.isfinite(before) else 0.0
    for candidates, row, value in best_by_distance(problem, base_row, min_fit_probability).values():
        if value > reached * (1 + WORTH):
            changes.append(make_change(candidates, row, base_row, value, value / before - 1))
            reached = value
    return changes


def recommended_change(changes: list[Change]) -> Change | None:
    """Return the change of the fewest parameters with nearly the full gain; None: no changes."""
    if not changes:
        return None
    max_gain = max((change.gain for change in changes if np.isfinite(change.gain)), default=np.nan)
    enough = (change for change in changes if not change.gain < _ENOUGH * max_gain)
    return next(enough)
