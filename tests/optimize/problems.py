"""Small problems for the tests of search drivers."""

import numpy as np

from planner.configurations.table import word
from planner.configurations.training import NAMES
from planner.optimize.problem import Problem, values
from planner.plan import make_plan
from planner.request import Request


def problem(**request) -> Problem:
    """LLaMA 7B on 16 GPUs in the small space, unless told otherwise."""
    return make_plan(
        Request(**{"model": "llama-7b", "num_gpus": 16, "space": "small", **request})
    ).problem


def configurations(estimate) -> list[tuple]:
    """Each row's configuration as comparable words, in order."""
    c = estimate.configurations
    columns = [np.broadcast_to(getattr(c, name), c.shape).ravel() for name in NAMES]
    return [
        tuple(word(name, value) for name, value in zip(NAMES, row, strict=True))
        for row in zip(*columns, strict=True)
    ]


def front_values(result) -> np.ndarray:
    """Objectives of the front, minimized, rounded beyond what summation order changes."""
    table = values(result.problem, result.estimate)
    return np.unique([[float(f"{value:.9e}") for value in row] for row in table], axis=0)
