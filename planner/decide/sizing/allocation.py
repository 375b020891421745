"""Choose where services and jobs run: the lowest cost of all on a stock of GPU types."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np

from planner.base.arrays import FloatArray
from planner.base.records import record

# Relative rounding error of hours.
_ROUNDING = 1e-9
# Limit of a search with weak bounds; its best result so far is the answer.
_MOST_LOOKED_AT = 50_000


@record(kw_only=True)
class GpuType:
    """A type of GPU: how many there are, and USD per GPU and hour held all day and by the hour."""

    stock: float
    base: float
    hourly: float


@record(kw_only=True)
class Allocation:
    """The way of each service by its place, what all cost, and GPUs beyond the stock.

    ``is_proven``: all ways were looked at, or could be no better. ``needs``: what each takes.
    """

    places: tuple[int, ...]
    cost: float
    beyond: float
    is_proven: bool
    needs: tuple[ServiceOption, ...] = ()


ServiceOption: TypeAlias = Mapping[int, FloatArray]
"""GPUs of a service in each part of the time, by the place of their type."""


@record(kw_only=True)
class JobOption:
    """A way to run a job, which may stop and continue: it uses the hours with the fewest GPUs.

    Parameters
    ----------
    places : places of its GPU type and of other limited amounts, the type first
    amounts : amount that it takes of each while it runs, such as GPUs or kW
    hours : duration of all its runs [h]
    """

    places: tuple[int, ...]
    amounts: tuple[float, ...]
    hours: float

    def needs(self, used: Sequence[FloatArray], hours: FloatArray) -> ServiceOption:
        """Return what it takes in each part of the time, in whole parts.

        Parameters
        ----------
        used : what others take in each part, by place
        hours : duration of each part [h]
        """
        order = np.argsort(used[self.places[0]], kind="stable")
        ends = np.cumsum(hours[order])
        chosen = order[: int(np.searchsorted(ends, self.hours - _ROUNDING)) + 1]
        is_running = np.zeros_like(hours)
        is_running[chosen] = 1.0
        return {
            place: amount * is_running
            for place, amount in zip(self.places, self.amounts, strict=True)
        }


Way: TypeAlias = ServiceOption | JobOption


def needs_of(way: Way, used: Sequence[FloatArray], hours: FloatArray) -> ServiceOption:
    """Return what a service or a job takes in each part of the time, where others take ``used``."""
    return way.needs(used, hours) if isinstance(way, JobOption) else way


def base_gpus_and_cost(gpus: FloatArray, hours: FloatArray, gpu_type: GpuType) -> tuple[int, float]:
    r"""Return the GPUs to pay all day and the cost of the day if ``gpus`` are needed in its parts.

    .. math:: \sum_k \min(H p_b, u_k p_h)

    The k-th GPU is needed for u of H hours, and is paid all day if that costs less (derived here).

    >>> gpu_type = GpuType(stock=9, base=1, hourly=3)
    >>> base_gpus_and_cost(np.array([2.0, 6.0]), np.array([12.0, 12.0]), gpu_type)
    (6, 144.0)
    """
    levels = np.unique(np.concatenate([[0.0], gpus]))
    needed = np.array([hours[gpus >= level].sum() for level in levels[1:]])
    each = np.minimum(hours.sum() * gpu_type.base, needed * gpu_type.hourly)
    is_held = hours.sum() * gpu_type.base < needed * gpu_type.hourly
    return int(levels[1:][is_held].max(initial=0)), float((np.diff(levels) * each).sum())


def cheapest_allocation(
    ways: Sequence[Sequence[Way]], hours: FloatArray, types: Sequence[GpuType]
) -> Allocation:
    """Choose one way per service or job: fewest GPUs beyond the stock, then the lowest cost [USD].

    Skips combinations that cannot be better (branch and bound; derived here), since both values
    only grow with another service. Jobs take the hours that services, and larger jobs, leave.
    """
    search = _BranchAndBound(ways=ways, hours=hours, types=types)
    is_job = [any(isinstance(way, JobOption) for way in of_service) for of_service in ways]
    order = sorted(range(len(ways)), key=lambda place: (is_job[place], -search.lowest_costs[place]))
    search.branch(order, [np.zeros_like(hours) for _ in types], 0.0, ())
    chosen = dict(zip(order, search.chosen, strict=True))
    needs = dict(zip(order, search.needs, strict=True))
    return Allocation(
        places=tuple(chosen[service] for service in range(len(ways))),
        cost=search.best[1],
        beyond=search.best[0],
        is_proven=search.looked_at < _MOST_LOOKED_AT,
        needs=tuple(needs[service] for service in range(len(ways))),
    )


@dataclass
class _BranchAndBound:
    """Branch and bound over the ways of services."""

    ways: Sequence[Sequence[Way]]
    hours: FloatArray
    types: Sequence[GpuType]
    best: tuple[float, float] = (math.inf, math.inf)
    chosen: tuple[int, ...] = ()
    needs: tuple[ServiceOption, ...] = ()
    looked_at: int = 0

    @cached_property
    def costs(self) -> list[list[float]]:
        """Return a lower bound of the cost of each way of each service [USD]."""
        cheapest = [min(gpu_type.base, gpu_type.hourly) for gpu_type in self.types]
        nothing = [np.zeros_like(self.hours) for _ in self.types]

        def lowest(way: Way) -> float:
            needs = needs_of(way, nothing, self.hours).items()
            return sum(float((gpus * self.hours).sum()) * cheapest[index] for index, gpus in needs)

        return [[lowest(way) for way in of_service] for of_service in self.ways]

    @cached_property
    def lowest_costs(self) -> list[float]:
        """The same of the cheapest way of each service."""
        return [min(costs) for costs in self.costs]

    def branch(
        self,
        left: Sequence[int],
        used: list[FloatArray],
        paid: float,
        places: tuple[int, ...],
        needs: tuple[ServiceOption, ...] = (),
    ) -> None:
        """Try the ways of the services ``left``; ``used``: GPUs of each type already assigned.

        ``needs`` are those of the services before.
        """
        self.looked_at += 1
        pairs = [*zip(used, self.types, strict=True)]
        cost = sum(base_gpus_and_cost(gpus, self.hours, gpu_type)[1] for gpus, gpu_type in pairs)
        beyond = sum(max(float(gpus.max()) - gpu_type.stock, 0.0) for gpus, gpu_type in pairs)
        bound = beyond, max(cost, paid + sum(self.lowest_costs[service] for service in left))
        is_enough = self.looked_at >= _MOST_LOOKED_AT and self.chosen
        if bound >= self.best or is_enough:
            return
        if not left:
            self.best, self.chosen, self.needs = (beyond, cost), places, needs
            return
        service, *others = left
        costs = self.costs[service]
        for number in sorted(range(len(costs)), key=costs.__getitem__):
            more, needs_of_way = [*used], needs_of(self.ways[service][number], used, self.hours)
            for index, gpus in needs_of_way.items():
                more[index] = more[index] + gpus
            self.branch(
                others, more, paid + costs[number], (*places, number), (*needs, needs_of_way)
            )
