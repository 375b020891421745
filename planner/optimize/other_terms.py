"""The same search on other terms: what GPUs cost changes no plan, unless plans are chosen by it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from planner.optimize.exhaustive import exhaustive_search
from planner.optimize.groups import Group
from planner.optimize.problem import Problem
from planner.optimize.result import SearchResult
from planner.optimize.source import Candidates


def searched(problem: Problem, before: SearchResult | None) -> SearchResult:
    """What a search finds, without one where one was made ``before`` on other terms."""
    result = None if before is None else _on_other_terms(before, problem)
    return exhaustive_search(problem) if result is None else result


def _on_other_terms(result: SearchResult, problem: Problem) -> SearchResult | None:
    """What a search of a problem would find that differs in the sites of its sources alone.

    None where objectives or limits depend on them: that has to be searched.
    """
    before = result.problem
    if len(problem.sources) != len(before.sources) or result.interrupted:
        return None
    moved = {id(a): b for a, b in zip(before.sources, problem.sources, strict=True)}
    # Limits that were assumed may have been widened.
    problem = replace(problem, constraints=before.constraints)
    chosen = [(places, one.moved(moved[id(one.source)])) for places, one in result.chosen]
    pairs = [(one, other) for (_, one), (_, other) in zip(result.chosen, chosen, strict=True)]
    near = [miss.candidates for miss in result.nearest_misses]
    pairs += [(one, one.moved(moved[id(one.source)])) for one in near]
    if not all(_weigh_alike(one, other, problem) for one, other in pairs):
        return None
    groups = [
        Group(cell=group.cell, collector=group.collector.moved(problem, moved))
        for group in result.groups
    ]
    misses = [replace(miss, source=moved[id(miss.source)]) for miss in result.nearest_misses]
    found = replace(result, problem=problem, groups=groups, nearest_misses=tuple(misses))
    vars(found).update(chosen=chosen)  # nothing of it has to be predicted again
    return found


def _weigh_alike(one: Candidates, other: Candidates, problem: Problem) -> bool:
    names = [goal.name for goal in problem.objectives]
    names += [limit.name for limit in problem.constraints]
    return all(np.array_equal(one.value(name), other.value(name), equal_nan=True) for name in names)
