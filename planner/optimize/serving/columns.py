"""Ways to serve as columns: glossary names with the unit at the end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from planner.arrays import FloatArray
from planner.configurations.serving import SERVING_NAMES, ServingConfigurations
from planner.configurations.table import word
from planner.estimators.inference.disaggregated import DecodeWorkers, PrefillWorkers
from planner.estimators.inference.estimate import ServingEstimate
from planner.estimators.inference.memory import SERVING_MEMORY_PARTS, ServingMemory
from planner.estimators.inference.static import StaticBatch
from planner.optimize.choices import checked
from planner.optimize.serving.deployments import MILLION, Deployments
from planner.optimize.serving.problem import AGGREGATED, DISAGGREGATED, Pool, Source
from planner.units import GIB, HOUR

PARAMETERS = tuple(name for name in SERVING_NAMES if name != "num_gpus")
_OF_PREFILL = tuple(name for name in PARAMETERS if name != "concurrency")


@dataclass(frozen=True, kw_only=True)
class Workers:
    """Flat rows of disaggregated deployments: both kinds of workers and how many of each."""

    prefill: PrefillWorkers
    decode: DecodeWorkers
    num_prefill: FloatArray
    num_decode: FloatArray
    load: FloatArray


def aggregated_columns(
    estimate: ServingEstimate, deployments: Deployments, pool: Pool
) -> dict[str, list[Any]]:
    """One list per column of replicas that do all."""
    c = estimate.configurations
    shape = c.shape
    replicas = deployments.num_gpus / c.replica_gpus
    return {
        **_where(AGGREGATED, pool, shape),
        "replicas": _counts(replicas, shape),
        **_parameters(c, PARAMETERS),
        **_no_prefill(shape),
        **_promises(deployments),
        "utilization": _floats(estimate.served.utilization, shape),
        **_memory(estimate.memory, c, shape),
    }


def static_columns(
    static: StaticBatch, memory: ServingMemory, c: ServingConfigurations, pool: Pool
) -> dict[str, list[Any]]:
    """One list per column of batches that start and end together."""
    workload, shape = pool.setting.workload, c.shape
    rate = c.data_parallel * static.batch / static.request_latency
    values = {
        "prefill_latency_s": static.time_to_first_token,
        "decode_latency_s": static.time_per_output_token,
        "request_latency_s": static.request_latency,
        "output_tokens_per_s": rate * workload.output_tokens,
        "tokens_per_s": rate * (workload.input_tokens + workload.output_tokens),
        "cost_per_million_tokens_usd": MILLION * c.num_gpus * pool.price
        / (rate * workload.output_tokens),
    }  # fmt: skip
    number = int(np.prod(shape))
    return {
        "gpu": [pool.gpu] * number,
        "engine": [pool.setting.engine.name] * number,
        "num_gpus": _counts(c.num_gpus, shape),
        "replicas": _counts(c.data_parallel, shape),
        **_parameters(c, PARAMETERS),
        **{name: _floats(value, shape) for name, value in values.items()},
        **_memory(memory, c, shape),
    }


def disaggregated_columns(
    workers: Workers, deployments: Deployments, source: Source
) -> dict[str, list[Any]]:
    """One list per column; the plain parameters are those of the decode workers."""
    c = workers.decode.configurations
    shape = c.shape
    prefill = _parameters(workers.prefill.configurations, _OF_PREFILL)
    return {
        **_where(DISAGGREGATED, source.pool, shape),
        "replicas": _counts(workers.num_decode, shape),
        **_parameters(c, PARAMETERS),
        "prefill_gpu": [source.prefill.gpu] * shape[0],
        "prefill_replicas": _counts(workers.num_prefill, shape),
        **{f"prefill_{name}": values for name, values in prefill.items()},
        "transfer_time_s": _floats(
            np.maximum(workers.prefill.transfer_time, workers.decode.transfer_time), shape
        ),
        **_promises(deployments),
        "utilization": _floats(workers.load, shape),
        **_memory(workers.decode.memory, c, shape),
    }


def configuration_of(row: Mapping[str, Any], prefix: str = "") -> ServingConfigurations:
    """The configuration of one row of columns; of one replica, or all with ``num_gpus``."""
    given = {name: row[prefix + name] for name in PARAMETERS if prefix + name in row}
    values = {name: checked(name, [value])[0] for name, value in given.items()}
    return ServingConfigurations.of(**{"num_gpus": row["num_gpus"], "concurrency": 1, **values})


def _where(mode: str, pool: Pool, shape: tuple[int, ...]) -> dict[str, list[Any]]:
    number = int(np.prod(shape))
    engine = pool.setting.engine.name
    return {"mode": [mode] * number, "gpu": [pool.gpu] * number, "engine": [engine] * number}


def _parameters(c: ServingConfigurations, names: tuple[str, ...]) -> dict[str, list[Any]]:
    return {
        name: [word(name, value) for value in np.broadcast_to(getattr(c, name), c.shape).ravel()]
        for name in names
    }


def _no_prefill(shape: tuple[int, ...]) -> dict[str, list[Any]]:
    names = ("gpu", "replicas", *_OF_PREFILL)
    nothing = [None] * int(np.prod(shape))
    return {**{f"prefill_{name}": nothing for name in names}, "transfer_time_s": nothing}


def _promises(d: Deployments) -> dict[str, list[Any]]:
    tokens = d.workload.input_tokens + d.workload.output_tokens
    values = {
        "time_to_first_token_s": d.time_to_first_token,
        "time_per_output_token_s": d.time_per_output_token,
        "request_latency_s": d.request_latency,
        "tokens_per_s_per_user": d.interactivity,
        "requests_per_s": d.request_rate,
        "output_tokens_per_s": d.output_tokens_per_second,
        "output_tokens_per_s_per_gpu": d.output_tokens_per_second_per_gpu,
        "tokens_per_s": d.request_rate * tokens,
        "tokens_per_s_per_gpu": d.request_rate * tokens / d.num_gpus,
        "cost_per_million_tokens_usd": d.cost_per_million_tokens,
        "cost_per_hour_usd": d.price * HOUR,
        "memory_headroom_gib": d.memory_headroom / GIB,
    }
    floats = {name: _floats(value, d.shape) for name, value in values.items()}
    return {"num_gpus": _counts(d.num_gpus, d.shape), **floats}


def _memory(
    memory: ServingMemory, c: ServingConfigurations, shape: tuple[int, ...]
) -> dict[str, list[Any]]:
    parts = {
        f"memory_{part}_gib": _floats(getattr(memory, part) / GIB, shape)
        for part in SERVING_MEMORY_PARTS
    }
    return {
        "peak_memory_gib": _floats(memory.total / GIB, shape),
        **parts,
        "host_memory_gib": _floats(memory.host / GIB, shape),
        "most_sequences": _counts(memory.most_sequences, shape),
    }


def _floats(value: Any, shape: tuple[int, ...]) -> list[float]:
    flat: list[float] = np.broadcast_to(value, shape).ravel().tolist()
    return flat


def _counts(value: Any, shape: tuple[int, ...]) -> list[int]:
    return [int(number) for number in np.broadcast_to(value, shape).ravel()]
