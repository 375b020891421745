"""``planner estimate``: one configuration in full."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from planner.cli import options
from planner.cli.request import make_request

if TYPE_CHECKING:
    from planner.request import Request


@options.taking(
    "question",
    without=("space", "mode", "prefill_gpu"),
    how=("plan", "num_gpus", "workload", "settings", "burst", "json", "specs", "quiet"),
)
def estimate(given: options.Given) -> None:
    """Show one configuration in full."""
    request = make_request(given)
    if request.workload == options.Workload.TRAIN:
        _estimate(given, request)
    else:
        from planner.cli.estimate_serving import estimate_serving

        estimate_serving(given, request)


def _estimate(given: options.Given, request: Request) -> None:
    from planner.errors import InfeasibleError, SearchSpaceError
    from planner.optimize.exhaustive import exhaustive_search
    from planner.plan import make_plan
    from planner.report.console import make_console
    from planner.report.estimate import print_estimate, print_misfit, write_estimate
    from planner.report.files import check_outputs
    from planner.report.infeasible import infeasible_message

    json, quiet = given["json"], given["quiet"]
    check_outputs(None, json)
    plan = make_plan(request)
    if plan.problem.mesh.num_rows != 1:
        raise SearchSpaceError(
            f"That is {plan.problem.mesh.num_rows:,} configurations: give one value per "
            "parameter, or use `planner search`."
        )
    result = exhaustive_search(plan.problem)
    console = make_console(stderr=json == Path("-"))
    if result.estimate is None:
        if not quiet:
            print_misfit(console, plan, result)
        raise InfeasibleError(infeasible_message(request, result))
    write_estimate(json, plan, result, given["context"].obj)
    if not quiet:
        print_estimate(console, plan, result)
