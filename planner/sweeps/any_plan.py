"""The plan that a file or a folder of any kind holds."""

from __future__ import annotations

import os
from pathlib import Path

from planner.launch.own import MANIFEST, PLAN_FILE
from planner.launch.rows import plan_in
from planner.plan.pinned import PinnedPlan


def pinned_in(path: Path, row: int | None, specs: Path | None = None) -> PinnedPlan:
    """The plan of a file or of a launch, of a row of a result, or of a scenario of a sweep.

    Raises
    ------
    SpecError, LaunchError
        It cannot be read, holds no plan, or has no such row.
    """
    if os.path.isdir(path) and os.path.isfile(path / MANIFEST):
        return PinnedPlan.read(path / PLAN_FILE)
    if os.path.isdir(path):
        from planner.sweeps.pinned import pinned_scenario

        return pinned_scenario(path, row, specs)
    return plan_in(path, row)
