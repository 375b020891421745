"""Files that planner wrote: what the plan beside them says of their GPUs."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from planner.base.reading import read_json
from planner.errors import PlannerError, SpecError
from planner.plan.pinned import PinnedPlan

PLAN_FILE = "plan.toml"
"""What the plan is called in the directory of a launch."""

MANIFEST = "launch.json"
"""What planner wrote into a directory, with digests."""


def told_by_plan(path: Path, wanted: Iterable[str]) -> tuple[dict[str, Any], list[str]]:
    """What the plan beside a file of planner says of what the file leaves open.

    Nothing where somebody else wrote the file: `planner.launch.save` keeps a list of its own.
    """
    plan = _plan_beside(path)
    if plan is None:
        return {}, []
    known = {**plan.answers, **plan.parameters}
    found = {name: known[name] for name in wanted if known.get(name)}
    words = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in found.items())
    return found, [f"As {PLAN_FILE} beside it says: {words}."] if found else []


def _plan_beside(path: Path) -> PinnedPlan | None:
    try:
        is_ours = path.name in written_files(path.parent)
        return PinnedPlan.read(path.parent / PLAN_FILE) if is_ours else None
    except PlannerError:
        return None


def written_files(folder: Path) -> dict[str, str]:
    """The digests of the files that planner wrote into a directory, by name; none if it did not."""
    try:
        table = read_json(folder / MANIFEST)
    except SpecError:
        return {}
    listed = table.get("files") if isinstance(table, dict) else None
    names = listed if isinstance(listed, dict) else {}
    return {name: digest for name, digest in names.items() if isinstance(digest, str)}
