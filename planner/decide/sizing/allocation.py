"""Which of several services runs on which type of GPU where they share a stock of each."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np

from planner.base.arrays import FloatArray
from planner.base.records import record

# Where bounds are weak, what was found until then is the answer.
_MOST_LOOKED_AT = 50_000


@record(kw_only=True)
class Type:
    """A type of GPU: how many there are, and USD per GPU and hour held all day and by the hour."""

    stock: float
    base: float
    hourly: float


@record(kw_only=True)
class Allocation:
    """The way of each service by its place, what all cost, and GPUs beyond the stock.

    ``is_proven``: all ways were looked at, or could be no better.
    """

    places: tuple[int, ...]
    cost: float
    beyond: float
    is_proven: bool


Way: TypeAlias = Mapping[int, FloatArray]
"""GPUs of a service in each part of the day, by the place of their type."""


def held_and_cost(gpus: FloatArray, hours: FloatArray, of: Type) -> tuple[int, float]:
    r"""How many of ``gpus`` in each part of a day of ``hours`` to hold all day, and what all cost.

    .. math:: \sum_k \min(H p_b, u_k p_h)

    The k-th GPU is needed for u of the H hours: it is held where that costs less (derived here).

    >>> held_and_cost(np.array([2.0, 6.0]), np.array([12.0, 12.0]), Type(stock=9, base=1, hourly=3))
    (6, 144.0)
    """
    levels = np.unique(np.concatenate([[0.0], gpus]))
    needed = np.array([hours[gpus >= level].sum() for level in levels[1:]])
    each = np.minimum(hours.sum() * of.base, needed * of.hourly)
    is_held = hours.sum() * of.base < needed * of.hourly
    return int(levels[1:][is_held].max(initial=0)), float((np.diff(levels) * each).sum())


def cheapest_allocation(
    ways: Sequence[Sequence[Way]], hours: FloatArray, types: Sequence[Type]
) -> Allocation:
    """Of the ways of each service those with the fewest GPUs beyond the stock, then the cheapest.

    Those that could be no better are not looked at (branch and bound; derived here): both figures
    only grow with another service.
    """
    search = _Search(ways=ways, hours=hours, types=types)
    order = sorted(range(len(ways)), key=lambda service: -search.least[service])
    search.place(order, [np.zeros_like(hours) for _ in types], 0.0, ())
    chosen = dict(zip(order, search.chosen, strict=True))
    return Allocation(
        places=tuple(chosen[service] for service in range(len(ways))),
        cost=search.best[1],
        beyond=search.best[0],
        is_proven=search.looked_at < _MOST_LOOKED_AT,
    )


@dataclass
class _Search:
    """Branch and bound over the ways of services."""

    ways: Sequence[Sequence[Way]]
    hours: FloatArray
    types: Sequence[Type]
    best: tuple[float, float] = (math.inf, math.inf)
    chosen: tuple[int, ...] = ()
    looked_at: int = 0

    @cached_property
    def costs(self) -> list[list[float]]:
        """USD a day of every way at the least, each GPU paid for no longer than it is needed."""
        cheapest = [min(of.base, of.hourly) for of in self.types]
        return [
            [sum(float((gpus * self.hours).sum()) * cheapest[at] for at, gpus in way.items())
             for way in ways]
            for ways in self.ways
        ]  # fmt: skip

    @cached_property
    def least(self) -> list[float]:
        """The same of the cheapest way of each service."""
        return [min(costs) for costs in self.costs]

    def place(
        self, left: Sequence[int], used: list[FloatArray], paid: float, places: tuple[int, ...]
    ) -> None:
        """Look at all ways of the services that are ``left``, beside what others have used."""
        self.looked_at += 1
        pairs = [*zip(used, self.types, strict=True)]
        cost = sum(held_and_cost(gpus, self.hours, of)[1] for gpus, of in pairs)
        beyond = sum(max(float(gpus.max()) - of.stock, 0.0) for gpus, of in pairs)
        bound = beyond, max(cost, paid + sum(self.least[service] for service in left))
        is_enough = self.looked_at >= _MOST_LOOKED_AT and self.chosen
        if bound >= self.best or is_enough:
            return
        if not left:
            self.best, self.chosen = (beyond, cost), places
            return
        service, *others = left
        costs = self.costs[service]
        for way in sorted(range(len(costs)), key=costs.__getitem__):
            more = [*used]
            for at, gpus in self.ways[service][way].items():
                more[at] = more[at] + gpus
            self.place(others, more, paid + costs[way], (*places, way))
