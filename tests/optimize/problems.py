"""Small problems for the tests of search drivers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from planner.base.units import GIB
from planner.configurations.configuration_tables import NAMES
from planner.optimize.problem import Problem
from planner.optimize.source import Candidates, to_python_values
from planner.question.request import Request
from planner.workloads.make_plan import make_plan

COLUMNS = {
    "throughput": ("tokens_per_s", -1),
    "step_time": ("step_time_s", 1),
    "cost": ("cost_usd", 1),
    "memory_headroom": ("memory_headroom_gib", -GIB),
    "num_gpus": ("num_gpus", 1),
}
"""Objectives of training: their columns, and 1 where low is better."""


def problem(**request: Any) -> Problem:
    """LLaMA 7B on 16 GPUs in the small space, unless told otherwise."""
    return make_plan(
        Request(**{"model": "llama-7b", "num_gpus": 16, "space": "small", **request})
    ).problem


def configurations(table: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """Each row's configuration as comparable words, in order."""
    if not table:
        return []
    return list(zip(*(to_python_values(table[name]) for name in NAMES), strict=True))


def front_values(result: Any) -> np.ndarray:
    """Objectives of the front, minimized, rounded beyond what summation order changes."""
    goals = [COLUMNS[objective.name] for objective in result.problem.objectives]
    table = np.stack([sign * np.asarray(result.table[name]) for name, sign in goals], axis=1)
    return np.unique([[float(f"{value:.9e}") for value in row] for row in table], axis=0)


def judged(searched: Problem, configurations: Any) -> tuple[Candidates, np.ndarray]:
    """Candidates of the only source, and the codes of what rejects them."""
    (source,) = searched.sources
    candidates = source.judged(configurations)
    return candidates, searched.codes(candidates).ravel()
