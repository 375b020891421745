"""The plan that a search recommends, as a value."""

from __future__ import annotations

from planner.errors import InfeasibleError
from planner.optimize.exhaustive import exhaustive_search
from planner.optimize.result import row_of
from planner.pinned import PinnedPlan
from planner.plan import answered, make_plan
from planner.report.infeasible import infeasible_message
from planner.request import Request


def recommended_of(request: Request) -> PinnedPlan:
    """What a search of a request recommends.

    Raises
    ------
    SpecError, SearchSpaceError
        Something is unknown, faulty or impossible.
    InfeasibleError
        Nothing fits.
    """
    plan = make_plan(request)
    result = exhaustive_search(plan.problem)
    if result.recommended is None:
        raise InfeasibleError(infeasible_message(answered(plan, result), result))
    return PinnedPlan.of(plan, row_of(result.recommended))
