"""From a user's launch file to what it means."""

from __future__ import annotations

from pathlib import Path

from planner.errors import LaunchError
from planner.launch.imported import Imported


def read_launch(path: Path, number: int | None = None, specs: Path | None = None) -> Imported:
    """The launch in a file; of several the one of this ``number``, counted from 1.

    Raises
    ------
    LaunchError
        It cannot be read, starts nothing that planner knows, or several things.
    """
    raise LaunchError(f"{path}: cannot be read yet.")
