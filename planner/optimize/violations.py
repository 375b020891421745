"""How far a rejected configuration is from what rejected it."""

from __future__ import annotations

import numpy as np

from planner.arrays import FloatArray
from planner.estimators.estimate import REJECTIONS, Estimate, usable_memory
from planner.optimize.problem import Evaluation, Problem

_SMALLEST = 1e-12


def first_soft(problem: Problem) -> int:
    """Number of the first rejection that has a distance: memory, then the constraints."""
    return len(problem.rejections) - len(problem.constraints)


def limited(problem: Problem, number: int, estimate: Estimate) -> tuple[FloatArray, int, float]:
    """Value, sign (1 from above, -1 from below) and bound of rejection ``number``, in SI units."""
    if number == first_soft(problem):
        return estimate.peak_memory, 1, usable_memory(problem.setting.machine.gpu)
    constraint = problem.constraints[number - len(REJECTIONS) - 1]
    value = constraint.limit.value(estimate, problem.price_per_gpu_second)
    return value, constraint.limit.sign, constraint.bound


def violations(problem: Problem, evaluation: Evaluation) -> FloatArray:
    """One number per row: 0 where feasible, the larger the further from it.

    Missing a constraint is worth (0, 1], running out of memory (1, 2], both by the relative
    excess, and breaking a rule more than 2, the less the later the rule that breaks first.
    """
    soft = first_soft(problem)
    codes = np.ravel(evaluation.rejected_by)
    graded = np.where((codes > 0) & (codes < soft), 3 - codes / soft, 0.0)
    for number in range(soft, len(problem.rejections) + 1):
        rows = codes == number
        if rows.any():
            value, _, bound = limited(problem, number, evaluation.estimate)
            excess = relative_excess(np.broadcast_to(value, codes.shape)[rows], bound)
            graded[rows] = excess + (number == soft)
    return graded


def relative_excess(value: FloatArray, bound: float) -> FloatArray:
    """Distance over distance plus bound: near 0 just beyond the bound, 1 if unknown."""
    distance = np.abs(value - bound)
    with np.errstate(invalid="ignore"):
        share = distance / (distance + abs(bound))
    return np.maximum(np.nan_to_num(share, nan=1.0), _SMALLEST)
