"""``planner search --workload serve``: the best ways to serve."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from planner.cli import options
from planner.request import Request

if TYPE_CHECKING:
    from planner.optimize.serving.problem import ServingProblem
    from planner.optimize.serving.search import RowSink, ServingResult


def search_serving(given: options.Given, request: Request) -> None:
    """Search, write the files, print the report.

    Raises
    ------
    PlannerError
        Something is unknown or impossible, nothing is feasible, or a file cannot be written.
    """
    from planner.errors import InfeasibleError, SearchSpaceError
    from planner.report.files import check_outputs
    from planner.report.manifest import make_manifest
    from planner.report.plan_file import save_plan
    from planner.report.rows import row_files
    from planner.report.serving.infeasible import serving_infeasible_message
    from planner.report.serving.rows import serving_blocks
    from planner.serving_plan import make_serving_plan

    if request.workload != options.Workload.SERVE:
        raise SearchSpaceError(
            "A static batch is one configuration: `planner estimate --workload inference`."
        )
    csv, json, all_rows = given["csv"], given["json"], given["all_rows"]
    check_outputs(csv, json, given["save_plan"])
    how = options.how(given)
    plan = make_serving_plan(request)
    with row_files(csv, json) as files:
        sink = (
            (lambda table: files.add(serving_blocks(table, plan.problem.sources)))
            if all_rows
            else None
        )
        result = _drive(plan.problem, how, sink, quiet=given["quiet"])
        if not result.table:
            raise InfeasibleError(serving_infeasible_message(request, plan, result))
        if not all_rows:
            files.add(serving_blocks(result.table, plan.problem.sources))
        files.finish(make_manifest(plan, result, given["context"].obj, how))
    if not given["quiet"]:
        from planner.report.console import make_console
        from planner.report.serving.search import print_serving_search

        console = make_console(stderr=Path("-") in (csv, json))
        print_serving_search(console, request, plan, result, _top(given, plan.problem.best_per_gpu))
    if given["save_plan"] is not None:
        save_plan(given["save_plan"], request, plan, result.table)


def _drive(
    problem: ServingProblem, how: dict[str, Any], sink: RowSink | None, *, quiet: bool
) -> ServingResult:
    from planner.report.progress import progress_bar

    if how["driver"] == options.Driver.EXHAUSTIVE:
        from planner.optimize.serving.search import serving_search

        with progress_bar(problem.num_rows, "configurations", quiet=quiet) as progress:
            return serving_search(problem, progress=progress, sink=sink)
    from planner.optimize.serving.sampled import sampled_serving_search

    chosen = {name: value for name, value in how.items() if name != "driver"}
    with progress_bar(how["trials"], "trials", quiet=quiet) as progress:
        return sampled_serving_search(problem, progress=progress, **chosen)


def _top(given: options.Given, every_gpu: bool) -> int:
    """Rows to show: of a comparison of GPUs all, unless the user says how many."""
    from planner.specs.catalogue import Catalogue

    if options.is_given(given, "top") or not every_gpu:
        return int(given["top"])
    return len(Catalogue(given["specs"]).names("gpus"))
