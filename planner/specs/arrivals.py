"""Arrivals of requests: burstiness and waits of their queue, by utilization of the server.

Parameters
----------
replicas : number of replicas that share the requests
load : utilization of a replica, 0 to 1
mean : mean wait of a replica [s]
limit : upper bound of each wait [s]
share : share of the requests, 0 to 1
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cached_property
from itertools import product

import numpy as np

from planner.base.arrays import BoolArray, FloatArray, Numeric
from planner.base.records import record

LOADS = np.array([0.003, 0.01, 0.02, 0.03, 0.04, *np.linspace(0.05, 0.95, 19)])
"""Utilizations at which the queue of a trace is computed."""
_CAPS = np.arange(-10.0, 11.0)
SHARES = np.linspace(0.005, 0.995, 100)
"""Shares of the requests (quantiles) of the stored waits."""


_MOST_HALVINGS = 6
PLACES, SCALES = np.array([2.0, 4.0, 6.0, 8.0, 10.0]), np.arange(-4.0, 11.0)
"""Powers of 2: of the sequences of a replica, and of the mean gaps of its requests in which an
answer decodes."""
_EDGES = np.array(
    [0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.93, 0.96, 0.98, 0.986, 0.994, 1]
)
POINTS, POINT_WEIGHTS = (_EDGES[1:] + _EDGES[:-1]) / 2, np.diff(_EDGES)
"""Shares at which a distribution is looked at, and the weight of each."""
CLASSES = np.array([0.1, 0.15, 0.25, 0.25, 0.15, 0.07, 0.02, 0.01])
"""Shares of the requests that are answered at each of the rates between which a trace drifts."""


@record(kw_only=True, eq=False)
class RoundRobinPaths:
    """Queueing statistics of replicas that share the requests of a trace.

    Parameters
    ----------
    windows : requests, prompt tokens and answer tokens (first axis) in windows of equal time
        (second) of each replica (third), over their mean
    bursts : squared coefficient of variation that gives the mean wait, by load (`LOADS`)
    waits : wait over its mean, by load (`LOADS`) and share of the requests (`SHARES`)
    through : wait plus prefill time over its mean, by load (`LOADS`) and share (`SHARES`)
    stalls : prefill seconds during the decode of an answer over its own decode seconds; axes:
        answers and tokens, `PLACES`, `SCALES`, `LOADS`, `POINTS`
    """

    windows: FloatArray
    bursts: FloatArray
    waits: FloatArray
    through: FloatArray
    stalls: FloatArray


@record(kw_only=True, eq=False)
class TracePaths:
    """Statistics of the arrivals of a trace, computed for each number of replicas.

    Parameters
    ----------
    name : name of the trace, unique
    windows : requests, prompt tokens and answer tokens (first axis) in windows of equal time
        (second), over their mean, without random fluctuation
    requests : number of requests of the trace
    lengths : answer tokens after the first one over their mean, at `POINTS`
    turns : function from a number of replicas (a power of 2) to their `RoundRobinPaths`
    """

    name: str
    windows: FloatArray
    requests: int
    lengths: FloatArray
    turns: Callable[[int], RoundRobinPaths]

    def __repr__(self) -> str:
        return f"Paths({self.name!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TracePaths) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)

    @cached_property
    def rates(self) -> FloatArray:
        """Rates at which prompts come in classes of the requests (`CLASSES`), over the mean."""
        requests, prompts, _ = self.windows
        return classes_of(prompts, requests)

    @cached_property
    def _paths_by_replicas(self) -> dict[int, RoundRobinPaths]:
        return {}

    def nearest(self, replicas: Numeric) -> Iterator[tuple[BoolArray, RoundRobinPaths]]:
        """Yield (mask, paths) for the power of 2 nearest to the numbers of replicas."""
        position, turns = self._turned(replicas)
        nearest = np.rint(position)
        for number, paths in enumerate(turns):
            if (is_nearest := nearest == number).any():
                yield is_nearest, paths

    def _turned(self, replicas: Numeric) -> tuple[FloatArray, list[RoundRobinPaths]]:
        """Return positions of replica numbers among powers of 2, and the powers' paths."""
        powers = np.clip(np.log2(np.maximum(replicas, 1.0)), 0, _MOST_HALVINGS)
        low, high = int(powers.min()), int(np.ceil(powers.max()))
        for power in range(low, high + 1):
            if power not in self._paths_by_replicas:
                self._paths_by_replicas[power] = self.turns(2**power)
        return powers - low, [self._paths_by_replicas[power] for power in range(low, high + 1)]

    def bursts_at(self, replicas: Numeric, load: Numeric) -> FloatArray:
        """Return the squared coefficient of variation that gives the mean wait at a load."""
        position, turns = self._turned(replicas)
        return _between(np.stack([paths.bursts for paths in turns]), position, _of_load(load))

    def mean_within(
        self, mean: Numeric, replicas: Numeric, load: Numeric, limit: Numeric
    ) -> FloatArray:
        """Return the mean of waits that are each cut off at ``limit`` [s]."""
        position, turns = self._turned(replicas)
        waits = _between(np.stack([paths.waits for paths in turns]), position, _of_load(load))
        wait = np.asarray(mean)[..., None] * waits
        return np.asarray(np.minimum(wait, np.asarray(limit)[..., None]).mean(axis=-1))

    def through_within(
        self, mean: Numeric, replicas: Numeric, load: Numeric, share: float
    ) -> FloatArray:
        """Return the ``share`` quantile of wait plus prefill time [s].

        Parameters
        ----------
        mean : mean of wait plus prefill time [s]
        """
        position, turns = self._turned(replicas)
        of_share = np.stack([_of_share(paths.through, share) for paths in turns])
        return np.asarray(mean * _between(of_share, position, _of_load(load)))

    def stalled(
        self, replicas: Numeric, slots: Numeric, scale: Numeric, load: Numeric, axis: int
    ) -> FloatArray:
        """Return prefill over decode time during decode; ``axis``: 0 per answer, 1 per token.

        Decode times are at `POINTS`, the first axis of the result.

        Parameters
        ----------
        slots : sequences that decode at the same time
        scale : decode time of an answer over the mean gap between requests of a replica
        axis : 0: of answers, 1: of their tokens
        """
        position, turns = self._turned(replicas)
        coordinates = (position, _power(slots, PLACES), _power(scale, SCALES), _of_load(load))
        return np.moveaxis(
            _between(np.stack([paths.stalls[axis] for paths in turns]), *coordinates), -1, 0
        )


