"""The product of undominated prefill workers and undominated decode workers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from planner.arrays import BoolArray, CodeArray, FloatArray, IndexArray
from planner.configurations.enumerate import OpenMesh
from planner.configurations.serving import ServingConfigurations
from planner.enums import CacheType
from planner.estimators.inference.disaggregated import (
    DecodeWorkers,
    Matched,
    PrefillWorkers,
    decode_workers,
    matched,
    prefill_workers,
)
from planner.estimators.inference.estimate import SERVING_REJECTIONS
from planner.optimize.pareto import pareto_front
from planner.optimize.serving.columns import Workers, disaggregated_columns
from planner.optimize.serving.deployments import Candidates, Deployments
from planner.optimize.serving.problem import ServingProblem, Source, rounded_up

_CACHES = len(CacheType)
_HEADROOM = "memory_headroom"


@dataclass(frozen=True, kw_only=True)
class _Pair:
    """Prefill and decode workers of one size each, with their caches in one format.

    Arrays have an axis of prefill workers, one of decode workers and one of their numbers.
    """

    source: Source
    prefill: PrefillWorkers
    decode: DecodeWorkers

    @property
    def gpus(self) -> tuple[float, float]:
        """GPUs of a prefill worker and of a decode worker."""
        prefill, decode = self.prefill.configurations, self.decode.configurations
        return float(prefill.replica_gpus[0]), float(decode.replica_gpus[0])


def disaggregated_candidates(
    source: Source, problem: ServingProblem
) -> Iterator[tuple[Candidates | None, IndexArray, int]]:
    """As `aggregated_candidates`: the workers one by one, then in pairs."""
    inside = _inside_fabric(source)
    largest = max(source.counts) if source.counts else np.inf
    prefill = prefill_workers(
        source.prefill.setting, _single(source.prefill.mesh, "concurrency", largest), inside
    )
    decode = decode_workers(
        source.pool.setting, _single(source.pool.mesh, "max_num_batched_tokens", largest), inside
    )
    dropped = _counts(prefill.rejected_by, prefill.configurations)
    dropped += _counts(decode.rejected_by, decode.configurations)
    yield None, dropped, int(dropped.sum())
    kept_decode = _decode_front(decode, problem)
    kept_prefill = _prefill_front(prefill, problem)
    for pair in _pairs(source, kept_prefill, kept_decode):
        for count in source.counts or (0,):
            found = _candidates(pair, count)
            if found is not None:
                yield found, np.zeros_like(dropped), found.rejected_by.size


def _pairs(source: Source, prefill: PrefillWorkers, decode: DecodeWorkers) -> Iterator[_Pair]:
    mine, others = _kinds(prefill), _kinds(decode)
    for kind in np.unique(mine):
        for other in np.unique(others):
            if kind % _CACHES == other % _CACHES:
                yield _Pair(
                    source=source,
                    prefill=_prefill_rows(prefill, mine == kind),
                    decode=_decode_rows(decode, others == other),
                )


def _single(
    mesh: OpenMesh[ServingConfigurations], unused: str, largest: float
) -> ServingConfigurations:
    """One worker per layout that leaves GPUs for another, without what its steps do not use."""
    axes = [
        {name: values[:1] for name, values in axis.items()} if unused in axis else dict(axis)
        for axis in mesh.axes
    ]
    layouts = axes[0]
    layouts["num_gpus"] = (
        layouts["tensor_parallel"]
        * layouts["pipeline_parallel"]
        * layouts["attention_data_parallel"]
    )
    rows = np.unique(np.stack(list(layouts.values()), axis=1), axis=0)
    smallest = rows[:, 0].min()
    rows = rows[(rows[:, 0] < largest) | (rows[:, 0] == smallest)]
    axes[0] = dict(zip(layouts, rows.T, strict=True))
    smaller = OpenMesh(kind=ServingConfigurations, axes=axes)
    (block,) = smaller.blocks(max(smaller.num_rows, 1))
    return block


def _inside_fabric(source: Source) -> bool:
    domain = source.pool.setting.machine.cluster.scale_up.domain_size
    same = source.pool.gpu == source.prefill.gpu
    return bool(same and source.counts and max(source.counts) <= domain)


def _counts(codes: CodeArray, configurations: ServingConfigurations) -> IndexArray:
    codes = np.broadcast_to(codes, configurations.shape)
    counts = np.bincount(codes.ravel(), minlength=len(SERVING_REJECTIONS) + 1)
    counts[0] = 0
    return counts.astype(np.intp)


def _prefill_front(workers: PrefillWorkers, problem: ServingProblem) -> PrefillWorkers:
    allowed = _enough_room(workers, problem)
    times = (workers.prompt_time, workers.service_time, workers.transfer_time)
    return _prefill_rows(workers, _fronts(workers, times, allowed, problem))


def _decode_front(workers: DecodeWorkers, problem: ServingProblem) -> DecodeWorkers:
    allowed = _enough_room(workers, problem)
    for constraint in problem.constraints:
        if constraint.name == "time_per_output_token":
            # With none under the limit, the others show how far off it is.
            within = allowed & (workers.time_per_output_token <= constraint.bound)
            allowed = within if within.any() else allowed
    values = (workers.time_per_output_token, -workers.request_rate, workers.transfer_time)
    return _decode_rows(workers, _fronts(workers, values, allowed, problem))


def _enough_room(workers: PrefillWorkers | DecodeWorkers, problem: ServingProblem) -> BoolArray:
    """Workers that no rule rejects and, if there are some, that leave the memory asked for."""
    allowed = workers.rejected_by == 0
    for constraint in problem.constraints:
        if constraint.name == _HEADROOM:
            within = allowed & (_headroom(workers) >= constraint.bound)
            allowed = within if within.any() else allowed
    return np.asarray(allowed)


def _fronts(
    workers: PrefillWorkers | DecodeWorkers,
    values: tuple[FloatArray, ...],
    allowed: BoolArray,
    problem: ServingProblem,
) -> IndexArray:
    """Undominated workers of each size and cache format.

    A pair is the better the smaller its ``values``, with two exceptions: the memory that stays
    free, and the queue of prompts, which slower decoding shortens because fewer requests pass.
    The faster worker does as much for the queue with fewer requests at once.
    """
    kinds, shape = _kinds(workers), workers.configurations.shape
    allowed = np.broadcast_to(allowed, shape).ravel()
    if any(objective.name == _HEADROOM for objective in problem.objectives):
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


def _prefill_rows(workers: PrefillWorkers, rows: Any) -> PrefillWorkers:
    names = ("prompt_time", "service_time", "transfer_time", "rejected_by")
    return PrefillWorkers(setting=workers.setting, **_rows(workers, rows, names))


def _decode_rows(workers: DecodeWorkers, rows: Any) -> DecodeWorkers:
    names = ("step_time", "time_per_output_token", "request_rate", "transfer_time", "rejected_by")
    return DecodeWorkers(setting=workers.setting, **_rows(workers, rows, names))


def _rows(
    workers: PrefillWorkers | DecodeWorkers, rows: Any, names: tuple[str, ...]
) -> dict[str, Any]:
    """A flat table of some workers by flat index or mask."""
    shape, memory = workers.configurations.shape, workers.memory
    indices = np.flatnonzero(rows) if np.asarray(rows).dtype == np.bool_ else rows

    def flat(value: Any) -> Any:
        return np.broadcast_to(value, shape).ravel()[indices]

    return {
        "configurations": workers.configurations.rows(indices),
        "memory": memory.mapped(flat),
        **{name: flat(getattr(workers, name)) for name in names},
    }


def _candidates(pair: _Pair, count: int) -> Candidates | None:
    """All numbers of workers that fill ``count`` GPUs, or those that keep up with the rate."""
    each_prefill, each_decode = pair.gpus
    if count:
        prefill = np.arange(1.0, np.floor((count - each_decode) / each_prefill) + 1)
        decode = (count - prefill * each_prefill) / each_decode
        whole = decode == np.floor(decode)
        prefill, decode = prefill[whole], decode[whole]
    else:
        rate = pair.source.request_rate or 0.0
        prefill = rounded_up(rate / _on(0, pair.prefill.request_rate))
        decode = rounded_up(rate / _on(1, pair.decode.request_rate))
    if not prefill.size:
        return None
    match = _match(pair, prefill, decode)
    deployments = _deployments(pair, prefill, decode, match)
    shape = deployments.shape

    def rows(indices: IndexArray) -> dict[str, Any]:
        which, other, many = positions = np.unravel_index(indices, shape)
        workers = Workers(
            prefill=_prefill_rows(pair.prefill, which),
            decode=_decode_rows(pair.decode, other),
            num_prefill=np.broadcast_to(prefill, shape)[which, other, many],
            num_decode=np.broadcast_to(decode, shape)[which, other, many],
            load=np.broadcast_to(match.load, shape)[which, other, many],
        )
        chosen = _deployments_at(deployments, positions)
        return disaggregated_columns(workers, chosen, pair.source)

    rejected_by = np.zeros(shape, dtype=np.int8)
    return Candidates(deployments=deployments, rejected_by=rejected_by, rows=rows)


def _on(axis: int, values: Any) -> FloatArray:
    """A worker's values on the axis of its kind, of the three axes of a pair."""
    shape = [1, 1, 1]
    shape[axis] = np.size(values)
    return np.reshape(values, shape)


