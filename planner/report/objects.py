"""The JSON objects that commands write, whether into a file or as text for pages and others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from io import StringIO
from typing import Any

from planner.optimize.constraints import limit_rows, with_rate
from planner.optimize.result import SearchResult
from planner.plan import Plan
from planner.report.chosen import chosen_plans, open_facts, sureness
from planner.report.details import details_of
from planner.report.manifest import make_manifest, plan_manifest, question_manifest
from planner.report.rows import RowFiles, blocks, result_blocks
from planner.report.sizes import best_lines, note_lines, question_lines
from planner.sizing.size import Sizes
from planner.workloads.base import Evaluation


def finish_search(
    files: RowFiles,
    plan: Plan,
    result: SearchResult,
    command: Sequence[str],
    how: Mapping[str, Any],
    **more: Any,
) -> None:
    """What stands behind the rows of a search: the manifest and the chosen plans."""
    chosen = chosen_plans(plan, result) if files.has_object else {}
    files.finish(make_manifest(plan, result, command, how), **chosen, **more)


def add_estimate(
    files: RowFiles, plan: Plan, found: Evaluation, command: Sequence[str], **more: Any
) -> None:
    """The row of one configuration, the time by operator, and what there is ``more``."""
    limits = with_rate(plan.problem.constraints, plan.request.request_rate)
    files.add(result_blocks(plan, found.table()))
    files.finish(
        plan_manifest(plan, command),
        operators=details_of(plan).operators(found),
        open_facts=open_facts(plan, found.candidates),
        sure=sureness(plan, found.candidates),
        limits=limit_rows(found.candidates, limits),
        **more,
    )


def add_sizes(files: RowFiles, sizes: Sizes, command: Sequence[str]) -> None:
    """The rows of a size, of a day by hour, and what they say in words."""
    files.add(blocks(sizes.hours if sizes.load else sizes.table))
    files.finish(
        question_manifest(sizes.request, command),
        question=question_lines(sizes),
        answer=best_lines(sizes),
        notes=[*filter(None, note_lines(sizes))],
    )


def object_text(add: Callable[[RowFiles], None]) -> str:
    """The JSON object that ``add`` writes, as text."""
    stream = StringIO()
    add(RowFiles(None, stream, None))
    return stream.getvalue()
