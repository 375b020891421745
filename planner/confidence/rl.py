"""How sure predicted steps of reinforcement learning are: the errors of published ones."""

from __future__ import annotations

from planner.base.records import record
from planner.confidence.intervals import Confidence, Tables, basis_of, interval_of, runs_at

RL_TABLES = Tables(
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


def rl_confidence(framework: str, gpu: str, gpu_class: str, kind: str) -> Confidence:
    """Factors on a predicted step, by how near the published steps are.

    ``framework`` is the name of a profile, ``kind`` dense or moe.
    """
    rule = RlRule(label=framework, profile=framework.lower().replace(" ", "-"))
    basis = basis_of(rule, gpu_class, kind, RL_TABLES)
    keys = framework, gpu_class, kind
    ends = interval_of("step_time", keys, RL_TABLES, basis, rule.profile)
    return Confidence(
        factors={"step_time": ends},
        layout=_LAYOUT,
        basis=basis,
        runs=runs_at(rule, gpu, RL_TABLES, _WORK),
    )
