"""One configuration in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from planner.plan import Plan
from planner.terms import terms_of

_FOLLOWS = ("pipeline_schedule",)


def settings_text(plan: Plan, row: Mapping[str, Any]) -> str:
    """Where a row runs and the values of every parameter, in one paragraph."""
    parameters = terms_of(plan.workload.name, "parameter", "derived", "pool")
    names = dict.fromkeys(["mode", "gpu", plan.workload.profile_kind, *parameters])
    return "  ".join(
        f"{name}={str(row[name]).lower() if isinstance(row[name], bool) else row[name]}"
        for name in names
        if row.get(name) is not None and name not in _FOLLOWS
    )
