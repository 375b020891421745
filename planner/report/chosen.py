"""The plans that a search chose, as parts of its JSON file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from planner.decide.open_facts import moving_facts
from planner.optimize.collector import known_value
from planner.optimize.constraints import limit_rows, with_rate
from planner.optimize.result import Comparison, SearchResult, row_of
from planner.optimize.result_rows import full_rows
from planner.optimize.source import Candidates
from planner.plan.pinned import PinnedPlan
from planner.plan.plan import Plan


def chosen_plans(plan: Plan, result: SearchResult) -> dict[str, Any]:
    """The recommended and the fastest plan, each as a plan file and as a row, and comparisons.

    These have, for each outer axis, the best plan of every value, and why others have none.
    """
    return {
        "recommended": _pinned(plan, result.recommended),
        "recommended_row": _row(plan, result.recommended),
        "recommended_limits": _limits(plan, result.recommended),
        "recommended_sure": sureness(plan, result.recommended),
        "open_facts": open_facts(plan, result.recommended),
        "fastest": _pinned(plan, result.fastest),
        "fastest_row": _row(plan, result.fastest),
        "comparisons": {
            axis: _compared(plan, compared) for axis, compared in result.comparisons.items()
        },
    }


def open_facts(plan: Plan, candidates: Candidates | None) -> list[dict[str, Any]]:
    """The facts that a plan assumes and that move it, with the intervals that hold them."""
    return [] if candidates is None else [f.to_dict() for f in moving_facts(plan, candidates)]


def sureness(plan: Plan, candidates: Candidates | None) -> dict[str, Any]:
    """Which published runs the intervals of a plan are of, and the factor within which they do
    not tell layouts apart; empty without any.
    """
    if candidates is None:
        return {}
    sure = candidates.source.confidence(row_of(candidates)["num_gpus"])
    if sure is None:
        return {}
    factor = float(sure.layout) if plan.problem.has_ties else 1.0
    return {"basis": sure.basis, "tie_factor": factor}


def _pinned(plan: Plan, candidates: Candidates | None) -> dict[str, Any] | None:
    return None if candidates is None else PinnedPlan.of(plan, row_of(candidates)).to_dict()


def _row(plan: Plan, candidates: Candidates | None) -> dict[str, Any] | None:
    if candidates is None:
        return None
    (row,) = full_rows(candidates.columns(), plan.problem.sources)
    return row


def _limits(plan: Plan, candidates: Candidates | None) -> list[dict[str, Any]]:
    return (
        []
        if candidates is None
        else limit_rows(candidates, with_rate(plan.problem.constraints, plan.request.lasting_rate))
    )


def _compared(plan: Plan, compared: Comparison) -> dict[str, Any]:
    rows = full_rows(compared.table, plan.problem.sources)
    return {
        "rows": [
            {"loss": known_value(loss), **row}
            for loss, row in zip(compared.losses, rows, strict=True)
        ],
        "without_plan": _worded(compared.without_plan),
    }


def _worded(reasons: Mapping[Any, str]) -> dict[str, str]:
    return {str(value): reason for value, reason in reasons.items()}
