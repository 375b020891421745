"""What a result file says about how it came to be."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from planner.optimize.result import SearchResult
from planner.optimize.serving.search import ServingResult
from planner.plan import Plan
from planner.serving_plan import ServingPlan
from planner.version import __version__


def make_manifest(
    plan: Plan | ServingPlan,
    result: SearchResult | ServingResult,
    command: Sequence[str],
    driver: Mapping[str, Any],
) -> dict[str, Any]:
    """Version, command, specs, defaults and counts; ``driver`` is how it was searched."""
    problem = plan.problem
    interrupted = isinstance(result, SearchResult) and result.interrupted
    return {
        **plan_manifest(plan, command),
        "objectives": [objective.name for objective in problem.objectives],
        "constraints": {constraint.name: constraint.bound for constraint in problem.constraints},
        **driver,
        "configurations_evaluated": result.configurations_evaluated,
        **_predicted(result),
        "configurations_feasible": result.configurations_feasible,
        "rejected_by": dict(result.rejected_by),
        "search_time_s": result.search_time,
        "interrupted": interrupted,
    }


def _predicted(result: SearchResult | ServingResult) -> dict[str, int]:
    """What reached the estimator of training; serving does not count it."""
    if not isinstance(result, SearchResult):
        return {}
    return {"configurations_predicted": result.configurations_predicted}


def plan_manifest(plan: Plan | ServingPlan, command: Sequence[str]) -> dict[str, Any]:
    """What a manifest says about the question alone."""
    return {
        "version": __version__,
        "command": shlex.join(["planner", *command]),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "model": plan.problem.setting.model.name,
        "specs": dict(plan.digests),
        "defaults": dict(plan.defaults),
        "assumed": list(plan.assumed),
    }
