"""What differs between two sweeps, on screen and as rows."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from planner.base import text
from planner.report.console import BAD, GOOD, print_folded
from planner.report.fitted import Column, print_fitted
from planner.report.short import share
from planner.report.told import label, told_alike
from planner.sweeps.against import Change, Comparison, Key
from planner.sweeps.columns import MEASURES, VALUE, better
from planner.sweeps.results import Sweep

_NO_PLAN = "no plan"
_MOST_NAMED = 4


def print_differences(
    console: Console, before: Sweep, after: Sweep, found: Comparison, measure: str, top: int
) -> None:
    """How many scenarios differ, which the most, and what only one of the sweeps has."""
    both = found.same + len(found.changes)
    console.print(f"{after.folder} against {before.folder}", style="bold")
    counts = [f"{text.count(found.same)} the same", f"{text.count(len(found.changes))} changed"]
    counts += [f"{text.count(found.won)} have a plan now"] if found.won else []
    counts += [f"{text.count(found.lost)} have none now"] if found.lost else []
    print_folded(console, f"{text.count(both)} scenarios in both: {', '.join(counts)}")
    for name, (old, new) in found.asked.items():
        words = [_answer(value) for value in (old, new)]
        print_folded(console, f"Asked otherwise: {label(name)} {words[0]}, now {words[1]}")
    for sweep, keys in ((before, found.only_before), (after, found.only_after)):
        if keys:
            print_folded(console, f"Only in {sweep.folder}: {_named(keys)}", most=3)
    if found.changes:
        console.print()
        _print_changes(console, found, measure, found.changes[:top])
    if len(found.changes) > top:
        console.print(f"and {text.count(len(found.changes) - top)} more: --top")


def _named(keys: Sequence[Key]) -> str:
    words = [" ".join(map(_answer, key)) or "its one scenario" for key in keys[:_MOST_NAMED]]
    more = f"; and {text.count(len(keys) - _MOST_NAMED)} more" if len(keys) > _MOST_NAMED else ""
    return f"{text.count(len(keys))} ({'; '.join(words)}{more})"


def _answer(value: Any) -> str:
    return "not asked" if value is None else text.value(value)


def _print_changes(
    console: Console, found: Comparison, measure: str, changes: Sequence[Change]
) -> None:
    columns = [
        Column(
            name=name,
            header=label(name),
            cells=[_answer(change.key[at]) for change in changes],
            numeric=all(isinstance(change.key[at], int | float) for change in changes),
        )
        for at, name in enumerate(found.names)
    ]
    column = MEASURES[measure][0] if measure in MEASURES else measure
    values = [side.value for change in changes for side in (change.before, change.after)]
    words, unit = told_alike(column, values)
    title = "cost x time" if measure == VALUE else f"{label(measure)} {unit}".strip()
    for name, first in (("before", 0), ("now", 1)):
        sides = [(change.before, change.after)[first] for change in changes]
        cells = [
            word if side.feasible else _NO_PLAN
            for word, side in zip(words[first::2], sides, strict=True)
        ]
        header = f"{title} {name}"
        columns.append(Column(name=header, header=header, cells=cells, numeric=True))
    told = [_change(measure, change) for change in changes]
    columns.append(
        Column(
            name="change",
            header="change",
            cells=[str(one) for one in told],
            numeric=True,
            styles=[str(one.style) for one in told],
        )
    )
    plans = ["same" if one.before.plan == one.after.plan else _plan(one) for one in changes]
    columns.append(Column(name="plan", header="plan", cells=plans, numeric=False))
    order = [one.name for one in columns]
    print_fitted(console, columns, rank=order.index, styles=[""] * len(changes))


def _plan(change: Change) -> str:
    return change.after.plan if change.after.feasible else change.after.reason


def _change(measure: str, change: Change) -> Text:
    """How much more or less it is now, green where that is better."""
    old, new = change.before.value, change.after.value
    if change.before.feasible != change.after.feasible:
        is_good = change.after.feasible
        return Text("new" if is_good else "lost", GOOD if is_good else BAD)
    if not (math.isfinite(old) and math.isfinite(new)) or not old:
        return Text("-")
    gain = new / old - 1
    if not gain:
        return Text("same")
    is_good = (gain < 0) == (better(measure) > 0)
    return Text(f"{'+' if gain > 0 else '-'}{share(abs(gain))}", GOOD if is_good else BAD)


def difference_columns(found: Comparison) -> list[str]:
    """The columns of `difference_rows`."""
    sides = ("feasible", "value", "cost", "time", "plan", "reason")
    return [*found.names, *(f"{one}_{when}" for when in ("before", "now") for one in sides)]


def difference_rows(found: Comparison) -> Iterator[tuple[Any, ...]]:
    """Every change as a row of a file."""
    for change in found.changes:
        sides = (*change.before, *change.after)
        yield (*change.key, *(None if one != one else one for one in sides))
