"""The fewest GPUs that may do, and why fewer do not."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from planner.base import text
from planner.base.records import record
from planner.base.units import GIB
from planner.optimize.collector import NearestMiss, why
from planner.optimize.constraints import Constraint, factor_at
from planner.optimize.result import SearchResult
from planner.optimize.source import Candidates, Source
from planner.workloads.plan import Plan

DEADLINES = ("calendar_time", "time_to_train")
"""Limits of the time of a run, in the order in which they are looked at."""

MORE_EFFICIENT = 1.25
"""What a number of GPUs may reach beyond the most efficient one that was looked at."""


def deadline_of(plan: Plan) -> Constraint | None:
    """The limit of the run's time, None where there is none."""
    limits = {limit.name: limit for limit in plan.problem.constraints}
    return next((limits[name] for name in DEADLINES if name in limits), None)


@dataclass
class Floor:
    """The number of GPUs that is too few, from what was looked at so far.

    It falls when a more efficient run is seen: what it ruled out before is then open again.
    ``efficient`` is the least GPU time of a run, ``limit`` its deadline at the least sure factor,
    ``needed`` are numbers of GPUs whose memory is enough for what was nearest to fitting on fewer,
    ``held`` is the least number that something fits. ``factors``: the least sure factor of each
    source, whatever its number of GPUs.
    """

    efficient: float = math.inf
    limit: float = math.inf
    needed: set[float] = field(default_factory=set)
    held: float = math.inf
    factors: dict[str, float] = field(default_factory=dict)

    @property
    def fewest(self) -> float:
        """Fewer GPUs than these need not be looked at."""
        has_time = self.limit > 0 and math.isfinite(self.efficient)
        time = self.efficient / self.limit if has_time else 0.0
        # What is contradicted came from a number that divides the layers or the batch badly.
        memory = max((count for count in self.needed if count <= self.held), default=0.0)
        return max(time, memory) / MORE_EFFICIENT

    def ran(self, plan: Plan, candidates: Candidates, count: int) -> None:
        """Take in a run that fits ``count`` GPUs, whether it keeps its limits or not.

        Nearly all runs need the more GPU time the more GPUs they have. Interruptions and
        whatever else a deadline counts only add to the time that is looked at.
        """
        self.held = min(self.held, count)
        limit = deadline_of(plan)
        time = float(np.ravel(candidates.value("time_to_train"))[0])
        if limit is None or not math.isfinite(time):
            return
        self.efficient = min(self.efficient, count * time)
        for source in plan.problem.sources:
            if source.told not in self.factors:
                self.factors[source.told] = _least_factor(source, limit)
        self.limit = limit.bound / min(self.factors[one.told] for one in plan.problem.sources)

    def had_no_room(self, result: SearchResult, count: int) -> None:
        """Take in that nothing fitted ``count`` GPUs: at best all memory is shared evenly.

        Not where the host's memory is what lacks: more GPUs bring hosts of their own.
        """
        host, memory = result.problem.rejections[result.problem.first_soft - 1 :][:2]
        if host in result.rejected_by:
            return
        for miss in result.nearest_misses:
            if miss.rejection == memory and math.isfinite(miss.value):
                self.needed.add(count * miss.value / miss.bound)


def _least_factor(source: Source, limit: Constraint) -> float:
    """The smallest factor at which the time is judged, on one GPU, a node or any cluster."""
    per_node = source.setting.machine.cluster.gpus_per_node
    numbers = (1, per_node, per_node + 1, 10**6)
    factors = [
        factor_at(source.confidence(number), limit.name, limit.confidence, limit.sign)
        for number in numbers
    ]
    return min(factor or 1.0 for factor in factors)


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
            words = f"nothing fits{_on(num_gpus)}: {needed:,.1f} GiB needed, {room:,.1f} GiB usable"
            return cls(num_gpus=num_gpus, words=words, excess=miss.excess, limit=-1)
        rule = why(result.problem, result.groups)
        told = {one.name: one.description for one in plan.problem.sources[0].rules}
        words = f"nothing is possible: {told.get(rule, rule)}".removesuffix(": ")
        return cls(num_gpus=num_gpus, words=words, excess=math.inf, limit=-1)


def reason_of(missed: Sequence[Missed]) -> str:
    """The reason of the number of GPUs that came closest; limits count before memory and rules."""
    best = min(missed, key=lambda one: one.order, default=None)
    return "no number of GPUs left to try" if best is None else best.words


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
