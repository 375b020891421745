"""Statistics of the arrivals of a trace: bursts, dispersion and waits by utilization."""

from __future__ import annotations

from functools import partial
from zlib import crc32

import numpy as np

from planner.base.arrays import FloatArray, IndexArray
from planner.base.units import ceil_div
from planner.formulas.queueing import fifo_queueing_delays
from planner.formulas.trace_queueing import PrefillServerPath, drifting_counts
from planner.specs.arrivals import (
    LOADS,
    PLACES,
    POINTS,
    SCALES,
    SHARES,
    Arrivals,
    RoundRobinPaths,
    TracePaths,
)

_FEWEST_WINDOWS = 32
_MOST_WINDOWS, _FEWEST_REQUESTS = 128, 64
_MOST_ANSWERS, _MOST_WAITS = 1024, 2**16
_FEWEST_OF_REPLICA, _FEWEST_SEEN = 32, 16_384


def measured_arrivals(
    times: FloatArray, work: FloatArray, answers: FloatArray, drawn: bool = False
) -> Arrivals:
    """The arrival statistics of a trace: requests at ``times`` [s] with ``work`` in any unit.

    Simulates one server at each utilization
    (`planner.formulas.queueing.fifo_queueing_delays`); ``answers`` are the tokens of the answers,
    which decode while the server is idle. Replicas get requests in turn, or at random if ``drawn``.
    """
    if times.size < 2 or not times[-1] > times[0]:
        return Arrivals()
    windows = [
        _window_work(times, np.ones_like(times), times.size / 2.0**power)
        for power in range(max(int(np.log2(times.size / _FEWEST_WINDOWS)), 1))
    ]
    turns = _replica_paths(times, work, answers, drawn, 1)
    further_tokens = np.maximum(answers - 1, 0.0)
    return Arrivals(
        bursts=tuple(np.maximum(turns.bursts, 0.0).tolist()),
        dispersion=tuple(float(counts.var() / counts.mean()) for counts in windows),
        spread=tuple(map(tuple, turns.waits.tolist())),
        paths=TracePaths(
            name=f"{times.size}-{crc32(np.stack([times, work, answers]).tobytes()):08x}-{drawn}",
            windows=np.stack(
                [
                    _drifting_windows(times, quantity)
                    for quantity in (np.ones_like(times), work, answers)
                ]
            ),
            requests=times.size,
            lengths=np.quantile(further_tokens, POINTS) / max(float(further_tokens.mean()), 1e-9),
            turns=partial(_replica_paths, times, work, answers, drawn),
        ),
    )


def replica_of(requests: int, replicas: int, drawn: bool, seed: int = 0) -> IndexArray:
    """The index of the replica that gets each request: in turn, or at random if ``drawn``.

    A random replica per request is an independent thinning of the arrivals [1]_.

    References
    ----------
    .. [1] D. Daley and D. Vere-Jones, "An Introduction to the Theory of Point Processes,"
       volume 2, 2nd ed., 2008, section 11.3.
    """
    if drawn:
        return np.random.default_rng(seed).integers(replicas, size=requests)
    return np.arange(requests) % replicas


