"""What to change in a configuration: the fewest parameters that make it best, or make it fit."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from planner.base.csv_cells import Row, Value, number_or_nan
from planner.base.records import record
from planner.confidence.intervals import MEDIAN
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
from planner.estimators.training.micro_batch_share import TrainingInputs
from planner.optimize.collector import full_rows
from planner.optimize.problem import Problem
from planner.optimize.result_columns import fit_probability
from planner.question.request import Request
from planner.workloads.make_plan import Plan
from planner.workloads.workload import Evaluation

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
    lower of 90 % and its present value. If memory is too small, formats may change, too. Empty:
    nothing is better, or prefill and decode workers are separate.
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
    return _changes(problem, base_row, now, min_fit_probability)


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
