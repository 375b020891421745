"""The memory of one configuration by part."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from planner.base.units import GIB
from planner.estimators.machine import Machine
from planner.report.console import make_table

_PREFIX, _UNIT = "memory_", "_gib"


def memory_table(console: Console, row: Mapping[str, Any], machine: Machine) -> Table:
    """Memory of the fullest GPU of a row by part, in GiB and as a share of the capacity."""
    capacity = machine.gpu.allocatable_memory / GIB
    table = parts_table(console, "GiB")
    for name, amount in memory_parts(row).items():
        if amount:
            add_part(table, name, amount, amount / capacity, digits=2)
    table.add_section()
    peak, on_host = row["peak_memory_gib"], row["host_memory_gib"]
    add_part(table, "peak", peak, peak / capacity, digits=2, style="bold")
    add_part(table, "capacity", capacity, 1.0, digits=2)
    if on_host:
        share = 100 * on_host * GIB / host_room(row, machine)
        table.add_row("in host memory", f"{on_host:,.2f}", f"{share:.1f}" if share else "")
    return table


def host_room(row: Mapping[str, Any], machine: Machine) -> float:
    """Bytes of host memory of each GPU of a row; a replica that serves has a full node's share."""
    if "micro_batch_size" not in row:
        return machine.host_memory
    return float(machine.host_room(row["num_gpus"]))


def host_words(row: Mapping[str, Any], machine: Machine) -> str:
    """What a node's host memory must hold of a training run, against what it has; "" if nothing.

    Sentences say which memory is assumed.
    """
    if "micro_batch_size" not in row or not row["host_memory_gib"]:
        return ""
    in_node = min(row["num_gpus"], machine.cluster.gpus_per_node)
    needed, room = row["host_memory_gib"] * in_node, host_room(row, machine) * in_node / GIB
    if not np.isfinite(room):
        return f"{needed:,.1f} GiB of a node; give --host-memory to judge it"
    known = machine.cluster.host_memory is not None
    return f"{needed:,.1f} of {room:,.0f} GiB of a node" + ("" if known else ASSUMED_HOST)


ASSUMED_HOST = ", which is assumed: give --host-memory"


def memory_parts(row: Mapping[str, Any]) -> dict[str, float]:
    """GiB of each part that adds up to the peak."""
    return {
        name.removeprefix(_PREFIX).removesuffix(_UNIT): amount
        for name, amount in row.items()
        if name.startswith(_PREFIX) and name.endswith(_UNIT) and name != "memory_headroom_gib"
    }


def parts_table(console: Console, unit: str) -> Table:
    """An empty table of parts, their amounts and shares."""
    table = make_table(console)
    table.add_column("part", no_wrap=True)
    table.add_column(unit, justify="right", no_wrap=True)
    table.add_column("%", justify="right", no_wrap=True)
    return table


def add_part(
    table: Table, part: str, amount: float, share: float, *, digits: int, style: str | None = None
) -> None:
    """A row of a table of parts."""
    words = part.replace("_", " ")
    table.add_row(words, f"{amount:,.{digits}f}", f"{100 * share:.1f}", style=style)


def first(array: Any) -> float:
    """The first element of an array, or the only one."""
    return float(np.ravel(array)[0])
