"""How sure predictions are: intervals beside the results, and ties among plans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from planner import text
from planner.confidence.intervals import Confidence
from planner.optimize.source import Columns, Source

# Columns by the quantity whose published errors they share.
_COLUMNS = {
    "step_time": ("step_time_s", "time_to_train_days"),
    "time_to_first_token": ("time_to_first_token_s", "prefill_latency_s"),
    "time_per_output_token": ("time_per_output_token_s", "decode_latency_s"),
    "throughput": ("output_tokens_per_s",),
    "peak_memory": ("peak_memory_gib",),
}
_UNKNOWN = (np.nan, np.nan)
_TOLD_ALONE = ("time_to_train_days",)
_UNITS = {"_per_s": "tokens/s", "_s": "s", "_gib": "GiB", "_days": "days"}


def with_intervals(table: Mapping[str, Any], sources: Sequence[Source]) -> Columns:
    """The columns of results and, behind them, the ends of their 90 % intervals."""
    sure, which = _of_rows(table, sources)
    found = dict(table)
    if not any(sure):
        return found
    for quantity, columns in _COLUMNS.items():
        known = [one.factors.get(quantity, _UNKNOWN) if one else _UNKNOWN for one in sure]
        ends = np.array(known)[which]
        for column in columns:
            if column in table and column not in _TOLD_ALONE:
                values = np.asarray(table[column], dtype=np.float64)
                for side, name in enumerate(("low", "high")):
                    found[_end(column, name)] = values * ends[:, side]
    return found


def _of_rows(
    table: Mapping[str, Any], sources: Sequence[Source]
) -> tuple[list[Confidence | None], Any]:
    """The distinct confidences, and which of them each row has."""
    counts, of_count = np.unique(np.asarray(table["num_gpus"]), return_inverse=True)
    if len(sources) == 1:
        return [sources[0].confidence(count) for count in counts], of_count
    places = {tuple(source.named.values()): place for place, source in enumerate(sources)}
    keys = zip(*(table[name] for name in sources[0].named), strict=True)
    pairs = np.fromiter((places[key] for key in keys), dtype=np.intp, count=len(of_count))
    distinct, which = np.unique(pairs * len(counts) + of_count, return_inverse=True)
    sure = [sources[one // len(counts)].confidence(counts[one % len(counts)]) for one in distinct]
    return sure, which


def sure_pairs(row: Mapping[str, Any], sure: Confidence) -> dict[str, str]:
    """Where 90 % of published runs of this kind would be."""
    pairs = {}
    for quantity, columns in _COLUMNS.items():
        for column in (name for name in columns if name in row and quantity in sure.factors):
            low, high = (row[column] * factor for factor in sure.factors[quantity])
            pairs[_label(column)] = _range(column, low, high)
    pairs["meaning"] = f"9 of 10 published runs like this lie there; basis: {sure.basis}"
    return pairs


def ties(values: Sequence[float], sure: Confidence | None) -> list[bool]:
    """Which values published runs do not tell from the first."""
    factor = 1.0 if sure is None else sure.layout
    best = values[0]
    return [index > 0 and best / factor < v < best * factor for index, v in enumerate(values)]


def _unit(column: str) -> str:
    return next(unit for unit in _UNITS if column.endswith(unit))


def _label(column: str) -> str:
    return column.removesuffix(_unit(column)).replace("_", " ")


def _end(column: str, name: str) -> str:
    unit = _unit(column)
    if unit == "_per_s":
        return f"{column}_{name}"
    return f"{column.removesuffix(unit)}_{name}{unit}"


def _range(column: str, low: float, high: float) -> str:
    unit = _unit(column)
    if unit == "_per_s":
        return f"{text.significant(low)} to {text.significant(high)} tokens/s"
    if unit == "_gib":
        return f"{low:.1f} to {high:.1f} GiB"
    seconds = text.DAY if unit == "_days" else 1.0
    return f"{text.duration(low * seconds)} to {text.duration(high * seconds)}"
