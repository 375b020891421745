"""How sure predictions of serving are: intervals beside the results, and ties among plans."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from planner.optimize.serving.problem import DISAGGREGATED, Source
from planner.report import text
from planner.validation.confidence import ServingConfidence, serving_confidence
from planner.validation.inference.cases import Mode

# Columns by the quantity whose published errors they share.
_COLUMNS = {
    "time_to_first_token": ("time_to_first_token_s", "prefill_latency_s"),
    "time_per_output_token": ("time_per_output_token_s", "decode_latency_s"),
    "throughput": ("output_tokens_per_s",),
    "peak_memory": ("peak_memory_gib",),
}
_UNITS = ("_s", "_gib")


def confidence_in(source: Source, static: bool = False) -> ServingConfidence | None:
    """The confidence in results of a source; None where they are bounds, not predictions."""
    machine = source.pool.setting.machine
    if machine.ideal or machine.memory_efficiency is not None:
        return None
    mode = Mode.DISAGGREGATED if source.mode == DISAGGREGATED else Mode.ONLINE
    return serving_confidence(source.pool.setting, Mode.STATIC if static else mode)


def with_intervals(
    table: Mapping[str, Sequence[Any]], sources: Iterable[Source], static: bool = False
) -> dict[str, list[Any]]:
    """The columns of results and, behind them, the ends of their 90 % intervals."""
    known = {
        (source.mode, source.pool.gpu, source.pool.setting.engine.name): confidence_in(
            source, static
        )
        for source in sources
    }
    rows = len(next(iter(table.values()), []))
    modes = table.get("mode", [next(iter(known))[0]] * rows)
    sure = [known.get(key) for key in zip(modes, table["gpu"], table["engine"], strict=True)]
    found = {name: list(values) for name, values in table.items()}
    if not any(sure):
        return found
    for quantity, columns in _COLUMNS.items():
        ends = [getattr(one, quantity) if one else (None, None) for one in sure]
        for column in columns:
            for side, name in enumerate(("low", "high")):
                if column in table:
                    found[_end(column, name)] = [
                        None if end[side] is None or value is None else value * end[side]
                        for value, end in zip(table[column], ends, strict=True)
                    ]
    return found


def sure_pairs(row: Mapping[str, Any], sure: ServingConfidence) -> dict[str, str]:
    """Where 90 % of published runs of this kind would be."""
    pairs = {}
    for quantity, columns in _COLUMNS.items():
        for column in (name for name in columns if name in row):
            low, high = (row[column] * factor for factor in getattr(sure, quantity))
            label = column.removesuffix("_s").removesuffix("_gib").replace("_", " ")
            pairs[label.removesuffix(" per")] = _range(column, low, high)
    pairs["meaning"] = f"9 of 10 published runs like this lie there; basis: {sure.basis}"
    return pairs


def ties(values: Sequence[float], sure: ServingConfidence | None) -> list[bool]:
    """Which values published runs do not tell from the first."""
    factor = 1.0 if sure is None else sure.layout
    best = values[0]
    return [index > 0 and best / factor < v < best * factor for index, v in enumerate(values)]


def _end(column: str, name: str) -> str:
    unit = next(unit for unit in _UNITS if column.endswith(unit))
    if column.endswith("_per_s"):
        return f"{column}_{name}"
    return f"{column.removesuffix(unit)}_{name}{unit}"


def _range(column: str, low: float, high: float) -> str:
    if column.endswith("_per_s"):
        return f"{text.significant(low)} to {text.significant(high)} tokens/s"
    if column.endswith("_s"):
        return f"{text.duration(low)} to {text.duration(high)}"
    return f"{low:.1f} to {high:.1f} GiB"
