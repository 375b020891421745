"""Why no number of GPUs is enough, in one line."""

from __future__ import annotations

import math
from collections.abc import Sequence

from planner.base import text
from planner.base.records import record
from planner.base.units import GIB
from planner.optimize.collector import NearestMiss
from planner.optimize.constraints import Constraint
from planner.optimize.groups import why
from planner.optimize.result import SearchResult
from planner.plan.plan import Plan


@record(kw_only=True)
class Missed:
    """What came closest; ``excess`` is how far beyond the bound, as a share.

    ``num_gpus`` is 0 where their number follows from other things.
    ``limit`` is the limit that binds, of those in the order in which they are looked at: it keeps
    all that come before. -1 where it has no room or breaks a rule.
    """

    num_gpus: int
    words: str
    excess: float
    limit: int

    @property
    def is_limit(self) -> bool:
        """Whether it runs, but misses a limit."""
        return self.limit >= 0

    @property
    def order(self) -> tuple[int, float, int]:
        """The nearest comes first; of rules that of the most GPUs: fewer break some for being few.

        What misses a later limit keeps the earlier ones, which others do not even reach.
        """
        return -self.limit, self.excess, -self.num_gpus

    @classmethod
    def of(cls, plan: Plan, result: SearchResult, num_gpus: int = 0) -> Missed:
        """The nearest miss of a search that found nothing."""
        limits = [limit.name for limit in plan.problem.constraints]
        misses = [one for one in result.nearest_misses if one.rejection in limits]
        if misses:
            last = max(misses, key=lambda one: limits.index(one.rejection))
            place = limits.index(last.rejection)
            words = _limit_words(plan.problem.constraints[: place + 1], last, num_gpus)
            excess = last.excess if math.isfinite(last.value) else math.inf
            return cls(num_gpus=num_gpus, words=words, excess=excess, limit=place)
        for miss in sorted(result.nearest_misses, key=lambda one: one.excess):
            needed, room = miss.value / GIB, miss.room / GIB
            words = f"nothing fits{_on(num_gpus)}: {needed:,.1f} of {room:,.1f} GiB needed"
            return cls(num_gpus=num_gpus, words=words, excess=miss.excess, limit=-1)
        rule = why(result.problem, result.groups)
        told = {one.name: one.description for one in plan.problem.sources[0].rules}
        words = f"nothing is possible: {told.get(rule, rule)}".removesuffix(": ")
        return cls(num_gpus=num_gpus, words=words, excess=math.inf, limit=-1)


def reason_of(missed: Sequence[Missed]) -> str:
    """The reason of the number of GPUs that came closest; limits count before memory and rules."""
    best = min(missed, key=lambda one: one.order, default=None)
    return "no number of GPUs is left to try" if best is None else best.words


def _limit_words(limits: Sequence[Constraint], miss: NearestMiss, num_gpus: int) -> str:
    """By how much the last of some limits is missed where the others are kept."""
    *kept, limit = limits
    name = _words(limit)
    if not math.isfinite(miss.value):
        return f"{name} is unknown: give --price"
    value, bound = (text.limit(number, limit.unit) for number in (miss.value, miss.bound))
    side = "above" if limit.sign > 0 else "below"
    side = f"just {side}" if value == bound else side
    words = f"{name} {value}{limit.told_confidence}{_on(num_gpus)}, {side} {bound}"
    names = " and ".join(map(_words, kept))
    return f"{words}, where {names} {'is' if len(kept) == 1 else 'are'} kept" if kept else words


def _words(limit: Constraint) -> str:
    return limit.name.replace("_", " ")


def _on(num_gpus: int) -> str:
    return f" with {text.gpus(num_gpus)}" if num_gpus else ""
