"""How many examples property tests draw."""

from __future__ import annotations

import os

IS_THOROUGH = bool(os.environ.get("PLANNER_MANY_EXAMPLES"))


def examples(many: int, few: int) -> int:
    """``many`` where the environment asks for it, else ``few``."""
    return many if IS_THOROUGH else few
