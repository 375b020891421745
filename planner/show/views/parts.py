"""The memory and the electric power of one configuration by part."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from planner.base.units import GIB, KILOWATT
from planner.estimators.machine import Machine
from planner.estimators.power import PARTS
from planner.optimize.result_columns import intervals
from planner.show.page import TOTAL, Table, grid
from planner.show.views.told import label, number_of, told

_PREFIX, _UNIT = "memory_", "_gib"
_NAMES = {"boards": "GPUs"}
_COLUMNS = (
    "energy_kwh",
    "energy_per_million_tokens_kwh",
    "carbon_kg",
    "carbon_per_million_tokens_kg",
)
_UNKNOWN = "unknown: the power of this GPU is not in its file"


def memory_table(row: Mapping[str, object], machine: Machine) -> Table:
    """Memory of the fullest GPU of a row by part, in GiB and as a share of the capacity."""
    capacity = machine.gpu.allocatable_memory / GIB
    peak, on_host = number_of(row, "peak_memory_gib"), number_of(row, "host_memory_gib")
    beside = [("capacity", f"{capacity:,.2f}", "100.0")]
    if on_host:
        share = 100 * on_host * GIB / host_room(row, machine)
        beside.append(("in host memory", f"{on_host:,.2f}", f"{share:.1f}" if share else ""))
    if (moved := number_of(row, "paged_states_gib")) > 0:
        beside.append(("paged states", f"{moved:,.2f}", ""))
    return parts_table("GiB", memory_parts(row), "peak", peak, capacity, beside=beside, digits=2)


def host_room(row: Mapping[str, object], machine: Machine) -> float:
    """Bytes of host memory of each GPU of a row; a replica that serves has a full node's share."""
    if "micro_batch_size" not in row:
        return machine.host_memory
    return float(machine.host_room(number_of(row, "num_gpus")))


def host_words(row: Mapping[str, object], machine: Machine) -> str:
    """What a node's host memory must hold of a training run, against what it has; "" if nothing.

    Sentences say which memory is assumed.
    """
    if "micro_batch_size" not in row or not row["host_memory_gib"]:
        return ""
    in_node = min(number_of(row, "num_gpus"), machine.cluster.gpus_per_node)
    needed, room = (
        number_of(row, "host_memory_gib") * in_node,
        host_room(row, machine) * in_node / GIB,
    )
    if not np.isfinite(room):
        return f"{needed:,.1f} GiB of a node; give --host-memory to judge it"
    known = machine.cluster.host_memory is not None
    return f"{needed:,.1f} of {room:,.0f} GiB of a node" + ("" if known else ASSUMED_HOST)


def paged_words(row: Mapping[str, object]) -> str:
    """What a paged optimizer moves of a GPU's states; "" if nothing."""
    moved = row.get("paged_states_gib") or 0.0
    if not moved:
        return ""
    return f"{moved:,.1f} GiB of optimizer states, to the host and back in every step"


ASSUMED_HOST = ", which is assumed: give --host-memory"


def memory_parts(row: Mapping[str, object]) -> dict[str, float]:
    """GiB of each part that adds up to the peak."""
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
    whole: float,
    *,
    digits: int,
    beside: Sequence[tuple[str, str, str]] = (),
) -> Table:
    """Parts that take something, their total, what stands ``beside`` it, and shares of a whole."""
    known = {part: amount for part, amount in parts.items() if amount}
    rows = [
        (part.replace("_", " "), f"{amount:,.{digits}f}", f"{100 * amount / whole:.1f}")
        for part, amount in (*known.items(), (name, total))
    ]
    return grid(("part", unit, "%"), [*rows, *beside], marked=[*[""] * len(known), TOTAL])


def first(array: ArrayLike) -> float:
    """The first element of an array, or the only one."""
    return float(np.ravel(array)[0])


def electricity_pairs(candidates: Any, row: Mapping[str, object]) -> dict[str, str]:
    """Power by part, energy, and carbon where the region is known, of the first row."""
    if math.isnan(number_of(row, "power_kw")):
        return {"energy": _UNKNOWN}
    draws = candidates.draws
    ends = intervals(row, candidates.source.confidence(number_of(row, "num_gpus")))
    watts = {part: sum(first(getattr(draw, part)) for draw in draws) for part in PARTS}
    words = [
        f"{_NAMES.get(part, part)} {told('power_kw', value / KILOWATT)}"
        for part, value in watts.items()
        if value
    ]
    pue = draws[0].power_usage_effectiveness
    power = f"{told('power_kw', row['power_kw'])}: {', '.join(words)} (PUE {pue:g})"
    known = {name: row[name] for name in _COLUMNS if not math.isnan(number_of(row, name))}
    return {
        "power": power,
        **{label(name): told(name, value, ends.get(name)) for name, value in known.items()},
    }


def told_columns(row: Mapping[str, object]) -> tuple[str, ...]:
    """What a short answer says of electricity: of a known region energy and carbon."""
    known = any(math.isfinite(number_of(row, name)) for name in _COLUMNS if "carbon" in name)
    return _COLUMNS if known else ()
