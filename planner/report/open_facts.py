"""What nobody gave and what it moves, a line for each fact."""

from __future__ import annotations

from collections.abc import Sequence

from planner.open_facts import MovingFact
from planner.optimize.result_columns import FOLLOWING
from planner.plan import Plan
from planner.report.told import label, told_alike

_MOST = 3
_MEMORY = "peak_memory_gib"


def open_lines(plan: Plan, facts: Sequence[MovingFact]) -> list[str]:
    """A line for each fact, and one that says what the intervals hold."""
    lines = [_line(plan, fact) for fact in facts]
    if any(fact.ends for fact in facts):
        lines.append("The intervals are as wide as to hold each of these, one at a time.")
    return lines


def _line(plan: Plan, fact: MovingFact) -> str:
    assumed = f"assumed {fact.assumed}"
    if fact.tried:
        assumed += f"; tried {', '.join(fact.tried)}"
    words = [_range(name, *fact.moved[name]) for name in _told(plan, fact)]
    if fact.does_not_fit:
        words.append(f"does not fit with {' or '.join(fact.does_not_fit)}")
    name = fact.name[0].upper() + fact.name[1:]
    return f"{name} not given ({assumed}): {'; '.join(words)}."


def _told(plan: Plan, fact: MovingFact) -> list[str]:
    """The columns that tell the most, but one of those in proportion to each other."""
    shown = [name for name in (*plan.workload.wording.told, _MEMORY) if name in fact.moved]
    found: list[str] = []
    covered: set[str] = set()
    for name in shown or fact.moved:
        quantities = {key for key, both in FOLLOWING.items() if any(name in one for one in both)}
        if not quantities & covered:
            found.append(name)
        covered |= quantities
    return found[:_MOST]


def _range(column: str, low: float, high: float) -> str:
    cells, unit = told_alike(column, [low, high])
    return " ".join(filter(None, (label(column), f"{cells[0]} to {cells[1]}", unit)))
