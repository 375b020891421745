"""The electric power of one plan by part, what it draws in all, and what that emits."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from planner.base.units import KILOWATT
from planner.estimators.power import PARTS
from planner.optimize.result_columns import intervals
from planner.report.parts import first
from planner.report.told import label, told

_NAMES = {"boards": "GPUs"}
_COLUMNS = (
    "energy_kwh",
    "energy_per_million_tokens_kwh",
    "carbon_kg",
    "carbon_per_million_tokens_kg",
)
_UNKNOWN = "unknown: the power of this GPU is not in its file"


def electricity_pairs(candidates: Any, row: Mapping[str, Any]) -> dict[str, str]:
    """Power by part, energy, and carbon where the region is known, of the first row."""
    if math.isnan(row["power_kw"]):
        return {"energy": _UNKNOWN}
    draws = candidates.draws
    ends = intervals(row, candidates.source.confidence(row["num_gpus"]))
    watts = {part: sum(first(getattr(draw, part)) for draw in draws) for part in PARTS}
    words = [
        f"{_NAMES.get(part, part)} {told('power_kw', value / KILOWATT)}"
        for part, value in watts.items()
        if value
    ]
    pue = draws[0].power_usage_effectiveness
    power = f"{told('power_kw', row['power_kw'])}: {', '.join(words)} (PUE {pue:g})"
    known = {name: row[name] for name in _COLUMNS if not math.isnan(row.get(name, math.nan))}
    return {
        "power": power,
        **{label(name): told(name, value, ends.get(name)) for name, value in known.items()},
    }


def told_columns(row: Mapping[str, Any]) -> tuple[str, ...]:
    """What a short answer says of electricity: of a known region energy and carbon."""
    known = any(math.isfinite(row.get(name, math.nan)) for name in _COLUMNS if "carbon" in name)
    return _COLUMNS if known else ()
