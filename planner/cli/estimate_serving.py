"""``planner estimate`` of a static batch, or of serving requests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from planner.cli import serving_options as serving


def estimate_serving(given: dict[str, Any]) -> None:
    """Evaluate one configuration, write the file, print the report.

    Raises
    ------
    PlannerError
        Something is unknown or impossible, it does not fit, or a file cannot be written.
    """
    from planner.errors import InfeasibleError, SearchSpaceError
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

    request = serving.make_serving_request(given)
    json, quiet = given["json"], given["quiet"]
    check_outputs(None, json)
    static = given["workload"] is serving.Workload.INFERENCE
    if static and given["burst"] is not None:
        raise SearchSpaceError("--burst is an option of --workload serve.")
    if static and request.request_rate is not None:
        raise SearchSpaceError("--request-rate is an option of --workload serve.")
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
