"""What a search returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from planner.configurations.training import TrainingConfigurations
from planner.estimators.estimate import Estimate
from planner.optimize.columns import columns
from planner.optimize.problem import Problem
from planner.optimize.violations import limited

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, kw_only=True)
class NearestMiss:
    """The configuration that comes closest to keeping the limit that rejected it.

    ``value`` and ``bound`` are in SI units; ``excess`` is their relative distance.
    """

    rejection: str
    configuration: TrainingConfigurations
    value: float
    bound: float

    @property
    def excess(self) -> float:
        """How far beyond the bound, as a fraction of it."""
        return abs(self.value - self.bound) / max(abs(self.bound), 1e-300)

    @classmethod
    def among(cls, problem: Problem, number: int, estimate: Estimate, rows: Any) -> NearestMiss:
        """The nearest of the rows (flat indices) that rejection ``number`` rejected."""
        value, sign, bound = limited(problem, number, estimate)
        flat = np.broadcast_to(value, estimate.configurations.shape).ravel()[rows]
        nearest = int(np.nanargmin(sign * flat)) if not np.isnan(flat).all() else 0
        return cls(
            rejection=problem.rejections[number - 1],
            configuration=estimate.configurations.rows(np.asarray(rows)[[nearest]]),
            value=float(flat[nearest]),
            bound=bound,
        )


@dataclass(frozen=True, kw_only=True)
class SearchResult:
    """The Pareto front, best first objective first, and what became of all the others.

    ``estimate`` is a flat table of the front, None if nothing is feasible. Of the
    ``configurations_evaluated``, ``configurations_predicted`` break no rule: their memory and
    time are what had to be predicted; ``search_time`` is in seconds. ``interrupted``: not all
    configurations were searched.
    """

    problem: Problem
    estimate: Estimate | None
    configurations_evaluated: int
    configurations_predicted: int
    configurations_feasible: int
    rejected_by: Mapping[str, int]
    nearest_misses: tuple[NearestMiss, ...]
    search_time: float
    interrupted: bool = False

    def to_frame(self) -> pd.DataFrame:
        """The front as a pandas frame, one row per configuration, units in the names."""
        import pandas as pd

        if self.estimate is None:
            return pd.DataFrame()
        return pd.DataFrame(columns(self.estimate, self.problem.price_per_gpu_second))
