"""Why no number of GPUs is enough, in one line."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from planner import text
from planner.optimize.groups import why
from planner.optimize.result import SearchResult
from planner.plan import Plan
from planner.units import GIB


@dataclass(frozen=True, kw_only=True)
class Missed:
    """What came closest; ``excess`` is how far beyond the bound, as a share.

    ``num_gpus`` is 0 where their number follows from other things.
    ``is_limit``: it runs, but misses a limit; else it has no room or breaks a rule.
    """

    num_gpus: int
    words: str
    excess: float
    is_limit: bool

    @classmethod
    def of(cls, plan: Plan, result: SearchResult, num_gpus: int = 0) -> Missed:
        """The nearest miss of a search that found nothing."""
        limits = {limit.name: limit for limit in plan.problem.constraints}
        where = f" with {text.gpus(num_gpus)}" if num_gpus else ""
        misses = sorted(
            result.nearest_misses, key=lambda one: (one.rejection not in limits, one.excess)
        )
        for miss in misses:
            limit = limits.get(miss.rejection)
            is_known, name = math.isfinite(miss.value), miss.rejection.replace("_", " ")
            if limit is not None and not is_known:
                words = f"{name} is unknown: give --price"
            elif limit is not None:
                value = text.limit(miss.value, limit.unit)
                bound = text.limit(miss.bound, limit.unit)
                side = "above" if limit.sign > 0 else "below"
                sure = limit.told_confidence
                words = f"{name} {value}{sure}{where}, {side} {bound}"
            else:
                needed, room = miss.value / GIB, miss.bound / GIB
                words = f"nothing fits{where}: {needed:,.1f} of {room:,.1f} GiB needed"
            excess = miss.excess if is_known else math.inf
            return cls(num_gpus=num_gpus, words=words, excess=excess, is_limit=limit is not None)
        rule = why(result.problem, result.groups)
        told = {one.name: one.description for one in plan.problem.sources[0].rules}
        words = f"nothing is possible: {told.get(rule, rule)}".removesuffix(": ")
        return cls(num_gpus=num_gpus, words=words, excess=math.inf, is_limit=False)


def reason_of(missed: Sequence[Missed]) -> str:
    """The reason of the number of GPUs that came closest; limits count before memory and rules.

    Of rules that of the most GPUs: fewer break some for being few.
    """
    best = min(missed, key=lambda one: (not one.is_limit, one.excess, -one.num_gpus), default=None)
    return "no number of GPUs is left to try" if best is None else best.words
