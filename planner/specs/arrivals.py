"""How requests come: what a queue makes of their times, at every utilization of its server."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from planner.base.arrays import FloatArray, Numeric
from planner.base.records import record

LOADS = np.linspace(0.05, 0.95, 19)
"""Utilizations at which a trace's own queue is computed."""
_CAPS = np.arange(-10.0, 11.0)
SHARES = np.linspace(0.005, 0.995, 100)
"""Shares of the requests whose waits are kept."""


@record(kw_only=True)
class Arrivals:
    """The bursts of requests and how their waits spread; of Poisson arrivals the bursts are 1.

    ``bursts``: by utilization (`LOADS`) the squared variation that gives Allen and Cunneen's
    formula the mean wait; of one value where it is the same at all. ``spread``: by utilization and
    share (`SHARES`) the wait over its mean; empty where nothing tells, then exponential of those
    who wait.
    """

    bursts: tuple[float, ...] = (1.0,)
    dispersion: tuple[float, ...] = (1.0,)
    spread: tuple[tuple[float, ...], ...] = ()

    @property
    def are_random(self) -> bool:
        """Whether they come at random."""
        return self.bursts == (1.0,)

    def dispersion_at(self, requests: Numeric, replicas: Numeric = 1.0) -> FloatArray | float:
        """Variance over mean of how many come while so many come on average, of one replica."""
        if self.are_random:
            return 1.0
        scale = np.log2(np.maximum(np.asarray(requests) * replicas, 1.0))
        of_all = np.interp(scale, np.arange(len(self.dispersion)), self.dispersion)
        return np.asarray(1 + (of_all - 1) / replicas)

    def wait_within(self, mean: Numeric, load: Numeric, share: float) -> FloatArray:
        """What a share of the requests waits at most of a wait with a mean, at a utilization."""
        if not self.spread:
            with np.errstate(divide="ignore", invalid="ignore"):
                over = np.log(np.asarray(load) / (1 - share))
                return np.where(over > 0, over * mean / load, 0.0)
        of_share = [np.interp(share, SHARES, row) for row in self.spread]
        return np.asarray(np.interp(load, LOADS, of_share) * mean)

    def mean_within(self, mean: Numeric, load: Numeric, most: Numeric) -> FloatArray:
        """Mean of the waits with this mean, of each at ``most`` so much."""
        ratio = np.asarray(most) / np.maximum(mean, 1e-12)
        if not self.spread:
            return np.asarray(mean * -np.expm1(-ratio * load))
        column = np.clip(np.log2(np.maximum(ratio, 1e-12)) - _CAPS[0], 0, len(_CAPS) - 1)
        row = np.clip((load - LOADS[0]) / (LOADS[1] - LOADS[0]), 0, len(LOADS) - 1)
        return np.asarray(mean * _between(self._capped, row, column))

    @cached_property
    def _capped(self) -> FloatArray:
        """The mean wait over itself where each is cut, by utilization and the cut's logarithm."""
        waits = np.asarray(self.spread)
        return np.stack([np.minimum(waits, 2.0**cap).mean(axis=1) for cap in _CAPS], axis=1)

    def bursts_at(self, load: Numeric, replicas: Numeric = 1.0) -> FloatArray | float:
        """The squared variation at a utilization, of one of some replicas that share requests.

        Of a stream of which each replica has one in R at random, :math:`1 + (c_a^2 - 1) / R`.
        """
        if self.are_random:
            return 1.0
        of_all = np.interp(load, LOADS, self.bursts) if len(self.bursts) > 1 else self.bursts[0]
        return np.asarray(np.maximum(1 + (of_all - 1) / replicas, 0.0))


def _between(table: FloatArray, row: FloatArray, column: FloatArray) -> FloatArray:
    """Values of a table at places between its entries."""
    i = np.minimum(row.astype(np.intp), table.shape[0] - 2)
    j = np.minimum(column.astype(np.intp), table.shape[1] - 2)
    y, x = row - i, column - j
    upper = table[i, j] * (1 - x) + table[i, j + 1] * x
    lower = table[i + 1, j] * (1 - x) + table[i + 1, j + 1] * x
    return np.asarray(upper * (1 - y) + lower * y)
