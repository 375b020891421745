"""A training problem as a driver that samples sees it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from planner.arrays import IndexArray
from planner.configurations.table import word
from planner.configurations.training import NAMES, TrainingConfigurations
from planner.optimize.collector import Collector
from planner.optimize.problem import Problem, judge, values
from planner.optimize.result import SearchResult
from planner.optimize.sampled import Direction, Outcomes
from planner.optimize.violations import violations
from planner.version import __version__


class TrainingSamples:
    """`planner.optimize.sampled.Samplable` of training; gathers what it evaluates."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._collector = Collector(problem)
        self._columns = {
            name: TrainingConfigurations.cast(name, problem.mesh.values[name]) for name in NAMES
        }
        self.parameters: Mapping[str, Sequence[Any]] = {
            name: [word(name, value) for value in problem.mesh.values[name]] for name in NAMES
        }

    @property
    def name(self) -> str:
        """Of the model."""
        return self._problem.setting.model.name

    @property
    def digest(self) -> str:
        """Equal for problems whose trials mean the same."""
        return problem_digest(self._problem)

    @property
    def objectives(self) -> Mapping[str, Direction]:
        """The direction of each objective."""
        return {o.name: "minimize" if o.sign > 0 else "maximize" for o in self._problem.objectives}

    @property
    def num_rows(self) -> int:
        """Number of configurations."""
        return self._problem.mesh.num_rows

    def evaluate(self, rows: IndexArray) -> Outcomes:
        """Judge configurations by the positions of their values, and collect them."""
        table = {
            name: self._columns[name][rows[:, place]] for place, name in enumerate(self.parameters)
        }
        evaluation = judge(self._problem, TrainingConfigurations(**table))
        self._collector.add(evaluation)
        objectives = values(self._problem, evaluation.estimate)
        return objectives, np.asarray(violations(self._problem, evaluation))

    def result(self) -> SearchResult:
        """What was found so far."""
        return self._collector.result()


def problem_digest(problem: Problem) -> str:
    """Equal for problems whose trials mean the same, in any process."""
    identity = (
        __version__,
        problem.setting,
        problem.mesh,
        [objective.name for objective in problem.objectives],
        [(constraint.name, constraint.bound) for constraint in problem.constraints],
        problem.price_per_gpu_second,
        problem.flops_efficiency,
    )
    return hashlib.sha256(repr(identity).encode()).hexdigest()
