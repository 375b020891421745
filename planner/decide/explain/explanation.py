"""Explanation of the time and memory of a plan, and of changes that would improve them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property

from planner.base.csv_cells import Row, number_or_nan
from planner.base.records import record
from planner.decide.assumptions import SensitiveAssumption
from planner.decide.explain.plan_comparison import Difference, PredictedPlan
from planner.decide.explain.sensitivity import (
    STEP,
    Sensitivity,
    plan_of_request,
    predict_outcome,
    relative_change,
    sensitivities,
    with_scaled_specs,
)
from planner.decide.explain.step_breakdown import (
    ExplainedStep,
    SpecSources,
    spec_numbers,
    step_dict,
)
from planner.errors import PlannerError
from planner.optimize.collector import value_or_none
from planner.optimize.source import first_row
from planner.question.terms import terms_about
from planner.workloads.make_plan import Plan, evaluate
from planner.workloads.saved_plan import SavedPlan
from planner.workloads.workload import Evaluation

_OF_MEMORY = ("peak_memory_gib", "memory_headroom_gib")
_PARTS_OF_KERNELS = 3  # efficiency.gemm.bf16
_NOT_KERNELS = ("collective",)  # the faster of two alternatives is taken
_KINDS = {*terms_about("spec"), "reliability", "power"} - {"model"}


@record(kw_only=True)
class RankedAssumption:
    """An assumption of a plan, with its effect on the column that it changes most.

    Parameters
    ----------
    name : question, parameter or number of a spec
    assumed : assumed value in words
    tried : alternatives in words
    column : result column
    low : least value of ``column`` over assumption and alternatives
    high : greatest value of ``column`` over assumption and alternatives
    """

    name: str
    assumed: str
    tried: str
    column: str
    low: float
    high: float

    @property
    def spread(self) -> float:
        """The greatest value over the least, infinite where the least is 0."""
        return self.high / self.low if self.low > 0 else math.inf

    def to_dict(self) -> dict[str, object]:
        """The assumption as a dictionary for JSON."""
        return {**vars(self), "spread": self.spread if math.isfinite(self.spread) else None}


def rank_assumptions(
    seen: PredictedPlan, columns: Sequence[str], burst: int | None = None
) -> list[RankedAssumption]:
    """Rank assumptions by their effect, with assumed spec numbers 10 % lower and higher.

    The assumption with the largest effect on a result column comes first; assumptions without
    effect are left out.
    """
    plan, row = seen.plan, seen.row
    changeable = [
        name for name in columns if relative_change(row.get(name), row.get(name)) is not None
    ]
    facts = [
        _rank_assumption(fact.name, fact.assumed, ", ".join(fact.tried), moved)
        for fact in seen.facts
        if (moved := _changed_columns(fact, changeable))
    ]
    kernels = {
        done.work.key
        for step in seen.steps.values()
        for part in step.parts
        for done in part.part.done
    }
    moving = []
    for name in plan.assumed:
        table, _, _ = name.removeprefix("gpu ").rpartition(".")
        parts = table.split(".")
        is_kernel = len(parts) == _PARTS_OF_KERNELS and parts[1] not in _NOT_KERNELS
        if kernels and is_kernel and table not in kernels:
            continue  # none that the plan runs
        assumption = _evaluate_spec_number(plan, name, row, changeable, burst)
        if assumption is not None and assumption.spread > 1 + 1e-9:
            moving.append(assumption)
    return sorted([*facts, *moving], key=lambda assumption: -assumption.spread)


def _changed_columns(
    fact: SensitiveAssumption, columns: Sequence[str]
) -> dict[str, tuple[float, float]]:
    """Return the columns that an assumption changes, with least and greatest value."""
    is_precision = fact.name == "precision"
    return {
        name: ends
        for name, ends in fact.moved.items()
        if name in columns and not (is_precision and name.endswith("_utilization"))
    }


def _evaluate_spec_number(
    plan: Plan, name: str, row: Row, columns: Sequence[str], burst: int | None
) -> RankedAssumption | None:
    """Return the effect of an assumed spec number 10 % off; None: no prediction uses it."""
    kind, _, path = name.partition(" ")
    if kind not in _KINDS:
        return None
    changes = [with_scaled_specs(kind, (path,), 1 + sign * STEP) for sign in (-1, 1)]
    if changes[0](plan).problem.sources == plan.problem.sources:
        return None  # the number is 0, or the specs have another in its place
    reached = [predict_outcome(plan, change, burst) for change in changes]
    rows = [row, *(outcome.row for outcome in reached if outcome.row is not None)]
    ends = {
        column: [number_or_nan(outcome_row[column]) for outcome_row in rows] for column in columns
    }
    moved = {column: (min(values), max(values)) for column, values in ends.items()}
    return _rank_assumption(name, "", "10 % lower and higher", moved)


def _rank_assumption(
    name: str, assumed: str, tried: str, ends: Mapping[str, tuple[float, float]]
) -> RankedAssumption:
    """Build the ranked assumption with the column whose value varies most."""
    spreads = {name: round(_spread(*both), 9) for name, both in ends.items()}
    # Memory is no answer to a question of time or money where these move too.
    of_answer = [name for name in ends if spreads[name] > 1 and name not in _OF_MEMORY]
    column = max(of_answer or ends, key=lambda name: spreads[name])
    low, high = ends[column]
    return RankedAssumption(
        name=name, assumed=assumed, tried=tried, column=column, low=low, high=high
    )


def _spread(low: float, high: float) -> float:
    return high / low if low > 0 else (math.inf if high > low else 1.0)


MEMORY = ("peak_memory_gib", "memory_headroom_gib")


@record(kw_only=True)
class Explanation:
    """Explanation of one plan; each attribute is computed at its first use and cached.

    Parameters
    ----------
    plan : plan of the question
    evaluation : judged configuration
    against : plan to compare with; None: none
    burst : requests that arrive at once; None: none
    """

    plan: Plan
    evaluation: Evaluation
    against: PredictedPlan | None = None
    burst: int | None = None

    @cached_property
    def predicted(self) -> PredictedPlan:
        """The plan with its results and steps."""
        return PredictedPlan(plan=self.plan, evaluation=self.evaluation)

    @property
    def row(self) -> Row:
        """Result columns of the plan."""
        return self.predicted.row

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """Names of the result columns that effects are reported in."""
        names = (*self.plan.workload.wording.shown_columns, *MEMORY)
        return tuple(name for name in dict.fromkeys(names) if name in self.row)

    @property
    def steps(self) -> list[ExplainedStep]:
        """Every kind of step with its operators, longest first; predicts the plan again."""
        return [*self.predicted.steps.values()]

    @cached_property
    def memory(self) -> dict[str, float]:
        """Memory of the fullest GPU by part, largest first [GiB]."""
        parts = self.predicted.memory.items()
        return dict(sorted((part for part in parts if part[1]), key=lambda part: -part[1]))

    @cached_property
    def bound(self) -> Row | None:
        """Return the result columns of the plan at peak speed of GPU and links; None: unknown."""
        pinned = SavedPlan.of(self.plan, self.row).request()
        try:
            flops_efficiency = pinned.flops_efficiency if pinned.workload == "train" else None
            bound = replace(pinned, ideal=True, flops_efficiency=flops_efficiency)
            evaluation = evaluate(plan_of_request(bound), self.burst)
        except PlannerError:
            return None
        return first_row(evaluation.table())

    @cached_property
    def sensitivities(self) -> list[Sensitivity]:
        """Effects of changed hardware, terms, software and question; predicts each changed plan."""
        return sensitivities(self.plan, self.evaluation, self.row, self.burst)

    @cached_property
    def assumptions(self) -> list[RankedAssumption]:
        """Assumptions that change the predictions, largest effect first."""
        return rank_assumptions(self.predicted, self.columns, self.burst)

    @cached_property
    def difference(self) -> Difference | None:
        """Gains and losses of the plan ``against``; None: there is no such plan."""
        return (
            None if self.against is None else Difference(first=self.predicted, other=self.against)
        )

    def to_dict(self) -> dict[str, object]:
        """Return the explanation as a dictionary for JSON; times in s, memory in GiB."""
        sources = SpecSources(self.plan)
        row = {name: value_or_none(value) for name, value in self.row.items()}
        bound = self.bound
        return {
            "plan": SavedPlan.of(self.plan, self.row).to_dict(),
            "row": row,
            "intervals": {
                name: [*map(value_or_none, both)] for name, both in self.predicted.ends.items()
            },
            "at_the_peaks": bound
            and {name: value_or_none(bound[name]) for name in self.columns if name in bound},
            "steps": [step_dict(step, sources) for step in self.steps],
            "memory_gib": self.memory,
            "sensitivities": [
                sensitivity.to_dict(self.row, self.columns) for sensitivity in self.sensitivities
            ],
            "assumptions": [assumption.to_dict() for assumption in self.assumptions],
            "sources": spec_numbers(self.steps, sources),
            "against": None if self.difference is None else self.difference.to_dict(),
        }
