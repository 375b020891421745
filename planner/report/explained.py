"""From a request to the explanation of its one plan, and to a file of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from planner.errors import InfeasibleError
from planner.explaining.against import Seen
from planner.explaining.explanation import Explanation
from planner.plan.plan import evaluated, one_configuration, result_of
from planner.question.request import Request
from planner.report.documents import plan_manifest, write_document
from planner.report.explanation import against_lines
from planner.report.infeasible import infeasible_message


def explained_plan(
    request: Request, burst: int | None = None, against: Request | None = None
) -> Explanation:
    """The explanation of the one plan of a request, beside that of another request.

    Raises
    ------
    SpecError, SearchSpaceError
        Something is unknown, faulty or impossible, or there are several configurations.
    InfeasibleError
        The plan does not fit or breaks a rule; the other one may.
    """
    plan = one_configuration(request, burst)
    found = evaluated(plan, burst)
    if found.rejected_by:
        raise InfeasibleError(infeasible_message(plan, result_of(plan, found), found))
    other = None if against is None else seen_plan(against, burst)
    return Explanation(plan=plan, found=found, against=other, burst=burst)


def seen_plan(request: Request, burst: int | None = None, name: str = "") -> Seen:
    """The one plan of a request, predicted."""
    plan = one_configuration(request, burst)
    return Seen(plan=plan, found=evaluated(plan, burst), name=name)


def explanation_dict(explained: Explanation) -> dict[str, Any]:
    """The explanation as JSON takes it, the sentences about another plan among it."""
    found = Explanation.to_dict(explained)
    if explained.difference is not None:
        found["against"]["sentences"] = against_lines(explained.difference)
    return found


def write_explanation(path: Path | None, explained: Explanation, command: Sequence[str]) -> None:
    """One JSON object: the manifest and the explanation.

    Raises
    ------
    OutputError
        It cannot be written.
    """
    if path is not None:
        manifest = plan_manifest(explained.plan, command)
        write_document(path, manifest, **explanation_dict(explained))
