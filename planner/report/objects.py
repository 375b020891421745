"""The JSON object that a search writes, and any such object as text for pages and others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from io import StringIO
from typing import Any

from planner.optimize.result import SearchResult
from planner.plan.plan import Plan
from planner.report.chosen import chosen_plans
from planner.report.manifest import make_manifest
from planner.report.rows import RowFiles


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


def object_text(add: Callable[[RowFiles], None]) -> str:
    """The JSON object that ``add`` writes, as text."""
    stream = StringIO()
    add(RowFiles(None, stream, None))
    return stream.getvalue()
