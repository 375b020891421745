"""What nobody gave and what it moves, a line for each fact."""

from __future__ import annotations

from collections.abc import Sequence

from planner.decide.open_facts import MovingFact
from planner.optimize.result_columns import FOLLOWING
from planner.plan.plan import Plan
from planner.report.told import label, told_alike
from planner.workloads.base import Wording

_MOST = 3
_MEMORY = "peak_memory_gib"


def open_lines(plan: Plan, facts: Sequence[MovingFact]) -> list[str]:
    """A line for each fact, and one that says what the intervals hold."""
    lines = [_line(plan, fact) for fact in facts]
    if any(fact.ends for fact in facts):
        lines.append("The intervals are as wide as to hold each of these, one at a time.")
    return lines


def short_open_lines(plan: Plan, facts: Sequence[MovingFact]) -> list[str]:
    """A short line for each fact: the quantity that it moves the most."""
    return [_short_line(plan, fact) for fact in facts]


def _line(plan: Plan, fact: MovingFact) -> str:
    assumed = f"assumed {fact.assumed}"
    if fact.tried:
        assumed += f"; tried {', '.join(fact.tried)}"
    words = [
        range_words(name, *fact.moved[name])
        for name in moved_columns(plan.workload.wording, fact)[:_MOST]
    ]
    if fact.does_not_fit:
        words.append(f"does not fit with {' or '.join(fact.does_not_fit)}")
    name = fact.name[0].upper() + fact.name[1:]
    return f"{name} not given ({assumed}): {'; '.join(words)}."


def _short_line(plan: Plan, fact: MovingFact) -> str:
    columns = sorted(
        moved_columns(plan.workload.wording, fact), key=lambda name: _spread(*fact.moved[name])
    )
    words = [range_words(name, *fact.moved[name]) for name in columns[-1:]]
    if fact.does_not_fit:
        words.append(f"no room with {' or '.join(fact.does_not_fit)}")
    return f"Open: {fact.name} (assumed {fact.assumed}): {'; '.join(words)}"


def _spread(low: float, high: float) -> float:
    return high / low if low > 0 else float("inf")


def moved_columns(wording: Wording, fact: MovingFact) -> list[str]:
    """The columns that tell the most, but one of those in proportion to each other."""
    shown = [name for name in (*wording.told, _MEMORY) if name in fact.moved]
    found: list[str] = []
    covered: set[str] = set()
    for name in shown or fact.moved:
        quantities = {key for key, both in FOLLOWING.items() if any(name in one for one in both)}
        if not quantities & covered:
            found.append(name)
        covered |= quantities
    return found


def range_words(column: str, low: float, high: float) -> str:
    """What a column is moved from and to, with its unit."""
    cells, unit = told_alike(column, [low, high])
    return " ".join(filter(None, (label(column), f"{cells[0]} to {cells[1]}", unit)))
