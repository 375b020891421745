"""The plan that the search of a request recommends, and its prediction."""

from __future__ import annotations

from dataclasses import replace

from planner.errors import InfeasibleError
from planner.optimize.exhaustive import exhaustive_search
from planner.question.request import Request
from planner.show.presenters.infeasible import infeasible_message
from planner.workloads.make_plan import (
    Plan,
    evaluate,
    make_plan,
    make_single_plan,
    with_assumption_notes,
)
from planner.workloads.saved_plan import SavedPlan
from planner.workloads.workload import Evaluation


def recommended_of(request: Request) -> SavedPlan:
    """Return the plan that the search of a request recommends.

    Raises SpecError or SearchSpaceError if something is unknown, faulty or impossible;
    InfeasibleError if nothing fits.
    """
    plan = make_plan(request)
    result = exhaustive_search(plan.problem)
    if result.recommended is None:
        raise InfeasibleError(infeasible_message(with_assumption_notes(plan, result), result))
    return SavedPlan.of(plan, result.recommended.row)


def evaluate_request(request: Request, *, is_open: bool) -> tuple[Plan, Evaluation]:
    """Return the plan of a request and its prediction.

    With ``is_open`` the layout is the recommended one.

    Raises SpecError or SearchSpaceError if something is unknown, faulty or impossible, or there are
    several configurations; InfeasibleError if the layout is open, and nothing fits.
    """
    chosen = request
    if is_open:
        chosen = replace(recommended_of(request).request(), constraints=request.constraints)
    plan = make_single_plan(chosen)
    return plan, evaluate(plan)
