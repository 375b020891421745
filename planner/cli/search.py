"""``planner search``: the best configurations of a search space."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from planner.cli import options
from planner.cli.request import make_request

if TYPE_CHECKING:
    from planner.estimators.estimate import Estimate
    from planner.optimize.exhaustive import Sink
    from planner.optimize.result import SearchResult
    from planner.plan import Plan
    from planner.request import Request


@options.taking(
    "question",
    "limit",
    how=(
        "num_gpus", "workload", "settings", "objective", "driver", "trials", "seed", "sampler",
        "storage", "csv", "json", "all_rows", "save_plan", "top", "specs", "quiet",
    ),
)  # fmt: skip
def search(given: options.Given) -> None:
    """Find the best configurations of a space."""
    request = make_request(given)
    if request.workload == options.Workload.TRAIN:
        _search(given, request)
    else:
        from planner.cli.search_serving import search_serving

        search_serving(given, request)


def _search(given: options.Given, request: Request) -> None:
    from planner.errors import InfeasibleError
    from planner.optimize.columns import columns
    from planner.plan import make_plan
    from planner.report.files import check_outputs
    from planner.report.infeasible import infeasible_message
    from planner.report.manifest import make_manifest
    from planner.report.plan_file import save_plan
    from planner.report.rows import result_blocks, row_files
    from planner.report.search import interrupted_message

    csv, json, all_rows = given["csv"], given["json"], given["all_rows"]
    check_outputs(csv, json, given["save_plan"])
    how = options.how(given)
    plan = make_plan(request)
    with row_files(csv, json) as files:

        def add(estimate: Estimate) -> None:
            files.add(result_blocks(plan.problem, estimate))

        result = _drive(plan, how, add if all_rows else None, quiet=given["quiet"])
        if result.interrupted and result.estimate is None:
            raise KeyboardInterrupt
        if result.estimate is None:
            raise InfeasibleError(infeasible_message(request, result))
        if not all_rows:
            add(result.estimate)
        files.finish(make_manifest(plan, result, given["context"].obj, how))
    if not given["quiet"]:
        _show(request, plan, result, given["top"], stdout_taken=Path("-") in (csv, json))
    if given["save_plan"] is not None:
        table = columns(result.estimate, plan.problem.price_per_gpu_second)
        save_plan(given["save_plan"], request, plan, table)
    if result.interrupted:
        raise KeyboardInterrupt(interrupted_message(plan, result))


def _drive(plan: Plan, how: dict[str, Any], sink: Sink | None, *, quiet: bool) -> SearchResult:
    from planner.report.progress import progress_bar, stoppable_bar

    problem = plan.problem
    if how["driver"] == options.Driver.EXHAUSTIVE:
        from planner.optimize.exhaustive import exhaustive_search

        with stoppable_bar(problem.mesh.num_rows, "configurations", quiet=quiet) as progress:
            return exhaustive_search(problem, progress=progress, sink=sink)
    from planner.optimize.optuna_search import optuna_search

    chosen = {name: value for name, value in how.items() if name != "driver"}
    with progress_bar(how["trials"], "trials", quiet=quiet) as progress:
        return optuna_search(problem, study_name=None, progress=progress, **chosen)


def _show(
    request: Request, plan: Plan, result: SearchResult, top: int, *, stdout_taken: bool
) -> None:
    from planner.report.console import make_console
    from planner.report.search import print_search

    print_search(make_console(stderr=stdout_taken), request, plan, result, top)
