"""``planner search``: the best configurations of a search space."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from planner.base.csv_cells import Value, number_or_nan
from planner.cli import options
from planner.cli.options import make_request, picture_of
from planner.workloads.build_request import EXHAUSTIVE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from planner.decide.api_comparison import ApiComparison
    from planner.decide.suggestions.cost_levers import CostLever
    from planner.optimize.exhaustive import Sink
    from planner.optimize.problem import Problem
    from planner.optimize.result import SearchResult
    from planner.question.request import Request
    from planner.show.output_blocks import Block
    from planner.workloads.make_plan import Plan


@options.with_term_options(
    "question",
    "limit",
    how=(
        "from_file", "row", "num_gpus", "workload", "settings", "precision", "objective",
        "driver", "trials", "seed", "sampler", "csv", "json",
        "plot", "picture", "dark", "picture_width", "all_rows", "save_plan", "launch", "wrapper",
        "launch_output", "compare_api", "top", "full", "specs", "quiet",
    ),
)  # fmt: skip
def search(values: options.OptionValues) -> None:
    """Find the best configurations of a space."""
    wrapper = None
    if values["launch"] is not None:
        from planner.cli.launch import check_launch, default_workload

        wrapper = check_launch(values, values["launch"])
        if not options.is_set(values, "workload"):
            values["workload"] = default_workload(values["launch"], values["workload"])
    request = make_request(values, is_search=True)
    if values["launch"] is not None:
        from planner.launch.write.write_launch import restrict_to_target

        request = restrict_to_target(request, values["launch"])
    from planner.base.atomic_write import check_outputs
    from planner.show.presenters.json_files import finish_search
    from planner.show.presenters.row_files import result_blocks, row_files
    from planner.show.presenters.search import answer_blocks
    from planner.workloads.make_plan import make_plan, with_assumption_notes

    csv, json, all_rows = values["csv"], values["json"], values["all_rows"]
    check_outputs(csv, json, values["save_plan"])
    picture = picture_of("search", values)
    how = options.driver_settings(values)
    plan = make_plan(request)
    if values["compare_api"]:
        from planner.specs.api_price import priced_models

        priced_models(request.specs)  # raises the errors of a price list before the search
    with row_files(csv, json) as files:

        def add(table: Mapping[str, object]) -> None:
            files.add(result_blocks(plan, table))

        result = _run_driver(plan.problem, how, add if all_rows else None, quiet=values["quiet"])
        plan = with_assumption_notes(plan, result)
        if result.interrupted and result.fastest is None:
            raise KeyboardInterrupt
        if not result.table:
            from planner.errors import InfeasibleError
            from planner.show.presenters.infeasible import infeasible_message

            raise InfeasibleError(infeasible_message(plan, result))
        if not all_rows and (csv or json):
            from planner.show.presenters.pareto_front import marked_rows

            add(marked_rows(plan, result))
        compared = _compare_api(plan, result) if values["compare_api"] else None
        extra: dict[str, object] = {"api": compared.to_dict()} if compared else {}
        levers = _cost_levers(plan, result, values)
        extra["levers"] = [lever.to_dict() for lever in levers]
        finish_search(files, plan, result, values["context"].obj, how, **extra)
    if picture is not None:
        from planner.show.presenters.plots.picture import draw

        draw(picture, plan, result if picture.name == "front" else result.recommended)
    if not values["quiet"]:
        uses_stdout = _uses_stdout(values)
        shown = answer_blocks(
            plan,
            result,
            values["top"],
            is_full=values["full"],
            levers=levers,
            shows_interruption=not (uses_stdout or _shares_a_terminal()),
        )
        _print_report(shown, compared, is_full=values["full"], uses_stdout=uses_stdout)
        if values.get("own") is not None:
            _print_starting_plan(plan, result, values["own"], uses_stdout=uses_stdout)
    if values["save_plan"] is not None:
        from planner.show.presenters.json_files import save_plan

        save_plan(values["save_plan"], plan, result.recommended)
    if wrapper is not None and result.recommended is not None:
        from planner.cli.launch import write_launch
        from planner.workloads.saved_plan import SavedPlan

        chosen = SavedPlan.of(plan, result.recommended.row).request()
        write_launch(values, chosen, values["launch"], wrapper, uses_stdout=_uses_stdout(values))
    if result.interrupted:
        from planner.show.presenters.search import interrupted_message

        raise KeyboardInterrupt(interrupted_message(plan, result))


def _print_starting_plan(
    plan: Plan, result: SearchResult, starting_request: Request, *, uses_stdout: bool
) -> None:
    """Print the plan that the search started from, compared with the recommended plan."""
    from planner.errors import PlannerError
    from planner.launch.read.launch_file import evaluate_launch, full_row
    from planner.show.output_blocks import GAP, make_lines
    from planner.show.presenters.search import starting_plan_line, unchanged_settings_line
    from planner.show.terminal import make_console, print_blocks

    try:
        _, evaluation, _ = evaluate_launch(starting_request)
    except PlannerError:
        return
    if result.recommended is not None:
        line = starting_plan_line(
            plan, result.recommended.row, full_row(evaluation), evaluation.rejected_by
        )
        held = unchanged_settings_line(plan, full_row(evaluation))
        lines = [make_lines(text) for text in (line, held) if text]
        print_blocks(make_console(stderr=uses_stdout), [GAP, *lines])


def _uses_stdout(values: options.OptionValues) -> bool:
    """Whether rows are written to stdout, so that the report goes to stderr."""
    return Path("-") in (values["csv"], values["json"])


def _shares_a_terminal() -> bool:
    """Whether the report and error messages go to the same terminal."""
    return sys.stdout.isatty() and sys.stderr.isatty()


def _run_driver(
    problem: Problem, how: dict[str, Value], sink: Sink | None, *, quiet: bool
) -> SearchResult:
    """Run the search of a problem with the driver in ``how``, and show a progress bar."""
    from planner.show.terminal import stoppable_bar

    if how["driver"] == EXHAUSTIVE:
        from planner.optimize.exhaustive import exhaustive_search

        with stoppable_bar(problem.num_rows, "configurations", quiet=quiet) as progress:
            return exhaustive_search(problem, progress=progress, sink=sink)
    from planner.optimize.optuna_search import optuna_search

    chosen = {name: value for name, value in how.items() if name != "driver"}
    with stoppable_bar(int(number_or_nan(how["trials"])), "trials", quiet=quiet) as progress:
        return optuna_search(problem, progress=progress, **chosen)


def _compare_api(plan: Plan, result: SearchResult) -> ApiComparison | None:
    from planner.decide.api_comparison import compare_with_apis

    return None if result.recommended is None else compare_with_apis(plan, result.recommended)


def _cost_levers(plan: Plan, result: SearchResult, values: options.OptionValues) -> list[CostLever]:
    """Return the changes of the inputs that lower the cost; each takes another search."""
    is_read = values["json"] is not None or (values["full"] and not values["quiet"])
    if result.interrupted or not is_read or options.driver_settings(values)["driver"] != EXHAUSTIVE:
        return []
    from planner.decide.suggestions.cost_levers import cost_levers

    return cost_levers(plan, result)


def _print_report(
    blocks: Iterable[Block], compared: ApiComparison | None, *, is_full: bool, uses_stdout: bool
) -> None:
    """Print the blocks of a search and, unless ``compared`` is None, its API comparison."""
    from planner.show.terminal import make_console, print_blocks

    console = make_console(stderr=uses_stdout)
    print_blocks(console, blocks)
    if compared is not None:
        from planner.show.presenters.api_comparison import api_comparison_blocks

        print_blocks(console, api_comparison_blocks(compared, is_full=is_full))
