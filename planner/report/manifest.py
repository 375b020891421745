"""What a result file says about how it came to be."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from planner.optimize.result import SearchResult
from planner.plan.pinned import asked_of
from planner.plan.plan import Plan
from planner.question.request import Request
from planner.report.brief import question_lines
from planner.version import __version__


def make_manifest(
    plan: Plan, result: SearchResult, command: Sequence[str], driver: Mapping[str, Any]
) -> dict[str, Any]:
    """Version, command, specs, defaults and counts; ``driver`` is how it was searched."""
    return {
        **plan_manifest(plan, command),
        **driver,
        "configurations_evaluated": result.configurations_evaluated,
        "configurations_predicted": result.configurations_predicted,
        "configurations_feasible": result.configurations_feasible,
        "rejected_by": dict(result.rejected_by),
        "search_time_s": result.search_time,
        "interrupted": result.interrupted,
    }


def question_manifest(request: Request, command: Sequence[str]) -> dict[str, Any]:
    """What a manifest says where several searches answer a request."""
    return {
        "version": __version__,
        "command": shlex.join(["planner", *command]),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "workload": request.workload,
        "model": request.model,
        "confidence": request.confidence,
        "constraints": dict(request.constraints),
    }


def plan_manifest(plan: Plan, command: Sequence[str]) -> dict[str, Any]:
    """What a manifest says about the question alone."""
    problem = plan.problem
    return {
        "version": __version__,
        "command": shlex.join(["planner", *command]),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "workload": plan.workload.name,
        "model": problem.setting.model.name,
        "question": question_lines(plan),
        "answers": asked_of(plan.request),
        "specs": dict(plan.digests),
        "defaults": dict(plan.defaults),
        "assumed": list(plan.assumed),
        "objectives": [objective.name for objective in problem.objectives],
        "confidence": plan.request.confidence,
        "constraints": {constraint.name: constraint.bound for constraint in problem.constraints},
    }
