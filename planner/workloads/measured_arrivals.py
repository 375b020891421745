"""What a trace tells of how requests come, computed once on its own path."""

from __future__ import annotations

from zlib import crc32

import numpy as np

from planner.base.arrays import FloatArray
from planner.formulas.queueing import queued_wait
from planner.formulas.sample_paths import ServerPath, drifting_counts
from planner.specs.arrivals import (
    LOADS,
    PLACES,
    POINTS,
    REPLICAS,
    SCALES,
    SHARES,
    Arrivals,
    Paths,
)

_FEWEST_WINDOWS = 32
_MOST_WINDOWS, _FEWEST_REQUESTS = 128, 64
_MOST_ANSWERS, _MOST_WAITS = 1024, 2**16
_FEWEST_OF_REPLICA, _FEWEST_SEEN = 32, 4096


def measured_arrivals(times: FloatArray, work: FloatArray, answers: FloatArray) -> Arrivals:
    """How requests come in a trace, each at one of the ``times`` [s] with some ``work``.

    One server with that work, in any unit, is simulated at each utilization
    (`planner.formulas.queueing.queued_wait`), beside which ``answers`` of so many tokens decode
    whenever it is idle.
    """
    if times.size < 2 or not times[-1] > times[0]:
        return Arrivals()
    windows = [
        _windows(times, np.ones_like(times), times.size / 2.0**power)
        for power in range(max(int(np.log2(times.size / _FEWEST_WINDOWS)), 1))
    ]
    each = [_of_replica(times, work, answers, int(2**power)) for power in REPLICAS]
    bursts, spread, through, stalls = (np.stack(one) for one in zip(*each, strict=True))
    later = np.maximum(answers - 1, 0.0)
    return Arrivals(
        bursts=tuple(np.maximum(bursts[0], 0.0).tolist()),
        dispersion=tuple(float(counts.var() / counts.mean()) for counts in windows),
        spread=tuple(map(tuple, spread[0].tolist())),
        paths=Paths(
            name=f"{times.size}-{crc32(np.stack([times, work, answers]).tobytes()):08x}",
            windows=np.stack([_drift(times, one) for one in (np.ones_like(times), work, answers)]),
            requests=times.size,
            lengths=np.quantile(later, POINTS) / max(float(later.mean()), 1e-9),
            bursts=bursts,
            through=through,
            stalls=np.moveaxis(stalls, 1, 4),
        ),
    )


def _of_replica(
    times: FloatArray, work: FloatArray, answers: FloatArray, replicas: int
) -> tuple[FloatArray, ...]:
    """Of replicas that take the requests in turn, so many or as have enough of them, by `LOADS`
    what `Arrivals` and `Paths` keep: bursts, spread, waits with prompts, stalls of answers.

    Of as many replicas as see enough of the requests, one path after the other.
    """
    number = min(replicas, max(times.size // _FEWEST_OF_REPLICA, 1))
    whole, gap = float(times[-1] - times[0]), float(times[-1] - times[0]) / times.size * number
    seen = min(-(-_FEWEST_SEEN * number // times.size), number)
    turns = np.concatenate([np.arange(first, times.size, number) for first in range(seen)])
    each = work[turns] / work.mean() * gap
    # What one path has left is worked off before the next begins.
    times = times[turns] + turns % number * (2 * whole + float(each.sum()))
    answers = answers[turns]
    variation, every = np.square(each.std() / each.mean()), max(times.size // _MOST_WAITS, 1)
    bursts: list[float] = []
    tables: tuple[list[FloatArray], ...] = ([], [], [])
    for load in LOADS:
        path = ServerPath(
            times=times, service=load * each, waits=queued_wait(times=times, service=load * each)
        )
        mean, through = float(path.waits.mean()), path.waits + path.service
        of_one = load * load * float(each.mean()) / (2 * (1 - load))
        bursts.append(mean / of_one - variation)
        waits = np.quantile(path.waits[::every], SHARES) / max(mean, 1e-300)
        passed = np.quantile(through[::every], SHARES) / through.mean()
        for table, one in zip(tables, (waits, passed, _stalled(path, answers, gap)), strict=True):
            table.append(one)
    return np.array(bursts), *map(np.stack, tables)


def _windows(times: FloatArray, work: FloatArray, number: float) -> FloatArray:
    """Work in each of a number of windows, over that of a request."""
    places = ((times - times[0]) / ((times[-1] - times[0]) / number)).astype(np.intp)
    return np.asarray(np.bincount(places, work / work.mean(), minlength=int(number)), dtype=float)


def _drift(times: FloatArray, work: FloatArray) -> FloatArray:
    """Work in each window over the mean, as far as it drifts."""
    number = max(min(_MOST_WINDOWS, times.size // _FEWEST_REQUESTS), 1)
    whole, quarters = (
        _windows(times, work, number * parts * (1 - 1e-12))[: number * parts] for parts in (1, 4)
    )
    steady = np.maximum(drifting_counts(whole, quarters), 0.0)
    return np.asarray(steady / steady.mean())


def _stalled(path: ServerPath, answers: FloatArray, gap: float) -> FloatArray:
    """By how much of themselves prompts lengthen answers, by `PLACES` and `SCALES` of them, those
    of mean gaps [s].

    At `POINTS` of the answers, and of all their tokens.
    """
    every = max(answers.size // _MOST_ANSWERS, 1)
    lengths = (answers[::every] - 1) / max((answers - 1).mean(), 1e-9)
    stalls = np.zeros((2, PLACES.size, SCALES.size, POINTS.size))
    kept = lengths > 0
    if not kept.any():
        return stalls
    most = np.stack([path.most(every, lengths, int(2**places)) for places in PLACES])
    weights = np.stack([np.ones(kept.sum()), lengths[kept]])
    for column, scale in enumerate(SCALES):
        idle = gap * 2**scale * lengths
        bounded = np.minimum(path.stalls(every, idle), most)
        each = bounded[:, kept] / idle[kept]
        order = np.argsort(each, axis=1)
        ranked = np.take_along_axis(each, order, axis=1)
        for of_all, weight in enumerate(weights):
            until = np.cumsum(weight[order], axis=1)
            for row, share in enumerate(until / until[:, -1:]):
                at = np.minimum(np.searchsorted(share, POINTS), share.size - 1)
                stalls[of_all, row, column] = ranked[row, at]
    return stalls
