"""Results as text: with their interval, or part by part."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from planner.base.csv_cells import Row
from planner.base.formatting import (
    format_count,
    format_duration,
    format_parameter,
    format_significant,
)
from planner.base.units import DAY, GIB, HOUR, KILOWATT
from planner.configurations.configuration_tables import IMPLIED_BY_OTHERS, PREFILL
from planner.estimators.machine import Machine
from planner.estimators.power_draw import PARTS
from planner.optimize.result_columns import ends_of, intervals
from planner.question.terms import Term, glossary, term_of_column, terms_about, terms_of
from planner.show.output_blocks import TOTAL, Cell, Table, text_table
from planner.workloads.make_plan import Plan
from planner.workloads.registry import workload_of
from planner.workloads.workload import Workload

SHORT_WORDS = {"aggregated": "agg", "disaggregated": "disagg"}
_HARDWARE_COLUMNS = *terms_about("system"), "contract"
# Rank of the first rarely set training parameter; defaults from this rank on are not shown.
_RARE = 29


def short_plan(plan: Plan, row: Row) -> str:
    """Return a row's plan as a short text with its value on every searched axis."""
    return short_plan_of(plan.workload, plan.problem.axes, row)


def short_plan_of(workload: Workload, axes: Collection[str], row: Row) -> str:
    """Return a row's plan as a short text with its hardware and software on ``axes``."""
    wording = workload.wording
    return ", ".join([*_where(axes, row), (wording.format_brief or wording.format_short)(row)])


def shortest_plan(workload: Workload, axes: Collection[str], row: Row, without: str) -> str:
    """Return a row's layout and its GPU values on the searched ``axes`` except ``without``."""
    wording = workload.wording
    layout = wording.layout or wording.format_brief or wording.format_short
    where = _where([name for name in axes if name != without], row)
    return ", ".join([*(SHORT_WORDS.get(word, word) for word in where), layout(row)])


def _where(axes: Collection[str], row: Row) -> list[str]:
    """Return texts of a row's hardware, limited to the columns in ``axes``."""
    where = [format_parameter(row[name]) for name in axes if name in _HARDWARE_COLUMNS]
    if "num_gpus" not in axes:
        return where
    count = number_of(row, "num_gpus")
    return [*where, f"{count:,.0f} GPU{'s' * (count > 1)}"]


def degrees(row: Row, names: Sequence[str]) -> str:
    """``tp4 pp4 vp20 dp128``: the degrees above 1."""
    terms = glossary()
    texts = [f"{terms[name].short}{row[name]}" for name in names if number_of(row, name) > 1]
    return " ".join(texts) or "one GPU"


def share(loss: float) -> str:
    """A relative loss or gain in percent, as text."""
    return f"{100 * loss:.1f} %" if loss < 0.1 else f"{100 * loss:,.0f} %"


def layout_of(workload: Workload, row: Row) -> str:
    """Return a row's degrees of parallelism, abbreviated as in ``tp8 pp2``."""
    wording = workload.wording
    if wording.layout is not None:
        return wording.layout(row)
    return degrees(row, wording.degrees)


def plan_of(workload: Workload, row: Row) -> str:
    """Return a row's framework or engine and its layout as text."""
    wording = workload.wording
    software = [row.get(name) for name in ("mode", *terms_about("software"))]
    texts = [str(text) for text in software if text]
    return ", ".join([*texts, (wording.format_brief or wording.format_short)(row)])


def settings_text(plan: Plan, row: Row) -> str:
    """Return the hardware and the value of every parameter of a row as one paragraph."""
    return row_settings_text(plan.workload, row)


def row_settings_text(workload: Workload, row: Row) -> str:
    """Return the hardware and the value of every parameter of a workload's row."""
    parameters = terms_of(workload.name, "parameter", "derived", "pool")
    names = dict.fromkeys(["mode", "gpu", workload.profile_kind, *parameters])
    return "  ".join(
        f"{name}={str(row[name]).lower() if isinstance(row[name], bool) else row[name]}"
        for name in names
        if row.get(name) is not None and not _is_implied(name, row[name])
    )


def _is_implied(name: str, value: object) -> bool:
    """Whether a setting need not be shown: it follows from others or is a usual default."""
    if name.removeprefix(PREFILL) == "gpu_memory_utilization" and not value:
        return True
    term = glossary().get(name)
    is_rare = term is not None and bool(term.axis) and int(term.rank or 0) >= _RARE
    return value in IMPLIED_BY_OTHERS.get(name, ()) or (
        is_rare and term is not None and value == term.default_value
    )


Ends = tuple[float, float]

_KINDS = {"input": "in", "cached_input": "cached", "output": "out"}

