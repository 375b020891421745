"""What a search can optimize."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from planner.arrays import FloatArray
from planner.errors import SearchSpaceError, did_you_mean
from planner.estimators.cost import run_cost
from planner.estimators.estimate import Estimate
from planner.terms import terms_of

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


TRAINING_VALUES: dict[str, Value] = {
    "throughput": lambda e, _: e.tokens_per_second,
    "step_time": lambda e, _: e.step_time,
    "time_to_train": lambda e, price: run_cost(e, price).time_to_train,
    "gpu_hours": lambda e, price: run_cost(e, price).gpu_seconds,
    "cost": lambda e, price: run_cost(e, price).cost,
    "memory_headroom": lambda e, _: memory_headroom(e),
    "model_flops_utilization": lambda e, _: e.model_flops_utilization,
    "num_gpus": lambda e, _: e.configurations.num_gpus,
}
"""What of an estimate can be optimized or limited, by the names of the table of terms."""


def objectives_of(workload: str, values: Mapping[str, Value]) -> dict[str, Objective]:
    """The objectives of a workload: its ``values`` that the table of terms calls so."""
    return {
        name: Objective(name=name, sign=term.sign, value=values[name])
        for name, term in terms_of(workload, "objective").items()
    }


OBJECTIVES = objectives_of("train", TRAINING_VALUES)


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
