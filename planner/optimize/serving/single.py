"""One way to serve, or one static batch, in full."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from planner.arrays import BoolArray, FloatArray
from planner.configurations.rules import OUT_OF_HOST_MEMORY
from planner.configurations.serving import ServingConfigurations
from planner.errors import InfeasibleError, SearchSpaceError
from planner.estimators.inference.burst import Burst, burst
from planner.estimators.inference.estimate import (
    OUT_OF_MEMORY,
    SERVING_REJECTIONS,
    ServingEstimate,
    broken_serving_rule,
    evaluate_serving,
)
from planner.estimators.inference.memory import ServingMemory, serving_memory
from planner.estimators.inference.percentiles import (
    request_latency_percentile,
    time_per_output_token_percentile,
)
from planner.estimators.inference.setting import ServingSetting
from planner.estimators.inference.static import StaticBatch, static_batch
from planner.optimize.serving.aggregated import deployments_of
from planner.optimize.serving.columns import aggregated_columns, static_columns
from planner.optimize.serving.problem import Source

if TYPE_CHECKING:
    import pandas as pd

SHARES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
_GRID = 64
_LARGEST_BATCH = _GRID**4


@dataclass(frozen=True, kw_only=True)
class ServingEvaluation:
    """One configuration that serves; ``rejected_by`` is empty where it can."""

    source: Source
    estimate: ServingEstimate
    rejected_by: str
    burst: Burst | None = None

    def table(self) -> dict[str, list[Any]]:
        """One row: settings, predictions with percentiles, the burst, what rejects it."""
        estimate = self.estimate
        deployments = deployments_of(self.source, estimate)
        row = aggregated_columns(estimate, deployments, self.source.pool)
        for name, share in SHARES.items():
            per_token = time_per_output_token_percentile(estimate, share)
            for quantity, value in (
                ("time_to_first_token", estimate.time_to_first_token(share)),
                ("time_per_output_token", per_token),
                ("request_latency", request_latency_percentile(estimate, share)),
            ):
                row[f"{quantity}_{name}_s"] = np.ravel(value).tolist()
        if self.burst is not None:
            row |= {
                "burst_requests": [self.burst.num_requests],
                "makespan_s": [self.burst.makespan],
                **{
                    f"burst_request_latency_{name}_s": [self.burst.request_latency(share)]
                    for name, share in SHARES.items()
                },
            }
        return {**row, "rejected_by": [self.rejected_by]}

    def to_frame(self) -> pd.DataFrame:
        """One row, units in the names."""
        import pandas as pd

        return pd.DataFrame(self.table())


@dataclass(frozen=True, kw_only=True)
class InferenceEvaluation:
    """One static batch; ``largest_batch`` is how many requests find room together."""

    source: Source
    configurations: ServingConfigurations
    static: StaticBatch
    memory: ServingMemory
    largest_batch: int
    rejected_by: str

    def table(self) -> dict[str, list[Any]]:
        """One row: settings, times, rates, memory, what rejects it."""
        row = static_columns(self.static, self.memory, self.configurations, self.source.pool)
        return {
            **row,
            "largest_batch": [self.largest_batch],
            "rejected_by": [self.rejected_by],
        }

    def to_frame(self) -> pd.DataFrame:
        """One row, units in the names."""
        import pandas as pd

        return pd.DataFrame(self.table())


def serve_once(source: Source, num_requests: int | None = None) -> ServingEvaluation:
    """The one configuration of a source, of several concurrencies at the one that is asked for.

    That reaches the rate, or else holds as much of the burst as finds room.

    Raises
    ------
    SearchSpaceError
        The burst has no requests, or too many.
    InfeasibleError
        No concurrency that fits reaches the rate.
    """
    if num_requests is not None and not 1 <= num_requests <= _LARGEST_BATCH:
        raise SearchSpaceError(f"A burst is of 1 to {_LARGEST_BATCH:,} requests.")
    configurations = _only(source)
    rate = source.pool.setting.workload.request_rate
    if configurations.size > 1 and rate is not None:
        configurations = _at_rate(source, configurations, rate)
    elif configurations.size > 1 and num_requests is not None:
        configurations = _for_burst(source, configurations, num_requests)
    estimate = evaluate_serving(source.pool.setting, configurations)
    code = int(np.ravel(estimate.rejected_by)[0])
    served = burst(estimate, num_requests) if num_requests is not None else None
    return ServingEvaluation(
        source=source,
        estimate=estimate,
        rejected_by=SERVING_REJECTIONS[code - 1] if code else "",
        burst=served,
    )


def static_once(source: Source) -> InferenceEvaluation:
    """The one configuration of a source as a batch that starts and ends together."""
    setting, configurations = source.pool.setting, _only(source)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        memory = serving_memory(setting, configurations)
        static = static_batch(setting, configurations)
    largest = largest_batch(setting, configurations)
    code = int(np.ravel(broken_serving_rule(setting, configurations))[0])
    rejection = SERVING_REJECTIONS[code - 1] if code else ""
    if not rejection and largest < (batch := float(np.ravel(configurations.concurrency)[0])):
        on_gpu = memory.room.holds_at_once(batch, configurations.attention_data_parallel)
        rejection = OUT_OF_HOST_MEMORY.name if bool(np.ravel(on_gpu)[0]) else OUT_OF_MEMORY
    return InferenceEvaluation(
        source=source,
        configurations=configurations,
        static=static,
        memory=memory,
        largest_batch=largest,
        rejected_by=rejection,
    )


def largest_batch(setting: ServingSetting, configurations: ServingConfigurations) -> int:
    """The most requests of full length that find room together; 0 if not even one."""

    def fits(memory: ServingMemory, batch: FloatArray) -> BoolArray:
        ranks = configurations.attention_data_parallel
        on_host = memory.host_room.holds_at_once(batch, ranks)
        return memory.room.holds_at_once(batch, ranks) & on_host

    return _largest(setting, configurations, fits)


def most_concurrent(setting: ServingSetting, configurations: ServingConfigurations) -> int:
    """The most requests in flight that find room; 0 if not even one."""
    return _largest(setting, configurations, lambda memory, n: memory.most_sequences >= n)


def _largest(
    setting: ServingSetting,
    configurations: ServingConfigurations,
    fits: Callable[[ServingMemory, FloatArray], BoolArray],
) -> int:
    """The last number of requests that fits, found in ever narrower grids."""
    fewest, step = 0, _LARGEST_BATCH // _GRID
    while step:
        tried = fewest + step * np.arange(1.0, _GRID + 1)
        memory = serving_memory(setting, replace(configurations, concurrency=tried))
        fitting = tried[np.broadcast_to(fits(memory, tried), tried.shape)]
        fewest = int(fitting[-1]) if fitting.size else fewest
        step //= _GRID
    return fewest


def _only(source: Source) -> ServingConfigurations:
    (block,) = source.pool.mesh.blocks()
    return block.rows(np.arange(block.size))


def _for_burst(
    source: Source, configurations: ServingConfigurations, num_requests: int
) -> ServingConfigurations:
    """The most requests in flight that find room, and that the burst has for each replica."""
    estimate = evaluate_serving(source.pool.setting, configurations)
    useful = configurations.concurrency < num_requests / configurations.data_parallel + 1
    fitting = np.flatnonzero(useful & (estimate.rejected_by == 0))
    return configurations.rows(fitting[-1:] if fitting.size else [0])


def _at_rate(
    source: Source, configurations: ServingConfigurations, rate: float
) -> ServingConfigurations:
    """The fewest requests in flight that reach the rate."""
    estimate = evaluate_serving(source.pool.setting, configurations)
    reached = np.where(estimate.rejected_by == 0, estimate.request_rate, 0.0)
    enough = np.flatnonzero(reached >= rate)
    if enough.size:
        return configurations.rows(enough[:1])
    best = int(np.argmax(reached))
    if reached[best] == 0:
        return configurations.rows([0])
    replicas = float(np.ravel(configurations.data_parallel)[0])
    concurrency = float(configurations.concurrency[best])
    raise InfeasibleError(
        f"It serves at most {reached[best]:.3g} requests per second, not {rate:g}, with "
        f"{replicas:.0f} replicas and {concurrency:.0f} requests in each: give "
        f"{int(np.ceil(rate / reached[best] * replicas))} replicas, or search with "
        "`planner search --workload serve --request-rate`."
    )
