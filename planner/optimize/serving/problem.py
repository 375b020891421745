"""A search for ways to serve: where from, what to optimize, what must hold."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.arrays import FloatArray
from planner.configurations.enumerate import OpenMesh
from planner.configurations.serving import ServingConfigurations
from planner.estimators.inference.estimate import SERVING_REJECTIONS
from planner.estimators.inference.setting import ServingSetting
from planner.optimize.constraints import Constraint
from planner.optimize.objectives import Objective

AGGREGATED, DISAGGREGATED = "aggregated", "disaggregated"
MODES = (AGGREGATED, DISAGGREGATED)


@dataclass(frozen=True, kw_only=True)
class Pool:
    """Workers of one kind: where they run, how they may be laid out, USD per GPU-second."""

    setting: ServingSetting
    mesh: OpenMesh[ServingConfigurations]
    price_per_gpu_second: float | None

    @property
    def gpu(self) -> str:
        """Name of the GPU."""
        return self.setting.machine.gpu.name

    @property
    def price(self) -> float:
        """USD per GPU-second, NaN where unknown."""
        return float("nan") if self.price_per_gpu_second is None else self.price_per_gpu_second


@dataclass(frozen=True, kw_only=True)
class Source:
    """One GPU and engine to search: replicas of ``pool``, or its workers beside ``prefill``.

    ``counts`` are the allowed numbers of GPUs; without them as many as ``request_rate`` needs.
    """

    mode: str
    pool: Pool
    prefill: Pool
    counts: tuple[int, ...]
    request_rate: float | None


@dataclass(frozen=True, kw_only=True)
class ServingProblem:
    """Everything the search needs; ``best_per_gpu`` keeps the best plan of each GPU alone."""

    sources: tuple[Source, ...]
    objectives: tuple[Objective, ...]
    constraints: tuple[Constraint, ...]
    best_per_gpu: bool = False

    @property
    def rejections(self) -> tuple[str, ...]:
        """Names of the rules, of running out of memory, and of the constraints."""
        return (*SERVING_REJECTIONS, *(constraint.name for constraint in self.constraints))

    @property
    def setting(self) -> ServingSetting:
        """The first source's setting; model and workload are the same in all."""
        return self.sources[0].pool.setting

    @property
    def num_rows(self) -> int:
        """Aggregated configurations of all sources."""
        return sum(s.pool.mesh.num_rows for s in self.sources if s.mode == AGGREGATED)


def rounded_up(needed: FloatArray) -> FloatArray:
    """Whole replicas for a load given in replicas; at least one."""
    return np.maximum(np.ceil(needed * (1 - 1e-12)), 1.0)
