"""Candidate pools: undominated prefill and decode workers, in all numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from planner.base.arrays import BoolArray, FloatArray, IndexArray, Numeric
from planner.base.enums import CacheType
from planner.base.records import record
from planner.base.units import ceil_div
from planner.configurations.configuration_tables import (
    AttentionFfnConfigurations,
    RowPicker,
    ServingConfigurations,
)
from planner.configurations.enumerate import OpenMesh, numbers
from planner.estimators.inference.batch_share import PrefixHits, ServingInputs
from planner.estimators.inference.disaggregated import (
    DecodeWorkers,
    PrefillWorkers,
    decode_only,
    decode_workers,
    prefill_workers,
)
from planner.estimators.inference.prefix_hits import ReplicaLoad, prefixes_at, solve_prefix_hits
from planner.optimize.goals import Constraint, Objective
from planner.optimize.pareto import pareto_front
from planner.question.terms import terms_about
from planner.workloads.serving.replicas import with_filled_cache
from planner.workloads.serving.results import rounded_up

_EVERY_WAY_UP_TO = 4096
# Then neighbours differ by 0.8 % of all GPUs, far less than predictions are off.
_MOST_WAYS = 256


def numbers_of_prefill(num_gpus: int, each_prefill: int, each_decode: int) -> FloatArray:
    """Numbers of prefill workers that leave GPUs for a whole number of decode workers.

    ``each_prefill`` and ``each_decode`` are the GPUs of one worker. Above 4,096 GPUs at most 256
    numbers are returned: half of them evenly spaced, the others denser towards both ends.
    """
    step = each_decode // math.gcd(each_prefill, each_decode)
    firsts = range(1, step + 1)
    first = next((p for p in firsts if (num_gpus - p * each_prefill) % each_decode == 0), None)
    if first is None:
        return np.empty(0)
    maximum = (num_gpus - each_decode) // each_prefill
    number = max((maximum - first) // step + 1, 0)
    thinned = num_gpus > _EVERY_WAY_UP_TO and number > _MOST_WAYS
    return first + step * (_spread_numbers(number) if thinned else np.arange(float(number)))


def _spread_numbers(number: int) -> FloatArray:
    """A sample of the integers from 0 to ``number``, exclusive."""
    even = np.linspace(0, number - 1, _MOST_WAYS // 2)
    dense = np.geomspace(1, number, _MOST_WAYS // 4) - 1
    return np.unique(np.round(np.concatenate([even, dense, number - 1 - dense])))


Workers = TypeVar("Workers", PrefillWorkers, DecodeWorkers)

# Predictions of so many rows cost little more than those of one.
_ROWS = 2**15
_CACHES = len(CacheType)
_HEADROOM = "memory_headroom"


@record(kw_only=True)
class PrefillDecodeSpace:
    """The layouts of a decode and of a prefill worker, and the possible numbers of both.

    ``replicas`` and ``prefill_replicas`` are the numbers of workers where they are given; else
    they fill one of the ``counts`` of GPUs, or keep up with the ``request_rate``. ``waits``:
    requests at once of a decode worker are a load, so that those without room wait for it.
    """

    prefill_setting: ServingInputs
    decode_setting: ServingInputs
    prefill_mesh: OpenMesh[ServingConfigurations]
    decode_mesh: OpenMesh[ServingConfigurations]
    counts: tuple[int, ...] = ()
    request_rate: float | None = None
    replicas: int | None = None
    prefill_replicas: int | None = None
    waits: bool = False

    @property
    def largest(self) -> float:
        """The most GPUs of a plan."""
        return max(self.counts) if self.counts else np.inf

    def prefill(self) -> PrefillWorkers:
        """All configurations of a prefill worker, with predictions."""
        mesh = one_each(self.prefill_mesh, "concurrency", self.largest)
        return self.prefilling(mesh, self.prefill_replicas)

    def prefilling(
        self, configurations: ServingConfigurations, number: Numeric | None
    ) -> PrefillWorkers:
        """Prefill workers with the prefix-cache hits of each configuration.

        ``number``: prefill workers; None: as many as the request rate needs, or half of the GPUs.
        """

        def workers(prefixes: PrefixHits | None) -> PrefillWorkers:
            inputs = replace(self.prefill_setting, prefixes=prefixes)
            return prefill_workers(inputs, configurations, inside_fabric=False)

        def prefix_hits(evaluated: PrefillWorkers) -> PrefixHits:
            """The prefix-cache hits of prefill workers that share the total request rate evenly."""
            c, total_rate, replicas = evaluated.configurations, self.request_rate, number
            if replicas is None and total_rate is not None:
                replicas = np.maximum(total_rate / evaluated.request_rate, 1.0)
            elif replicas is None:
                replicas = np.maximum(self.largest / 2 / c.replica_gpus, 1.0)
            highest_rate = self.prefill_setting.workload.request_rate
            rate = np.minimum(
                replicas * evaluated.request_rate, np.inf if highest_rate is None else highest_rate
            )
            load = ReplicaLoad(replicas=replicas, rate=rate, running=c.concurrency)
            with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                return prefixes_at(evaluated.inputs, c, evaluated.memory, load)

        uncached = workers(None)
        if self.prefill_setting.workload.reuse is None:
            return uncached
        return solve_prefix_hits(uncached, workers, prefix_hits)

    def decode(self) -> DecodeWorkers:
        """All configurations of a decode worker, with predictions."""
        return self.decoding(one_each(self.decode_mesh, "max_num_batched_tokens", self.largest))

    @property
    def offered_concurrency(self) -> float | None:
        """Concurrency offered to each decode worker, waiting requests included; None: none wait."""
        return float(self.decode_mesh.values("concurrency")[0]) if self.waits else None

    def decoding(self, configurations: ServingConfigurations) -> DecodeWorkers:
        """Decode workers with the concurrency that fits in memory, if requests wait."""
        inputs = self.decode_setting
        workers = decode_workers(inputs, configurations, inside_fabric=False)
        if not self.waits:
            return workers
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            filled = with_filled_cache(
                inputs, configurations, workers.memory, lambda c: decode_only(inputs, c)
            )
        if filled is configurations:
            return workers
        return decode_workers(inputs, filled, inside_fabric=False)


@record(kw_only=True)
class WorkerPairs:
    """Workers that prefill and workers that decode, row by row, and their numbers."""

    prefill: PrefillWorkers
    decode: DecodeWorkers
    num_prefill: FloatArray
    num_decode: FloatArray


def pair_workers(
    space: PrefillDecodeSpace,
    prefill: PrefillWorkers,
    decode: DecodeWorkers,
    goals: Sequence[Objective],
    limits: Sequence[Constraint],
) -> Iterator[WorkerPairs]:
    """Yield pairs of undominated prefill and decode workers, in all numbers that fill the GPUs."""
    times = (prefill.prompt_time, prefill.service_time, prefill.transfer_time)
    allowed = _enough_room(prefill, limits)
    first = _rows(prefill, _fronts(prefill, times, allowed, goals))
    second = _decode_front(decode, goals, limits)
    for table in _merge_tables(_pair_rows(space, first, second)):
        before, after = (np.asarray(rows, dtype=np.intp) for rows in table[:2])
        yield WorkerPairs(
            prefill=_rows(first, before),
            decode=_rows(second, after),
            num_prefill=table[2],
            num_decode=table[3],
        )


def one_each(
    mesh: OpenMesh[ServingConfigurations], unused: str, largest: float = np.inf
) -> ServingConfigurations:
    """All configurations of one worker that leave GPUs for the other kind of worker.

    The parameter ``unused`` gets one value.
    """
    layouts, *others = mesh.axes
    (layout,) = layouts
    size = math.prod(numbers(layout, name) for name in terms_about("model_parallel", "serve"))
    if mesh.kind is AttentionFfnConfigurations:
        size = size + numbers(layout, "expert_parallel")
    rows = np.unique(np.stack([*({**layout, "num_gpus": size}).values()], axis=1), axis=0)
    gpus = rows[:, list(layout).index("num_gpus")]
    rows = rows[(gpus < largest) | (gpus == gpus.min())]
    shorter = [
        [
            {name: values[:1] for name, values in factor.items()} if unused in factor else factor
            for factor in axis
        ]
        for axis in others
    ]
    workers = [dict(zip(layout, rows.T, strict=True))]
    return OpenMesh(kind=mesh.kind, axes=[workers, *shorter]).table()


def headroom(workers: PrefillWorkers | DecodeWorkers) -> FloatArray:
    """Free bytes of a worker's fullest GPU."""
    fullest = workers.fullest if isinstance(workers, DecodeWorkers) else workers.memory
    return workers.inputs.machine.gpu.allocatable_memory - fullest.total


