"""What a rule is: a named reason why a configuration is impossible."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

import numpy as np

from planner.base.arrays import BoolArray, CodeArray, FloatArray, first_true
from planner.base.records import record
from planner.specs.model import ModelSpec

Judged = TypeVar("Judged", contravariant=True)
Context = TypeVar("Context", contravariant=True)


class _Split(Protocol):
    """Configurations of training or of serving."""

    @property
    def data_parallel(self) -> FloatArray: ...

    @property
    def tensor_parallel(self) -> FloatArray: ...


class _OfModel(Protocol):
    """The context of either."""

    @property
    def model(self) -> ModelSpec: ...


@record(kw_only=True)
class Reason:
    """What rejects a configuration, in a word and in a sentence."""

    name: str
    description: str


@record(kw_only=True)
class Rule(Reason, Generic[Judged, Context]):
    """``violated`` is true where a configuration breaks the rule, in a context."""

    violated: Callable[[Judged, Context], BoolArray]


def indivisible(whole: FloatArray | float, part: FloatArray) -> BoolArray:
    """Where ``part`` does not divide ``whole``."""
    quotient = np.asarray(whole) / part
    return np.asarray(quotient != np.floor(quotient))


def left_over_gpus(c: _Split, _: object) -> BoolArray:
    """Where the GPUs are no whole number of copies."""
    return np.asarray((c.data_parallel < 1) | indivisible(c.data_parallel, np.ones(())))


def uneven_widths(c: _Split, context: _OfModel) -> BoolArray:
    """Where tensor parallelism does not divide the feed-forward widths of the context's model."""
    violated = np.zeros((), dtype=np.bool_)
    for mlp in context.model.feed_forwards:
        violated = violated | indivisible(mlp.shared_width, c.tensor_parallel)
    return violated


def first_broken(
    rules: Sequence[Rule[Judged, Context]], configurations: Judged, context: Context
) -> CodeArray:
    """One-based number of the first rule each configuration breaks, else 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return first_true(rule.violated(configurations, context) for rule in rules)


def predicted(name: str, description: str) -> Rule[object, object]:
    """A rule that no configuration breaks by itself: predictions tell."""
    return Rule(
        name=name, description=description, violated=lambda *_: np.zeros((), dtype=np.bool_)
    )


OUT_OF_HOST_MEMORY = predicted(
    "out_of_host_memory", "what is offloaded or loads whole needs more than the host memory"
)
