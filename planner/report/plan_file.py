"""Plans as files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from planner.pinned import PinnedPlan
from planner.plan import Plan
from planner.report.files import written_whole
from planner.request import Request
from planner.serving_plan import ServingPlan


def save_plan(
    path: Path, request: Request, plan: Plan | ServingPlan, table: Mapping[str, Sequence[Any]]
) -> None:
    """Write the first row of result columns as a plan, JSON or else TOML.

    Raises
    ------
    SpecError
        The row has prefill workers of its own.
    OutputError
        It cannot be written.
    """
    row = {name: values[0] for name, values in table.items()}
    pinned = PinnedPlan.of(request, plan, row)
    with written_whole(path) as file:
        file.write(pinned.to_json() if path.suffix == ".json" else pinned.to_toml())
