"""Full report of a training run or of steps of reinforcement learning."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from planner.base.csv_cells import Row
from planner.base.formatting import (
    format_count,
    format_duration,
    format_large,
    format_percent,
    format_significant,
    format_usd,
)
from planner.base.software_enums import Placement
from planner.base.units import GIB
from planner.configurations.rl import RlConfigurations
from planner.estimators.rl.rl_step import MEMORY_PHASES
from planner.estimators.timeline.step_timelines import rl_timeline, training_timeline
from planner.estimators.training.step_time import TIME_PARTS, StepTime
from planner.estimators.training.training_estimate import Estimate
from planner.show.output_blocks import (
    TOTAL,
    Block,
    KeyValues,
    SideBySide,
    Table,
    Title,
    make_lines,
    text_table,
)
from planner.show.presenters.format_results import (
    campaign_pairs,
    electricity_pairs,
    first,
    memory_table,
    number_of,
    parts_table,
)
from planner.show.presenters.prices import commitment_lines, format_price
from planner.show.presenters.workload_details import (
    OTHERS,
    UNKNOWN_PRICE,
    Details,
    by_module,
    text_pairs,
    uncertainty_blocks,
)
from planner.workloads.make_plan import Plan
from planner.workloads.rl.results import RlRuns
from planner.workloads.training.results import TrainingRuns
from planner.workloads.workload import Evaluation

_FLAT = (
    "The step reaches the specified share of the peak. Tensor-parallel communication takes its "
    "time at the rate of the links, as far as the share leaves any; the other parts are as long "
    "as their FLOPs take, with the rest of the communication and the bubble inside them."
)
_OF_OPERATORS = ("forward_s", "backward_s", "recompute_s")
_TIMES = (*_OF_OPERATORS, "total_s")


def _memory_and_speed(plan: Plan, runs: TrainingRuns) -> Iterator[Block]:
    """Yield memory and time by part, speed, uncertainty and the cost of the run."""
    row, machine = runs.row, runs.source.inputs.machine
    memory = {"Memory of the fullest GPU": memory_table(row, machine)}
    total = first(runs.step_time)
    time = parts_table("s", _seconds(runs), "step", total, total, digits=3)
    yield SideBySide(tables={**memory, "Time of a step": time})
    if runs.estimate.is_flat:
        yield make_lines(_FLAT)
    yield Title(text="Speed")
    yield KeyValues(pairs=text_pairs(runs.row, _SPEED))
    yield from uncertainty_blocks(plan, runs)
    tokens = format_large(runs.source.inputs.workload.total_tokens)
    yield from _run_blocks(runs, f"A run of {tokens} tokens", _calendar(runs))


def _seconds(runs: TrainingRuns) -> dict[str, float]:
    """The time of the first row's step by part."""
    return {name: first(seconds) for name, seconds in runs.estimate.time_parts.items()}


_SPEED = {
    "step time": "{step_time_s:time}",
    "tokens/s": "{tokens_per_s:count}",
    "tokens/s/GPU": "{tokens_per_s_per_gpu:number}",
    "samples/s": "{samples_per_s:number}",
    "MFU": "{model_flops_utilization:percent} (model FLOPs over the dense peak)",
    "HFU": "{hardware_flops_utilization:percent} (including recomputation)",
    "TFLOP/s/GPU": "{tflops_per_gpu:number}",
}
_RUN = {"time to train": "{time_to_train_days:days}", "GPU-hours": "{gpu_hours:hours}"}
_COSTS = {
    "cost/Mtok": "{cost_per_million_trained_tokens_usd:usd} per million trained tokens",
    "PFLOP/s-day": "{cost_per_pflop_day_usd:usd}",
}


def _run_blocks(
    runs: TrainingRuns | RlRuns, title: str, calendar: Mapping[str, str]
) -> Iterator[Block]:
    """Yield time, GPU-hours, cost and electricity of the complete run."""
    row, source = runs.row, runs.source
    yield Title(text=title)
    pairs = {**text_pairs(row, _RUN), **calendar, **campaign_pairs(row), "cost": UNKNOWN_PRICE}
    if not any(math.isnan(site.price) for site in source.sites):
        several = len(source.sites) > 1
        hourly = [
            f"{format_price({**site.columns, **site.grounds})} per GPU-hour"
            f"{f' of {gpu}' if several else ''}, {site.contract}"
            for site, gpu in zip(source.sites, source.gpus, strict=True)
        ]
        pairs["cost"] = f"{format_usd(first(runs.cost))} at {' and '.join(hourly)}"
        pairs |= text_pairs(row, _COSTS)
    if isinstance(runs, TrainingRuns):
        pairs |= electricity_pairs(runs, row)
    yield KeyValues(pairs=pairs)
    site = source.site
    yield make_lines(*commitment_lines({**row, **site.columns, **site.grounds}))


