"""How far a rejected configuration is from what rejected it."""

from __future__ import annotations

import numpy as np

from planner.base.arrays import CodeArray, FloatArray, Numeric
from planner.optimize.problem import MEMORIES, Problem
from planner.optimize.source import Candidates

_SMALLEST = 1e-12


def violations(problem: Problem, candidates: Candidates, codes: CodeArray) -> FloatArray:
    """One number per row: 0 where feasible, the larger the further from it.

    Missing a constraint is worth (0, 1], running out of memory (1, 2], both by the relative
    excess, and breaking a rule more than 2, the less the later the rule that breaks first.
    ``codes`` are those of `planner.optimize.problem.Problem.codes`.
    """
    soft, codes = problem.first_soft, np.ravel(codes)
    graded = np.where((codes > 0) & (codes < soft), 3 - codes / soft, 0.0)
    for number in range(soft, len(problem.rejections) + 1):
        rows = np.flatnonzero(codes == number)
        if rows.size:
            value, _, bound = problem.limited(number, candidates)
            is_memory = number < soft + len(MEMORIES)
            graded[rows] = (
                relative_excess(candidates.at(value, rows), candidates.at(bound, rows)) + is_memory
            )
    return graded


def relative_excess(value: FloatArray, bound: Numeric) -> FloatArray:
    """Distance over distance plus bound: near 0 just beyond the bound, 1 if unknown."""
    distance = np.abs(value - bound)
    with np.errstate(invalid="ignore"):
        share = distance / (distance + np.abs(bound))
    return np.asarray(np.maximum(np.nan_to_num(share, nan=1.0), _SMALLEST))
