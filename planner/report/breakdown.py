"""One configuration in full: its values, its memory, its time, its cost."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from planner.estimators.cost import RunCost, run_cost
from planner.estimators.estimate import Estimate
from planner.estimators.machine import Machine
from planner.estimators.memory import MEMORY_PARTS
from planner.optimize.columns import columns
from planner.optimize.problem import Problem
from planner.report import text
from planner.report.console import make_table, print_pairs, print_title
from planner.terms import terms_of
from planner.units import GIB, HOUR, KILOWATT_HOUR, TERA
from planner.validation.confidence import Confidence, confidence

LAYOUT = tuple(
    name for name in terms_of("train", "parameter", "derived") if name != "pipeline_schedule"
)
"""The parameters of a configuration and what follows from them, in the order of the terms."""

_SIDE_BY_SIDE = 78
_FLAT = (
    "The whole step reaches the given share of the peak, so there is no time breakdown: "
    "communication and bubble are inside it."
)


def first(array: Any) -> float:
    """The first element of an array, or the only one."""
    return float(np.asarray(array).ravel()[0])


def print_configuration(console: Console, estimate: Estimate) -> None:
    """The values of every parameter of the first row, in one paragraph."""
    table = columns(estimate, None)
    words = [f"{name}={str(table[name][0]).lower()}" for name in LAYOUT]
    console.print("  ".join(words))


def print_breakdowns(console: Console, problem: Problem, estimate: Estimate) -> None:
    """Memory and time of the first row by part, beside each other where there is room."""
    memory = _titled("Memory of the fullest GPU", memory_table(console, estimate))
    if problem.flops_efficiency is not None:
        console.print()
        console.print(memory)
        console.print()
        console.print(_FLAT)
        return
    time = _titled("Time of a step", time_table(console, estimate))
    console.print()
    if console.width >= _SIDE_BY_SIDE:
        grid = Table.grid(padding=(0, 4, 0, 0))
        grid.add_row(memory, time)
        console.print(grid)
    else:
        console.print(memory)
        console.print()
        console.print(time)


def memory_table(console: Console, estimate: Estimate) -> Table:
    """Memory of the first row by part, in GiB and as a share of the capacity."""
    capacity = estimate.setting.machine.gpu.allocatable_memory
    parts = {part: first(getattr(estimate.memory.fullest, part)) for part in MEMORY_PARTS}
    peak = sum(parts.values())
    table = _parts_table(console, "GiB")
    for part, num_bytes in parts.items():
        if num_bytes:
            _add(table, part, num_bytes / GIB, num_bytes / capacity, digits=2)
    table.add_section()
    _add(table, "peak", peak / GIB, peak / capacity, digits=2, style="bold")
    _add(table, "capacity", capacity / GIB, 1.0, digits=2)
    add_host_memory(table, first(estimate.memory.host), estimate.setting.machine)
    return table


def add_host_memory(table: Table, num_bytes: float, machine: Machine) -> None:
    """A row of what is offloaded, if anything is, with its share of the host's memory if known."""
    if num_bytes:
        share = 100 * num_bytes / machine.host_memory
        table.add_row("in host memory", f"{num_bytes / GIB:,.2f}", f"{share:.1f}" if share else "")


def time_table(console: Console, estimate: Estimate) -> Table:
    """Seconds of the first row's step by part; what is hidden behind other parts is not in it."""
    parts = {name: first(seconds) for name, seconds in estimate.time.parts().items()}
    total = first(estimate.step_time)
    table = _parts_table(console, "s")
    for part, seconds in parts.items():
        if seconds:
            _add(table, part, seconds, seconds / total, digits=3)
    table.add_section()
    _add(table, "step", total, 1.0, digits=3, style="bold")
    return table


def print_run(console: Console, problem: Problem, estimate: Estimate) -> None:
    """Speed of the first row, and what the whole run takes."""
    cost = run_cost(estimate, problem.price_per_gpu_second)
    tokens = estimate.setting.workload.total_tokens
    sure = confidence_of(estimate)
    print_title(console, "Speed")
    print_pairs(console, _speed(estimate))
    if sure is not None:
        print_title(console, "How sure")
        print_pairs(console, _sure(estimate, cost, sure))
    print_title(console, f"A run of {text.large(tokens)} tokens")
    hours = first(cost.gpu_seconds) / HOUR
    energy = first(cost.energy)
    pairs = {
        "time to train": text.duration(first(cost.time_to_train)),
        "GPU-hours": text.count(hours) if hours >= 100 else text.significant(hours),
        "cost": "price unknown: give --price",
        "energy": "unknown: the power of this GPU is not in its file",
    }
    if problem.price_per_gpu_second is not None:
        rate = problem.price_per_gpu_second * HOUR
        pairs["cost"] = f"{text.dollars(first(cost.cost))} at {rate:.2f} USD per GPU-hour"
    if math.isfinite(energy):
        amount = text.significant(energy / KILOWATT_HOUR)
        pairs["energy"] = f"{amount} kWh at the GPUs' design power, without hosts and cooling"
    print_pairs(console, pairs)


def confidence_of(estimate: Estimate, num_gpus: float | None = None) -> Confidence | None:
    """The confidence in rows of ``num_gpus``, the first row's if not given.

    None where the numbers are bounds or a flat share, not predictions.
    """
    machine = estimate.setting.machine
    if machine.ideal or estimate.is_flat or machine.memory_efficiency is not None:
        return None
    count = first(estimate.configurations.num_gpus) if num_gpus is None else num_gpus
    return confidence(estimate.setting, int(count))


def _sure(estimate: Estimate, cost: RunCost, sure: Confidence) -> dict[str, str]:
    """Where 90 % of published runs of this kind would be."""
    step, train = first(estimate.step_time), first(cost.time_to_train)
    slow, much = sure.step_time, sure.peak_memory
    peak = first(estimate.peak_memory) / GIB
    return {
        "step time": f"{text.duration(step * slow[0])} to {text.duration(step * slow[1])}",
        "time to train": f"{text.duration(train * slow[0])} to {text.duration(train * slow[1])}",
        "peak memory": f"{peak * much[0]:.1f} to {peak * much[1]:.1f} GiB",
        "meaning": f"9 of 10 published runs like this lie there; basis: {sure.basis}",
    }


def _speed(estimate: Estimate) -> dict[str, str]:
    tokens = first(estimate.tokens_per_second)
    num_gpus = first(estimate.configurations.num_gpus)
    achieved = first(estimate.model_flops_per_second_per_gpu) / TERA
    return {
        "step time": text.duration(first(estimate.step_time)),
        "tokens/s": text.count(tokens),
        "tokens/s/GPU": text.significant(tokens / num_gpus),
        "MFU": f"{text.percent(first(estimate.model_flops_utilization))} "
        "(model FLOPs over the dense peak)",
        "HFU": f"{text.percent(first(estimate.hardware_flops_utilization))} "
        "(with what is recomputed)",
        "TFLOP/s/GPU": text.significant(achieved),
    }


def _titled(title: str, table: Table) -> Group:
    return Group(Text(title, style="bold"), table)


def _parts_table(console: Console, unit: str) -> Table:
    table = make_table(console)
    table.add_column("part", no_wrap=True)
    table.add_column(unit, justify="right", no_wrap=True)
    table.add_column("%", justify="right", no_wrap=True)
    return table


def _add(
    table: Table, part: str, amount: float, share: float, *, digits: int, style: str | None = None
) -> None:
    words = part.replace("_", " ")
    table.add_row(words, f"{amount:,.{digits}f}", f"{100 * share:.1f}", style=style)
