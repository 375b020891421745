"""What a search can optimize."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from planner.arrays import FloatArray
from planner.errors import SearchSpaceError, did_you_mean
from planner.estimators.cost import run_cost
from planner.estimators.estimate import Estimate

Value = Callable[..., FloatArray]
MAX_OBJECTIVES = 3


@dataclass(frozen=True, kw_only=True)
class Objective:
    """A quantity of an estimate; ``sign`` is 1 to minimize it, -1 to maximize it."""

    name: str
    sign: int
    value: Value


def memory_headroom(estimate: Estimate) -> FloatArray:
    """Bytes that stay free on the fullest GPU."""
    return np.asarray(estimate.setting.machine.gpu.allocatable_memory - estimate.peak_memory)


OBJECTIVES = {
    objective.name: objective
    for objective in (
        Objective(name="throughput", sign=-1, value=lambda e, _: e.tokens_per_second),
        Objective(name="step_time", sign=1, value=lambda e, _: e.step_time),
        Objective(
            name="time_to_train", sign=1, value=lambda e, price: run_cost(e, price).time_to_train
        ),
        Objective(name="gpu_hours", sign=1, value=lambda e, price: run_cost(e, price).gpu_seconds),
        Objective(name="cost", sign=1, value=lambda e, price: run_cost(e, price).cost),
        Objective(name="memory_headroom", sign=-1, value=lambda e, _: memory_headroom(e)),
        Objective(name="num_gpus", sign=1, value=lambda e, _: e.configurations.num_gpus),
    )
}


def parse_objectives(
    names: Iterable[str], known: Mapping[str, Objective] = OBJECTIVES
) -> tuple[Objective, ...]:
    """Objectives by name, one to three of the known ones.

    Raises
    ------
    SearchSpaceError
        A name is unknown or repeated, or there are none or too many.
    """
    words = list(names)
    for word in words:
        if word not in known:
            hint = did_you_mean(word, known)
            raise SearchSpaceError(f"Unknown objective {word!r}.{hint} Known: {', '.join(known)}.")
    if not 1 <= len(words) <= MAX_OBJECTIVES or len(set(words)) < len(words):
        raise SearchSpaceError(
            f"Give one to {MAX_OBJECTIVES} different objectives, not {', '.join(words) or 'none'}."
        )
    return tuple(known[word] for word in words)
