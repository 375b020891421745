"""What changes where hardware, terms or the question do, as people read it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from planner.explaining.explanation import MEMORY, Explanation
from planner.explaining.what_if import SOFTWARE, Sensitivity, change
from planner.report.front import of_objective
from planner.report.told import label, told
from planner.show.page import (
    Block,
    Title,
    grid,
    said,
)

HEADS = ("10 % of", "moves", "worse", "better")
LEAST = 5e-4
"""Changes below this share are not told."""

_TELLING = 2e-3
_ASKED = (SOFTWARE, "question")
_FACTS = 7
_OPTIONS = ("10 % worse", "10 % better")


def sensitivities_blocks(explained: Explanation, *, is_full: bool) -> Iterator[Block]:
    """A table of what 10 % move, then other numbers of nodes and lengths, a line each."""
    yield Title(text="What if (each predicted anew)")
    yield grid(HEADS, what_if_rows(explained, is_full=is_full), words=(0, 1))
    for line in question_lines(explained, is_full=is_full):
        yield said(line, most=9 if is_full else 2)


def what_if_rows(explained: Explanation, *, is_full: bool) -> Iterator[tuple[str, ...]]:
    """Cells under `HEADS`, a row for each fact and column that it moves, the most first."""
    own, columns = explained.row, explained.columns
    facts = [one for one in explained.sensitivities if one.group not in _ASKED]
    moving = [one for one in facts if one.moved(own, columns) >= LEAST or _fails(one)]
    moving.sort(key=lambda one: -one.moved(own, _sorted_by(explained, one)))
    shown = moving if is_full else [one for one in moving if _is_telling(explained, one)][:_FACTS]
    for one in shown:
        for column in _told_columns(explained, one, is_full=is_full):
            cells = [_cell(one, option, column, own) for option in _OPTIONS]
            yield (one.name, label(column), *cells)


def question_lines(explained: Explanation, *, is_full: bool) -> Iterator[str]:
    """Lines of other numbers of nodes and other lengths."""
    for one in explained.sensitivities:
        if one.group in _ASKED:
            yield from _question_lines(explained, one, is_full=is_full)


def _is_telling(explained: Explanation, one: Sensitivity) -> bool:
    """Whether a short report tells a fact."""
    return _fails(one) or one.moved(explained.row, _sorted_by(explained, one)) >= _TELLING


def signed(share: float) -> str:
    """A relative change with its sign: ``+4.2 %``.

    >>> signed(0.0421), signed(-0.31), signed(1e-6)
    ('+4.2 %', '-31 %', '0 %')
    """
    if abs(share) < LEAST:
        return "0 %"
    return f"{100 * share:+.1f} %" if abs(share) < 0.0995 else f"{100 * share:+,.0f} %"


def _sorted_by(explained: Explanation, one: Sensitivity) -> tuple[str, ...]:
    """The column that a change is told in, if that is no memory."""
    told_in = _told_columns(explained, one, is_full=False)
    return tuple(name for name in told_in if name not in MEMORY)


def _fails(one: Sensitivity) -> bool:
    return any(found.row is None for found in one.outcomes.values())


def _goal(explained: Explanation) -> str:
    """The column of what such plans are chosen by."""
    goal = explained.plan.problem.objectives[0].name
    return of_objective(explained.plan, goal, explained.row)


def _told_columns(explained: Explanation, one: Sensitivity, *, is_full: bool) -> list[str]:
    """The columns in which a change is told: all that it moves, or the first of what is asked."""
    moved = [name for name in explained.columns if one.moved(explained.row, (name,)) >= LEAST]
    goal = _goal(explained)
    if is_full:
        return moved or [goal]
    return [goal] if goal in moved else (moved[:1] or [goal])


def _cell(one: Sensitivity, option: str, column: str, own: Mapping[str, Any]) -> str:
    found = one.outcomes[option]
    return "impossible" if found.row is None else _change(found.row, own, column)


def _change(row: Mapping[str, Any], own: Mapping[str, Any], column: str) -> str:
    share = change(row[column], own[column])
    return "-" if share is None else signed(share)


def _question_lines(explained: Explanation, one: Sensitivity, *, is_full: bool) -> Iterator[str]:
    """A line for each other answer: what it moves, in short the most telling columns alone."""
    costs = [name for name in explained.columns if "cost" in name]
    more = MEMORY if one.group == SOFTWARE else ()
    shown = [*dict.fromkeys((explained.columns[0], _goal(explained), *costs, *more))]
    for reason, impossible in _impossible(one).items():
        yield f"{', '.join(impossible)}: impossible: {reason}"
    for words, found in one.outcomes.items():
        row = found.row
        if row is None:
            continue
        moved = [
            name
            for name in (explained.columns if is_full else shown)
            if abs(change(row[name], explained.row[name]) or 0.0) >= LEAST
        ]
        changes = [_told_change(row, explained.row, name, is_full=is_full) for name in moved]
        yield f"{words}: {', '.join(changes) or 'no change of these'}"


def _told_change(
    row: Mapping[str, Any], own: Mapping[str, Any], name: str, *, is_full: bool
) -> str:
    share = _change(row, own, name)
    return (
        f"{label(name)} {told(name, row[name])} ({share})" if is_full else f"{label(name)} {share}"
    )


def _impossible(one: Sensitivity) -> dict[str, list[str]]:
    """What is impossible, by the reason."""
    found: dict[str, list[str]] = {}
    for words, reached in one.outcomes.items():
        if reached.row is None:
            found.setdefault(reached.reason, []).append(words)
    return found
