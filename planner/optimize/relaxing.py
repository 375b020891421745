"""Limits that nobody gave: kept where some plan keeps them, else widened until one does."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from planner.optimize.collector import NearestMiss
from planner.optimize.constraints import Constraint
from planner.optimize.problem import Problem
from planner.optimize.result import SearchResult

_MOST_DOUBLINGS = 64
# Beyond the nearest plan, so that there is something to choose among.
_ROOM = 1.5


def relaxing(problem: Problem, search: Callable[[Problem], SearchResult]) -> SearchResult:
    """Search with the limits that are assumed, or with wider ones where no plan keeps them.

    The problem of the result has the limits that its plans keep. What the user asked for stays.
    """
    found = search(problem)
    while not found.configurations_feasible and not found.interrupted:
        wider = _wider(problem, found)
        if wider is None:
            break
        problem = wider
        found = search(problem)
    return found


def without_assumed(problem: Problem) -> Problem:
    """The problem with what the user asked for alone."""
    given = tuple(limit for limit in problem.constraints if not limit.assumed)
    return replace(problem, constraints=given)


def _wider(problem: Problem, found: SearchResult) -> Problem | None:
    """Assumed limits doubled until the nearest plan keeps them; None if unknown."""
    assumed = {limit.name for limit in problem.constraints if limit.assumed}
    misses = [_widened(problem, one) for one in found.nearest_misses if one.rejection in assumed]
    known = [one for one in misses if one is not None]
    if not known:
        return None
    _, limits = min(known, key=lambda one: one[0])
    return replace(problem, constraints=limits)


def _widened(problem: Problem, miss: NearestMiss) -> tuple[int, tuple[Constraint, ...]] | None:
    """The limits that a plan keeps after the fewest doublings, and how many; None if unknown."""
    limits, most = [], 0
    for limit in problem.constraints:
        doublings = 0
        if limit.assumed:
            value = float(limit.judged(miss.candidates).ravel()[0])
            value *= 1.0 if _keeps(limit, value) else _ROOM**limit.sign
            while doublings < _MOST_DOUBLINGS and not _keeps(_doubled(limit, doublings), value):
                doublings += 1
        if doublings == _MOST_DOUBLINGS:
            return None
        limits.append(_doubled(limit, doublings))
        most = max(most, doublings)
    return most, tuple(limits)


def _keeps(limit: Constraint, value: float) -> bool:
    return not math.isnan(value) and limit.sign * value <= limit.sign * limit.bound


def _doubled(limit: Constraint, times: int) -> Constraint:
    return replace(limit, bound=limit.bound * 2.0 ** (limit.sign * times))