@record(kw_only=True)
class Arrivals:
    """Burstiness of the arrivals of requests and distribution of their waits; the default is
    Poisson.

    Parameters
    ----------
    bursts : squared coefficient of variation that gives Allen and Cunneen's formula the mean wait,
        by load (`LOADS`); one value: the same at all loads
    dispersion : variance over mean of the number of arrivals, by their mean number in powers of 2
    spread : wait over its mean by load (`LOADS`) and share (`SHARES`); empty: exponential
    paths : statistics of a trace; None: no trace
    """

    bursts: tuple[float, ...] = (1.0,)
    dispersion: tuple[float, ...] = (1.0,)
    spread: tuple[tuple[float, ...], ...] = ()
    paths: TracePaths | None = None

    @property
    def are_random(self) -> bool:
        """Whether arrivals are Poisson."""
        return self.bursts == (1.0,)

    def dispersion_at(self, requests: Numeric, replicas: Numeric = 1.0) -> FloatArray | float:
        """Return variance over mean of the arrivals at one replica during an interval.

        Parameters
        ----------
        requests : mean number of arrivals at one replica in the interval
        """
        if self.are_random:
            return 1.0
        scale = np.log2(np.maximum(np.asarray(requests) * replicas, 1.0))
        of_all = np.interp(scale, np.arange(len(self.dispersion)), self.dispersion)
        return np.asarray(1 + (of_all - 1) / replicas)

    def wait_within(self, mean: Numeric, load: Numeric, share: float) -> FloatArray:
        """Return the ``share`` quantile of the wait [s]."""
        if not self.spread:
            with np.errstate(divide="ignore", invalid="ignore"):
                over = np.log(np.asarray(load) / (1 - share))
                return np.where(over > 0, over * mean / load, 0.0)
        of_share = [np.interp(share, SHARES, row) for row in self.spread]
        return np.asarray(np.interp(load, LOADS, of_share) * mean)

    def mean_within(self, mean: Numeric, load: Numeric, limit: Numeric) -> FloatArray:
        """Return the mean of waits that are each cut off at ``limit`` [s]."""
        ratio = np.asarray(limit) / np.maximum(mean, 1e-12)
        if not self.spread:
            return np.asarray(mean * -np.expm1(-ratio * load))
        column = np.log2(np.maximum(ratio, 1e-12)) - _CAPS[0]
        return np.asarray(mean * _between(self._capped, _of_load(load), column))

    @cached_property
    def _capped(self) -> FloatArray:
        """The mean wait over itself where each is cut, by utilization and the cut's logarithm."""
        waits = np.asarray(self.spread)
        return np.stack([np.minimum(waits, 2.0**cap).mean(axis=1) for cap in _CAPS], axis=1)

    def bursts_at(self, load: Numeric, replicas: Numeric = 1.0) -> FloatArray | float:
        """Return the squared coefficient of variation of a replica's arrivals at a load.

        With a random one in R requests of a stream per replica, :math:`1 + (c_a^2 - 1) / R`.
        """
        if self.are_random:
            return 1.0
        of_all = np.interp(load, LOADS, self.bursts) if len(self.bursts) > 1 else self.bursts[0]
        return np.asarray(np.maximum(1 + (of_all - 1) / replicas, 0.0))


