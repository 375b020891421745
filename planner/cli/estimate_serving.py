"""``planner estimate`` of a static batch, or of serving requests."""

from __future__ import annotations

from pathlib import Path

from planner.cli import options
from planner.request import Request


def estimate_serving(given: options.Given, request: Request) -> None:
    """Evaluate one configuration, write the file, print the report.

    Raises
    ------
    PlannerError
        Something is unknown or impossible, it does not fit, or a file cannot be written.
    """
    from planner.errors import InfeasibleError
    from planner.optimize.serving.single import InferenceEvaluation, serve_once, static_once
    from planner.report.console import make_console
    from planner.report.files import check_outputs
    from planner.report.serving.estimate import (
        misfit_message,
        print_inference,
        print_serving,
        write_serving,
    )
    from planner.serving_plan import one_configuration

    json, quiet = given["json"], given["quiet"]
    check_outputs(None, json)
    static = request.workload == options.Workload.INFERENCE
    plan = one_configuration(request, given["burst"])
    (source,) = plan.problem.sources
    found = static_once(source) if static else serve_once(source, given["burst"])
    if found.rejected_by:
        raise InfeasibleError(misfit_message(plan, found))
    write_serving(json, plan, found, given["context"].obj)
    if quiet:
        return
    console = make_console(stderr=json == Path("-"))
    if isinstance(found, InferenceEvaluation):
        print_inference(console, plan, found)
    else:
        print_serving(console, plan, found)
