"""Files that planner wrote: what the plan beside them says of their GPUs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from planner.errors import PlannerError
from planner.pinned import PinnedPlan

PLAN_FILE = "plan.toml"
"""What the plan is called in the directory of a launch."""

MANIFEST = "launch.json"
"""What planner wrote into a directory, with digests."""
_OF_GPUS = ("gpu", "cluster")


def own_gpus(path: Path) -> tuple[dict[str, Any], list[str]]:
    """The GPU and cluster of the plan beside a file of planner, and what is said of it.

    Nothing where somebody else wrote the file: `planner.launch.save` keeps a list of its own.
    """
    try:
        listed = json.loads((path.parent / MANIFEST).read_text(encoding="utf-8"))["files"]
        if path.name not in listed:
            return {}, []
        answers = PinnedPlan.read(path.parent / PLAN_FILE).answers
    except (OSError, ValueError, KeyError, TypeError, PlannerError):
        return {}, []
    found = {name: answers[name] for name in _OF_GPUS if answers.get(name)}
    words = " and ".join(f"{name} {value}" for name, value in found.items())
    return found, [f"The {words} is that of {PLAN_FILE} beside it."] if found else []
