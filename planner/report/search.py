"""The report of a search."""

from __future__ import annotations

from rich.console import Console

from planner.base import text
from planner.optimize.result import SearchResult, row_of
from planner.plan.plan import Plan
from planner.report.brief import print_brief
from planner.report.compared import print_comparisons
from planner.report.configuration import settings_text
from planner.report.console import print_title
from planner.report.details import details_of
from planner.report.front import print_front
from planner.report.front_blocks import print_blocks
from planner.report.overview import (
    print_assumed,
    print_counts,
    print_question,
)
from planner.report.reproduce import estimate_command, folded


def interrupted_message(plan: Plan, result: SearchResult) -> str:
    """How much of a search was done when it was interrupted."""
    done, total = result.configurations_evaluated, plan.problem.num_rows
    return (
        f"Interrupted after {text.count(done)} of {text.count(total)} configurations: "
        "there may be better ones among the others."
    )


def print_answer(
    console: Console, plan: Plan, result: SearchResult, top: int, *, is_full: bool = False
) -> None:
    """What a search found: in about 30 lines, or all of it."""
    if is_full:
        print_search(console, plan, result, top)
        return
    print_brief(console, plan, result, top)
    if result.interrupted:
        print_title(console, interrupted_message(plan, result))


def print_search(console: Console, plan: Plan, result: SearchResult, top: int) -> None:
    """The question, the front, its best configuration in full, and the counts."""
    print_question(console, plan)
    print_comparisons(console, plan, result, is_full=True)
    print_front(console, plan, result, top)
    if result.recommended is not None:
        print_blocks(console, plan, result)
        details = details_of(plan)
        row = row_of(result.recommended)
        print_title(console, f"The recommended {plan.workload.wording.noun}")
        console.print(settings_text(plan, row))
        details.memory_and_speed(console, plan, result.recommended)
        print_title(console, details.to_see)
        command = estimate_command(plan, row)
        console.print(folded(command, console.width), soft_wrap=True)
    if result.interrupted:
        print_title(console, interrupted_message(plan, result))
    print_counts(console, plan, result)
    print_assumed(console, plan)
