"""What a rule is: a named reason why a configuration is impossible."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from planner.base.arrays import BoolArray, CodeArray, FloatArray, first_true
from planner.base.records import record

Violation = Callable[[Any, Any], BoolArray]


@record(kw_only=True)
class Rule:
    """``violated`` is true where a configuration breaks the rule ``description``, in a context."""

    name: str
    description: str
    violated: Violation


def indivisible(whole: FloatArray | float, part: FloatArray) -> BoolArray:
    """Where ``part`` does not divide ``whole``."""
    quotient = np.asarray(whole) / part
    return np.asarray(quotient != np.floor(quotient))


def left_over_gpus(c: Any, _: Any) -> BoolArray:
    """Where the GPUs are no whole number of copies."""
    return np.asarray((c.data_parallel < 1) | indivisible(c.data_parallel, np.ones(())))


def uneven_widths(c: Any, context: Any) -> BoolArray:
    """Where tensor parallelism does not divide the feed-forward widths of the context's model."""
    violated = np.zeros((), dtype=np.bool_)
    for mlp in context.model.feed_forwards:
        violated = violated | indivisible(mlp.shared_width, c.tensor_parallel)
    return violated


def first_broken(rules: Sequence[Rule], configurations: object, context: object) -> CodeArray:
    """One-based number of the first rule each configuration breaks, else 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return first_true(rule.violated(configurations, context) for rule in rules)


def predicted(name: str, description: str) -> Rule:
    """A rule that no configuration breaks by itself: predictions tell."""
    return Rule(name=name, description=description, violated=_never)


def _never(*_: object) -> BoolArray:
    return np.zeros((), dtype=np.bool_)


OUT_OF_HOST_MEMORY = predicted(
    "out_of_host_memory", "what is offloaded or loads whole needs more than the host memory"
)