def _calendar(runs: TrainingRuns) -> dict[str, str]:
    """Return calendar time, goodput, interruptions and checkpoints of a run as text by name."""
    if runs.source.site.reliability.is_ideal:
        return {}
    goodput, calendar = runs.run.goodput, first(runs.calendar_time)
    name = runs.source.site.reliability.name
    lost = {name: first(share) for name, share in goodput.lost().items()}
    causes = ", ".join(
        f"{cause.replace('_', ' ')} {format_percent(share)}"
        for cause, share in lost.items()
        if share
    )
    pairs = {
        "calendar time": f"{format_duration(calendar)}, failures as {name}",
        "goodput": f"{format_percent(first(goodput.ratio))}"
        + (f"; lost: {causes}" if causes else ""),
    }
    if rate := first(goodput.rate):
        mean_interval = f", one in {format_duration(1 / rate)}"
        pairs["interruptions"] = format_significant(first(runs.run.interruptions)) + mean_interval
    size = f"{format_significant(goodput.checkpoint_size / GIB)} GiB"
    if math.isfinite(interval := first(goodput.checkpoint_interval)):
        size += (
            f" every {format_duration(interval)}, written in "
            f"{format_duration(first(goodput.checkpoint_time))}, which stops training for "
            f"{format_duration(first(goodput.blocking_time))}"
        )
    pairs["checkpoint"] = size
    if spare := first(goodput.num_spare_gpus):
        pairs["spare GPUs"] = format_count(int(spare))
    return pairs


def _more(_: Plan, evaluation: Evaluation) -> Iterator[Block]:
    """Yield two tables of the step time [ms], by module and by operator."""
    rows = [row for row in _operators(evaluation) if row["total_s"]]
    total = first(evaluation.estimate.step_time)
    tables: dict[str, Sequence[Row]] = {
        "module": by_module(rows, _TIMES),
        "operator": rows,
    }
    if evaluation.estimate.is_flat:
        del tables["operator"]
    for title, lines in tables.items():
        yield Title(text=f"Time of a step by {title}, ms")
        yield _times_table(title, lines, total)


def _operators(evaluation: Evaluation) -> list[dict[str, str | float]]:
    """Return the seconds of a step by operator; parts without operators have one row each."""
    if evaluation.estimate.is_flat:
        return [*_flat_modules(evaluation.estimate)]
    time: StepTime = evaluation.estimate.time
    sums: dict[tuple[str, str], dict[str, float]] = {}
    rest = {part: first(seconds) for part, seconds in time.parts().items()}
    tolerances = {part: 1e-9 * seconds for part, seconds in rest.items()}
    in_operators = dict.fromkeys(TIME_PARTS, 0.0)
    for operator, seconds in time.operator_times():
        row = sums.setdefault((operator.name, operator.module), dict.fromkeys(_OF_OPERATORS, 0.0))
        for name, value in seconds.items():
            row[f"{name}_s"] += first(value)
            in_operators[name if operator.part == "compute" else operator.part] += first(value)
    rows = [(*key, row, sum(row.values())) for key, row in sums.items()]
    others = {part: seconds - in_operators[part] for part, seconds in rest.items()}
    no_seconds = dict.fromkeys(_OF_OPERATORS, 0.0)
    rows += [
        (part, OTHERS, no_seconds, seconds)
        for part, seconds in others.items()
        if abs(seconds) > tolerances[part]
    ]
    return [
        {"operator": name, "module": module, **row, "total_s": total}
        for name, module, row, total in rows
    ]


def _flat_modules(estimate: Estimate) -> Iterator[dict[str, str | float]]:
    """Yield the modules of a step as operator rows, if a flat efficiency is specified."""
    for name, seconds in estimate.flat_modules.items():
        row = {f"{term}_s": first(value) for term, value in seconds.items()}
        passes = {column: row.get(column, 0.0) for column in _OF_OPERATORS}
        yield {"operator": name, "module": name, **passes, "total_s": sum(row.values())}