def _pair_rows(
    space: PrefillDecodeSpace, prefill: PrefillWorkers, decode: DecodeWorkers
) -> Iterator[FloatArray]:
    """Yield pairs of workers with the same KV-cache format: row, row, number, number."""
    kinds = _kinds(prefill), _kinds(decode)
    for kind in np.unique(kinds[0]):
        for other in np.unique(kinds[1]):
            if kind % _CACHES != other % _CACHES:
                continue
            before, after = (np.flatnonzero(kinds[n] == k) for n, k in ((0, kind), (1, other)))
            sizes = int(kind // _CACHES), int(other // _CACHES)
            for first in np.array_split(before, ceil_div(before.size * after.size, _ROWS)):
                row_pairs = np.repeat(first, after.size), np.tile(after, first.size)
                for count in space.counts or (0,):
                    yield _number_pairs(space, (prefill, decode), row_pairs, sizes, count)


def _merge_tables(parts: Iterable[FloatArray]) -> Iterator[FloatArray]:
    """Concatenate tables into fewer and larger ones, of at least ``_ROWS`` columns."""
    waiting, number = list[FloatArray](), 0
    for part in parts:
        waiting.append(part)
        number += part.shape[1]
        if number >= _ROWS:
            yield np.concatenate(waiting, axis=1)
            waiting, number = [], 0
    if number:
        yield np.concatenate(waiting, axis=1)


def _decode_front(
    workers: DecodeWorkers, goals: Sequence[Objective], limits: Sequence[Constraint]
) -> DecodeWorkers:
    """Undominated decode workers, within the limit on the time per output token if any keeps it."""
    allowed = _enough_room(workers, limits)
    for limit in limits:
        if limit.name == "time_per_output_token":
            # With none under the limit, the others show how far off it is.
            within = allowed & (workers.time_per_output_token <= limit.bound)
            allowed = within if within.any() else allowed
    values = (workers.time_per_output_token, -workers.request_rate, workers.transfer_time)
    return _rows(workers, _fronts(workers, values, allowed, goals))


def _enough_room(
    workers: PrefillWorkers | DecodeWorkers, limits: Sequence[Constraint]
) -> BoolArray:
    """True where no rule rejects a worker and the requested memory stays free, if possible."""
    allowed = workers.rejected_by == 0
    for limit in limits:
        if limit.name == _HEADROOM:
            within = allowed & (headroom(workers) >= limit.bound)
            allowed = within if within.any() else allowed
    return np.asarray(allowed)


def _fronts(
    workers: PrefillWorkers | DecodeWorkers,
    values: tuple[FloatArray, ...],
    allowed: BoolArray,
    goals: Sequence[Objective],
) -> IndexArray:
    """Flat indices of the undominated workers, for each worker size and KV-cache format.

    Smaller ``values`` are better. All allowed workers are returned if free memory is an objective.
    """
    kinds, shape = _kinds(workers), workers.configurations.shape
    allowed = np.broadcast_to(allowed, shape).ravel()
    if any(goal.name == _HEADROOM for goal in goals):
        return np.flatnonzero(allowed)
    table = np.stack([np.broadcast_to(value, shape).ravel() for value in values], axis=1)
    chosen = []
    for kind in np.unique(kinds[allowed]):
        rows = np.flatnonzero(allowed & (kinds == kind))
        chosen.append(rows[pareto_front(table[rows])])
    return np.concatenate(chosen) if chosen else np.empty(0, dtype=np.intp)


def _kinds(workers: PrefillWorkers | DecodeWorkers) -> IndexArray:
    c = workers.configurations
    kinds = np.asarray(c.replica_gpus * _CACHES + c.kv_cache, dtype=np.intp)
    return np.broadcast_to(kinds, c.shape).ravel()


def _rows(workers: Workers, rows: IndexArray | BoolArray) -> Workers:
    """The workers at some flat indices, or where a mask is True, as a flat table."""
    shape = workers.configurations.shape
    indices: IndexArray = np.flatnonzero(rows) if rows.dtype == np.bool_ else np.asarray(rows)
    pick = RowPicker(indices, shape)
    return _map_arrays(
        workers,
        workers.configurations.rows(indices),
        lambda value: pick(np.asarray(value)),
    )


def _map_arrays(
    workers: Workers, configurations: ServingConfigurations, change: Callable[[FloatArray], Any]
) -> Workers:
    """The workers with ``change`` applied to every array."""
    fields: dict[str, Any] = {**vars(workers), "configurations": configurations}
    for name in fields.keys() - {"inputs", "configurations"}:
        field = fields[name]
        if name in ("memory", "ffn_memory", "prefixes"):
            fields[name] = field and field.mapped(change)
        else:
            fields[name] = change(field)
    return replace(workers, **fields)


def _number_pairs(
    space: PrefillDecodeSpace,
    workers: tuple[PrefillWorkers, DecodeWorkers],
    row_pairs: tuple[IndexArray, IndexArray],
    sizes: tuple[int, int],
    count: int,
) -> FloatArray:
    """Pairs of workers with their numbers, which fill ``count`` GPUs.

    If ``count`` is 0: the specified numbers, else numbers that keep up with the request rate.
    """
    requested = space.prefill_replicas, space.replicas
    if count:
        first, second = numbers_that_fill(space, count, *sizes)
        repeated_rows = [np.repeat(rows, first.size) for rows in row_pairs]
        return np.stack(
            [*repeated_rows, *(np.tile(rows, row_pairs[0].size) for rows in (first, second))]
        )
    if None not in requested:
        return np.stack([*row_pairs, *(np.full(row_pairs[0].size, number) for number in requested)])
    prefill, decode = _rows(workers[0], row_pairs[0]), _rows(workers[1], row_pairs[1])
    rate = space.request_rate or 0.0
    first = rounded_up(rate / prefill.request_rate)
    second = rounded_up(_most_decode_workers(prefill, decode, first, rate))
    return np.stack([*row_pairs, first, second])


def numbers_that_fill(
    space: PrefillDecodeSpace, count: int, prefill: int, decode: int
) -> tuple[FloatArray, FloatArray]:
    """Numbers of ``prefill``-GPU and ``decode``-GPU workers that together use ``count`` GPUs.

    Numbers that the space fixes are respected.
    """
    first = numbers_of_prefill(count, prefill, decode)
    if space.prefill_replicas is not None:  # of many GPUs not every number is looked at
        first = np.array([space.prefill_replicas], dtype=np.float64)
    second = (count - first * prefill) / decode
    for place, number in enumerate((space.prefill_replicas, space.replicas)):
        if number is not None:
            is_equal = (first, second)[place] == number
            first, second = first[is_equal], second[is_equal]
    return first, second


def _most_decode_workers(
    prefill: PrefillWorkers, decode: DecodeWorkers, num_prefill: FloatArray, rate: float
) -> FloatArray:
    """An upper bound on the decode workers for a request rate [1/s], by Little's law.

    The queueing delay of prompts is bounded by that of exponential service times.
    """
    served = prefill.service_time / num_prefill
    wait = served * rate * served / (1 - rate * served)
    moved = np.maximum(prefill.transfer_time, decode.transfer_time)
    answer = decode.places / decode.request_rate
    latency = prefill.prompt_time + wait + moved + answer
    needed = rate * latency / decode.configurations.concurrency
    return np.maximum(needed, rate / decode.request_rate)
