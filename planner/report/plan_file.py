"""Plans as files."""

from __future__ import annotations

from pathlib import Path

from planner.base.files import written_whole
from planner.optimize.result import row_of
from planner.optimize.source import Candidates
from planner.plan.pinned import PinnedPlan
from planner.plan.plan import Plan


def save_plan(path: Path, plan: Plan, candidates: Candidates | None) -> None:
    """Write the first of these as a plan, JSON or else TOML.

    Raises
    ------
    OutputError
        It cannot be written.
    """
    if candidates is None:
        return
    pinned = PinnedPlan.of(plan, row_of(candidates))
    with written_whole(path) as file:
        file.write(pinned.to_json() if path.suffix == ".json" else pinned.to_toml())