TRAINING = Details(
    memory_and_speed=_memory_and_speed,
    more=_more,
    operators=_operators,
    times=lambda runs: {"step": _seconds(runs)},
    timelines=lambda runs: [] if runs.estimate.is_flat else [training_timeline(runs.estimate)],
    to_see="To see its time by module and operator",
)


def _times_table(title: str, rows: Sequence[Row], total: float) -> Table:
    """Return a table of times and their sum; a narrow terminal shows the totals only."""
    lines = [
        (
            str(row["operator"]).replace("_", " "),
            *(_milliseconds(number_of(row, name)) for name in _TIMES),
            f"{100 * number_of(row, 'total_s') / total:.1f}",
        )
        for row in rows
    ]
    sums = [_milliseconds(sum(number_of(row, name) for row in rows)) for name in _TIMES]
    heads = (title, *(name.removesuffix("_s") for name in _TIMES), "%")
    marks = [*[""] * len(rows), TOTAL]
    return text_table(heads, [*lines, ("step", *sums, "100.0")], late=(1, 2, 3), marked=marks)


def _milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:,.2f}" if seconds else "-"


ASYNC_ACCURACY_NOTE = (
    "The gain of async over colocated is predicted within 13 % of published pairs; smaller "
    "differences are tied. A rule of thumb is within 18 %: 10 % more per GPU on the same number of "
    "GPUs, 10 % less on more GPUs."
)
_LEAST = 0.05
"""Smallest part of the memory that is shown, in GiB."""
OLDER = (
    "Answers come from older weights than those that they train. planner does not predict the "
    "effect on learning (AReaL, arXiv:2505.24298: within a point up to 4 to 8 steps with a "
    "decoupled loss)."
)


def _rl_memory_and_speed(plan: Plan, runs: RlRuns) -> Iterator[Block]:
    """Yield memory by phase, time, speed, uncertainty and the cost of the run."""
    total = first(runs.step_time)
    time = parts_table("s", runs.step.shown_times(), "step", total, total, digits=1)
    yield SideBySide(tables={"Memory by phase": _memory(runs), "Time of a step": time})
    yield make_lines(_fullest(runs), *_balance(runs))
    yield Title(text="Speed")
    yield KeyValues(pairs=_rl_speed(runs))
    yield from uncertainty_blocks(plan, runs)
    reliability = runs.source.site.reliability.name
    calendar = f"{format_duration(first(runs.calendar_time))}, failures as {reliability}"
    title = f"A run of {runs.source.inputs.workload.steps:,} steps"
    yield from _run_blocks(runs, title, {"calendar time": calendar})


def _memory(runs: RlRuns) -> Table:
    """Return a table of the fullest GPU's memory [GiB] by RL phase, and by side if separate."""
    step, has_separate_gpus = runs.step, not bool(first(runs.configurations.colocated))
    sides = {"generate": "rollout", "update": "trainer"} if has_separate_gpus else {}
    sizes = [
        (f"{sides.get(name, '')} {name}".strip().replace("_", " "), first(size), capacity)
        for name, size, capacity in zip(
            MEMORY_PHASES, step.phase_memory, step.capacities, strict=True
        )
    ]
    peak, capacity = first(step.peak_memory), first(step.capacity)
    sizes += [("peak", peak, capacity), ("capacity", capacity, capacity)]
    rows = [
        (name, f"{size / GIB:,.1f}", f"{100 * size / room:.1f}")
        for name, size, room in sizes
        if size
    ]
    if host := first(runs.host_memory):
        rows.append(("in host memory", f"{host / GIB:,.1f}", ""))
    return text_table(("phase", "GiB", "%"), rows)


def _fullest(runs: RlRuns) -> str:
    """Return a sentence on the parts of memory in the phase that needs the most memory."""
    phase = MEMORY_PHASES[int(first(runs.fullest_phase))].replace("_", " ")
    sizes = sorted(_memory_parts(runs)[phase].items(), key=lambda item: -item[1])
    texts = [f"{name.replace('_', ' ')} {size:,.1f}" for name, size in sizes if size >= _LEAST]
    return f"Fullest in the phase {phase}: {', '.join(texts)} GiB."


