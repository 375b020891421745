"""The plan that a file or a folder of any kind holds."""

from __future__ import annotations

from pathlib import Path

from planner.launch.own import MANIFEST, PLAN_FILE
from planner.launch.rows import plan_in
from planner.pinned import PinnedPlan


def pinned_in(path: Path, row: int | None, specs: Path | None = None) -> PinnedPlan:
    """The plan of a file or of a launch, of a row of a result, or of a scenario of a sweep.

    Raises
    ------
    SpecError, LaunchError
        It cannot be read, holds no plan, or has no such row.
    """
    if is_folder(path) and (path / MANIFEST).is_file():
        return PinnedPlan.read(path / PLAN_FILE)
    if is_folder(path):
        from planner.sweeps.pinned import pinned_scenario

        return pinned_scenario(path, row, specs)
    return plan_in(path, row)


def is_folder(path: Path) -> bool:
    """Whether there is such a folder; a name that no file can have is none."""
    try:
        return path.is_dir()
    except OSError:
        return False
