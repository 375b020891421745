"""What bounds every operator of a step, and how far it is from its roofline."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property

from planner.base.records import record
from planner.decide.explaining.formulas import FORMULAS, UNITS, WAITS, references_of
from planner.decide.explaining.sources import Sources
from planner.optimize.source import Candidates
from planner.plan.plan import Plan
from planner.workloads.base import Evaluation
from planner.workloads.timed import Done, TimedPart, with_ledger

OTHER = "other"
"""What bounds a part of which nothing is recorded."""


@record(kw_only=True)
class ExplainedPart:
    """An operator or another part of a step with what bounds it.

    ``bounds`` has its seconds by what bounds them: each kernel counts whole for its largest term.
    """

    part: TimedPart
    bounds: Mapping[str, float]
    at_peak: float

    @property
    def bound(self) -> str:
        """What bounds most of it."""
        return max(self.bounds, key=lambda name: self.bounds[name])

    @property
    def of_roofline(self) -> float:
        """The share of its roofline that it reaches; 0 of what no peak bounds."""
        return self.at_peak / self.part.seconds if self.part.seconds else 0.0

    @property
    def title(self) -> str:
        """Its module and its name, once where they say the same."""
        name, module = self.part.name.replace("_", " "), self.part.module.replace("_", " ")
        return name if not module or module in name else f"{module} {name}"

    @property
    def waits(self) -> str:
        """Why it is there, of a part without work of its own."""
        wait = WAITS.get(self.part.part)
        return wait.words if wait is not None and not self.part.done else ""


@record(kw_only=True)
class ExplainedStep:
    """A step: its parts, the longest first, and what bounds them together."""

    name: str
    seconds: float
    parts: tuple[ExplainedPart, ...]

    @cached_property
    def bounds(self) -> dict[str, float]:
        """Seconds by what bounds them, the most first."""
        sums: dict[str, float] = {}
        for part in self.parts:
            for name, seconds in part.bounds.items():
                sums[name] = sums.get(name, 0.0) + seconds
        return dict(sorted(sums.items(), key=lambda item: -item[1]))

    @property
    def bound(self) -> str:
        """What bounds most of it."""
        return next(iter(self.bounds))

    @property
    def of_roofline(self) -> float:
        """The share of the step that its work would take at the peaks."""
        return sum(part.at_peak for part in self.parts) / self.seconds

    @cached_property
    def terms(self) -> dict[str, float]:
        """Seconds by the terms of the step's time."""
        sums: dict[str, float] = {}
        for part in self.parts:
            for name, seconds in part.part.terms.items():
                sums[name] = sums.get(name, 0.0) + seconds
        return sums


def explained_steps(plan: Plan, found: Evaluation) -> list[ExplainedStep]:
    """The steps of the one configuration of a plan, predicted again with what is behind them."""
    timed = plan.workload.timed(recorded(found))
    return [
        ExplainedStep(
            name=name,
            seconds=step.seconds,
            parts=tuple(sorted(map(_part, step.parts), key=lambda part: -part.part.seconds)),
        )
        for name, step in timed.items()
    ]


def recorded(found: Evaluation) -> Candidates:
    """The candidates of an evaluation, judged again with a ledger."""
    source = found.source.changed(with_ledger)
    return source.judged(found.candidates.configurations)


def _part(part: TimedPart) -> ExplainedPart:
    bounds: dict[str, float] = {}
    for done in part.done:
        name = largest_term(done)
        bounds[name] = bounds.get(name, 0.0) + done.times * done.once
    if not bounds:
        wait = WAITS.get(part.part)
        bounds = {wait.bounds if wait else OTHER: part.seconds}
    at_peak = sum(done.times * done.at_peak for done in part.done)
    return ExplainedPart(part=part, bounds=bounds, at_peak=at_peak)


def largest_term(done: Done) -> str:
    """What bounds a piece of work."""
    terms = done.terms
    return max(terms, key=lambda name: terms[name]) if terms else OTHER


def step_dict(step: ExplainedStep, sources: Sources) -> dict[str, object]:
    """Plain words and numbers, as JSON takes them; times in seconds."""
    return {
        "step": step.name,
        "time_s": step.seconds,
        "of_roofline": step.of_roofline,
        "bounds_s": step.bounds,
        "terms_s": step.terms,
        "operators": [_part_dict(part, step, sources) for part in step.parts],
    }


def _part_dict(part: ExplainedPart, step: ExplainedStep, sources: Sources) -> dict[str, object]:
    wait = WAITS.get(part.part.part) if part.waits else None
    return {
        "operator": part.part.name,
        "module": part.part.module,
        "part": part.part.part,
        "time_s": part.part.seconds,
        "share": part.part.seconds / step.seconds,
        "bound": part.bound,
        "bounds_s": dict(part.bounds),
        "of_roofline": part.of_roofline,
        "terms_s": dict(part.part.terms),
        "waits": part.waits,
        "waits_of": [*_known(wait.keys, sources)] if wait else [],
        "formula": wait.function.__name__ if wait and wait.function else "",
        "references": references_of(wait.function) if wait and wait.function else [],
        "work": [_work_dict(done, sources) for done in part.part.done],
    }


def _known(keys: Iterable[str], sources: Sources) -> Iterator[str]:
    """Those numbers of the profile that it has, as keys of the specs."""
    return (named for key in keys if sources.of_key(named := f"{sources.profile_kind} {key}"))


def keys_of(steps: Iterable[ExplainedStep], sources: Sources) -> dict[str, str]:
    """Every number of the specs that steps rest on, with its source."""
    found: dict[str, str] = {}
    for part in (part for step in steps for part in step.parts):
        for done in part.part.done:
            keys = (sources.key_of(done, name) for name in done.work.figures)
            found |= {key: sources.of_key(key) for key in keys if key}
        if part.waits:
            known = _known(WAITS[part.part.part].keys, sources)
            found |= {key: sources.of_key(key) for key in known}
    return found


def _work_dict(done: Done, sources: Sources) -> dict[str, object]:
    formula = FORMULAS[done.work.formula]
    figures = []
    for name in done.work.figures:
        key = sources.key_of(done, name)
        figures.append(
            {"figure": name, "value": done.figure(name), "unit": UNITS[name], "key": key}
        )
    return {
        "kind": formula.title,
        "formula": formula.place,
        "references": formula.references,
        "words": formula.words(done),
        "time_s": done.once,
        "times": done.times,
        "at_peak_s": done.at_peak,
        "bound": largest_term(done),
        "terms_s": done.terms,
        "figures": figures,
    }
