"""A search problem: what to evaluate, what to optimize, what must hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from planner.arrays import BoolArray, CodeArray, FloatArray, IndexArray
from planner.configurations.enumerate import Mesh, Table
from planner.configurations.training import TrainingConfigurations
from planner.estimators.estimate import REJECTIONS, Estimate, broken_rule, evaluate
from planner.estimators.share import Setting
from planner.optimize.columns import columns
from planner.optimize.constraints import Constraint
from planner.optimize.objectives import Objective

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Everything a driver needs; ``price_per_gpu_second`` [USD/s] may be unknown.

    ``flops_efficiency`` as `planner.estimators.estimate.evaluate` takes it.
    """

    setting: Setting
    mesh: Mesh
    objectives: tuple[Objective, ...]
    constraints: tuple[Constraint, ...] = ()
    price_per_gpu_second: float | None = None
    flops_efficiency: float | tuple[float, ...] | None = None

    @property
    def rejections(self) -> tuple[str, ...]:
        """Names of the rules, of running out of memory, and of the constraints."""
        return (*REJECTIONS, *(constraint.name for constraint in self.constraints))


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """An estimate judged: ``rejected_by`` is 0 or the one-based number of a rejection."""

    problem: Problem
    estimate: Estimate
    rejected_by: CodeArray

    def to_frame(self) -> pd.DataFrame:
        """One row per configuration: its parameters, predictions and what rejects it."""
        import pandas as pd

        names = np.array(["", *self.problem.rejections])
        table = columns(self.estimate, self.problem.price_per_gpu_second)
        return pd.DataFrame({**table, "rejected_by": names[self.rejected_by.ravel()]})

    @property
    def feasible(self) -> IndexArray:
        """Flat indices of what is possible, fits and satisfies the constraints."""
        return np.flatnonzero(self.rejected_by == 0)


def judge(
    problem: Problem, configurations: TrainingConfigurations, broken: CodeArray | None = None
) -> Evaluation:
    """Evaluate configurations and apply the constraints to those that fit.

    ``broken`` is their `broken_rule` where it is known already.
    """
    estimate = evaluate(
        problem.setting,
        configurations,
        flops_efficiency=problem.flops_efficiency,
        broken=broken,
    )
    rejected_by = estimate.rejected_by
    for number, constraint in enumerate(problem.constraints, start=len(REJECTIONS) + 1):
        violated = constraint.violated(estimate, problem.price_per_gpu_second)
        rejected_by = np.where((rejected_by == 0) & violated, np.int8(number), rejected_by)
    return Evaluation(problem=problem, estimate=estimate, rejected_by=rejected_by)


def without_impossible(
    problem: Problem, configurations: TrainingConfigurations
) -> tuple[TrainingConfigurations, CodeArray, IndexArray]:
    """The mesh without the entries of its axes that rules reject altogether.

    Predictions cost far more than rules. Also returns the broken rules of what is left, and how
    many of the rows left out each rule rejected: an array over the numbers of
    ``problem.rejections``, from 0 on.
    """
    codes = broken_rule(problem.setting, configurations)
    return possible_mesh(configurations, codes, len(problem.rejections))


def possible_mesh(
    configurations: Table, codes: CodeArray, num_rejections: int
) -> tuple[Table, CodeArray, IndexArray]:
    """`without_impossible` of any kind of configurations, given what rules reject."""
    codes = np.broadcast_to(codes, configurations.shape)
    kept = _kept(codes == 0)
    left = codes[np.ix_(*kept)]
    dropped = count_codes(codes, num_rejections) - count_codes(left, num_rejections)
    return configurations.narrowed(kept), left, dropped


def _kept(possible: BoolArray) -> list[IndexArray]:
    """For each axis, the indices at which anything is possible."""
    kept = []
    while possible.ndim:
        kept.append(np.flatnonzero(possible.any(axis=tuple(range(1, possible.ndim)))))
        possible = np.asarray(possible.any(axis=0))
    return kept


def count_codes(codes: CodeArray, num_rejections: int) -> IndexArray:
    """How many rows carry each code from 0 to ``num_rejections``."""
    counts = np.zeros(num_rejections + 1, dtype=np.intp)
    for number in range(len(counts)):
        counts[number] = np.count_nonzero(codes == number)
        if counts.sum() == codes.size:
            break
    return counts


def values(problem: Problem, estimate: Estimate) -> FloatArray:
    """Objectives as columns ``(rows, objectives)``, all to be minimized; each is contiguous."""
    columns = [
        objective.sign * objective.value(estimate, problem.price_per_gpu_second)
        for objective in problem.objectives
    ]
    shape = estimate.configurations.shape
    return np.stack([np.broadcast_to(column, shape).ravel() for column in columns]).T
