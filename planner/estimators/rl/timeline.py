"""A step of reinforcement learning over time: a lane for the trainer, one for the rollout."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from planner.base.arrays import first
from planner.estimators.rl.step import TRAINER_PHASES, RlStep
from planner.estimators.timeline.placed import COMPUTE, EXCHANGE, IDLE, WAIT, Span, Timeline

LANES = "trainer", "rollout"


def rl_timeline(step: RlStep) -> Timeline:
    """The first configuration's step.

    Generation is drawn whole as long as all places of the engines hold an answer, and then as a
    wedge that thins out until the longest is done. Where both sides work at the same time each
    starts with the step, on answers that the other has from the step before.
    """
    c, total = step.configurations, first(step.total)
    beside = bool(first(step.overlaps))
    seconds = {name: first(one) for name, one in step.times.items()}
    generate = seconds["generate"]
    steady = min(first(step.rollout.steady), generate)
    lane = [*_generation(steady, generate), *_after(generate, 1, [("reward", seconds["reward"])])]
    start = 0.0 if beside else generate + seconds["reward"]
    half = seconds["switch"] / 2
    if half:
        lane += [Span(one, EXCHANGE, "switch", "switch", start, half) for one in (0, 1)]
        start += half
    training = [(name, seconds[name]) for name in TRAINER_PHASES]
    lane += _after(start, 0, training)
    end = total - seconds["sync"]
    if half:
        lane += [Span(one, EXCHANGE, "switch", "switch", end - half, half) for one in (0, 1)]
    lane += [Span(one, EXCHANGE, "sync", "sync", end, seconds["sync"]) for one in (0, 1)]
    gpus = [
        f"{name}, {first(number):,.0f} GPUs"
        for name, number in zip(LANES, (c.trainer_gpus, c.rollout_gpus), strict=True)
    ]
    spans = [span for span in lane if span.duration > 0]
    is_shared = bool(first(c.colocated))
    return Timeline(
        title="step",
        lanes=[
            f"{name} (the same)" if is_shared and name.startswith("rollout") else name
            for name in gpus
        ],
        spans=[*spans, *_idle(spans, total)],
        makespan=total,
    )


def _generation(steady: float, whole: float) -> Iterator[Span]:
    yield Span(1, COMPUTE, "generate", "generate", 0.0, steady)
    yield Span(1, COMPUTE, "tail", "generate", steady, whole - steady, left=0.06)


def _after(start: float, lane: int, named: Iterable[tuple[str, float]]) -> Iterator[Span]:
    """Phases one after the other."""
    for name, seconds in named:
        yield Span(lane, COMPUTE, name.replace("_", " "), name, start, seconds)
        start += seconds


def _idle(spans: Iterable[Span], total: float) -> Iterator[Span]:
    """What is left of each lane."""
    for lane in range(len(LANES)):
        now = 0.0
        for span in sorted((one for one in spans if one.lane == lane), key=lambda one: one.start):
            if span.start - now > 1e-9 * total:
                yield Span(lane, WAIT, "idle", IDLE, now, span.start - now)
            now = max(now, span.start + span.duration)
        if total - now > 1e-9 * total:
            yield Span(lane, WAIT, "idle", IDLE, now, total - now)
