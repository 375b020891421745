"""The report of a search."""

from __future__ import annotations

from rich.console import Console

from planner.optimize.columns import columns
from planner.optimize.result import SearchResult
from planner.plan import Plan
from planner.report import text
from planner.report.breakdown import print_breakdowns, print_configuration, print_run
from planner.report.console import print_title
from planner.report.front import print_front
from planner.report.overview import describe, print_assumed, print_counts, print_question
from planner.report.reproduce import estimate_command, folded
from planner.request import Request


def interrupted_message(plan: Plan, result: SearchResult) -> str:
    """How much of a search was done when it was interrupted."""
    done, total = result.configurations_evaluated, plan.problem.mesh.num_rows
    return (
        f"Interrupted after {text.count(done)} of {text.count(total)} configurations: "
        "there may be better ones among the others."
    )


def print_search(
    console: Console, request: Request, plan: Plan, result: SearchResult, top: int
) -> None:
    """The question, the front, its best configuration in full, and the counts."""
    print_question(console, plan)
    print_front(console, result, top)
    if result.estimate is not None:
        print_title(console, "The best configuration")
        print_configuration(console, result.estimate)
        print_breakdowns(console, plan.problem, result.estimate)
        print_run(console, plan.problem, result.estimate)
        table = columns(result.estimate, plan.problem.price_per_gpu_second)
        row = {name: values[0] for name, values in table.items()}
        framework = request.framework or plan.space.framework
        command = estimate_command(request, row, framework=framework)
        print_title(console, "To see its time by module and operator")
        console.print(folded(command, console.width), soft_wrap=True)
    if result.interrupted:
        print_title(console, interrupted_message(plan, result))
    print_counts(console, result, describe)
    print_assumed(console, plan)
