"""Which of the things that a plan assumes moves its answer most."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from planner.base.records import record
from planner.decide.open_facts import MovingFact
from planner.explaining.against import Seen
from planner.explaining.changed import outcome, scaled
from planner.explaining.what_if import STEP, change
from planner.plan.plan import Plan

_OF_MEMORY = ("peak_memory_gib", "memory_headroom_gib")
_PARTS_OF_KERNELS = 3  # efficiency.gemm.bf16
_NOT_KERNELS = ("collective",)  # alternatives of which the faster is taken
_KINDS = ("gpu", "cluster", "framework", "engine", "reliability", "power")


@record(kw_only=True)
class Assumption:
    """A fact that nobody gave, or a number of a spec that nobody measured, and what it moves most.

    ``tried`` says what it was changed to; ``low`` and ``high`` are the least and the greatest
    value of ``column`` over what is assumed and what was tried.
    """

    name: str
    assumed: str
    tried: str
    column: str
    low: float
    high: float

    @property
    def spread(self) -> float:
        """The greatest value over the least, infinite where the least is 0."""
        return self.high / self.low if self.low > 0 else math.inf

    def to_dict(self) -> dict[str, Any]:
        """Plain words and numbers, as JSON takes them."""
        return {**vars(self), "spread": self.spread if math.isfinite(self.spread) else None}


def assumptions(seen: Seen, columns: Sequence[str], burst: int | None = None) -> list[Assumption]:
    """Open facts over what is usual, and assumed numbers of specs 10 % lower and higher.

    The one that moves a column most comes first; those that move none are left out.
    """
    plan, row = seen.plan, seen.row
    told = [name for name in columns if change(row.get(name), row.get(name)) is not None]
    facts = [
        Assumption(
            name=fact.name,
            assumed=fact.assumed,
            tried=", ".join(fact.tried),
            **_widest(moved),
        )
        for fact in seen.facts
        if (moved := _told_of(fact, told))
    ]
    kernels = {
        done.work.key
        for step in seen.steps.values()
        for part in step.parts
        for done in part.part.done
    }
    numbers = (
        _number(plan, name, row, told, burst)
        for name in plan.assumed
        if not kernels or _may_matter(name, kernels)
    )
    moving = [one for one in numbers if one is not None and one.spread > 1 + 1e-9]
    return sorted([*facts, *moving], key=lambda one: -one.spread)


def _told_of(fact: MovingFact, told: Sequence[str]) -> dict[str, tuple[float, float]]:
    """What a fact moves; of precisions no share of the peak, of which each has its own."""
    is_precision = fact.name == "precision"
    return {
        name: ends
        for name, ends in fact.moved.items()
        if name in told and not (is_precision and name.endswith("_utilization"))
    }


def _may_matter(name: str, kernels: Collection[str]) -> bool:
    """Whether an assumed number is no kernel's, or that of a kernel which the plan runs."""
    table, _, _ = name.removeprefix("gpu ").rpartition(".")
    parts = table.split(".")
    is_kernel = len(parts) == _PARTS_OF_KERNELS and parts[1] not in _NOT_KERNELS
    return not is_kernel or table in kernels


def _number(
    plan: Plan, name: str, row: Mapping[str, Any], told: Sequence[str], burst: int | None
) -> Assumption | None:
    """What an assumed number moves; None where it is of no spec that a prediction reads."""
    kind, _, path = name.partition(" ")
    if kind not in _KINDS:
        return None
    reached = [outcome(plan, scaled(kind, (path,), 1 + sign * STEP), burst) for sign in (-1, 1)]
    rows = [row, *(one.row for one in reached if one.row is not None)]
    ends = {column: [float(one[column]) for one in rows] for column in told}
    widest = _widest({column: (min(values), max(values)) for column, values in ends.items()})
    return Assumption(name=name, assumed="", tried="10 % lower and higher", **widest)


def _widest(ends: Mapping[str, tuple[float, float]]) -> dict[str, Any]:
    """The column with the greatest spread, and its ends."""
    spreads = {name: round(_spread(*both), 9) for name, both in ends.items()}
    # Memory is no answer to a question of time or money where these move too.
    of_answer = [name for name in ends if spreads[name] > 1 and name not in _OF_MEMORY]
    column = max(of_answer or ends, key=lambda name: spreads[name])
    low, high = ends[column]
    return {"column": column, "low": low, "high": high}


def _spread(low: float, high: float) -> float:
    return high / low if low > 0 else (math.inf if high > low else 1.0)