def _match(pair: _Pair, prefill: FloatArray, decode: FloatArray) -> Matched:
    engine = pair.decode.setting.engine
    return matched(
        prefill=prefill,
        decode=decode,
        service_time=_on(0, pair.prefill.service_time),
        prompt_time=_on(0, pair.prefill.prompt_time),
        transfer_time=np.maximum(
            _on(0, pair.prefill.transfer_time), _on(1, pair.decode.transfer_time)
        ),
        decode_rate=_on(1, pair.decode.request_rate),
        decode_step=_on(1, pair.decode.step_time),
        overhead=engine.execution.request_overhead,
    )


def _deployments(
    pair: _Pair, prefill: FloatArray, decode: FloatArray, match: Matched
) -> Deployments:
    source, (each_prefill, each_decode) = pair.source, pair.gpus
    headroom = _on(0, _headroom(pair.prefill)), _on(1, _headroom(pair.decode))
    prices = prefill * each_prefill * source.prefill.price, decode * each_decode * source.pool.price
    return Deployments(
        workload=pair.decode.setting.workload,
        shape=match.time_to_first_token.shape,
        num_gpus=prefill * each_prefill + decode * each_decode,
        request_rate=match.request_rate,
        time_to_first_token=match.time_to_first_token,
        time_per_output_token=_on(1, pair.decode.time_per_output_token),
        memory_headroom=np.minimum(*headroom),
        price=np.add(*prices),
    )


def _headroom(workers: PrefillWorkers | DecodeWorkers) -> FloatArray:
    return workers.setting.machine.gpu.allocatable_memory - workers.memory.total


def _deployments_at(deployments: Deployments, positions: tuple[IndexArray, ...]) -> Deployments:
    flat = {
        name: np.broadcast_to(value, deployments.shape)[positions]
        for name, value in vars(deployments).items()
        if isinstance(value, np.ndarray)
    }
    return Deployments(workload=deployments.workload, shape=positions[0].shape, **flat)
