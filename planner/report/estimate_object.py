"""The JSON object that an estimate writes, whether into a file or as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from planner.optimize.constraints import limit_rows, with_rate
from planner.plan.plan import Plan
from planner.report.chosen import open_facts, sureness
from planner.report.details import details_of
from planner.report.manifest import plan_manifest
from planner.report.rows import RowFiles, result_blocks
from planner.workloads.base import Evaluation


def add_estimate(
    files: RowFiles, plan: Plan, found: Evaluation, command: Sequence[str], **more: Any
) -> None:
    """The row of one configuration, the time by operator, and what there is ``more``."""
    limits = with_rate(plan.problem.constraints, plan.request.lasting_rate)
    files.add(result_blocks(plan, found.table()))
    files.finish(
        plan_manifest(plan, command),
        operators=details_of(plan).operators(found),
        open_facts=open_facts(plan, found.candidates),
        sure=sureness(plan, found.candidates),
        limits=limit_rows(found.candidates, limits),
        **more,
    )
