"""How sure predictions are: intervals in words, and ties among plans."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from planner.base import text
from planner.confidence.intervals import Confidence
from planner.decide.open_facts import MovingFact, moving_facts, widened
from planner.optimize.collector import first_row
from planner.optimize.constraints import Constraint
from planner.optimize.result_columns import fit_probability, intervals
from planner.optimize.source import Candidates
from planner.plan.plan import Plan
from planner.report.told import limit_label

# What is told of one plan; other columns follow from these.
_TOLD = (
    "step_time_s",
    "time_to_train_days",
    "calendar_time_days",
    "time_to_first_token_s",
    "prefill_latency_s",
    "time_per_output_token_s",
    "decode_latency_s",
    "output_tokens_per_s",
    "peak_memory_gib",
)
_SAME_AS = {"calendar_time_days": "time_to_train_days"}
_BESIDE_CAPACITY = ("requests_per_s", "capacity_requests_per_s_per_gpu")
_MEMORY = "peak_memory_gib"
_UNITS = {"_per_s": "tokens/s", "_s": "s", "_gib": "GiB", "_days": "days"}


def sure_pairs(
    row: Mapping[str, Any],
    sure: Confidence,
    capacity: float,
    facts: Sequence[MovingFact] = (),
) -> dict[str, str]:
    """Where 90 % of published runs of this kind would be; the memory has ``capacity`` [GiB].

    What ``facts`` move has intervals that hold that.
    """
    ends = widened(intervals(row, sure), facts)
    pairs = {
        _label(name): _range(name, *ends[name])
        for name in _TOLD
        if name in ends and not says_nothing(name, row)
    }
    if ends.get(_MEMORY, (0.0, 0.0))[1] > capacity:
        del pairs[_label(_MEMORY)]
    if words := fits_words(row):
        pairs["memory"] = words
    pairs["meaning"] = f"9 of 10 published runs like this lie there; basis: {sure.basis}"
    return pairs


def told_ends(plan: Plan, candidates: Candidates) -> dict[str, tuple[float, float]]:
    """The ends of the first row's intervals by column as reports tell them, with open facts."""
    row = first_row(candidates.columns())
    sure = candidates.source.confidence(row["num_gpus"])
    return widened(intervals(row, sure), moving_facts(plan, candidates))


def says_nothing(column: str, row: Mapping[str, Any]) -> bool:
    """Whether a column equals the one that it goes beyond, so that nobody needs to see both.

    Beside the capacity neither the stated rate does, nor the same per GPU.
    """
    if column in _BESIDE_CAPACITY and "capacity_requests_per_s" in row:
        return True
    return column in _SAME_AS and row[column] == row.get(_SAME_AS[column])


def fits_words(row: Mapping[str, Any]) -> str:
    """``fits with 97 %``; empty where nothing tells.

    An interval that ends beyond the memory says nothing of a plan that was predicted to fit.
    """
    probability = fit_probability(row)
    return f"fits with {text.chance(probability)}" if math.isfinite(probability) else ""


def limits_line(
    candidates: Candidates, limits: Sequence[Constraint], *, as_assumed: bool = False
) -> str:
    """How surely the one candidate keeps each limit, in words; empty where nothing tells.

    ``as_assumed``: open facts are taken as they were assumed, which intervals are not.
    """
    words = []
    for limit in limits:
        kept = limit.chance(candidates)
        if math.isfinite(kept):
            bound = text.limit(limit.bound, limit.unit)
            words.append(f"{limit_label(limit.name)} {bound} with {text.chance(kept)}")
    said = "With what was assumed it meets" if as_assumed else "Meets"
    return f"{said} {', '.join(words)}." if words else ""


def ties(values: Sequence[float], sure: Confidence | None) -> list[bool]:
    """Which values published runs do not tell from the first."""
    factor = 1.0 if sure is None else sure.layout
    best = values[0]
    return [index > 0 and best / factor < v < best * factor for index, v in enumerate(values)]


def _unit(column: str) -> str:
    return next(unit for unit in _UNITS if column.endswith(unit))


def _label(column: str) -> str:
    return column.removesuffix(_unit(column)).replace("_", " ")


def _range(column: str, low: float, high: float) -> str:
    unit = _unit(column)
    if unit == "_per_s":
        return f"{text.significant(low)} to {text.significant(high)} tokens/s"
    if unit == "_gib":
        return f"{low:.1f} to {high:.1f} GiB"
    seconds = text.DAY if unit == "_days" else 1.0
    return f"{text.duration(low * seconds)} to {text.duration(high * seconds)}"
