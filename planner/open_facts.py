"""Which facts that nobody gave move an answer, and the intervals that hold what they may be."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from planner.optimize.collector import first_row
from planner.optimize.result_columns import FOLLOWING, intervals
from planner.optimize.source import Candidates
from planner.plan import Plan
from planner.workloads.open_facts import Chosen

MOVES = 0.1
"""What a fact changes less than this share of is not told."""

Ends = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class MovingFact:
    """A fact that nobody gave and that moves predictions by more than `MOVES`.

    ``tried`` are the alternatives in words. ``moved`` has, by result column in its unit, the
    least and the greatest prediction over what is assumed and what was tried, ``ends`` the same
    of their 90 % intervals.
    """

    name: str
    assumed: str
    tried: tuple[str, ...]
    moved: Mapping[str, Ends]
    ends: Mapping[str, Ends]

    def to_dict(self) -> dict[str, Any]:
        """Plain words and numbers, as JSON takes them."""
        return {
            "fact": self.name,
            "assumed": self.assumed,
            "tried": list(self.tried),
            "predictions": {name: list(ends) for name, ends in self.moved.items()},
            "intervals": {name: list(ends) for name, ends in self.ends.items()},
        }


def moving_facts(plan: Plan, candidates: Candidates) -> list[MovingFact]:
    """The facts that a chosen plan assumes and that move it, each alone, the others as assumed.

    The configuration stays what it is, requests at once among it. An alternative with which it
    could not run is left out.
    """
    chosen = Chosen(request=plan.request, space=plan.space, candidates=candidates)
    own = _row(candidates)
    found = []
    for fact in plan.workload.open_facts(chosen):
        possible = {
            words: judged for words, judged in fact.tried.items() if not _rejected(judged)
        }
        rows = [own, *map(_row, possible.values())]
        moved = {
            name: (min(values), max(values))
            for name in _columns(own)
            if _is_moved(values := [row[name] for row in rows])
        }
        if moved:
            each = [_ends(candidates), *map(_ends, possible.values())]
            found.append(
                MovingFact(
                    name=fact.name,
                    assumed=fact.assumed,
                    tried=tuple(possible),
                    moved=moved,
                    ends={name: _hull(name, each) for name in moved if name in each[0]},
                )
            )
    return found


def widened(ends: Mapping[str, Ends], facts: list[MovingFact]) -> dict[str, Ends]:
    """Intervals by column, each as wide as the facts that move its column ask.

    Low is the least of the low ends over what is assumed and every alternative, high the
    greatest of the high ones. Facts that move a column together do not add up: each is tried
    alone. A column that no fact moves keeps its interval, and one without any gets none.
    """
    return {name: _hull(name, [ends, *(fact.ends for fact in facts)]) for name in ends}


def _hull(name: str, each: list[Mapping[str, Ends]]) -> Ends:
    known = [ends[name] for ends in each if name in ends]
    return min(low for low, _ in known), max(high for _, high in known)


def _row(candidates: Candidates) -> Mapping[str, Any]:
    return first_row(candidates.columns())


def _rejected(candidates: Candidates) -> bool:
    return bool(np.any(candidates.rejected_by))


def _ends(candidates: Candidates) -> dict[str, Ends]:
    row = _row(candidates)
    return intervals(row, candidates.source.confidence(row["num_gpus"]))


def _columns(row: Mapping[str, Any]) -> list[str]:
    """The columns that are predictions with errors, those of each quantity beside each other."""
    every = [name for same, inverse in FOLLOWING.values() for name in (*same, *inverse)]
    return [name for name in dict.fromkeys(every) if name in row]


def _is_moved(values: list[Any]) -> bool:
    own, *others = values
    if not all(isinstance(value, float | int) and math.isfinite(value) for value in values):
        return False
    return any(abs(other - own) > MOVES * abs(own) for other in others)
