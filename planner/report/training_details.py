"""One training run in full: its memory, its time, its cost, its operators."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from planner.base import text
from planner.base.records import record
from planner.base.training_objectives import TrainingObjective
from planner.base.units import GIB, HOUR, TERA
from planner.estimators.estimate import Estimate
from planner.estimators.step_time import TIME_PARTS, StepTime
from planner.estimators.timeline.spans import Timeline
from planner.estimators.timeline.training import training_timeline
from planner.optimize.collector import first_row
from planner.optimize.source import Candidates
from planner.plan.plan import Plan
from planner.report.details import Details, sure_blocks
from planner.report.electricity import electricity_pairs
from planner.report.parts import first, memory_table, parts_table
from planner.show.page import TOTAL, Beside, Block, Pairs, Title, grid, said
from planner.workloads.base import Evaluation

_FLAT = (
    "The whole step reaches the given share of the peak: its parts are as long as their FLOPs "
    "take, with communication and bubble inside them."
)
_OTHERS = "all modules"
_OF_OPERATORS = ("forward", "backward", "recompute")


def _memory_and_speed(plan: Plan, runs: Candidates) -> Iterator[Block]:
    yield from _breakdowns_blocks(runs)
    yield Title(text="Speed")
    yield Pairs(pairs=_speed(runs))
    yield from sure_blocks(plan, runs)
    yield from _run_blocks(runs)


def _breakdowns_blocks(runs: Any) -> Iterator[Block]:
    """Memory and time of the first row by part; what is hidden behind others is in no part."""
    row, machine = first_row(runs.columns()), runs.source.setting.machine
    memory = {"Memory of the fullest GPU": memory_table(row, machine)}
    parts = {name: first(seconds) for name, seconds in runs.estimate.time_parts.items()}
    total = first(runs.step_time)
    time = parts_table("s", parts, "step", total, total, digits=3)
    yield Beside(tables={**memory, "Time of a step": time})
    if runs.estimate.is_flat:
        yield said(_FLAT)


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


def _run_blocks(runs: Any) -> Iterator[Block]:
    """What the whole run takes."""
    tokens = runs.source.setting.workload.total_tokens
    yield Title(text=f"A run of {text.large(tokens)} tokens")
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
    yield Pairs(pairs=pairs)


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


def _more(_: Plan, found: Evaluation) -> Iterator[Block]:
    if not found.estimate.is_flat:
        yield from operators_blocks(found.estimate)


def _operators(found: Evaluation) -> list[dict[str, Any]]:
    if found.estimate.is_flat:
        return []
    return [
        {(f"{name}_s" if isinstance(value, float) else name): value for name, value in row.items()}
        for row in map(asdict, operator_rows(found.estimate.time))
    ]


def _times(runs: Any) -> dict[str, dict[str, float]]:
    """Seconds of a step by part."""
    return {"step": {name: first(part) for name, part in runs.estimate.time_parts.items()}}


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


@record(kw_only=True)
class OperatorRow:
    """Seconds of a step that one operator, or one part that belongs to none, takes."""

    operator: str
    module: str
    forward: float
    backward: float
    recompute: float
    total: float


def operator_rows(time: StepTime) -> list[OperatorRow]:
    """Rows that add up to the step time of the first configuration."""
    sums: dict[tuple[str, str], dict[str, float]] = {}
    in_operators = dict.fromkeys(TIME_PARTS, 0.0)
    for operator, seconds in time.operator_times():
        row = sums.setdefault((operator.module, operator.name), dict.fromkeys(_OF_OPERATORS, 0.0))
        for name, value in seconds.items():
            row[name] += first(value)
            in_operators[name if operator.part == "compute" else operator.part] += first(value)
    rows = [
        OperatorRow(operator=name, module=module, total=sum(row.values()), **row)
        for (module, name), row in sums.items()
    ]
    return rows + [
        OperatorRow(operator=part, module=_OTHERS, total=rest, **dict.fromkeys(_OF_OPERATORS, 0.0))
        for part, rest in _remainders(time, in_operators).items()
    ]


def module_rows(rows: list[OperatorRow]) -> list[OperatorRow]:
    """The rows of operators summed by module; the others stay as they are."""
    sums: dict[str, OperatorRow] = {}
    for row in rows:
        key = row.operator if row.module == _OTHERS else row.module
        before = sums.get(key)
        sums[key] = OperatorRow(
            operator="",
            module=key,
            **{
                name: getattr(row, name) + (getattr(before, name) if before else 0.0)
                for name in (*_OF_OPERATORS, "total")
            },
        )
    return list(sums.values())


def operators_blocks(estimate: Estimate) -> Iterator[Block]:
    """Two tables, by module and by operator, in ms."""
    rows = [row for row in operator_rows(estimate.time) if row.total]
    total = first(estimate.step_time)
    yield Title(text="Time of a step by module, ms")
    yield from _rows_blocks(module_rows(rows), total, with_operator=False)
    yield Title(text="Time of a step by operator, ms")
    yield from _rows_blocks(rows, total, with_operator=True)


def _remainders(time: StepTime, in_operators: Mapping[str, float]) -> dict[str, float]:
    parts = {part: first(seconds) for part, seconds in time.parts().items()}
    rest = {part: seconds - in_operators[part] for part, seconds in parts.items()}
    return {part: value for part, value in rest.items() if abs(value) > 1e-9 * parts[part]}


def _rows_blocks(rows: list[OperatorRow], total: float, *, with_operator: bool) -> Iterator[Block]:
    """The rows and their sum; a narrow table has totals alone."""
    names = (*_OF_OPERATORS, "total")
    lines = [
        (
            (row.operator if with_operator else row.module).replace("_", " "),
            *(_milliseconds(getattr(row, name)) for name in names),
            f"{100 * row.total / total:.1f}",
        )
        for row in rows
    ]
    sums = [_milliseconds(sum(getattr(row, name) for row in rows)) for name in names]
    heads = ("operator" if with_operator else "module", *names, "%")
    marks = [*[""] * len(rows), TOTAL]
    yield grid(heads, [*lines, ("step", *sums, "100.0")], late=(1, 2, 3), marked=marks)


def _milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:,.2f}" if seconds else "-"
