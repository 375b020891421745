"""What is promised to the users of a deployment, whatever its mode."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from planner.arrays import CodeArray, FloatArray, IndexArray
from planner.optimize.constraints import limits_of
from planner.optimize.objectives import Value, objectives_of
from planner.specs.serving import ServingWorkload

MILLION = 1e6


@dataclass(frozen=True, kw_only=True)
class Deployments:
    """Arrays that broadcast to ``shape``; ``price`` in USD/s of all GPUs, NaN if unknown.

    ``request_rate`` is that of all replicas; ``memory_headroom`` that of the fullest GPU.
    """

    workload: ServingWorkload
    shape: tuple[int, ...]
    num_gpus: FloatArray
    request_rate: FloatArray
    time_to_first_token: FloatArray
    time_per_output_token: FloatArray
    memory_headroom: FloatArray
    price: FloatArray

    @property
    def request_latency(self) -> FloatArray:
        """Seconds from arrival to the last token."""
        later = max(self.workload.output_tokens - 1, 0)
        return self.time_to_first_token + later * self.time_per_output_token

    @property
    def output_tokens_per_second(self) -> FloatArray:
        """Generated tokens per second."""
        return self.request_rate * self.workload.output_tokens

    @property
    def output_tokens_per_second_per_gpu(self) -> FloatArray:
        """Generated tokens per second and GPU."""
        return self.output_tokens_per_second / self.num_gpus

    @property
    def interactivity(self) -> FloatArray:
        """Generated tokens per second that one user sees."""
        return 1.0 / self.time_per_output_token

    @property
    def cost_per_million_tokens(self) -> FloatArray:
        """USD for a million generated tokens, their prompts included."""
        return np.asarray(MILLION * self.price / self.output_tokens_per_second)


@dataclass(frozen=True, kw_only=True)
class Candidates:
    """Deployments judged by the rules and the memory.

    ``rejected_by``: 0 or the one-based number of a rejection. ``rows`` gives the result
    columns of some of them by flat index. ``memory``: bytes that a GPU would need, and has.
    """

    deployments: Deployments
    rejected_by: CodeArray
    rows: Callable[[IndexArray], dict[str, Any]]
    memory: tuple[FloatArray, FloatArray] | None = None


SERVING_VALUES: dict[str, Value] = {
    "throughput_per_gpu": lambda d: d.output_tokens_per_second_per_gpu,
    "interactivity": lambda d: d.interactivity,
    "cost_per_million_tokens": lambda d: d.cost_per_million_tokens,
    "cost_per_hour": lambda d: d.price,
    "num_gpus": lambda d: d.num_gpus,
    "throughput": lambda d: d.output_tokens_per_second,
    "request_latency": lambda d: d.request_latency,
    "request_rate": lambda d: d.request_rate,
    "max_gpus": lambda d: d.num_gpus,
    "time_to_first_token": lambda d: d.time_to_first_token,
    "time_per_output_token": lambda d: d.time_per_output_token,
    "memory_headroom": lambda d: d.memory_headroom,
}
"""What of deployments can be optimized or limited, by the names of the table of terms."""

SERVING_OBJECTIVES = objectives_of("serve", SERVING_VALUES)
SERVING_LIMITS = limits_of("serve", SERVING_VALUES)
