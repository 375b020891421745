"""Two sweeps beside each other: the scenarios that ask the same, and what became of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from planner.base.records import record
from planner.sweeps.columns import COST, TIME, Row, measured_alike
from planner.sweeps.plan import SweepPlan
from planner.sweeps.results import Sweep
from planner.sweeps.sentences import plan_in_short

Key = tuple[Any, ...]
_SAME = 1e-9


class Side(NamedTuple):
    """A scenario as one sweep has it; ``value`` is what is compared, NaN where unknown."""

    feasible: bool
    value: float
    cost: float
    time: float
    plan: str
    reason: str


@record(kw_only=True)
class Change:
    """A scenario that both have and that is not the same in both."""

    key: Key
    before: Side
    after: Side

    @property
    def size(self) -> float:
        """How much the value changed, as the size of a logarithm; a plan won or lost is most."""
        if self.before.feasible != self.after.feasible:
            return math.inf
        if _same(self.before.value, self.after.value):
            return 0.0
        ends = (self.before.value, self.after.value)
        return abs(math.log(ends[1] / ends[0])) if min(ends) > 0 else math.inf


@record(kw_only=True)
class Comparison:
    """What differs from one sweep to another.

    ``names`` are the questions that scenarios are told apart by; ``asked`` those that the sweeps
    answered differently throughout, with both answers.
    """

    names: tuple[str, ...]
    asked: Mapping[str, tuple[Any, Any]]
    changes: tuple[Change, ...]
    same: int
    only_before: tuple[Key, ...]
    only_after: tuple[Key, ...]

    @property
    def won(self) -> int:
        """Scenarios that have a plan now and had none."""
        return sum(one.after.feasible > one.before.feasible for one in self.changes)

    @property
    def lost(self) -> int:
        """Scenarios that had a plan and have none now."""
        return sum(one.after.feasible < one.before.feasible for one in self.changes)


def compare(
    before: Sweep,
    after: Sweep,
    measure: str = COST,
    chosen: Callable[[Iterable[Row]], Iterable[Row]] = iter,
) -> Comparison:
    """The scenarios of two sweeps by what they ask, the largest change first.

    ``measure`` is what is compared; ``chosen`` picks rows of both.
    """
    names = joined_by(before.plan, after.plan)
    old = dict(_sides(before, names, measure, chosen))
    found: list[Change] = []
    same, only_after = 0, []
    for key, side in _sides(after, names, measure, chosen):
        known = old.pop(key, None)
        if known is None:
            only_after.append(key)
        elif _is_same(known, side):
            same += 1
        else:
            found.append(Change(key=key, before=known, after=side))
    found.sort(key=lambda change: -change.size)
    return Comparison(
        names=names,
        asked=_asked_otherwise(before.plan, after.plan, names),
        changes=tuple(found),
        same=same,
        only_before=tuple(old),
        only_after=tuple(only_after),
    )


def joined_by(one: SweepPlan, other: SweepPlan) -> tuple[str, ...]:
    """The questions that either sweep varies, and the work where one has several."""
    return tuple(dict.fromkeys([*one.varied, *other.varied]))


def _sides(
    sweep: Sweep,
    names: Sequence[str],
    measure: str,
    chosen: Callable[[Iterable[Row]], Iterable[Row]],
) -> Iterator[tuple[Key, Side]]:
    for row in chosen(sweep.rows()):
        values = sweep.plan.scenario(row["scenario"]).values
        feasible = bool(row["feasible"])
        yield (
            tuple(_answer(name, row, values) for name in names),
            Side(
                feasible,
                measured_alike(measure, row),
                measured_alike(COST, row),
                measured_alike(TIME, row),
                plan_in_short(row) if feasible else "",
                str(row.get("reason") or ""),
            ),
        )


def _answer(name: str, row: Row, values: Mapping[str, Any]) -> Any:
    """What a scenario asks; specs by the names that rows have."""
    is_limit = f"{name}_limit" in row
    found = None if is_limit else row.get(name)
    return values.get(name) if found is None else found


def _asked_otherwise(
    one: SweepPlan, other: SweepPlan, names: Sequence[str]
) -> dict[str, tuple[Any, Any]]:
    """What differs between the answers that each gave to a question once."""
    answers = [
        {name: v[0] for work in plan.works for name, v in work.axes.items() if name not in names}
        for plan in (one, other)
    ]
    known = dict.fromkeys([*answers[0], *answers[1]])
    pairs = {name: (answers[0].get(name), answers[1].get(name)) for name in known}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def _is_same(one: Side, other: Side) -> bool:
    if (one.feasible, one.plan) != (other.feasible, other.plan):
        return False
    return not one.feasible or all(_same(*pair) for pair in zip(one[1:4], other[1:4], strict=True))


def _same(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=_SAME) or (math.isnan(one) and math.isnan(other))
