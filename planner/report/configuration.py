"""One configuration in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from planner.configurations.serving import PREFILL
from planner.plan.plan import Plan
from planner.question.terms import glossary, terms_of
from planner.workloads.training_words import FOLLOWING

# The rank of the first parameter of training that few plans set; at its default it is not told.
_RARE = 29


def settings_text(plan: Plan, row: Mapping[str, Any]) -> str:
    """Where a row runs and the values of every parameter, in one paragraph."""
    parameters = terms_of(plan.workload.name, "parameter", "derived", "pool")
    names = dict.fromkeys(["mode", "gpu", plan.workload.profile_kind, *parameters])
    return "  ".join(
        f"{name}={str(row[name]).lower() if isinstance(row[name], bool) else row[name]}"
        for name in names
        if row.get(name) is not None and not _goes_without_saying(name, row[name])
    )


def _goes_without_saying(name: str, value: Any) -> bool:
    """Whether it follows from others, or is the default of an engine or of what few plans set."""
    if name.removeprefix(PREFILL) == "gpu_memory_utilization" and not value:
        return True
    term = glossary().get(name)
    is_rare = term is not None and bool(term.axis) and int(term.rank or 0) >= _RARE
    return value in FOLLOWING.get(name, ()) or (
        is_rare and term is not None and value == term.plain
    )
