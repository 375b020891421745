"""Compare plans step by step."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import cached_property

from planner.base.csv_cells import Row, Value, number_or_nan
from planner.base.read_files import JsonObject
from planner.base.records import record
from planner.confidence.intervals import Confidence
from planner.decide.assumptions import SensitiveAssumption, sensitive_assumptions
from planner.decide.explain.sensitivity import rejection_reason, relative_change
from planner.decide.explain.step_breakdown import ExplainedStep, explain_steps
from planner.optimize.collector import value_or_none
from planner.optimize.result_columns import COLUMNS_BY_ERROR, intervals
from planner.optimize.source import first_row
from planner.question.parse_values import full_name
from planner.question.request import Answers, Request
from planner.question.terms import is_better_high, terms_of
from planner.workloads.build_request import OptionNamer, make_request
from planner.workloads.make_plan import Plan
from planner.workloads.saved_plan import SavedPlan
from planner.workloads.workload import Evaluation

_FIELDS = {field.name for field in fields(Request)}
_NO_ANSWERS = {"settings", "constraints", "objectives", "workload"}


def replace_answers(base: Request, changes: Answers, option_name: OptionNamer = str) -> Request:
    """Return the request with other answers and settings, by name or short name.

    Raises SpecError or SearchSpaceError if a name is unknown or a value is invalid.
    """
    terms = terms_of(base.workload, "parameter", "question", "pool")
    answers: dict[str, object] = {}
    settings: dict[str, object] = {}
    for name_or_alias, value in changes.items():
        name = full_name(name_or_alias.replace("-", "_"), terms)
        is_question = name in _FIELDS - _NO_ANSWERS and name not in base.settings
        (answers if is_question else settings)[name] = value
    if settings:
        answers["settings"] = settings
    return make_request(answers, base=base, option_name=option_name)


_MEMORY, _UNIT, _HEADROOM = "memory_", "_gib", "memory_headroom_gib"


@record(kw_only=True)
class PredictedPlan:
    """One of the plans of a comparison; each attribute is computed at its first use and cached.

    Parameters
    ----------
    plan : plan of the question
    evaluation : judged configuration
    name : name in the comparison
    """

    plan: Plan
    evaluation: Evaluation
    name: str = ""

    @cached_property
    def row(self) -> Row:
        """Result columns of the plan."""
        return first_row(self.evaluation.table())

    @cached_property
    def steps(self) -> dict[str, ExplainedStep]:
        """Steps of the plan by kind; predicts the plan again."""
        return {step.name: step for step in explain_steps(self.plan, self.evaluation)}

    @property
    def reason(self) -> str:
        """Rule that the plan breaks, in words; empty: none."""
        return rejection_reason(self.plan, self.evaluation) if self.evaluation.rejected_by else ""

    @property
    def confidence(self) -> Confidence | None:
        """90 % intervals of the predictions; None: unknown."""
        return self.evaluation.source.confidence_of(self.row)

    @cached_property
    def facts(self) -> list[SensitiveAssumption]:
        """Assumptions that change the predictions of the plan."""
        return sensitive_assumptions(self.plan, self.evaluation.candidates)

    @cached_property
    def ends(self) -> dict[str, tuple[float, float]]:
        """90 % interval of each result column."""
        return intervals(self.row, self.confidence)

    @cached_property
    def memory(self) -> dict[str, float]:
        """Return the memory of the fullest GPU by part [GiB]."""
        return {
            name.removeprefix(_MEMORY).removesuffix(_UNIT): number_or_nan(amount)
            for name, amount in self.row.items()
            if name.startswith(_MEMORY) and name.endswith(_UNIT) and name != _HEADROOM
        }

    @cached_property
    def answers_and_parameters(self) -> dict[str, Value]:
        """Return every answer and parameter of the plan by name."""
        pinned = SavedPlan.of(self.plan, self.row)
        named = {name: self.row[name] for name in pinned.answers if name in self.row}
        questions = terms_of(self.plan.workload.name, "question")
        settled = {
            name: value
            for name, value in self.evaluation.source.question_columns.items()
            if name in questions and value != ""
        }
        return {**pinned.answers, **settled, **named, **pinned.parameters}


@record(kw_only=True)
class PartDifference:
    """A part of the time [s], of the memory [GiB] or a result column of two plans.

    Parameters
    ----------
    name : name of the part or column
    first : value of the first plan
    other : value of the second plan
    ends : 90 % interval of each value; None: unknown
    """

    name: str
    first: float
    other: float
    ends: tuple[tuple[float, float] | None, tuple[float, float] | None] = (None, None)

    @property
    def gain(self) -> float:
        """Value of the second plan less that of the first [s, GiB or unit of the column]."""
        return self.other - self.first

    def to_dict(self) -> dict[str, object]:
        """Return the difference of one part as a dictionary for JSON."""
        intervals = [None if ends is None else [*map(value_or_none, ends)] for ends in self.ends]
        return {
            "name": self.name,
            "one": value_or_none(self.first),
            "other": value_or_none(self.other),
            "change": relative_change(self.other, self.first),
            "intervals": intervals,
        }


@record(kw_only=True)
class Difference:
    """Two plans compared term by term.

    Parameters
    ----------
    first : first plan
    other : second plan (``against``)
    """

    first: PredictedPlan
    other: PredictedPlan

    @cached_property
    def settings(self) -> dict[str, tuple[Value, Value]]:
        """Return settings and answers that differ, as values of the first and the second plan."""
        names = dict.fromkeys(
            (*self.first.answers_and_parameters, *self.other.answers_and_parameters)
        )
        both = {
            name: (
                self.first.answers_and_parameters.get(name),
                self.other.answers_and_parameters.get(name),
            )
            for name in names
        }
        return {name: values for name, values in both.items() if values[0] != values[1]}

    @cached_property
    def results(self) -> list[PartDifference]:
        """Return the main result columns of both plans."""
        wording = self.first.plan.workload.wording
        names = [*wording.shown_columns, "peak_memory_gib", _HEADROOM]
        ends = self.first.ends, self.other.ends
        return [
            PartDifference(
                name=name,
                first=number_or_nan(self.first.row[name]),
                other=number_or_nan(self.other.row[name]),
                ends=(ends[0].get(name), ends[1].get(name)),
            )
            for name in dict.fromkeys(names)
            if name in self.first.row and name in self.other.row
        ]

    @cached_property
    def times(self) -> dict[str, list[PartDifference]]:
        """Return per kind of step the terms of its time in both plans [s], largest gap first."""
        return {
            name: _part_differences(self.first.steps[name].terms, self.other.steps[name].terms)
            for name in self.first.steps
            if name in self.other.steps
        }

    @cached_property
    def memory(self) -> list[PartDifference]:
        """Parts of the memory [GiB], largest difference first."""
        return _part_differences(self.first.memory, self.other.memory)

    @property
    def tie_factor(self) -> float:
        """Return the ratio of results below which published runs cannot rank plans; 1: no ties."""
        factors = (
            seen.confidence.layout_tie_factor for seen in self._plans if seen.confidence is not None
        )
        return max(factors, default=1.0) if self.first.plan.problem.has_ties else 1.0

    @property
    def is_tie(self) -> bool:
        """Return True if the plans differ by less than the tie factor in the first objective."""
        goal = self.first.plan.problem.objectives[0].name
        first, other = (
            float(seen.evaluation.candidates.value(goal).ravel()[0]) for seen in self._plans
        )
        return 1 / self.tie_factor < other / first < self.tie_factor

    @property
    def _plans(self) -> tuple[PredictedPlan, PredictedPlan]:
        return self.first, self.other

    def to_dict(self) -> dict[str, object]:
        """Return the differences of both plans as a dictionary for JSON."""
        difference: dict[str, object] = {
            "settings": {name: list(values) for name, values in self.settings.items()},
            "impossible": self.other.reason,
        }
        if self.other.reason:
            return difference
        return {
            **difference,
            "is_tie": self.is_tie,
            "tie_factor": self.tie_factor,
            "results": [term.to_dict() for term in self.results],
            "time_s": {name: [t.to_dict() for t in terms] for name, terms in self.times.items()},
            "memory_gib": [term.to_dict() for term in self.memory],
        }


def _part_differences(
    first: Mapping[str, float], second: Mapping[str, float]
) -> list[PartDifference]:
    """Compare two plans by part, largest difference first, without parts that are 0 in both."""
    names = dict.fromkeys((*first, *second))
    terms = [
        PartDifference(name=n, first=first.get(n, 0.0), other=second.get(n, 0.0)) for n in names
    ]
    return sorted((term for term in terms if term.first or term.other), key=lambda t: -abs(t.gain))


_PEAK_MEMORY = "peak_memory_gib"
_EQUAL = 1e-9


@record(kw_only=True)
class ComparedColumn:
    """A result column of several plans.

    Parameters
    ----------
    name : name of the column
    values : value of each plan; NaN: infeasible or not known
    ends : 90 % interval of each value; None: unknown
    best : index of the best plan
    ties : indices of the plans that are tied with the best
    """

    name: str
    values: tuple[float, ...]
    ends: tuple[tuple[float, float] | None, ...]
    best: int
    ties: tuple[int, ...]

    def to_dict(self) -> dict[str, object]:
        """Return the compared column as a dictionary for JSON."""
        return {
            "name": self.name,
            "values": [*map(value_or_none, self.values)],
            "intervals": [e and [*map(value_or_none, e)] for e in self.ends],
            "best": self.best,
            "ties": list(self.ties),
        }


@record(kw_only=True)
class ComparedPlans:
    """Several plans compared, at least one of them feasible.

    Parameters
    ----------
    predicted : plans
    missing : reason by name that has no plan
    """

    predicted: tuple[PredictedPlan, ...]
    missing: Mapping[str, str]

    @cached_property
    def settings(self) -> dict[str, tuple[Value, ...]]:
        """Return questions and parameters that differ, with the value of each plan."""
        names = dict.fromkeys(
            name for seen in self.predicted for name in seen.answers_and_parameters
        )
        values = {
            name: tuple(seen.answers_and_parameters.get(name) for seen in self.predicted)
            for name in names
        }
        return {name: each for name, each in values.items() if len(set(map(str, each))) > 1}

    @cached_property
    def results(self) -> list[ComparedColumn]:
        """Return the main result columns that differ between the plans."""
        shown = (
            *self.predicted[0].plan.workload.wording.shown_columns,
            _PEAK_MEMORY,
            "memory_headroom_gib",
        )
        names = [
            name for name in dict.fromkeys(shown) if any(name in s.row for s in self.predicted)
        ]
        columns = [self._compare_column(name) for name in names]
        return [column for column in columns if column is not None]

    @cached_property
    def times(self) -> dict[str, dict[str, tuple[float, ...]]]:
        """Return per kind of step and term the time in each plan [s], if the plans differ."""
        kinds = dict.fromkeys(kind for seen in self._feasible_plans for kind in seen.steps)
        return {
            kind: _differing_parts(
                [
                    {} if seen.reason or kind not in seen.steps else seen.steps[kind].terms
                    for seen in self.predicted
                ]
            )
            for kind in kinds
        }

    @cached_property
    def memory(self) -> dict[str, tuple[float, ...]]:
        """Memory of each plan by part [GiB]."""
        return _differing_parts([seen.memory for seen in self.predicted])

    def tie_factor(self, first: int, second: int) -> float:
        """Return the ratio of results up to which published runs cannot rank two plans; 1: no ties.

        Parameters
        ----------
        first : index of a plan
        second : index of another plan
        """
        plans = self.predicted[first], self.predicted[second]
        factors = (
            seen.confidence.layout_tie_factor for seen in plans if seen.confidence is not None
        )
        has_ties = all(seen.plan.problem.has_ties for seen in plans)
        return max(factors, default=1.0) if has_ties else 1.0

    @property
    def wins(self) -> dict[int, list[str]]:
        """Return, by index of the plan, the columns in which only this plan is best."""
        wins: dict[int, list[str]] = {}
        for result in self.results:
            if not result.ties:
                wins.setdefault(result.best, []).append(result.name)
        return wins

    def to_dict(self) -> JsonObject:
        """Return the comparison as a dictionary for JSON; times in s, memory in GiB."""
        return {
            "plans": [
                {
                    "name": seen.name,
                    "workload": seen.plan.workload.name,
                    "impossible": seen.reason,
                    "asked": seen.answers_and_parameters,
                    "basis": None
                    if seen.reason or seen.confidence is None
                    else seen.confidence.basis,
                }
                for seen in self.predicted
            ],
            "without_plan": dict(self.missing),
            "settings": {name: list(values) for name, values in self.settings.items()},
            "results": [result.to_dict() for result in self.results],
            "times_s": {
                kind: {term: list(values) for term, values in terms.items()}
                for kind, terms in self.times.items()
            },
            "memory_gib": {part: list(values) for part, values in self.memory.items()},
        }

    @property
    def _feasible_plans(self) -> list[PredictedPlan]:
        return [seen for seen in self.predicted if not seen.reason]

    def _compare_column(self, name: str) -> ComparedColumn | None:
        """Compare a result column over plans; None if all are equal or fewer than two have it."""
        values = tuple(
            math.nan if seen.reason else number_or_nan(seen.row.get(name))
            for seen in self.predicted
        )
        finite = [index for index, value in enumerate(values) if math.isfinite(value)]
        if len(finite) < 2 or _are_equal([values[index] for index in finite]):
            return None
        best = (max if is_better_high(name) else min)(finite, key=lambda index: values[index])
        ties = [
            index
            for index in finite
            if index != best
            and _has_published_errors(name)
            and _ratio(values[index], values[best]) < self.tie_factor(best, index)
        ]
        ends = tuple(None if seen.reason else seen.ends.get(name) for seen in self.predicted)
        return ComparedColumn(name=name, values=values, ends=ends, best=best, ties=tuple(ties))


def _has_published_errors(column: str) -> bool:
    """Return True if published runs show the prediction error of this result column."""
    return any(
        column in columns
        for quantity, both in COLUMNS_BY_ERROR.items()
        if quantity != "peak_memory"
        for columns in both
    )


def _ratio(first: float, second: float) -> float:
    low, high = sorted((first, second))
    return high / low if low > 0 else math.inf


def _are_equal(values: Sequence[float]) -> bool:
    return max(values) - min(values) <= _EQUAL * max(map(abs, values))


def _differing_parts(each: Sequence[Mapping[str, float]]) -> dict[str, tuple[float, ...]]:
    """Return the parts that differ between plans, largest difference first."""
    names = dict.fromkeys(name for parts in each for name in parts)
    parts_by_name = {name: tuple(parts.get(name, 0.0) for parts in each) for name in names}
    differing = {name: values for name, values in parts_by_name.items() if not _are_equal(values)}
    return dict(sorted(differing.items(), key=lambda item: min(item[1]) - max(item[1])))
