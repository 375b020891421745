"""The plan that a search recommends, as a value."""

from __future__ import annotations

from dataclasses import replace

from planner.errors import InfeasibleError
from planner.optimize.exhaustive import exhaustive_search
from planner.optimize.result import row_of
from planner.plan.pinned import PinnedPlan
from planner.plan.plan import Plan, answered, evaluated, make_plan, one_configuration
from planner.question.request import Request
from planner.show.views.infeasible import infeasible_message
from planner.workloads.base import Evaluation


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


def planned(request: Request, *, is_open: bool) -> tuple[Plan, Evaluation]:
    """The one plan of a request, feasible or not; the recommended one where its layout is open.

    Raises
    ------
    SpecError, SearchSpaceError
        Something is unknown, faulty or impossible, or there are several configurations.
    InfeasibleError
        The layout is open, and nothing fits.
    """
    chosen = request
    if is_open:
        chosen = replace(recommended_of(request).request(), constraints=request.constraints)
    plan = one_configuration(chosen)
    return plan, evaluated(plan)
