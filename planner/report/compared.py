"""The values of an outer axis beside each other, a line for each."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.text import Text

from planner.base import text
from planner.optimize.collector import rows_of
from planner.optimize.result import Comparison, SearchResult
from planner.optimize.result_columns import ends_of, full_columns
from planner.plan.plan import Plan
from planner.question.request import ALL
from planner.report.console import BAD, GOOD, make_table, print_folded
from planner.report.front import of_objective
from planner.report.overview import describe
from planner.report.short import share, shortest_plan
from planner.report.told import label, told

_MOST, _LINES, _ALL_LINES = 8, 7, 1000
_CHANGE = len("-99.9 %")


def print_comparisons(
    console: Console, plan: Plan, result: SearchResult, *, is_full: bool = False
) -> None:
    """For each axis of several values the best plan of every value, and what it loses.

    In short, values that nobody named stand in a sentence, and of many named ones the first.
    """
    asked = (name for name in result.comparisons if _is_asked(getattr(plan.request, name, None)))
    tables = [*(result.comparisons if is_full else asked)]
    for axis, compared in result.comparisons.items():
        if axis not in tables:
            is_long = axis == plan.workload.profile_kind and not tables
            words = _told(plan, compared) if is_long else _changes(plan, compared)
            line = f"By {_words(axis)} ({_goal(plan)}): {', '.join(words)}"
            print_folded(console, line, most=_LINES)
            for reason in without_plan_lines(plan, compared) if is_long else ():
                print_folded(console, reason, most=_LINES)
    for axis in tables:
        compared = result.comparisons[axis]
        console.print()
        _print_table(console, plan, compared, len(compared.losses) if is_full else _MOST)
        for line in without_plan_lines(plan, compared):
            print_folded(console, line, most=_ALL_LINES if is_full else 2)


def compared_lines(plan: Plan, result: SearchResult) -> list[str]:
    """For each axis of several values what each loses, in a line."""
    return [
        f"By {_words(axis)} ({_goal(plan)}): {', '.join(_changes(plan, compared))}"
        for axis, compared in result.comparisons.items()
    ]


def _is_asked(given: Any) -> bool:
    return given == ALL or isinstance(given, tuple | list)


def _words(axis: str) -> str:
    return axis.replace("_", " ")


def _told(plan: Plan, compared: Comparison) -> list[str]:
    """As `_changes`, with what each value reaches and its interval."""
    table = full_columns(compared.table, plan.problem.sources)
    column = of_objective(plan, plan.problem.objectives[0].name, table)
    changes = _changes(plan, compared)
    reached = [told(column, row[column], _ends(column, row)) for row in rows_of(table)]
    first, others = changes[:1], zip(changes[1:], reached[1:], strict=False)
    return [*first, *(f"{words}: {value}" for words, value in others)]


def _goal(plan: Plan) -> str:
    return _words(plan.problem.objectives[0].name)


def _changes(plan: Plan, compared: Comparison) -> list[str]:
    """Each value of an axis with what it loses or gains against the first."""
    table = compared.table.get(compared.axis, ())
    found = [
        " ".join([text.value(value), *([change] if at and (change := _change(plan, loss)) else [])])
        for at, (value, loss) in enumerate(zip(table, compared.losses, strict=True))
    ]
    return found + [f"{text.value(value)} no plan" for value in compared.without_plan]


def _change(plan: Plan, loss: float) -> str:
    """What becomes of the first objective: ``-12 %`` of a lost rate, ``+14 %`` of a cost."""
    if not math.isfinite(loss):
        return ""
    is_less = (loss > 0) == (plan.problem.objectives[0].sign < 0)
    return f"{'-' if is_less else '+'}{share(abs(loss))}" if loss else "as good"


def _print_table(console: Console, plan: Plan, compared: Comparison, most: int) -> None:
    axis, table = compared.axis, full_columns(compared.table, plan.problem.sources)
    number = len(compared.losses)
    column = of_objective(plan, plan.problem.objectives[0].name, table)
    lines = make_table(console)
    lines.add_column(f"by {_words(axis)}", overflow="fold")
    lines.add_column("plan", overflow="fold")
    lines.add_column(label(column), no_wrap=True, justify="right")
    lines.add_column(_goal(plan), overflow="fold", min_width=_CHANGE, justify="right")
    for at, (row, loss) in enumerate(zip(rows_of(table), compared.losses, strict=True)):
        if at == most:
            break
        lines.add_row(
            text.value(row[axis]),
            shortest_plan(plan, row, axis),
            told(column, row[column], _ends(column, row)) if column in row else "",
            Text(_change(plan, loss), BAD if loss > 0 else GOOD) if at else "",
            style=GOOD if at == 0 else None,
        )
    console.print(lines)
    if number > most:
        console.print(f"and {number - most} more: --full")


def _ends(column: str, row: Mapping[str, Any]) -> tuple[float, float] | None:
    low, high = ends_of(column)
    return (float(row[low]), float(row[high])) if low in row else None


def without_plan_lines(plan: Plan, compared: Comparison) -> list[str]:
    """Values without a plan, by what came closest, a line for each reason."""
    reasons: dict[str, list[str]] = {}
    for value, reason in compared.without_plan.items():
        reasons.setdefault(describe(plan.problem, reason), []).append(text.value(value))
    ordered = sorted(reasons.items(), key=lambda item: -len(item[1]))
    return [
        f"no plan: {len(values)} ({reason}): {', '.join(values)}"
        if len(values) > 1
        else f"no plan: {values[0]} ({reason})"
        for reason, values in ordered
    ]