_ORIGIN = re.compile(r" \((?:[^()]|\([^()]*\))*\)$")
_UNITS = {"s", "ms", "GiB", "days", "USD", "kWh", "kW", "kg"}
_TIMES = ((1.0, 1e-3, "ms"), (600.0, 1.0, "s"), (2 * HOUR, 60.0, "min"), (2 * DAY, HOUR, "h"))
_ENERGY = ((1.0, 1e-3, ""), (1e4, 1.0, "k"), (1e7, 1e3, "M"))
_MASS = ((1.0, 1e-3, "g CO2e"), (1e4, 1.0, "kg CO2e"))
_MONEY = ((1e4, 1.0, "USD"), (1e6, 1e3, "k USD"), (1e9, 1e6, "M USD"))


def without_origin(text: str) -> str:
    """Return a setting's value without the note in parentheses on where it comes from.

    >>> without_origin("1,024 (default)")
    '1,024'
    """
    return _ORIGIN.sub("", text)


def label(column: str) -> str:
    """Return the name of a result column without its unit.

    >>> label("step_time_s"), label("tokens_per_s_per_gpu"), label("cost_usd")
    ('step time', 'tokens/s/GPU', 'cost')
    """
    term = term_of_column(column)
    if term is None:
        return column.replace("_", " ")
    return _without_units(term)


def description_of(column: str) -> str:
    """The description of a column in the table of terms; "" if it is no term."""
    term = term_of_column(column)
    return "" if term is None else term.description


def limit_label(name: str) -> str:
    """The head of a limit's column without its unit."""
    term = glossary().get(name)
    return name.replace("_", " ") if term is None else _without_units(term)


def _without_units(term: Term) -> str:
    header = term.column_header.replace("- ", "-").replace(" /", "/").replace(" per s", "/s")
    parts = header.split()
    remaining = [part for part in parts if part not in _UNITS]
    return " ".join(remaining) or term.column_header


def ends_in(column: str, row: Row) -> Ends | None:
    """Return the 90 % interval of a column in a row; None if the row has none."""
    low, high = ends_of(column)
    if row.get(low) is None or row.get(high) is None:
        return None
    return number_of(row, low), number_of(row, high)


def format_result(column: str, value: object, ends: Ends | None = None) -> str:
    """Return a value of a column as text with its unit and, in brackets, its interval."""
    if not isinstance(value, float | int) or isinstance(value, bool):
        return format_parameter(value)
    if isinstance(value, int):
        return format_count(value)
    if math.isinf(value) and column.endswith("_s"):
        return format_duration(value)
    if not math.isfinite(value):
        return "unknown: give --price" if column.endswith("_usd") else "-"
    scale, unit = _scale(column, value)
    number = _number(column)
    text = f"{number(value / scale)}{unit}"
    if ends is None or not all(map(math.isfinite, ends)):
        return text
    return f"{text} ({number(ends[0] / scale)} to {number(ends[1] / scale)})"


def number_of(row: Row, column: str) -> float:
    """A number of a row; NaN if it is unknown or missing."""
    value = row.get(column)
    return float(value) if isinstance(value, Real) else math.nan


def number_cell(
    value: float,
    format_number: Callable[[float], str] = format_count,
    unknown: str = "-",
) -> Cell:
    """Return the cell of a number, with the number to sort by; ``unknown`` if it is not finite."""
    if not math.isfinite(value):
        return Cell(text=unknown)
    return Cell(text=format_number(value), number=value)


def workload_of_row(row: Row) -> Workload:
    """Return the workload of a result row."""
    if "rollout_gpus" in row:
        return workload_of("rl")
    return workload_of("train" if row.get("framework") else "serve")


def number_cells(
    rows: Sequence[Row],
    column: str,
    format_number: Callable[[float], str] = format_count,
    unknown: str = "-",
    divisor: float = 1.0,
) -> list[Cell]:
    """Return the cells of a column of numbers of rows, each divided by ``divisor``."""
    return [number_cell(number_of(row, column) / divisor, format_number, unknown) for row in rows]


def result_cell(column: str, row: Row, text: str) -> Cell:
    """Return a table cell with a text, the row's number to sort by, and its interval."""
    value, ends = number_of(row, column), ends_in(column, row)
    if not math.isfinite(value):
        return Cell(text=text)
    if ends is None or not all(map(math.isfinite, ends)):
        return Cell(text=text, number=value)
    scale, number = _scale(column, value)[0], _number(column)
    interval_text = f"{number(ends[0] / scale)} to {number(ends[1] / scale)}"
    return Cell(text=text, more=interval_text, number=value, ends=ends)


