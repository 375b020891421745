"""Recommend a plan among ties: by bad case, then evidence, then complexity; and its regret."""

from __future__ import annotations

import math
from collections.abc import Sequence

from planner.base.csv_cells import Value
from planner.confidence.ranking import (
    RankedPlan,
    are_plans_tied,
    evidence_rank,
    expected_regrets,
    recommended_index,
)
from planner.optimize.collector import CellResult
from planner.optimize.problem import Cell, Problem, distinguishing_factors
from planner.optimize.tie_breaking import ComplexityTieBreaker, RankedConfiguration

RECOMMENDATION_RULE = (
    "Rule: best value that 9 of 10 such runs reach, times the chance to fit and keep limits; of "
    "ties the most evidence, then the simplest"
)
"""What `recommend_plan` does, as a sentence."""


def recommend_plan(
    problem: Problem, groups: Sequence[CellResult], *, is_proven: bool = False
) -> RankedConfiguration | None:
    """The simplest plan tied with the fastest of the best cell; None: nothing is feasible.

    The best cell has the best bad case, or is tied with that cell and has more evidence. Tied:
    the difference is within the error of predictions of published runs. ``is_proven``: only
    software that was measured on the GPU.
    """
    ranked = rank_plans_by_bad_case(problem, groups)
    if is_proven:
        ranked = [choice for choice in ranked if choice[0].is_proven]
    return ranked[recommended_index([standing for standing, _ in ranked])][1] if ranked else None


def tied_but_faster_plan(
    problem: Problem, groups: Sequence[CellResult], chosen: RankedConfiguration
) -> RankedConfiguration | None:
    """The plan that is tied with ``chosen`` and predicted to be fastest; None: there is none."""
    ranked = rank_plans_by_bad_case(problem, groups)
    chosen_plan = next((standing for standing, choice in ranked if choice is chosen), None)
    better = [
        choice
        for standing, choice in ranked
        if chosen_plan is not None
        and choice.values[0] < chosen.values[0]
        and are_plans_tied(chosen_plan, standing)
    ]
    return min(better, key=lambda choice: choice.values[0], default=None)


def is_tied_with(problem: Problem, choice: RankedConfiguration, other: RankedConfiguration) -> bool:
    """Whether two plans differ by less than the error of published runs; False for the same."""
    if choice is other or not problem.has_ties:
        return False
    return are_plans_tied(
        _ranked_plan(problem, choice, choice), _ranked_plan(problem, other, other)
    )


def expected_regret(
    problem: Problem, groups: Sequence[CellResult], chosen: RankedConfiguration
) -> float:
    """The expected loss of ``chosen`` against the best plan, as a share of its value.

    See `planner.confidence.ranking.expected_regrets`. NaN with one cell, or with unknown errors.
    """
    ranked = rank_plans_by_bad_case(problem, groups)
    chosen_indices = [index for index, (_, choice) in enumerate(ranked) if choice is chosen]
    if len(ranked) < 2 or not chosen_indices:
        return math.nan
    standings = [standing for standing, _ in ranked]
    return float(expected_regrets(standings, problem.objectives[0].sign)[chosen_indices[0]])


def rank_plans_by_bad_case(
    problem: Problem, groups: Sequence[CellResult]
) -> list[tuple[RankedPlan, RankedConfiguration]]:
    """The rank data and the plan of each cell, in the order of their bad cases.

    All serving modes of a cell (model, GPU, software) have one plan together.
    """
    cells: dict[tuple[Value, ...], list[CellResult]] = {}
    for group in groups:
        key = tuple(value for name, value in group.cell.items() if name != "mode")
        cells.setdefault(key, []).append(group)
    joined = (
        ComplexityTieBreaker.join(tie_breaker.collector.simplest for tie_breaker in cell)
        for cell in cells.values()
    )
    choices = []
    for tie_breaker in joined:
        fastest = tie_breaker.best
        factor = fastest.tie_factor if fastest and problem.has_ties else 1.0
        if fastest is None or (chosen := tie_breaker.simplest_within(factor)) is None:
            continue
        order = fastest.bad_case, *fastest.values
        choices.append((order, (_ranked_plan(problem, fastest, chosen), chosen)))
    return [ranked for _, ranked in sorted(choices, key=lambda choice: choice[0])]


def _ranked_plan(
    problem: Problem, fastest: RankedConfiguration, chosen: RankedConfiguration
) -> RankedPlan:
    """The rank data of a cell: the best plan's value and interval, the chosen one's evidence."""
    name, confidence = problem.objectives[0].name, chosen.confidence
    value = abs(float(fastest.values[0]))
    low, high = distinguishing_factors(fastest.confidence, name) or (math.nan, math.nan)
    return RankedPlan(
        value=value,
        low=value * low,
        high=value * high,
        bad=abs(fastest.bad_case),
        error_group=tuple(chosen.source.named.values()),
        tie_factor=fastest.tie_factor,
        evidence_rank=evidence_rank("", math.nan)
        if confidence is None
        else evidence_rank(confidence.basis, confidence.runs),
    )


def cell_of(problem: Problem, choice: RankedConfiguration) -> Cell:
    """The cell (model, GPU, software) of the source of a plan."""
    cells = zip(problem.sources, problem.cells, strict=True)
    return next(cell for source, cell in cells if source is choice.source)
