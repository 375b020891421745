"""The parts of a training step with their times."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from planner.base.arrays import first
from planner.estimators.training.flat_step import TENSOR_PARALLEL
from planner.estimators.training.step_time import StepTime
from planner.estimators.training.training_estimate import Estimate
from planner.optimize.source import Candidates
from planner.workloads.timed_steps import ALL_MODULES, TimedPart, TimedStep, merge_parts
from planner.workloads.training.results import TrainingRuns


def training_steps(runs: Candidates) -> Mapping[str, TimedStep]:
    """The timed training step under the name ``step``; empty for other candidates."""
    if not isinstance(runs, TrainingRuns):
        return {}
    if runs.estimate.is_flat:
        parts = merge_parts(_flat_parts(runs.estimate))
        return {"step": TimedStep(seconds=first(runs.step_time), parts=parts)}
    return {"step": timed_training(runs.estimate.time)}


def _flat_parts(estimate: Estimate) -> Iterator[TimedPart]:
    """Yield the seconds of each module of a step if the user sets a FLOPS efficiency."""
    works = [
        work
        for operator, _ in estimate.time.operator_times()
        if operator.part == TENSOR_PARALLEL
        for work in operator.works
    ]
    for name, seconds in estimate.flat_modules.items():
        terms = {term: first(value) for term, value in seconds.items()}
        is_sent = name == TENSOR_PARALLEL
        part = TENSOR_PARALLEL if is_sent else "flops_efficiency"
        yield TimedPart.of(name, name, terms, works if is_sent else (), part=part)


def timed_training(time: StepTime, kind: str = "step") -> TimedStep:
    """An optimizer step part by part, as a step of a ``kind``."""
    parts = merge_parts((*_operators(time), *_remaining_parts(time, kind)))
    return TimedStep(seconds=first(time.total), parts=parts)


def _operators(time: StepTime) -> Iterator[TimedPart]:
    """Yield the seconds of each operator of a training step, by time term."""
    for operator, seconds in time.operator_times():
        terms = {name: first(value) for name, value in seconds.items()}
        if operator.part != "compute":
            terms = {operator.part: sum(terms.values())}
        yield TimedPart.of(
            operator.name, operator.module, terms, operator.works, part=operator.part
        )


def _remaining_parts(time: StepTime, kind: str) -> Iterator[TimedPart]:
    """Yield the seconds of each part of the step that belongs to no operator.

    Forward passes of a reference model run the kernels of the other forward passes.
    """
    in_operators: dict[str, float] = {}
    for part in _operators(time):
        for term, seconds in part.terms.items():
            in_operators[term] = in_operators.get(term, 0.0) + seconds
    for name, value in time.parts().items():
        rest = first(value) - in_operators.get(name, 0.0)
        if abs(rest) > 1e-9 * first(value):
            works = time.works.get(name, ())
            like = kind if name == "reference" and not works else ""
            yield TimedPart.of(name, ALL_MODULES, {name: rest}, works, part=name, like=like)
