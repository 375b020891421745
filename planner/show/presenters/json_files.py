"""JSON files of results: rows, plans and manifests."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from planner.base.atomic_write import write_atomically
from planner.base.read_files import JsonObject
from planner.base.version import __version__
from planner.decide.assumptions import sensitive_assumptions
from planner.optimize.problem import limit_rows, with_rate_limit
from planner.optimize.source import Candidates
from planner.question.request import Request
from planner.show.presenters.infeasible import question_lines
from planner.show.presenters.load_check import load_line
from planner.show.presenters.row_tables import Manifest, RowFiles, plain_value, result_blocks
from planner.show.presenters.workload_details import details_of
from planner.workloads.make_plan import Plan
from planner.workloads.saved_plan import SavedPlan, single_answers
from planner.workloads.workload import Evaluation


def command_manifest(command: Sequence[str]) -> dict[str, object]:
    """Return the manifest of a command: planner's version, command line and time."""
    return {
        "version": __version__,
        "command": shlex.join(["planner", *command]),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def document_text(manifest: Manifest, **parts: object) -> str:
    """The text of a JSON object with a manifest and further parts."""
    document = {"manifest": manifest, **parts}
    return json.dumps(document, indent=1, default=plain_value, allow_nan=False) + "\n"


def plan_facts(plan: Plan, candidates: Candidates) -> list[dict[str, object]]:
    """The assumptions that change the predictions of a plan."""
    return [fact.to_dict() for fact in sensitive_assumptions(plan, candidates)]


def plan_evidence(plan: Plan, candidates: Candidates) -> dict[str, object]:
    """Return the evidence of a plan's intervals, and the factor within which layouts tie.

    Empty without published runs.
    """
    confidence = candidates.source.confidence_of(candidates.row)
    if confidence is None:
        return {}
    factor = float(confidence.layout_tie_factor) if plan.problem.has_ties else 1.0
    missing = {"missing": list(confidence.missing)} if confidence.missing else {}
    return {"basis": confidence.basis, "tie_factor": factor, **missing}


def plan_limits(plan: Plan, candidates: Candidates) -> list[JsonObject]:
    """The limits of a question, and the probability that a plan keeps each."""
    constraints = with_rate_limit(plan.problem.constraints, plan.request.lasting_rate)
    return limit_rows(candidates, constraints)


def add_estimate(
    files: RowFiles, plan: Plan, evaluation: Evaluation, command: Sequence[str], **more: object
) -> None:
    """Write the row of one configuration, the time by operator, and further values ``more``."""
    files.add(result_blocks(plan, evaluation.table()))
    details = details_of(plan)
    if details.distributions is not None:
        more["latency_distribution"] = details.distributions(evaluation.candidates)
    files.finish(
        plan_manifest(plan, command),
        operators=details.operators(evaluation),
        open_facts=plan_facts(plan, evaluation.candidates),
        sure=plan_evidence(plan, evaluation.candidates),
        limits=plan_limits(plan, evaluation.candidates),
        load=load_line(plan, evaluation.candidates),
        **more,
    )


def save_plan(path: Path, plan: Plan, candidates: Candidates | None) -> None:
    """Write the first candidate to a plan file: JSON if the name ends in ``.json``, else TOML.

    Writes nothing if ``candidates`` is None.

    Raises OutputError if the file cannot be written.
    """
    if candidates is None:
        return
    saved_plan = SavedPlan.of(plan, candidates.row)
    with write_atomically(path) as file:
        file.write(saved_plan.to_json() if path.suffix == ".json" else saved_plan.to_toml())


def question_manifest(request: Request, command: Sequence[str]) -> dict[str, object]:
    """Return the manifest of a request that is answered by several searches."""
    return {
        **command_manifest(command),
        "workload": request.workload,
        "model": request.model,
        "answers": single_answers(request),
        "confidence": request.confidence,
        "constraints": dict(request.constraints),
    }


def plan_manifest(plan: Plan, command: Sequence[str]) -> dict[str, object]:
    """Return the manifest of a plan: its inputs, their defaults and assumptions."""
    problem = plan.problem
    return {
        **command_manifest(command),
        "workload": plan.workload.name,
        "model": problem.inputs.model.name,
        "question": question_lines(plan),
        "answers": single_answers(plan.request),
        "words": {name: dict(words) for name, words in plan.words.items()},
        "specs": dict(plan.digests),
        "defaults": dict(plan.defaults),
        "assumed": list(plan.assumed),
        "objectives": [objective.name for objective in problem.objectives],
        "confidence": plan.request.confidence,
        "constraints": {constraint.name: constraint.bound for constraint in problem.constraints},
    }
