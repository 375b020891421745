"""``planner search``: the best configurations of a search space."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from planner.base.cells import Value, number
from planner.cli import options
from planner.cli.options import make_request, picture_of
from planner.workloads.given import EXHAUSTIVE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from planner.decide.api_comparison import ApiComparison
    from planner.decide.levers import Lever
    from planner.optimize.exhaustive import Sink
    from planner.optimize.problem import Problem
    from planner.optimize.result import SearchResult
    from planner.question.request import Request
    from planner.show.page import Block
    from planner.workloads.plan import Plan


@options.taking(
    "question",
    "limit",
    how=(
        "from_file", "row", "num_gpus", "workload", "settings", "precision", "objective",
        "driver", "trials", "seed", "sampler", "csv", "json",
        "plot", "picture", "dark", "picture_width", "all_rows", "save_plan", "launch", "wrapper",
        "launch_output", "compare_api", "top", "full", "specs", "quiet",
    ),
)  # fmt: skip
def search(given: options.Given) -> None:
    """Find the best configurations of a space."""
    wrapper = None
    if given["launch"] is not None:
        from planner.cli.launch import checked_launch, usual_workload

        wrapper = checked_launch(given, given["launch"])
        if not options.is_given(given, "workload"):
            given["workload"] = usual_workload(given["launch"], given["workload"])
    request = make_request(given, is_search=True)
    if given["launch"] is not None:
        from planner.launch.write import for_target

        request = for_target(request, given["launch"])
    from planner.base.files import check_outputs
    from planner.show.views.documents import finish_search
    from planner.show.views.rows import result_blocks, row_files
    from planner.show.views.search import answer_blocks
    from planner.workloads.plan import answered, make_plan

    csv, json, all_rows = given["csv"], given["json"], given["all_rows"]
    check_outputs(csv, json, given["save_plan"])
    picture = picture_of("search", given)
    how = options.how(given)
    plan = make_plan(request)
    if given["compare_api"]:
        from planner.specs.api_price import priced_models

        priced_models(request.specs)  # faults of a list are told before the search
    with row_files(csv, json) as files:

        def add(table: Mapping[str, object]) -> None:
            files.add(result_blocks(plan, table))

        result = _drive(plan.problem, how, add if all_rows else None, quiet=given["quiet"])
        plan = answered(plan, result)
        if result.interrupted and result.fastest is None:
            raise KeyboardInterrupt
        if not result.table:
            from planner.errors import InfeasibleError
            from planner.show.views.infeasible import infeasible_message

            raise InfeasibleError(infeasible_message(plan, result))
        if not all_rows and (csv or json):
            from planner.show.views.front import marked_rows

            add(marked_rows(plan, result))
        compared = _compared(plan, result) if given["compare_api"] else None
        more: dict[str, object] = {"api": compared.to_dict()} if compared else {}
        found = _levers(plan, result, given)
        more["levers"] = [one.to_dict() for one in found]
        finish_search(files, plan, result, given["context"].obj, how, **more)
    if picture is not None:
        from planner.show.views.plots.picture import draw

        draw(picture, plan, result if picture.name == "front" else result.recommended)
    if not given["quiet"]:
        taken = _takes_stdout(given)
        shown = answer_blocks(
            plan,
            result,
            given["top"],
            is_full=given["full"],
            levers=found,
            shows_interruption=not (taken or _shares_a_terminal()),
        )
        _show(shown, compared, is_full=given["full"], stdout_taken=taken)
        if given.get("own") is not None:
            _show_own(plan, result, given["own"], stdout_taken=taken)
    if given["save_plan"] is not None:
        from planner.show.views.documents import save_plan

        save_plan(given["save_plan"], plan, result.recommended)
    if wrapper is not None and result.recommended is not None:
        from planner.cli.launch import write_launch
        from planner.workloads.pinned import PinnedPlan

        chosen = PinnedPlan.of(plan, result.recommended.row).request()
        write_launch(given, chosen, given["launch"], wrapper, stdout_taken=_takes_stdout(given))
    if result.interrupted:
        from planner.show.views.search import interrupted_message

        raise KeyboardInterrupt(interrupted_message(plan, result))


def _show_own(plan: Plan, result: SearchResult, own: Request, *, stdout_taken: bool) -> None:
    """The plan that the search started from, beside what it found."""
    from planner.errors import PlannerError
    from planner.launch.assumed import full_row, judged
    from planner.show.page import GAP, said
    from planner.show.terminal import make_console, write
    from planner.show.views.search import held_line, own_line

    try:
        _, found, _ = judged(own)
    except PlannerError:
        return
    if result.recommended is not None:
        line = own_line(plan, result.recommended.row, full_row(found), found.rejected_by)
        held = held_line(plan, full_row(found))
        lines = [said(each) for each in (line, held) if each]
        write(make_console(stderr=stdout_taken), [GAP, *lines])


def _takes_stdout(given: options.Given) -> bool:
    """Whether rows go where the report would."""
    return Path("-") in (given["csv"], given["json"])


def _shares_a_terminal() -> bool:
    """Whether the report and an error message are read in one place."""
    return sys.stdout.isatty() and sys.stderr.isatty()


def _drive(
    problem: Problem, how: dict[str, Value], sink: Sink | None, *, quiet: bool
) -> SearchResult:
    from planner.show.terminal import stoppable_bar

    if how["driver"] == EXHAUSTIVE:
        from planner.optimize.exhaustive import exhaustive_search

        with stoppable_bar(problem.num_rows, "configurations", quiet=quiet) as progress:
            return exhaustive_search(problem, progress=progress, sink=sink)
    from planner.optimize.optuna_search import optuna_search

    chosen = {name: value for name, value in how.items() if name != "driver"}
    with stoppable_bar(int(number(how["trials"])), "trials", quiet=quiet) as progress:
        return optuna_search(problem, progress=progress, **chosen)


def _compared(plan: Plan, result: SearchResult) -> ApiComparison | None:
    from planner.decide.api_comparison import compared_with_apis

    return None if result.recommended is None else compared_with_apis(plan, result.recommended)


def _levers(plan: Plan, result: SearchResult, given: options.Given) -> list[Lever]:
    """What would change the answer, for reports: each is a search of its own."""
    is_read = given["json"] is not None or (given["full"] and not given["quiet"])
    if result.interrupted or not is_read or options.how(given)["driver"] != EXHAUSTIVE:
        return []
    from planner.decide.levers import levers

    return levers(plan, result)


def _show(
    blocks: Iterable[Block], compared: ApiComparison | None, *, is_full: bool, stdout_taken: bool
) -> None:
    from planner.show.terminal import make_console, write

    console = make_console(stderr=stdout_taken)
    write(console, blocks)
    if compared is not None:
        from planner.show.views.api_comparison import api_comparison_blocks

        write(console, api_comparison_blocks(compared, is_full=is_full))
