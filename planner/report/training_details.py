"""One training run in full: its memory, its time, its cost, its operators."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from planner.base import text
from planner.base.training_objectives import TrainingObjective
from planner.base.units import GIB, HOUR, TERA
from planner.estimators.timeline.spans import Timeline
from planner.estimators.timeline.training import training_timeline
from planner.optimize.collector import first_row
from planner.optimize.source import Candidates
from planner.plan.plan import Plan
from planner.report.console import print_pairs, print_title
from planner.report.details import Details, print_sure
from planner.report.electricity import electricity_pairs
from planner.report.parts import add_part, first, memory_table, parts_table
from planner.report.training_operators import operator_rows, print_operators
from planner.workloads.base import Evaluation

_SIDE_BY_SIDE = 78
_FLAT = (
    "The whole step reaches the given share of the peak, so there is no time breakdown: "
    "communication and bubble are inside it."
)


def _memory_and_speed(console: Console, plan: Plan, runs: Candidates) -> None:
    _print_breakdowns(console, runs)
    print_title(console, "Speed")
    print_pairs(console, _speed(runs))
    print_sure(console, plan, runs)
    _print_run(console, runs)


def _print_breakdowns(console: Console, runs: Any) -> None:
    """Memory and time of the first row by part, beside each other where there is room."""
    row, machine = first_row(runs.columns()), runs.source.setting.machine
    memory = _titled("Memory of the fullest GPU", memory_table(console, row, machine))
    console.print()
    if runs.estimate.is_flat:
        console.print(memory)
        console.print()
        console.print(_FLAT)
        return
    time = _titled("Time of a step", _time_table(console, runs))
    if console.width >= _SIDE_BY_SIDE:
        grid = Table.grid(padding=(0, 4, 0, 0))
        grid.add_row(memory, time)
        console.print(grid)
    else:
        console.print(memory)
        console.print()
        console.print(time)


def _time_table(console: Console, runs: Any) -> Table:
    """Seconds of the first row's step by part; what is hidden behind other parts is not in it."""
    parts = {name: first(seconds) for name, seconds in runs.estimate.time.parts().items()}
    total = first(runs.step_time)
    table = parts_table(console, "s")
    for part, seconds in parts.items():
        if seconds:
            add_part(table, part, seconds, seconds / total, digits=3)
    table.add_section()
    add_part(table, "step", total, 1.0, digits=3, style="bold")
    return table


def _titled(title: str, table: Table) -> Group:
    return Group(Text(title, style="bold"), table)


def _speed(runs: Any) -> dict[str, str]:
    estimate = runs.estimate
    tokens, num_gpus = first(runs.throughput), first(runs.num_gpus)
    return {
        "step time": text.duration(first(runs.step_time)),
        "tokens/s": text.count(tokens),
        "tokens/s/GPU": text.significant(tokens / num_gpus),
        **_samples(estimate),
        "MFU": f"{text.percent(first(estimate.model_flops_utilization))} "
        "(model FLOPs over the dense peak)",
        "HFU": f"{text.percent(first(estimate.hardware_flops_utilization))} "
        "(with what is recomputed)",
        "TFLOP/s/GPU": text.significant(first(estimate.model_flops_per_second_per_gpu) / TERA),
    }


def _per_tokens(runs: Any) -> dict[str, str]:
    """The cost of a million trained tokens, of fine-tuning: who knows the samples multiplies."""
    work = runs.source.setting.workload
    if work.training_objective is TrainingObjective.PRETRAIN:
        return {}
    per_million = 1e6 / work.total_tokens * first(runs.cost)
    return {"cost/Mtok": f"{text.dollars(per_million)} per million trained tokens"}


def _samples(estimate: Any) -> dict[str, str]:
    """Samples per second of preference training, whose samples are several sequences."""
    if not estimate.setting.workload.training_objective.is_preference:
        return {}
    return {"samples/s": text.significant(first(estimate.samples_per_second))}


def _print_run(console: Console, runs: Any) -> None:
    """What the whole run takes."""
    tokens = runs.source.setting.workload.total_tokens
    print_title(console, f"A run of {text.large(tokens)} tokens")
    hours = first(runs.gpu_hours) / HOUR
    pairs = {
        "time to train": text.duration(first(runs.time_to_train)),
        **_calendar(runs),
        "GPU-hours": text.count(hours) if hours >= 100 else text.significant(hours),
        "cost": "price unknown: give --price",
    }
    site = runs.source.site
    if not math.isnan(site.price):
        hourly = f"{site.price * HOUR:.2f} USD per GPU-hour, {site.contract}"
        pairs["cost"] = f"{text.dollars(first(runs.cost))} at {hourly}"
        pairs |= _per_tokens(runs)
        pairs["PFLOP/s-day"] = text.dollars(first(runs.cost_per_pflop_day))
    pairs |= electricity_pairs(runs, first_row(runs.columns()))
    print_pairs(console, pairs)


def _calendar(runs: Any) -> dict[str, str]:
    """Days on the calendar, and what takes them besides training."""
    if runs.source.site.reliability.is_ideal:
        return {}
    kept, calendar = runs.run.goodput, first(runs.calendar_time)
    name = runs.source.site.reliability.name
    lost = {name: first(share) for name, share in kept.lost().items()}
    causes = ", ".join(
        f"{cause.replace('_', ' ')} {text.percent(share)}" for cause, share in lost.items() if share
    )
    pairs = {
        "calendar time": f"{text.duration(calendar)}, failures as {name}",
        "goodput": f"{text.percent(first(kept.ratio))}" + (f"; lost: {causes}" if causes else ""),
    }
    if rate := first(kept.rate):
        every = f", one in {text.duration(1 / rate)}"
        pairs["interruptions"] = text.significant(first(runs.run.interruptions)) + every
    size = f"{text.significant(kept.checkpoint_size / GIB)} GiB"
    if math.isfinite(interval := first(kept.checkpoint_interval)):
        size += (
            f" every {text.duration(interval)}, written in "
            f"{text.duration(first(kept.checkpoint_time))}, which stops training for "
            f"{text.duration(first(kept.blocking_time))}"
        )
    pairs["checkpoint"] = size
    if spare := first(kept.num_spare_gpus):
        pairs["spare GPUs"] = text.count(int(spare))
    return pairs


def _more(console: Console, _: Plan, found: Evaluation) -> None:
    if not found.estimate.is_flat:
        print_operators(console, found.estimate)


def _operators(found: Evaluation) -> list[dict[str, Any]]:
    if found.estimate.is_flat:
        return []
    return [
        {(f"{name}_s" if isinstance(value, float) else name): value for name, value in row.items()}
        for row in map(asdict, operator_rows(found.estimate.time))
    ]


def _times(runs: Any) -> dict[str, dict[str, float]]:
    """Seconds of a step by part; none where a flat efficiency is all that is known."""
    if runs.estimate.is_flat:
        return {}
    return {"step": {name: first(part) for name, part in runs.estimate.time.parts().items()}}


def _timelines(runs: Any) -> list[Timeline]:
    """The step over time; none where a flat efficiency is all that is known."""
    return [] if runs.estimate.is_flat else [training_timeline(runs.estimate)]


TRAINING = Details(
    memory_and_speed=_memory_and_speed,
    more=_more,
    operators=_operators,
    times=_times,
    timelines=_timelines,
    to_see="To see its time by module and operator",
)
