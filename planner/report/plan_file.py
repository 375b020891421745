"""Plans as files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from planner.optimize.collector import first_row
from planner.pinned import PinnedPlan
from planner.plan import Plan
from planner.report.files import written_whole


def save_plan(path: Path, plan: Plan, table: Mapping[str, Sequence[Any]]) -> None:
    """Write the first row of result columns as a plan, JSON or else TOML.

    Raises
    ------
    OutputError
        It cannot be written.
    """
    pinned = PinnedPlan.of(plan, first_row(table))
    with written_whole(path) as file:
        file.write(pinned.to_json() if path.suffix == ".json" else pinned.to_toml())
