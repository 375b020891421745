"""The GPUs that a training run takes: the numbers of GPUs are searched one by one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from planner.base.cells import number
from planner.decide.open_facts import MovingFact, moving_facts
from planner.decide.sizing.fleet import Fleet, Size
from planner.decide.sizing.floor import Floor, Missed, reason_of
from planner.decide.sizing.searches import Searches
from planner.estimators.training.share import Setting
from planner.question.request import ALL, Request
from planner.specs.gpu import ClusterSpec
from planner.workloads.place import LARGEST_OF_ALL, every_count, gpu_counts
from planner.workloads.plan import make_plan

_PRIMES = (2, 3, 5, 7)


def whole_nodes(gpus_per_node: int, most: int | None) -> tuple[int, ...]:
    """The numbers of GPUs that a run is usually given, ascending.

    Powers of two within a node, then whole nodes, in numbers whose prime factors are 2, 3, 5 and
    7: others leave few ways to divide a batch, layers and heads. Up to ``most``, 16,384 where
    nothing ends the cluster.

    >>> whole_nodes(8, 100)
    (1, 2, 4, 8, 16, 24, 32, 40, 48, 56, 64, 72, 80, 96)
    """
    end = most or LARGEST_OF_ALL
    found = {power for power in every_count(end) if power < gpus_per_node}
    found |= {
        nodes * gpus_per_node for nodes in range(1, end // gpus_per_node + 1) if _is_smooth(nodes)
    }
    return tuple(sorted(found))


def coarse(counts: tuple[int, ...]) -> tuple[int, ...]:
    """Of ascending numbers about one in every doubling, the last one among them."""
    found: list[int] = []
    for count in counts:
        if not found or count >= 2 * found[-1]:
            found.append(count)
    return tuple(dict.fromkeys([*found, *counts[-1:]]))


def thinned(counts: tuple[int, ...], number: int) -> tuple[int, ...]:
    """At most so many of ascending numbers, evenly, the first and the last among them."""
    if len(counts) <= number:
        return counts
    last = len(counts) - 1
    return tuple(counts[round(step * last / (number - 1))] for step in range(number))


def _is_smooth(number: int) -> bool:
    for prime in _PRIMES:
        while number % prime == 0:
            number //= prime
    return number == 1


# How many times the fewest GPUs the cheapest may have, and how many numbers between are tried.
_DEARER, _TRIED_ABOVE = 4, 3
_BEYOND = 2
# How far beyond a limit no neighbour keeps it, and how many of them are looked at even so.
_FAR, _TRIED_FAR = 1.0, 16
# How many whole nodes of other factors below the fewest GPUs are tried.
_TRIED_BELOW = 12


@dataclass
class TrainingSizer:
    """Searches one GPU under one contract, every number of GPUs at most once.

    ``searches`` are shared with the same request under other contracts.
    ``floor`` tells below which number none need be looked at; ``not_tried`` are whole nodes between
    it and the fewest GPUs that were not, for being many.
    """

    request: Request
    searches: Searches
    floor: Floor = field(default_factory=Floor)
    found: dict[int, Fleet | None] = field(default_factory=dict)
    missed: list[Missed] = field(default_factory=list)
    not_tried: tuple[int, ...] = ()

    def size(self) -> Size:
        """The fewest GPUs, the cheapest and, within a budget, the fastest.

        Raises
        ------
        SpecError, SearchSpaceError
            Something is unknown, faulty or impossible.
        """
        counts = self._counts()
        fewest = self._fewest(counts)
        if fewest is None:
            return self._size(reason=reason_of(self.missed))
        others = [count for count in counts if fewest.num_gpus < count]
        near = tuple(count for count in others if count <= _DEARER * fewest.num_gpus)
        for count in [*near[:_TRIED_ABOVE], *thinned(near, _TRIED_ABOVE)]:
            self._at(count)
        is_budget = "cost" in self.request.constraints
        if is_budget:
            self._fastest(tuple(others))
        fleets = [fleet for fleet in self.found.values() if fleet is not None]
        priced = [fleet for fleet in fleets if not math.isnan(fleet.cost)]
        return self._size(
            fewest=fewest,
            cheapest=min(priced, key=lambda one: (one.cost, one.num_gpus), default=None),
            fastest=min(fleets, key=_duration) if is_budget else None,
        )

    def _size(
        self,
        *,
        fewest: Fleet | None = None,
        cheapest: Fleet | None = None,
        fastest: Fleet | None = None,
        reason: str = "",
    ) -> Size:
        return Size(
            gpu=str(self.request.gpu),
            contract=self.request.contract or "",
            fewest=fewest,
            cheapest=cheapest,
            fastest=fastest,
            reason=reason,
            tried=tuple(sorted(self.found)),
            not_tried=self.not_tried,
            precision=self._precision(cheapest or fewest),
        )

    def _precision(self, fleet: Fleet | None) -> MovingFact | None:
        """A fleet's precision beside the other one."""
        if fleet is None:
            return None
        plan, result = self.searches.of(replace(self.request, num_gpus=fleet.num_gpus))
        facts = () if result.fastest is None else moving_facts(plan, result.fastest)
        return next((fact for fact in facts if fact.name == "precision"), None)

    def _counts(self) -> tuple[int, ...]:
        """The numbers that the request names, or whole nodes."""
        if self._is_given:
            return tuple(sorted({int(count) for count in gpu_counts(self.request.num_gpus)}))
        return whole_nodes(self._cluster.gpus_per_node, self._cluster.max_gpus)

    @property
    def _is_given(self) -> bool:
        return self.request.num_gpus not in (None, ALL, (ALL,))

    @cached_property
    def _setting(self) -> Setting:
        setting = make_plan(replace(self.request, num_gpus=1)).problem.setting
        if not isinstance(setting, Setting):
            raise TypeError(f"{self.request!r} does not train.")
        return setting

    @property
    def _cluster(self) -> ClusterSpec:
        return self._setting.machine.cluster

    def _fewest(self, counts: tuple[int, ...]) -> Fleet | None:
        """The first number that is enough.

        A rough grid is looked at first, and then everything below its first number that is
        enough: a run on more GPUs may fail where fewer do, because they do not divide its batch.
        """
        grid = coarse(counts)
        first = self._first(grid) or self._among_the_most(counts) or self._first(grid)
        first = first or self._first(self._dividing_the_batch(counts))
        looked_at = 0
        while first is None and looked_at < len(self.found):
            looked_at = len(self.found)
            first = self._first(self._around_the_nearest(counts))
        if first is None:
            return None
        looked_at = 0
        while looked_at < len(self.found):
            looked_at = len(self.found)
            below = [count for count in counts if count < first.num_gpus]
            first = self._first(below) or first
            first = self._first(self._nodes_below(first.num_gpus, counts)) or first
        return first

    def _first(self, counts: Sequence[int]) -> Fleet | None:
        """The first that is enough; those below a floor that has fallen since are looked at too."""
        floor = math.inf
        while self.floor.fewest < floor:
            floor = self.floor.fewest
            for count in counts:
                if count >= self.floor.fewest and (fleet := self._at(count)) is not None:
                    return fleet
        return None

    def _among_the_most(self, counts: tuple[int, ...]) -> Fleet | None:
        """Where all numbers are too few: the most of them come closest, if they run at all."""
        if not counts or counts[-1] >= self.floor.fewest:
            return None
        before: Missed | None = None
        for count in reversed(coarse(counts)):
            if (fleet := self._at(count)) is not None:
                return fleet
            mine = next((miss for miss in self.missed if miss.num_gpus == count), None)
            if before is not None and mine is not None and before.order < mine.order:
                break
            before = mine if mine is not None and math.isfinite(mine.excess) else before
        return None

    def _dividing_the_batch(self, counts: tuple[int, ...]) -> tuple[int, ...]:
        """Numbers of the batch's odd factors, and all that are given: the grid has few of them."""
        if self._is_given:
            return counts
        batch = self._setting.workload.global_batch_size
        return tuple(count for count in counts if batch % (count // (count & -count)) == 0)

    def _around_the_nearest(self, counts: tuple[int, ...]) -> tuple[int, ...]:
        """Numbers beside the one that came closest to keeping a limit.

        All where they may keep it; a few, for the reason, where it is far away.
        """
        nearest = min(self.missed, key=lambda miss: miss.order, default=None)
        if nearest is None or not nearest.is_limit:
            return ()
        around = tuple(c for c in counts if nearest.num_gpus / 2 < c <= 2 * nearest.num_gpus)
        return around if nearest.excess < _FAR else thinned(around, _TRIED_FAR)

    def _nodes_below(self, count: int, usual: tuple[int, ...]) -> tuple[int, ...]:
        """Whole nodes next below the first number that is enough, whatever their factors are."""
        if self._is_given:
            return ()
        per_node = self._cluster.gpus_per_node
        others = sorted({*range(per_node, count, per_node)} - {*usual})
        left = [number for number in others if self.floor.fewest <= number not in self.found]
        start = max(len(left) - _TRIED_BELOW + len(self.found.keys() & {*others}), 0)
        self.not_tried = tuple(left[:start])
        return tuple(left[start:])

    def _fastest(self, counts: tuple[int, ...]) -> None:
        """Look where the budget ends: at a rough grid, then beyond its last number within it.

        One number may fail for not dividing the batch; two in a row are beyond the budget.
        """
        last, beyond = 0, list[int]()
        for count in coarse(counts):
            if self._at(count) is None:
                beyond.append(count)
            else:
                last, beyond = count, []
            if len(beyond) == _BEYOND:
                break
        end = beyond[0] if beyond else math.inf
        self._first([count for count in reversed(counts) if last < count < end])

    def _at(self, count: int) -> Fleet | None:
        """The fastest plan on so many GPUs that keeps every limit; None if there is none."""
        if count in self.found:
            return self.found[count]
        plan, result = self.searches.of(replace(self.request, num_gpus=count))
        best = result.fastest
        fleet = None if best is None else Fleet.of(plan, best)
        self.found[count] = fleet
        if best is not None:
            self.floor.ran(plan, best, count)
            return fleet
        self.missed.append(Missed.of(plan, result, count))
        limits = {limit.name for limit in plan.problem.constraints}
        fitting = [miss.candidates for miss in result.nearest_misses if miss.rejection in limits]
        for candidates in fitting:
            self.floor.ran(plan, candidates, count)
        if not fitting:
            self.floor.had_no_room(result, count)
        return fleet


def _duration(fleet: Fleet) -> float:
    return number(fleet.row.get("calendar_time_days", fleet.row["time_to_train_days"]))
