"""A step of an engine over time: operator by operator on one GPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from planner.base.arrays import first
from planner.estimators.inference.operators import StepOperator
from planner.estimators.inference.step import InferenceStep
from planner.estimators.timeline.placed import (
    COMPUTE,
    EXCHANGE,
    MORE,
    TRANSFER,
    WAIT,
    Span,
    Timeline,
)

_SHOWN = 2
"""Layers of a kind that are shown before others like them are left out, the last one beside."""
_AFTER = {
    "pipeline": TRANSFER,
    "launch_wait": WAIT,
    "transfer_wait": WAIT,
    "overhead": WAIT,
}


def step_timeline(
    step: InferenceStep, title: str, *, memory: float = 0.0, capacity: float = 0.0
) -> Timeline:
    """The operators of the first configuration's step in the order of the model.

    What passes between pipeline stages, and what the GPU waits for in all, stands after them.
    ``memory`` [bytes] is held throughout, of which ``capacity`` may be used.
    """
    lane = _Lane()
    spans: list[Span] = []
    embedding, logits = _ends(step.ends)
    spans += lane.operators(embedding, "")
    for number, (count, operators) in enumerate(step.layers):
        kind = f" of kind {number + 1}" if len(step.layers) > 1 else ""
        spans += lane.layers(count, operators, kind)
    spans += lane.operators(logits, "")
    for part, stream in _AFTER.items():
        spans += lane.one(part.replace("_", " "), part, stream, first(getattr(step, part)))
    return Timeline(
        title=title,
        lanes=["GPU"],
        spans=spans,
        makespan=lane.now,
        skipped=lane.skipped,
        memory=[[(0.0, memory)]] if memory else (),
        peak=memory,
        capacity=capacity,
    )


class _Lane:
    """Spans one after the other: ``now`` is when the next one starts [s]."""

    def __init__(self) -> None:
        self.now = 0.0
        self.skipped: list[tuple[float, float]] = []

    def one(self, name: str, part: str, stream: str, seconds: float) -> Iterator[Span]:
        """A span, where it takes anything."""
        if seconds > 0:
            yield Span(0, stream, name, part, self.now, seconds)
            self.now += seconds

    def operators(self, operators: Sequence[StepOperator], where: str) -> Iterator[Span]:
        """Operators in their order."""
        for operator in operators:
            is_compute = operator.part == "compute"
            part = operator.module if is_compute else operator.part
            name = f"{operator.name.replace('_', ' ')}{where}"
            stream = COMPUTE if is_compute else EXCHANGE
            yield from self.one(name, part, stream, first(operator.time))

    def layers(self, count: int, operators: Sequence[StepOperator], kind: str) -> Iterator[Span]:
        """The layers of a kind, of many those of the middle in one span."""
        shown = range(count) if count <= _SHOWN + 2 else range(_SHOWN)
        for layer in shown:
            yield from self.operators(operators, f", layer {layer + 1}{kind}")
        if len(shown) == count:
            return
        more = count - _SHOWN - 1
        within: dict[str, float] = {}
        for operator in operators:
            part = operator.module if operator.part == "compute" else operator.part
            within[part] = within.get(part, 0.0) + more * first(operator.time)
        seconds, start = sum(within.values()), self.now
        if seconds > 0:
            yield Span(0, COMPUTE, f"{more} layers more{kind}", MORE, start, seconds, within)
            self.now += seconds
            self.skipped.append((start, self.now))
        yield from self.operators(operators, f", layer {count}{kind}")


def _ends(
    operators: Sequence[StepOperator],
) -> tuple[list[StepOperator], list[StepOperator]]:
    """What stands before the layers, and what after them."""
    before = [operator for operator in operators if operator.module == "embedding"]
    return before, [operator for operator in operators if operator.module != "embedding"]
