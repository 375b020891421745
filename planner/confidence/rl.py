"""How sure predicted steps of reinforcement learning are: the errors of published ones."""

from __future__ import annotations

import math
from statistics import NormalDist

from planner.base.records import record
from planner.confidence.intervals import (
    LEVEL,
    MEASURED,
    Confidence,
    ErrorTables,
    basis_of,
    interval_of,
    runs_at,
)

RL_TABLES = ErrorTables(
    keys=("framework", "gpu_class", "kind"),
    intervals="rl_intervals.csv",
    calibrated="rl_calibrated.csv",
    fits="rl_fits.csv",
    widening="rl_widening.csv",
    places="rl_places.csv",
)
_LAYOUT = 1.3
"""Steps closer than this factor are a tie: published ones tell splits and placements no finer."""
_WORK = "rl"


@record(kw_only=True)
class RlRule:
    """A framework and its profile; ``nearest``: it is only the closest to the software."""

    label: str
    profile: str
    nearest: bool = False


_PRIOR_RUNS = 3
"""Steps of a user that tell as much of the next one of his as all that are published."""
_TAIL = NormalDist().inv_cdf((1 + LEVEL) / 2)


@record(kw_only=True)
class FittedSteps:
    """Steps on a GPU that a profile was fitted to, and the spread of those that were left out.

    ``error`` is the standard deviation of the logarithm of predicted over measured.
    """

    runs: int
    error: float

    def narrowed(self, ends: tuple[float, float]) -> tuple[float, float]:
        """The ends of an interval of published errors, which count as a few steps beside these.

        So does their center, which the fit took away. Steps that are predicted worse than published
        ones make an interval wider.
        """
        low, high = map(math.log, ends)
        runs = _PRIOR_RUNS + self.runs
        published = (high - low) / 2 / _TAIL
        variance = (_PRIOR_RUNS * published**2 + self.runs * self.error**2) / runs
        reach = _TAIL * math.sqrt(variance)
        center = (low + high) / 2 * _PRIOR_RUNS / runs
        return math.exp(center - reach), math.exp(center + reach)


def rl_confidence(
    framework: str, gpu: str, gpu_class: str, kind: str, own: FittedSteps | None = None
) -> Confidence:
    """Factors on a predicted step, by how near the published steps are, and those of a user.

    ``framework`` is the name of a profile, ``kind`` dense or moe.
    """
    rule = RlRule(label=framework, profile=framework.lower().replace(" ", "-"))
    basis = basis_of(rule, gpu_class, kind, RL_TABLES)
    keys = framework, gpu_class, kind
    ends = interval_of("step_time", keys, RL_TABLES, basis, rule.profile)
    runs = runs_at(rule, gpu, RL_TABLES, _WORK)
    if own is not None:
        ends, runs = own.narrowed(ends), runs + own.runs
        basis = f"{MEASURED}, {own.runs} of them your own"
    return Confidence(factors={"step_time": ends}, layout=_LAYOUT, basis=basis, runs=runs)
