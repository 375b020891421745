"""The parts of a training step, for explanations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from planner.estimators.step_time import StepTime
from planner.workloads.timed import ALL_MODULES, TimedPart, TimedStep, merged


def training_steps(runs: Any) -> Mapping[str, TimedStep]:
    """The one step of a run; none where its time is a flat share of the peak."""
    if runs.estimate.is_flat:
        return {}
    time: StepTime = runs.estimate.time
    parts = merged((*_operators(time), *_others(time)))
    return {"step": TimedStep(seconds=_first(time.total), parts=parts)}


def _operators(time: StepTime) -> Iterator[TimedPart]:
    for operator, seconds in time.operator_times():
        terms = {name: _first(value) for name, value in seconds.items()}
        if operator.part != "compute":
            terms = {operator.part: sum(terms.values())}
        yield TimedPart.of(
            operator.name, operator.module, terms, operator.works, part=operator.part
        )


def _others(time: StepTime) -> Iterator[TimedPart]:
    """What belongs to no operator: the rest of every part of the step."""
    in_operators: dict[str, float] = {}
    for part in _operators(time):
        for term, seconds in part.terms.items():
            in_operators[term] = in_operators.get(term, 0.0) + seconds
    for name, value in time.parts().items():
        rest = _first(value) - in_operators.get(name, 0.0)
        if abs(rest) > 1e-9 * _first(value):
            works = time.works.get(name, ())
            yield TimedPart.of(name, ALL_MODULES, {name: rest}, works, part=name)


def _first(value: Any) -> float:
    return float(np.ravel(value)[0])
