"""``search``: the best configurations of a search space."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from planner.base.csv_cells import Value, number_or_nan
from planner.base.records import record
from planner.commands.command import Bar, Call, Command, PlanQuestion, read_question
from planner.errors import InfeasibleError, SearchSpaceError
from planner.question.parse_values import format_input, parse_int
from planner.show.output_blocks import Block
from planner.show.presenters.infeasible import infeasible_message
from planner.show.presenters.row_tables import RowFiles
from planner.workloads.build_request import EXHAUSTIVE, read_driver
from planner.workloads.make_plan import Plan, make_plan, with_assumption_notes

if TYPE_CHECKING:
    from planner.decide.api_comparison import ApiComparison
    from planner.decide.suggestions.changes import CostLever
    from planner.optimize.exhaustive import Sink
    from planner.optimize.result import SearchResult
    from planner.show.presenters.plots.picture import Picture

ROWS = 10
"""Default number of rows to show."""


@record(kw_only=True)
class SearchInputs:
    """A search: its plan, its driver, and what its answer has besides the rows.

    ``sink`` gets every feasible row; ``has_levers``: the changes of inputs that lower the cost are
    searched, too.
    """

    question: PlanQuestion
    plan: Plan
    driver: Mapping[str, Value]
    bar: Bar
    sink: Sink | None = None
    compares_apis: bool = False
    has_levers: bool = False
    top: int = ROWS
    shows_interruption: bool = True
    arguments: Sequence[str] = ()


@record(kw_only=True)
class Searched:
    """The result of a search with its inputs; ``levers`` is None if they were not searched."""

    inputs: SearchInputs
    plan: Plan
    result: SearchResult
    apis: ApiComparison | None = None
    levers: Sequence[CostLever] | None = None


def _read(call: Call) -> SearchInputs:
    """Return the inputs of a search.

    Raises PlannerError if a value is unknown, faulty or impossible.
    """
    extra, name = call.extra, call.option_name
    driver = read_driver({n: extra.get(n) for n in ("driver", "trials", "seed", "sampler")}, name)
    sink = extra.get("sink")
    if sink is not None and not callable(sink):
        raise SearchSpaceError(f"sink is a function, not {format_input(sink)}.")
    if driver["driver"] != EXHAUSTIVE and extra.get("all_rows"):
        raise SearchSpaceError("--all writes every configuration: it needs --driver exhaustive.")
    if sink is not None and driver["driver"] != EXHAUSTIVE:
        raise SearchSpaceError("sink needs driver exhaustive: optuna does not see every row.")
    question = read_question(call, is_search=True)
    compares_apis = check_api_prices(call, question)
    if target := extra.get("launch"):
        from planner.launch.write.write_launch import restrict_to_target

        question = replace(question, request=restrict_to_target(question.request, str(target)))
    return SearchInputs(
        question=question,
        plan=make_plan(question.request),
        driver=driver,
        bar=call.bar,
        sink=cast("Sink | None", sink),
        compares_apis=compares_apis,
        has_levers=bool(extra.get("has_levers")),
        top=parse_int(extra.get("top") or ROWS, name("top"), 1),
        shows_interruption=bool(extra.get("shows_interruption", True)),
        arguments=cast("Sequence[str]", extra.get("arguments") or ()),
    )


def check_api_prices(call: Call, question: PlanQuestion) -> bool:
    """Return whether costs are compared with API prices; checks workload and price lists."""
    if not call.extra.get("compare_api"):
        return False
    from planner.decide.api_comparison import require_token_pricing
    from planner.specs.operating_terms import priced_models

    require_token_pricing(question.request.workload, call.option_name)
    priced_models(question.request.specs)  # raises the errors of a price list before any work
    return True


def _run(inputs: SearchInputs) -> Searched:
    """Return the result of a search, which may be interrupted."""
    plan, how = inputs.plan, inputs.driver
    if how["driver"] == EXHAUSTIVE:
        from planner.optimize.exhaustive import exhaustive_search

        with inputs.bar(plan.problem.num_rows, "configurations") as progress:
            result = exhaustive_search(plan.problem, progress=progress, sink=inputs.sink)
    else:
        from planner.optimize.optuna_search import optuna_search

        chosen: dict[str, object] = {n: value for n, value in how.items() if n != "driver"}
        with inputs.bar(int(number_or_nan(how["trials"])), "trials") as progress:
            result = optuna_search(plan.problem, progress=progress, **chosen)
    plan, best = with_assumption_notes(plan, result), result.recommended
    apis = levers = None
    if inputs.compares_apis and best is not None:
        from planner.decide.api_comparison import compare_with_apis

        apis = compare_with_apis(plan, best)
    if inputs.has_levers and result.table:
        from planner.decide.suggestions.changes import cost_levers

        is_complete = how["driver"] == EXHAUSTIVE and not result.interrupted
        levers = cost_levers(plan, result) if is_complete else []
    return Searched(inputs=inputs, plan=plan, result=result, apis=apis, levers=levers)


def _problem(searched: Searched) -> InfeasibleError | None:
    """Return why a search has no plan; raises KeyboardInterrupt if it was interrupted before."""
    result = searched.result
    if result.interrupted and result.fastest is None:
        raise KeyboardInterrupt
    if result.table:
        return None

    return InfeasibleError(infeasible_message(searched.plan, result))


def _write(files: RowFiles, searched: Searched, arguments: Sequence[str]) -> None:
    """Write the front, unless all rows were written, and the manifest with the plans."""
    _write_rows(files, searched, arguments, has_rows=searched.inputs.sink is None)


def _write_rows(
    files: RowFiles, searched: Searched, arguments: Sequence[str], *, has_rows: bool
) -> None:
    """Write the front if ``has_rows``, and the manifest with the plans."""
    from planner.show.presenters.search import write_search

    more: dict[str, object] = {"api": searched.apis.to_dict()} if searched.apis else {}
    if files.has_object and (lines := _starting_plan_lines(searched)):
        more["starting_plan"] = lines
    write_search(
        files, searched.plan, searched.result, arguments, searched.inputs.driver,
        has_rows=has_rows, levers=searched.levers, **more,
    )  # fmt: skip


def _present(searched: Searched, is_full: bool) -> Iterator[Block]:
    """Yield the answer and the API prices."""
    from planner.show.presenters.search import recommended_details, search_blocks
    from planner.show.reports import SearchReport, written_report

    inputs = searched.inputs
    if not searched.result.table:
        return
    arguments = inputs.arguments if inputs.sink is None else ()  # rows of the file are others
    report = written_report(
        lambda files: _write_rows(files, searched, arguments, has_rows=True), SearchReport
    )
    details = recommended_details(searched.plan, searched.result) if is_full else ()
    yield from search_blocks(
        report, inputs.top, is_full=is_full, details=details,
        shows_warnings=inputs.shows_interruption,
    )  # fmt: skip
    if searched.apis is not None:
        from planner.show.presenters.prices import api_comparison_blocks

        yield from api_comparison_blocks(searched.apis, is_full=is_full)


def _starting_plan_lines(searched: Searched) -> list[str]:
    """Return the plan of the file, compared with the recommended plan; empty without a file."""
    best, starting_request = searched.result.recommended, searched.inputs.question.file_request
    if starting_request is None or best is None:
        return []
    from planner.errors import PlannerError
    from planner.launch.read.launch_file import evaluate_launch, full_row
    from planner.show.presenters.search import starting_plan_line, unchanged_settings_line

    try:
        _, evaluation, _ = evaluate_launch(starting_request)
    except PlannerError:
        return []
    row = full_row(evaluation)
    lines = (
        starting_plan_line(searched.plan, best.row, row, evaluation.rejected_by),
        unchanged_settings_line(searched.plan, row),
    )
    return [line for line in lines if line]


def _draw(picture: Picture, searched: Searched) -> None:
    """Draw the front, or a picture of the recommended plan."""
    from planner.show.presenters.plots.picture import draw

    result = searched.result
    draw(picture, searched.plan, result if picture.name == "front" else result.recommended)


SEARCH = Command(read=_read, run=_run, present=_present, write=_write, draw=_draw, problem=_problem)