def _balance(runs: RlRuns) -> list[str]:
    """Return sentences on whether rollout or training limits the step, and on idle time."""
    step, c = runs.step, runs.configurations
    side = "rollout" if first(step.rollout_is_longer) else "the trainer"
    texts = [f"{side.capitalize()} is the bottleneck by {format_percent(first(step.imbalance))}"]
    has_separate_gpus = not bool(first(c.colocated))
    if has_separate_gpus:
        total = first(c.num_gpus - c.other_gpus)
        trains = min(max(round(first(step.balanced_train_gpus)), 1), total - 1)
        if bool(first(step.overlaps)):
            texts.append(f"{trains:,.0f}:{total - trains:,.0f} would balance")
        texts.append(_fastest(runs, total))
    idle = first(runs.lanes_idle)
    if idle > 0:
        texts.append(f"{format_percent(idle)} of the places of the engine's steps are idle")
    lines = [f"{'; '.join(texts)}."]
    if has_separate_gpus and not bool(first(step.overlaps)):
        lines.append(_turns(runs))
    if has_separate_gpus:
        lines.append(ASYNC_ACCURACY_NOTE)
    if bool(first(step.overlaps)) or first(c.staleness) > 0:
        lines.append(OLDER)
    return lines


def _fastest(runs: RlRuns, total: float) -> str:
    """Return the fastest split of the GPUs into trainer and rollout, in nodes if several."""
    trains, seconds = runs.fastest_split()
    step_time = first(runs.step_time)
    has_several_nodes = total > runs.source.inputs.machine.cluster.gpus_per_node
    split = "split in whole nodes" if has_several_nodes else "split"
    if seconds >= step_time:
        return f"no other {split} is faster"
    gain = format_percent(1 - seconds / step_time)
    return f"{trains:,.0f}:{total - trains:,.0f} is the fastest {split}, its step {gain} shorter"


def _turns(runs: RlRuns) -> str:
    """Return a sentence that trainer and rollout alternate, and the step time with overlap."""
    placements = runs.source.inputs.rollouts.placements
    text = "Both sides take turns, each idle while the other works"
    other = next((name for name in ("async", "one_step_off") if name in placements), None)
    if other is None:
        return f"{text}."
    code = RlConfigurations.cast("placement", Placement[other.upper()])
    seconds = format_duration(first(runs.otherwise(placement=code, staleness=np.ones(1)).step_time))
    return f"{text}: {other} with staleness 1 takes {seconds}."


def _rl_speed(runs: RlRuns) -> dict[str, str]:
    """Return the speed of the first configuration as text by name: times, rates, idle shares."""
    rollout = runs.step.rollout
    engines = {
        "samples": runs.source.inputs.workload.samples,
        "places": first(rollout.places),
        "engines": first(runs.configurations.replicas),
        "engine_memory": first(rollout.configurations.gpu_memory_utilization),
    }
    return text_pairs({**runs.row, **engines}, _RL_SPEED)


_RL_SPEED = {
    "step time": "{step_time_s:time}",
    "samples/s": "{samples_per_s:number} ({samples:count} a step)",
    "tokens/s": "{tokens_per_s:count} ({tokens_per_s_per_gpu:number} per GPU), prompts included",
    "generate": "{time_generate_s:time}",
    "update": "{time_update_s:time}",
    "places": "{places:count} answers at once in each of {engines:count} engines, which use "
    "{engine_memory:percent} of the memory",
    "idle": "trainer {trainer_idle:percent}, rollout {rollout_idle:percent} of the step",
}


def _memory_parts(runs: RlRuns) -> Mapping[str, Mapping[str, float]]:
    """Return the GiB of each memory part in each RL phase."""
    phases = zip(MEMORY_PHASES, runs.step.memory_parts, strict=True)
    parts_by_phase = {
        phase.replace("_", " "): {name: first(size) / GIB for name, size in parts.items()}
        for phase, parts in phases
    }
    return {phase: parts for phase, parts in parts_by_phase.items() if any(parts.values())}


RL = Details(
    memory_and_speed=_rl_memory_and_speed,
    more=lambda *_: (),
    operators=lambda evaluation: [
        {"phase": name, "time_s": seconds}
        for name, seconds in evaluation.estimate.shown_times().items()
    ],
    times=lambda runs: {"step": runs.step.shown_times()},
    timelines=lambda runs: [rl_timeline(runs.step)],
    memory=_memory_parts,
)
