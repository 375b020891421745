"""Intervals of predicted steps of reinforcement learning, from errors of published steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import NormalDist

from planner.base.records import record
from planner.confidence.evidence import Conditions, evidence_of
from planner.confidence.intervals import (
    LEVEL,
    MAX_TIE_FACTOR,
    MEASURED,
    Confidence,
    ErrorTables,
    interval_of,
)

RL_TABLES = ErrorTables(
    keys=("framework", "gpu_class", "kind"),
    intervals="rl_intervals.csv",
    fits="rl_fits.csv",
    widening="rl_widening.csv",
    evidence="rl_evidence.csv",
)
RL_WORK = "rl"
"""The work of the conditions of RL steps."""


@record(kw_only=True)
class RlRule:
    """A framework and its profile; ``nearest``: it is only the closest to the software."""

    label: str
    profile: str
    nearest: bool = False


_PRIOR_RUNS = 3
"""Number of the user's steps with as much weight as all published steps."""
_TAIL = NormalDist().inv_cdf((1 + LEVEL) / 2)


@record(kw_only=True)
class FittedSteps:
    """Steps on a GPU that a profile was fitted to, and the spread of those that were left out.

    ``error`` is the standard deviation of the logarithm of predicted over measured.
    """

    runs: int
    error: float

    def blend_with_published(self, ends: tuple[float, float]) -> tuple[float, float]:
        """Return the published interval, combined with the errors of fitted steps.

        Published errors and their center count as a few steps; the fit removed the center of these
        steps. Steps with larger errors than published ones make the interval wider.
        """
        low, high = map(math.log, ends)
        runs = _PRIOR_RUNS + self.runs
        published = (high - low) / 2 / _TAIL
        variance = (_PRIOR_RUNS * published**2 + self.runs * self.error**2) / runs
        reach = _TAIL * math.sqrt(variance)
        center = (low + high) / 2 * _PRIOR_RUNS / runs
        return math.exp(center - reach), math.exp(center + reach)


def least_certain(sides: Sequence[Confidence]) -> Confidence:
    """Return the widest interval of trainer and engine; no published step has two types of GPUs."""
    if len(sides) == 1:
        return sides[0]

    def width(confidence: Confidence) -> float:
        low, high = confidence.factors["step_time"]
        return high / low

    return replace(max(sides, key=width), runs=0, missing=("GPUs of two types",))


def rl_confidence(
    framework: str, gpu: str, gpu_class: str, kind: str, user_steps: FittedSteps | None = None
) -> Confidence:
    """Return factors on a predicted RL step, from published runs and the user's own steps.

    ``framework`` is the name of a profile, ``kind`` dense or moe.
    """
    rule = RlRule(label=framework, profile=framework.lower().replace(" ", "-"))
    conditions = Conditions(gpu_class=gpu_class, work=RL_WORK, layer_kinds=kind)
    evidence = evidence_of(rule, gpu, conditions, RL_TABLES)
    basis, runs = evidence.basis, evidence.runs
    ends = interval_of("step_time", (framework, gpu_class, kind), RL_TABLES, basis)
    if user_steps is not None:
        ends, runs = user_steps.blend_with_published(ends), runs + user_steps.runs
        basis = f"{MEASURED}, {user_steps.runs} of them your own"
    return Confidence(
        factors={"step_time": ends}, layout_tie_factor=MAX_TIE_FACTOR, basis=basis, runs=runs
    )
