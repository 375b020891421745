"""One way to train on generated answers in full: its step by phase, its memory, its balance."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from planner.base import text
from planner.base.cells import number_in
from planner.base.units import GIB, HOUR
from planner.estimators.rl.step import MEMORY_PHASES, PHASES
from planner.estimators.rl.timeline import rl_timeline
from planner.show.page import Beside, Block, Pairs, Table, Title, grid, said
from planner.show.views.details import Details, sure_blocks
from planner.show.views.money import price_words
from planner.show.views.told import first, parts_table
from planner.workloads.plan import Plan
from planner.workloads.rl_runs import RlRuns

TOLD_APART = (
    "Async over colocated per GPU is predicted to 13 % of published pairs, by a rule of thumb to "
    "18 % (it gains 10 % at the same number of GPUs, and loses 10 % where it takes more of them): "
    "closer ones are not told apart."
)
OLDER = (
    "Answers are of older weights than they train: whether learning suffers is not predicted "
    "(AReaL, arXiv:2505.24298: within a point up to 4 to 8 steps with a decoupled loss)."
)


def _memory_and_speed(plan: Plan, runs: RlRuns) -> Iterator[Block]:
    total = first(runs.step_time)
    time = parts_table("s", runs.step.shown_times(), "step", total, total, digits=1)
    yield Beside(tables={"Memory by phase": _memory(runs), "Time of a step": time})
    yield said(*_balance(runs))
    yield Title(text="Speed")
    yield Pairs(pairs=_speed(runs))
    yield from sure_blocks(plan, runs)
    yield from _run(runs)


def _memory(runs: RlRuns) -> Table:
    """The fullest GPU in each phase, and what waits in host memory, in GiB."""
    capacity = runs.source.setting.machine.gpu.allocatable_memory
    sizes = dict(zip(MEMORY_PHASES, map(first, runs.step.phase_memory), strict=True))
    rows = [
        (name.replace("_", " "), f"{size / GIB:,.1f}", f"{100 * size / capacity:.1f}")
        for name, size in (*sizes.items(), ("capacity", capacity))
        if size
    ]
    if host := first(runs.host_memory):
        rows.append(("in host memory", f"{host / GIB:,.1f}", ""))
    return grid(("phase", "GiB", "%"), rows)


def _balance(runs: RlRuns) -> list[str]:
    """What the step waits for, the split that would balance, and what is idle."""
    step, c = runs.step, runs.configurations
    side = "rollout" if first(step.rollout_is_longer) else "the trainer"
    lines = [f"{side.capitalize()} is the bottleneck by {text.percent(first(step.imbalance))}"]
    if not bool(first(c.colocated)):
        total = first(c.num_gpus)
        trains = min(max(round(first(step.balanced_train_gpus)), 1), total - 1)
        lines[0] += f"; {trains:,.0f}:{total - trains:,.0f} would balance"
    idle = first(runs.lanes_idle)
    if idle > 0:
        lines[0] += f"; {text.percent(idle)} of the places of the engine's steps are idle"
    lines[0] += "."
    if not bool(first(c.colocated)):
        lines.append(TOLD_APART)
    if bool(first(c.partial_rollout)) or first(c.staleness) > 0:
        lines.append(OLDER)
    return lines


def _speed(runs: RlRuns) -> dict[str, str]:
    work, hidden = runs.source.setting.workload, ("generate", "update")
    times = {name: first(runs.step.times[name]) for name in PHASES}
    tokens, num_gpus = first(runs.throughput), first(runs.num_gpus)
    return {
        "step time": text.duration(first(runs.step_time)),
        "samples/s": f"{text.significant(first(runs.samples_per_s))} ({work.samples:,} a step)",
        "tokens/s": f"{text.count(tokens)} ({text.significant(tokens / num_gpus)} per GPU), "
        "prompts included",
        **{name: text.duration(times[name]) for name in hidden},
        "places": f"{text.count(first(runs.step.rollout.places))} answers at once in each of "
        f"{text.significant(first(runs.configurations.replicas))} engines",
        "idle": f"trainer {text.percent(first(runs.trainer_idle))}, "
        f"rollout {text.percent(first(runs.rollout_idle))} of the step",
    }


def _run(runs: RlRuns) -> Iterator[Block]:
    """What all steps take."""
    site, work = runs.source.site, runs.source.setting.workload
    yield Title(text=f"A run of {work.steps:,} steps")
    pairs = {
        "time to train": text.duration(first(runs.time_to_train)),
        "calendar time": f"{text.duration(first(runs.calendar_time))}, failures as "
        f"{site.reliability.name}",
        "GPU-hours": text.count(first(runs.gpu_hours) / HOUR),
        "cost": "price unknown: give --price",
    }
    if not math.isnan(site.price):
        hourly = f"{price_words({**site.columns, **site.grounds})} per GPU-hour, {site.contract}"
        pairs["cost"] = f"{text.dollars(first(runs.cost))} at {hourly}"
        million = text.dollars(number_in(runs.row, "cost_per_million_trained_tokens_usd"))
        pairs["cost/Mtok"] = f"{million} per million trained tokens"
    yield Pairs(pairs=pairs)


def _times(runs: RlRuns) -> Mapping[str, Mapping[str, float]]:
    """The phases that a step waits for."""
    return {"step": runs.step.shown_times()}


RL = Details(
    memory_and_speed=_memory_and_speed,
    more=lambda *_: (),
    operators=lambda found: [
        {"phase": name, "time_s": seconds} for name, seconds in found.estimate.shown_times().items()
    ],
    times=_times,
    timelines=lambda runs: [rl_timeline(runs.step)],
)
