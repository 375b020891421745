"""Plans side by side: what differs between them, step by step."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import cached_property

from planner.base.cells import Row, Value, number
from planner.base.records import record
from planner.confidence.intervals import Confidence
from planner.decide.explaining.steps import ExplainedStep, explained_steps
from planner.decide.explaining.what_if import broken, change
from planner.decide.open_facts import MovingFact, moving_facts
from planner.optimize.collector import known_value
from planner.optimize.result_columns import FOLLOWING, intervals
from planner.optimize.source import first_row
from planner.question.inputs import full_name
from planner.question.request import Request
from planner.question.terms import term_of_column, terms_of
from planner.workloads.base import Evaluation
from planner.workloads.given import Said, make_request
from planner.workloads.pinned import PinnedPlan
from planner.workloads.plan import Plan

_FIELDS = {field.name for field in fields(Request)}
_NO_ANSWERS = {"settings", "constraints", "objectives", "workload"}


def changed_request(base: Request, changes: Mapping[str, object], said: Said = str) -> Request:
    """A request with other answers and settings, by their names or short names.

    Raises SpecError or SearchSpaceError if a name is unknown, or a value is not what it takes.
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
        """The 90 % intervals of its results by column."""
        return intervals(self.row, self.sure)

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


_PEAK_MEMORY = "peak_memory_gib"
_EQUAL = 1e-9


@record(kw_only=True)
class Result:
    """A result column of several plans; NaN of one that is impossible or has none.

    ``ends`` are 90 % intervals. ``best`` is the place of the winner; ``ties`` are the places of
    those that published runs do not tell from it.
    """

    name: str
    values: tuple[float, ...]
    ends: tuple[tuple[float, float] | None, ...]
    best: int
    ties: tuple[int, ...]

    def to_dict(self) -> dict[str, object]:
        """Plain words and numbers, as JSON takes them."""
        return {
            "name": self.name,
            "values": [*map(known_value, self.values)],
            "intervals": [e and [*map(known_value, e)] for e in self.ends],
            "best": self.best,
            "ties": list(self.ties),
        }


@record(kw_only=True)
class ComparedPlans:
    """Plans by their names; ``missing`` has what has no plan, and why.

    At least one of them is possible.
    """

    seens: tuple[Seen, ...]
    missing: Mapping[str, str]

    @cached_property
    def settings(self) -> dict[str, tuple[Value, ...]]:
        """Questions and parameters that differ, with the value of each plan."""
        names = dict.fromkeys(name for seen in self.seens for name in seen.asked)
        values = {name: tuple(seen.asked.get(name) for seen in self.seens) for name in names}
        return {name: each for name, each in values.items() if len(set(map(str, each))) > 1}

    @cached_property
    def results(self) -> list[Result]:
        """The results that differ, in the order in which such plans are told."""
        shown = (*self.seens[0].plan.workload.wording.told, _PEAK_MEMORY, "memory_headroom_gib")
        names = [name for name in dict.fromkeys(shown) if any(name in s.row for s in self.seens)]
        found = [self._result(name) for name in names]
        return [one for one in found if one is not None]

    @cached_property
    def times(self) -> dict[str, dict[str, tuple[float, ...]]]:
        """Seconds by kind of step and by term, of each plan."""
        kinds = dict.fromkeys(kind for seen in self._possible for kind in seen.steps)
        return {
            kind: _side_by_side(
                [
                    {} if seen.reason or kind not in seen.steps else seen.steps[kind].terms
                    for seen in self.seens
                ]
            )
            for kind in kinds
        }

    @cached_property
    def memory(self) -> dict[str, tuple[float, ...]]:
        """GiB by part, of each plan."""
        return _side_by_side([seen.memory for seen in self.seens])

    def tie_factor(self, one: int, other: int) -> float:
        """Within which factor published runs do not tell two plans apart; 1: they do."""
        plans = self.seens[one], self.seens[other]
        factors = (seen.sure.layout for seen in plans if seen.sure is not None)
        has_ties = all(seen.plan.problem.has_ties for seen in plans)
        return max(factors, default=1.0) if has_ties else 1.0

    @property
    def wins(self) -> dict[int, list[str]]:
        """The columns that each plan alone is best in, ties left out."""
        wins: dict[int, list[str]] = {}
        for result in self.results:
            if not result.ties:
                wins.setdefault(result.best, []).append(result.name)
        return wins

    def to_dict(self) -> dict[str, object]:
        """Plain words and numbers, as JSON takes them; times in seconds, memory in GiB."""
        return {
            "plans": [
                {
                    "name": seen.name,
                    "workload": seen.plan.workload.name,
                    "impossible": seen.reason,
                    "asked": seen.asked,
                    "basis": None if seen.reason or seen.sure is None else seen.sure.basis,
                }
                for seen in self.seens
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
    def _possible(self) -> list[Seen]:
        return [seen for seen in self.seens if not seen.reason]

    def _result(self, name: str) -> Result | None:
        values = tuple(
            math.nan if seen.reason else number(seen.row.get(name)) for seen in self.seens
        )
        known = [at for at, value in enumerate(values) if math.isfinite(value)]
        if len(known) < 2 or _are_equal([values[at] for at in known]):
            return None
        best = (max if is_better_high(name) else min)(known, key=lambda at: values[at])
        ties = [
            at
            for at in known
            if at != best
            and _is_published(name)
            and _factor(values[at], values[best]) < self.tie_factor(best, at)
        ]
        ends = tuple(None if seen.reason else seen.ends.get(name) for seen in self.seens)
        return Result(name=name, values=values, ends=ends, best=best, ties=tuple(ties))


def is_better_high(column: str) -> bool:
    """Whether more of a result is better: of rates and of what stays free.

    >>> is_better_high("tokens_per_s_per_gpu"), is_better_high("cost_usd")
    (True, False)
    """
    term = term_of_column(column)
    return term is not None and "high" in term.about


def _is_published(column: str) -> bool:
    """Whether published runs tell how far apart plans must be in a column."""
    return any(
        column in columns
        for quantity, both in FOLLOWING.items()
        if quantity != "peak_memory"
        for columns in both
    )


def _factor(one: float, other: float) -> float:
    low, high = sorted((one, other))
    return high / low if low > 0 else math.inf


def _are_equal(values: Sequence[float]) -> bool:
    return max(values) - min(values) <= _EQUAL * max(map(abs, values))


def _side_by_side(each: Sequence[Mapping[str, float]]) -> dict[str, tuple[float, ...]]:
    """Parts that differ, those that differ most first."""
    names = dict.fromkeys(name for parts in each for name in parts)
    found = {name: tuple(parts.get(name, 0.0) for parts in each) for name in names}
    differing = {name: values for name, values in found.items() if not _are_equal(values)}
    return dict(sorted(differing.items(), key=lambda item: min(item[1]) - max(item[1])))