def format_in_common_unit(column: str, values: Sequence[float]) -> tuple[list[str], str]:
    """Return the values of a column as texts in one unit, chosen by their median; and the unit.

    >>> format_in_common_unit("cost_usd", [2.5e6, 4e5])
    (['2,500', '400'], 'k USD')
    """
    scale, unit = common_scale(column, values)
    return [format_scaled(column, scale, value) for value in values], unit


def common_scale(column: str, values: Sequence[float]) -> tuple[float, str]:
    """The divisor of a column's values in the unit of their median, and the unit."""
    finite = sorted(value for value in values if math.isfinite(value)) or [0.0]
    scale, unit = _scale(column, finite[(len(finite) - 1) // 2])
    return scale, unit.strip()


def format_scaled(column: str, scale: float, value: float) -> str:
    """A value of a column divided by ``scale``, as text; ``-`` if it is unknown."""
    return _number(column)(value / scale) if math.isfinite(value) else "-"


def token_costs(costs: Mapping[str, float]) -> str:
    """Return the USD per million tokens of each kind (input, cached, output) as text.

    >>> token_costs({"input": 0.1943, "cached_input": 0.0045, "output": 1.4387})
    '0.19 in, 0.0045 cached, 1.44 out'
    """
    return ", ".join(
        f"{cost:.2g} {_KINDS[kind]}" if cost < 1 else f"{format_significant(cost)} {_KINDS[kind]}"
        for kind, cost in costs.items()
        if math.isfinite(cost)
    )


def token_costs_of(row: Row) -> dict[str, float]:
    """USD per million tokens of each kind in a row; NaN if the row has no cost of the kind."""
    return {kind: number_of(row, f"cost_per_million_{kind}_tokens_usd") for kind in _KINDS}


def _number(column: str) -> Callable[[float], str]:
    """Return the function that formats the numbers of a column."""
    if column.endswith(("_gib", "_utilization")):
        return lambda number: f"{number:,.1f}"
    if column.endswith("_usd"):
        return lambda usd: f"{usd:.2g}" if 0 < usd < 0.01 else format_significant(usd)
    return format_significant


def _scale(column: str, value: float) -> tuple[float, str]:
    """Return the divisor that brings a value into its unit, and the unit after a space."""
    if column.endswith("_utilization"):
        return 0.01, " %"
    if column.endswith("_gib"):
        return 1.0, " GiB"
    if column.endswith("_days"):
        divisor, unit = _pick_unit(_TIMES, value * DAY, (DAY, "days"))
        return divisor / DAY, f" {unit}"
    if column.endswith("_usd"):
        divisor, unit = _pick_unit(_MONEY, value, (1e9, "billion USD"))
        return divisor, "" if label(column).startswith("USD") else f" {unit}"
    if column.endswith("_kg"):
        divisor, unit = _pick_unit(_MASS, value, (1e3, "t CO2e"))
        return divisor, f" {unit}"
    if column.endswith(("_kw", "_kwh")):
        divisor, unit = _pick_unit(_ENERGY, value, (1e6, "G"))
        return divisor, f" {unit}{'Wh' if column.endswith('h') else 'W'}"
    if column.endswith("_s") and not column.endswith("_per_s"):
        divisor, unit = _pick_unit(_TIMES, value, (DAY, "days"))
        return divisor, f" {unit}"
    return 1.0, ""


def _pick_unit(
    scales: tuple[tuple[float, float, str], ...], value: float, largest: tuple[float, str]
) -> tuple[float, str]:
    matching = ((divisor, unit) for limit, divisor, unit in scales if value < limit)
    return next(matching, largest)


_PREFIX, _UNIT = "memory_", "_gib"
_NAMES = {"boards": "GPUs"}
_COLUMNS = (
    "energy_kwh",
    "energy_per_million_tokens_kwh",
    "carbon_kg",
    "carbon_per_million_tokens_kg",
)
_UNKNOWN = "unknown: the power of this GPU is not in its file"


def memory_table(row: Row, machine: Machine) -> Table:
    """Return a table of the memory parts of the fullest GPU in GiB and as shares."""
    capacity = machine.gpu.allocatable_memory / GIB
    peak, host_memory = number_of(row, "peak_memory_gib"), number_of(row, "host_memory_gib")
    extra_rows = [("capacity", f"{capacity:,.2f}", "100.0")]
    if host_memory:
        share = 100 * host_memory * GIB / host_room(row, machine)
        extra_rows.append(
            ("in host memory", f"{host_memory:,.2f}", f"{share:.1f}" if share else "")
        )
    if (paged := number_of(row, "paged_states_gib")) > 0:
        extra_rows.append(("paged states", f"{paged:,.2f}", ""))
    return parts_table(
        "GiB", memory_parts(row), "peak", peak, capacity, extra_rows=extra_rows, digits=2
    )


def host_room(row: Row, machine: Machine) -> float:
    """Host memory per GPU in bytes; a serving replica has the share of a full node."""
    if "micro_batch_size" not in row:
        return machine.host_memory
    return float(machine.host_room(number_of(row, "num_gpus")))


def format_host_memory(row: Row, machine: Machine) -> str:
    """Return the host memory [GiB] per node that training needs and has; "" if none."""
    if "micro_batch_size" not in row or not row["host_memory_gib"]:
        return ""
    in_node = min(number_of(row, "num_gpus"), machine.cluster.gpus_per_node)
    needed = number_of(row, "host_memory_gib") * in_node
    capacity = host_room(row, machine) * in_node / GIB
    if not np.isfinite(capacity):
        return f"{needed:,.1f} GiB of a node; give --host-memory to judge it"
    is_specified = machine.cluster.host_memory is not None
    return f"{needed:,.1f} of {capacity:,.0f} GiB of a node" + (
        "" if is_specified else ASSUMED_HOST
    )


def format_paged_states(row: Row) -> str:
    """Return the GiB of optimizer states that are paged to the host per step; "" if none."""
    paged = row.get("paged_states_gib") or 0.0
    if not paged:
        return ""
    return f"{paged:,.1f} GiB of optimizer states, to the host and back in every step"


ASSUMED_HOST = ", which is assumed: give --host-memory"


def memory_parts(row: Row) -> dict[str, float]:
    """Return the GiB of each part of the peak memory of the fullest GPU, by name."""
    return {
        name.removeprefix(_PREFIX).removesuffix(_UNIT): number_of(row, name)
        for name in row
        if name.startswith(_PREFIX) and name.endswith(_UNIT) and name != "memory_headroom_gib"
    }


def parts_table(
    unit: str,
    parts: Mapping[str, float],
    name: str,
    total: float,
    capacity: float,
    *,
    digits: int,
    extra_rows: Sequence[tuple[str, str, str]] = (),
) -> Table:
    """Return a table of the nonzero parts, their total and extra rows, with their shares."""
    nonzero = {part: amount for part, amount in parts.items() if amount}
    rows = [
        (part.replace("_", " "), f"{amount:,.{digits}f}", f"{100 * amount / capacity:.1f}")
        for part, amount in (*nonzero.items(), (name, total))
    ]
    return text_table(
        ("part", unit, "%"), [*rows, *extra_rows], marked=[*[""] * len(nonzero), TOTAL]
    )


def first(array: ArrayLike) -> float:
    """The first element of an array, or the only one."""
    return float(np.ravel(array)[0])


def format_gpu_hours(hours: float) -> str:
    """GPU-hours as text, without a fraction from 100 on."""
    return format_count(hours) if hours >= 100 else format_significant(hours)


def campaign_pairs(row: Row) -> dict[str, str]:
    """Return the paid GPU-hours of a run if more than the computed ones; otherwise empty."""
    text = format_gpu_hours(number_of(row, "campaign_gpu_hours"))
    if text == format_gpu_hours(number_of(row, "gpu_hours")):
        return {}
    return {"campaign": f"{text} GPU-hours, with lost time and spare GPUs: the cost counts these"}


def electricity_pairs(candidates: Any, row: Row) -> dict[str, str]:
    """Return power by part, energy and, if the region is known, carbon of the first row."""
    if math.isnan(number_of(row, "power_kw")):
        return {"energy": _UNKNOWN}
    draws = candidates.draws
    column_intervals = intervals(row, candidates.source.confidence_of(row))
    watts = {part: sum(first(getattr(draw, part)) for draw in draws) for part in PARTS}
    texts = [
        f"{_NAMES.get(part, part)} {format_result('power_kw', value / KILOWATT)}"
        for part, value in watts.items()
        if value
    ]
    pue = draws[0].power_usage_effectiveness
    power = f"{format_result('power_kw', row['power_kw'])}: {', '.join(texts)} (PUE {pue:g})"
    values = {name: row[name] for name in _COLUMNS if not math.isnan(number_of(row, name))}
    return {
        "power": power,
        **{
            label(name): format_result(name, value, column_intervals.get(name))
            for name, value in values.items()
        },
    }


def electricity_columns(row: Row) -> tuple[str, ...]:
    """Columns of energy and carbon for a short answer; empty without a known region."""
    has_carbon = any(math.isfinite(number_of(row, name)) for name in _COLUMNS if "carbon" in name)
    return _COLUMNS if has_carbon else ()