def classes_of(values: FloatArray, weights: FloatArray) -> FloatArray:
    """Return the means of `CLASSES` of equal weight of the sorted values, along the first axis.

    Parameters
    ----------
    values : values to average, along the first axis
    weights : weight of each value, same shape as ``values``
    """
    order = np.argsort(values, axis=0)
    ranked = np.take_along_axis(values, order, axis=0)
    zero = np.zeros((1, *values.shape[1:]))
    until = np.concatenate([zero, np.cumsum(weights[order], axis=0) / weights.sum()])
    means, low = [], 0.0
    for high in np.cumsum(CLASSES):
        inside = np.diff(np.clip(until, low, high), axis=0)
        means.append((ranked * inside).sum(axis=0) / (high - low))
        low = high
    return np.stack(means)


def _of_load(load: Numeric) -> FloatArray:
    """Position of a utilization among `LOADS`."""
    return np.asarray(np.interp(load, LOADS, np.arange(LOADS.size)))


def _power(number: Numeric, powers: FloatArray) -> FloatArray:
    """Position of a number among equal steps of powers of 2."""
    return np.asarray((np.log2(np.maximum(number, 1e-9)) - powers[0]) / (powers[1] - powers[0]))


def _of_share(table: FloatArray, share: float) -> FloatArray:
    """The quantile of a share, interpolated along the last axis."""
    right = int(np.clip(np.searchsorted(SHARES, share), 1, SHARES.size - 1))
    x = np.clip((share - SHARES[right - 1]) / (SHARES[1] - SHARES[0]), 0.0, 1.0)
    return np.asarray(table[..., right - 1] * (1 - x) + table[..., right] * x)


def _between(table: FloatArray, *positions: FloatArray) -> FloatArray:
    """Interpolate a table at positions; beyond its ends the first or last values apply.

    Further axes of the table come last in the result.
    """
    rows = []
    weights: list[tuple[FloatArray, FloatArray]] = []
    broadcast = (...,) + (None,) * (table.ndim - len(positions))
    for size, position in zip(table.shape, positions, strict=False):
        inside = np.nan_to_num(np.clip(position, 0, size - 1))
        lower = np.minimum(inside.astype(np.intp), max(size - 2, 0))
        rows.append((lower, np.minimum(lower + 1, size - 1)))
        weights.append((1 - (inside - lower), inside - lower))
    interpolated: FloatArray = np.zeros(())
    for corner in product((0, 1), repeat=len(positions)):
        weight = np.asarray(math.prod(pair[end] for pair, end in zip(weights, corner, strict=True)))
        corner_rows = tuple(row[end] for row, end in zip(rows, corner, strict=True))
        interpolated = interpolated + weight[broadcast] * table[corner_rows]
    return interpolated
