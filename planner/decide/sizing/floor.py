"""Below how many GPUs no run can reach a deadline."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from planner.optimize.constraints import Constraint
from planner.optimize.result import SearchResult
from planner.optimize.source import Candidates, Source
from planner.optimize.sureness import factor_at
from planner.plan.plan import Plan

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