def _replica_paths(
    times: FloatArray, work: FloatArray, answers: FloatArray, drawn: bool, replicas: int
) -> RoundRobinPaths:
    """Queueing statistics of replicas that share the requests of a trace.

    The number of replicas is bounded so that each gets enough requests, and only as many replicas
    are simulated as the statistics need.
    """
    number = min(replicas, max(times.size // _FEWEST_OF_REPLICA, 1))
    owners = replica_of(times.size, number, drawn)
    windows = np.stack(
        [
            _replica_windows(times, quantity, owners, number)
            for quantity in (np.ones_like(times), work, answers)
        ]
    )
    duration = float(times[-1] - times[0])
    seen = min(ceil_div(_FEWEST_SEEN * number, times.size), number)
    turns = np.argsort(owners, kind="stable")
    turns = turns[owners[turns] < seen]
    gap = duration / times.size * number
    service = work[turns] / work.mean() * gap
    # What one path has left is worked off before the next begins.
    times = times[turns] + owners[turns] * (2 * duration + float(service.sum()))
    answers = answers[turns]
    variation, stride = np.square(service.std() / service.mean()), max(times.size // _MOST_WAITS, 1)
    bursts: list[float] = []
    tables: tuple[list[FloatArray], ...] = ([], [], [])
    for load in LOADS:
        path = PrefillServerPath(
            times=times,
            service=load * service,
            waits=fifo_queueing_delays(times=times, service=load * service),
        )
        mean, latencies = float(path.waits.mean()), path.waits + path.service
        bursts.append(mean / (load * load * float(service.mean()) / (2 * (1 - load))) - variation)
        waits = np.quantile(path.waits[::stride], SHARES) / max(mean, 1e-300)
        latency_quantiles = np.quantile(latencies[::stride], SHARES) / latencies.mean()
        for table, quantiles in zip(
            tables, (waits, latency_quantiles, _stall_shares(path, answers, gap)), strict=True
        ):
            table.append(quantiles)
    spread, passes, stalls = map(np.stack, tables)
    return RoundRobinPaths(
        windows=windows,
        bursts=np.array(bursts),
        waits=spread,
        through=passes,
        stalls=np.moveaxis(stalls, 0, 3),
    )


def _replica_windows(
    times: FloatArray, work: FloatArray, owners: IndexArray, replicas: int
) -> FloatArray:
    """Work per time window and replica, divided by the mean; shape (windows, replicas).

    With more replicas there are fewer windows, so that the size of the array stays about the same.
    """
    number = _number_of_windows(times)
    num_columns, parts = min(replicas, number), max(number // replicas, 1)
    place = ((times - times[0]) / (times[-1] - times[0]) * parts * (1 - 1e-12)).astype(np.intp)
    is_selected = owners < num_columns
    counts = np.bincount(
        (place * num_columns + owners)[is_selected],
        work[is_selected],
        minlength=parts * num_columns,
    )
    return np.asarray(counts / counts.mean()).reshape(parts, num_columns)


def _number_of_windows(times: FloatArray) -> int:
    return max(min(_MOST_WINDOWS, times.size // _FEWEST_REQUESTS), 1)


def _window_work(times: FloatArray, work: FloatArray, number: float) -> FloatArray:
    """Work in each of ``number`` equal time windows, divided by the mean work of a request."""
    window_indices = ((times - times[0]) / ((times[-1] - times[0]) / number)).astype(np.intp)
    return np.asarray(
        np.bincount(window_indices, work / work.mean(), minlength=int(number)), dtype=float
    )


def _drifting_windows(times: FloatArray, work: FloatArray) -> FloatArray:
    """The slowly changing part of the work in each time window, divided by the mean."""
    number = _number_of_windows(times)
    counts, quarters = (
        _window_work(times, work, number * parts * (1 - 1e-12))[: number * parts]
        for parts in (1, 4)
    )
    steady = np.maximum(drifting_counts(counts, quarters), 0.0)
    return np.asarray(steady / steady.mean())


def _stall_shares(path: PrefillServerPath, answers: FloatArray, gap: float) -> FloatArray:
    """The delay of answers by prompts, divided by the time between the tokens of an answer.

    Axes: answers or tokens, `PLACES` batch slots, `SCALES` of the mean ``gap`` [s] and `POINTS`.
    """
    stride = max(answers.size // _MOST_ANSWERS, 1)
    lengths = (answers[::stride] - 1) / max((answers - 1).mean(), 1e-9)
    stalls = np.zeros((2, PLACES.size, SCALES.size, POINTS.size))
    is_nonzero = lengths > 0
    if not is_nonzero.any():
        return stalls
    most_stalls = np.stack(
        [path.max_prompt_time(stride, lengths, int(2**places)) for places in PLACES]
    )[:, is_nonzero]
    nonzero_lengths = lengths[is_nonzero]
    of_answers = np.searchsorted(
        np.arange(1, nonzero_lengths.size + 1) / nonzero_lengths.size, POINTS
    )
    for column, scale in enumerate(SCALES):
        idle = gap * 2**scale * lengths
        nonzero_idle = idle[is_nonzero]
        freely = path.stall_time(stride, idle)[is_nonzero] / nonzero_idle
        bounds = most_stalls / nonzero_idle
        # More places than those that bound nothing change nothing.
        rows = min(int((bounds < freely).any(axis=1).sum()) + 1, PLACES.size)
        stall_shares = np.minimum(freely, bounds[:rows])
        order = np.argsort(stall_shares, axis=1)
        ranked = np.take_along_axis(stall_shares, order, axis=1)
        until = np.cumsum(nonzero_lengths[order], axis=1)
        for row in range(PLACES.size):
            bound_row = min(row, rows - 1)
            shares = until[bound_row] / until[bound_row, -1]
            of_tokens = np.minimum(np.searchsorted(shares, POINTS), shares.size - 1)
            stalls[:, row, column] = ranked[bound_row, of_answers], ranked[bound_row, of_tokens]
    return stalls
