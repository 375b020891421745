"""Compares two sweeps, as blocks and as rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from planner.base.csv_cells import Row, number_or_nan
from planner.base.formatting import format_count, format_parameter
from planner.base.records import record
from planner.show.output_blocks import (
    BAD,
    BEST,
    GAP,
    TOTAL,
    Block,
    Cell,
    Column,
    fit_table,
    make_lines,
)
from planner.show.presenters.format_results import format_in_common_unit, label, share
from planner.sweeps.columns import COST, MEASURES, TIME, VALUE, better, measure_values
from planner.sweeps.plan import SweepPlan
from planner.sweeps.summary_blocks import format_plan
from planner.sweeps.sweep_folder import Sweep

_NO_PLAN = "no plan"
_MOST_NAMED = 4
Key = tuple[object, ...]
_TOLERANCE = 1e-9


def differences_blocks(
    before: Sweep, after: Sweep, comparison: Comparison, measure: str, top: int
) -> Iterator[Block]:
    """Yield the number of changed scenarios, the largest changes, and unmatched scenarios."""
    both = comparison.same + len(comparison.changes)
    yield make_lines(f"{after.folder} against {before.folder}", mark=TOTAL, indent="")
    counts = [
        f"{format_count(comparison.same)} the same",
        f"{format_count(len(comparison.changes))} changed",
    ]
    counts += [f"{format_count(comparison.won)} have a plan now"] if comparison.won else []
    counts += [f"{format_count(comparison.lost)} have none now"] if comparison.lost else []
    yield make_lines(f"{format_count(both)} scenarios in both: {', '.join(counts)}")
    for name, (old, new) in comparison.answer_changes.items():
        texts = [_format_answer(value) for value in (old, new)]
        yield make_lines(f"Changed answer: {label(name)} {texts[0]}, now {texts[1]}")
    for sweep, keys in ((before, comparison.only_before), (after, comparison.only_after)):
        if keys:
            more, first_keys = len(keys) - _MOST_NAMED, keys[:_MOST_NAMED]
            key_texts = [
                " ".join(map(_format_answer, key)) or "its one scenario" for key in first_keys
            ]
            keys_text = "; ".join(
                [*key_texts, f"and {format_count(more)} more"] if more > 0 else key_texts
            )
            yield make_lines(
                f"Only in {sweep.folder}: {format_count(len(keys))} ({keys_text})",
                most=3,
            )
    if comparison.changes:
        yield GAP
        yield from _changes_blocks(comparison, measure, comparison.changes[:top])
    if len(comparison.changes) > top:
        yield make_lines(
            f"and {format_count(len(comparison.changes) - top)} more: --top", indent=""
        )


def _format_answer(value: object) -> str:
    return "not specified" if value is None else format_parameter(value)


def _changes_blocks(
    comparison: Comparison, measure: str, changes: Sequence[Change]
) -> Iterator[Block]:
    """Yield the table of changed scenarios: answers, measure before and now, change and plan."""
    columns = [
        Column(
            name,
            [_format_answer(change.key[index]) for change in changes],
            label(name),
            numeric=all(isinstance(change.key[index], int | float) for change in changes),
        )
        for index, name in enumerate(comparison.names)
    ]
    column = MEASURES[measure][0] if measure in MEASURES else measure
    values = [side.value for change in changes for side in (change.before, change.after)]
    texts, unit = format_in_common_unit(column, values)
    title = "cost x time" if measure == VALUE else f"{label(measure)} {unit}".strip()
    for name, first in (("before", 0), ("now", 1)):
        sides = [(change.before, change.after)[first] for change in changes]
        cells = [
            text if side.feasible else _NO_PLAN
            for text, side in zip(texts[first::2], sides, strict=True)
        ]
        columns.append(Column(f"{title} {name}", cells))
    columns.append(Column("change", [_change(measure, change) for change in changes]))
    plans = [
        "same"
        if change.before.plan == change.after.plan
        else change.after.plan
        if change.after.feasible
        else change.after.reason
        for change in changes
    ]
    columns.append(Column("plan", plans, numeric=False))
    yield fit_table(columns)


def _change(measure: str, change: Change) -> Cell:
    """Return a cell with the relative change of the measure, marked as better or worse."""
    old, new = change.before.value, change.after.value
    if change.before.feasible != change.after.feasible:
        is_good = change.after.feasible
        return Cell(text="new" if is_good else "lost", mark=BEST if is_good else BAD)
    if not (math.isfinite(old) and math.isfinite(new)) or not old:
        return Cell(text="-")
    gain = new / old - 1
    if not gain:
        return Cell(text="same")
    is_good = (gain < 0) == (better(measure) > 0)
    text = f"{'+' if gain > 0 else '-'}{share(abs(gain))}"
    return Cell(text=text, mark=BEST if is_good else BAD)


def difference_columns(comparison: Comparison) -> list[str]:
    """The columns of `difference_rows`."""
    sides = ("feasible", "value", "cost", "time", "plan", "reason")
    return [*comparison.names, *(f"{side}_{when}" for when in ("before", "now") for side in sides)]


def difference_rows(comparison: Comparison) -> Iterator[tuple[object, ...]]:
    """Every change as a row of a file."""
    for change in comparison.changes:
        sides = (*change.before, *change.after)
        yield (*change.key, *(None if side != side else side for side in sides))


class ScenarioSide(NamedTuple):
    """A scenario in one sweep; ``value`` is the compared measure, NaN if unknown."""

    feasible: bool
    value: float
    cost: float
    time: float
    plan: str
    reason: str


@record(kw_only=True)
class Change:
    """A scenario with different results in both sweeps."""

    key: Key
    before: ScenarioSide
    after: ScenarioSide

    @property
    def size(self) -> float:
        """Return the absolute logarithm of the ratio of values; infinite: a plan is new or lost."""
        if self.before.feasible != self.after.feasible:
            return math.inf
        if _is_close(self.before.value, self.after.value):
            return 0.0
        ends = (self.before.value, self.after.value)
        return abs(math.log(ends[1] / ends[0])) if min(ends) > 0 else math.inf


@record(kw_only=True)
class Comparison:
    """Differences between two sweeps.

    ``names`` are the questions that identify scenarios; ``answer_changes`` are both answers to
    questions with one answer in each sweep, but not the same one.
    """

    names: tuple[str, ...]
    answer_changes: Mapping[str, tuple[object, object]]
    changes: tuple[Change, ...]
    same: int
    only_before: tuple[Key, ...]
    only_after: tuple[Key, ...]

    @property
    def won(self) -> int:
        """Scenarios that have a plan now and had none."""
        return sum(change.after.feasible > change.before.feasible for change in self.changes)

    @property
    def lost(self) -> int:
        """Scenarios that had a plan and have none now."""
        return sum(change.after.feasible < change.before.feasible for change in self.changes)


def compare(
    before: Sweep,
    after: Sweep,
    measure: str = COST,
    select: Callable[[Sweep], Iterable[Row]] = Sweep.rows,
) -> Comparison:
    """Compare the scenarios of two sweeps that have equal questions, largest change first.

    ``measure`` is the compared measure; ``select`` selects rows of each sweep.
    """
    names = tuple(dict.fromkeys([*before.plan.varied, *after.plan.varied]))
    old = dict(_sides(before, names, measure, select))
    changes: list[Change] = []
    same, only_after = 0, []
    for key, side in _sides(after, names, measure, select):
        before_side = old.pop(key, None)
        if before_side is None:
            only_after.append(key)
        elif _is_same(before_side, side):
            same += 1
        else:
            changes.append(Change(key=key, before=before_side, after=side))
    changes.sort(key=lambda change: -change.size)
    return Comparison(
        names=names,
        answer_changes=_answer_changes(before.plan, after.plan, names),
        changes=tuple(changes),
        same=same,
        only_before=tuple(old),
        only_after=tuple(only_after),
    )


def _sides(
    sweep: Sweep, names: Sequence[str], measure: str, select: Callable[[Sweep], Iterable[Row]]
) -> Iterator[tuple[Key, ScenarioSide]]:
    """Yield the key (answers ``names``) and the result of each selected scenario of a sweep."""
    for row in select(sweep):
        values = sweep.plan.scenario(int(number_or_nan(row["scenario"]))).values
        feasible = bool(row["feasible"])
        yield (
            # Specs have their full names in rows.
            tuple(
                values.get(name) if f"{name}_limit" in row or row.get(name) is None else row[name]
                for name in names
            ),
            ScenarioSide(
                feasible,
                measure_values(measure, row),
                measure_values(COST, row),
                measure_values(TIME, row),
                format_plan(row) if feasible else "",
                str(row.get("reason") or ""),
            ),
        )


def _answer_changes(
    before: SweepPlan, after: SweepPlan, names: Sequence[str]
) -> dict[str, tuple[object, object]]:
    """Return questions with one answer per sweep whose answers differ, with both answers."""
    answers = [
        {name: v[0] for work in plan.works for name, v in work.axes.items() if name not in names}
        for plan in (before, after)
    ]
    questions = dict.fromkeys([*answers[0], *answers[1]])
    pairs = {name: (answers[0].get(name), answers[1].get(name)) for name in questions}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def _is_same(before: ScenarioSide, after: ScenarioSide) -> bool:
    """Return True if a scenario has the same plan and about equal measure, cost and time."""
    if (before.feasible, before.plan) != (after.feasible, after.plan):
        return False
    return not before.feasible or all(
        _is_close(*pair) for pair in zip(before[1:4], after[1:4], strict=True)
    )


def _is_close(first: float, second: float) -> bool:
    return math.isclose(first, second, rel_tol=_TOLERANCE) or (
        math.isnan(first) and math.isnan(second)
    )
