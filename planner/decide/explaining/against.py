"""A plan beside another one: term by term what it gains and loses, or the rule that it breaks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from functools import cached_property

from planner.base.cells import Row, Value, number
from planner.base.records import record
from planner.confidence.intervals import Confidence
from planner.decide.explaining.steps import ExplainedStep, explained_steps
from planner.decide.explaining.what_if import broken, change
from planner.decide.open_facts import MovingFact, moving_facts, widened
from planner.optimize.collector import first_row, known_value
from planner.optimize.result_columns import intervals
from planner.plan.given import Said, make_request
from planner.plan.pinned import PinnedPlan
from planner.plan.plan import Plan
from planner.question.inputs import full_name
from planner.question.request import Request
from planner.question.terms import terms_of
from planner.workloads.base import Evaluation

_FIELDS = {field.name for field in fields(Request)}
_NO_ANSWERS = {"settings", "constraints", "objectives", "workload"}


def changed_request(base: Request, changes: Mapping[str, object], said: Said = str) -> Request:
    """A request with other answers and settings, by their names or short names.

    Raises
    ------
    SpecError, SearchSpaceError
        A name is unknown, or a value is not what it takes.
    """
    known = terms_of(base.workload, "parameter", "question", "pool")
    answers: dict[str, object] = {}
    settings: dict[str, object] = {}
    for given, value in changes.items():
        name = full_name(given.replace("-", "_"), known)
        is_question = name in _FIELDS - _NO_ANSWERS and name not in base.settings
        (answers if is_question else settings)[name] = value
    if settings:
        answers["settings"] = settings
    return make_request(answers, base=base, said=said)


_MEMORY, _UNIT, _HEADROOM = "memory_", "_gib", "memory_headroom_gib"


@record(kw_only=True)
class Seen:
    """One plan that is compared: what was asked, what it reaches, what its time is made of."""

    plan: Plan
    found: Evaluation
    name: str = ""

    @cached_property
    def row(self) -> Row:
        """Its result columns."""
        return first_row(self.found.table())

    @cached_property
    def steps(self) -> dict[str, ExplainedStep]:
        """Its steps by kind."""
        return {step.name: step for step in explained_steps(self.plan, self.found)}

    @property
    def reason(self) -> str:
        """The rule that it breaks, in words; empty where it is possible."""
        return broken(self.plan, self.found) if self.found.rejected_by else ""

    @property
    def sure(self) -> Confidence | None:
        """How sure its predictions are."""
        return self.found.source.confidence(number(self.row["num_gpus"]))

    @cached_property
    def facts(self) -> list[MovingFact]:
        """The open facts that move it."""
        return moving_facts(self.plan, self.found.candidates)

    @cached_property
    def ends(self) -> dict[str, tuple[float, float]]:
        """The 90 % intervals of its results by column, open facts included."""
        return widened(intervals(self.row, self.sure), self.facts)

    @cached_property
    def memory(self) -> dict[str, float]:
        """GiB of each part of the fullest GPU's memory."""
        return {
            name.removeprefix(_MEMORY).removesuffix(_UNIT): number(amount)
            for name, amount in self.row.items()
            if name.startswith(_MEMORY) and name.endswith(_UNIT) and name != _HEADROOM
        }

    @cached_property
    def asked(self) -> dict[str, Value]:
        """Every answer and every parameter."""
        pinned = PinnedPlan.of(self.plan, self.row)
        named = {name: self.row[name] for name in pinned.answers if name in self.row}
        questions = terms_of(self.plan.workload.name, "question")
        settled = {
            name: value
            for name, value in self.found.source.asked.items()
            if name in questions and value != ""
        }
        return {**pinned.answers, **settled, **named, **pinned.parameters}


@record(kw_only=True)
class Term:
    """What two plans have of a part of time [s] or memory [GiB], or of a result column.

    ``ends`` are those of 90 % intervals, where runs like these are published.
    """

    name: str
    one: float
    other: float
    ends: tuple[tuple[float, float] | None, tuple[float, float] | None] = (None, None)

    @property
    def gain(self) -> float:
        """How much more the other plan has."""
        return self.other - self.one

    def to_dict(self) -> dict[str, object]:
        """Plain words and numbers, as JSON takes them."""
        intervals = [None if ends is None else [*map(known_value, ends)] for ends in self.ends]
        return {
            "name": self.name,
            "one": known_value(self.one),
            "other": known_value(self.other),
            "change": change(self.other, self.one),
            "intervals": intervals,
        }


@record(kw_only=True)
class Difference:
    """A plan beside ``other``, that of ``--against``."""

    one: Seen
    other: Seen

    @cached_property
    def settings(self) -> dict[str, tuple[Value, Value]]:
        """What is asked or set otherwise, the first plan's value first."""
        names = dict.fromkeys((*self.one.asked, *self.other.asked))
        both = {name: (self.one.asked.get(name), self.other.asked.get(name)) for name in names}
        return {name: values for name, values in both.items() if values[0] != values[1]}

    @cached_property
    def results(self) -> list[Term]:
        """What both reach, of the columns that tell plans of this kind."""
        wording = self.one.plan.workload.wording
        names = [*wording.told, "peak_memory_gib", _HEADROOM]
        ends = self.one.ends, self.other.ends
        return [
            Term(
                name=name,
                one=number(self.one.row[name]),
                other=number(self.other.row[name]),
                ends=(ends[0].get(name), ends[1].get(name)),
            )
            for name in dict.fromkeys(names)
            if name in self.one.row and name in self.other.row
        ]

    @cached_property
    def times(self) -> dict[str, list[Term]]:
        """By kind of step the terms of its time [s], those that differ most first."""
        return {
            name: _terms(self.one.steps[name].terms, self.other.steps[name].terms)
            for name in self.one.steps
            if name in self.other.steps
        }

    @cached_property
    def memory(self) -> list[Term]:
        """Parts of the memory [GiB], those that differ most first."""
        return _terms(self.one.memory, self.other.memory)

    @property
    def tie_factor(self) -> float:
        """The factor within which published runs do not tell the two apart; 1: they do."""
        factors = (seen.sure.layout for seen in self._both if seen.sure is not None)
        return max(factors, default=1.0) if self.one.plan.problem.has_ties else 1.0

    @property
    def is_tie(self) -> bool:
        """Whether published runs do not tell which plan is better."""
        goal = self.one.plan.problem.objectives[0].name
        one, other = (float(seen.found.candidates.value(goal).ravel()[0]) for seen in self._both)
        return 1 / self.tie_factor < other / one < self.tie_factor

    @property
    def _both(self) -> tuple[Seen, Seen]:
        return self.one, self.other

    def to_dict(self) -> dict[str, object]:
        """Plain words and numbers, as JSON takes them."""
        told: dict[str, object] = {
            "settings": {name: list(values) for name, values in self.settings.items()},
            "impossible": self.other.reason,
        }
        if self.other.reason:
            return told
        return {
            **told,
            "is_tie": self.is_tie,
            "tie_factor": self.tie_factor,
            "results": [term.to_dict() for term in self.results],
            "time_s": {name: [t.to_dict() for t in terms] for name, terms in self.times.items()},
            "memory_gib": [term.to_dict() for term in self.memory],
        }


def _terms(one: Mapping[str, float], other: Mapping[str, float]) -> list[Term]:
    names = dict.fromkeys((*one, *other))
    found = [Term(name=n, one=one.get(n, 0.0), other=other.get(n, 0.0)) for n in names]
    return sorted((term for term in found if term.one or term.other), key=lambda t: -abs(t.gain))
