"""The steady state of steps: what is left after warm-up, its middle, its spread, its outliers."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import median, quantiles

from planner.base.records import record
from planner.launch.logs.reading import STEP_TIME, Step

_WARMUP_STEPS = 3
_WARMUP_SHARE = 0.1
_MOST_WARMUP = 20
# Ranks print the same step one after the other: only a longer way back is a restart.
_RANKS_APART = 3
# A step so many times slower than the median held something else than a step.
_SLOW = 1.5
_MOST_TOLD = 3


@record(kw_only=True)
class Steady:
    """A quantity in steady state: its median, and what 80 % of its steps lie between.

    ``lines`` is how many lines of the log it was taken from, ``warmup`` how many were left out.
    """

    value: float
    low: float
    high: float
    lines: int
    warmup: int
    notes: tuple[str, ...] = ()


def steady_state(steps: Sequence[Step], quantity: str) -> Steady:
    """The steady state of the steps of a log, which has at least one."""
    batch = steps[-1].batch
    attempts = list(_attempts([step for step in steps if step.batch == batch]))
    kept = [step for attempt in attempts for step in attempt[_warmup(attempt) :]]
    warmup = sum(map(len, attempts)) - len(kept)
    values = [step.value for step in kept]
    low, high = _spread(values)
    middle = median(values)
    notes = (
        *_about_batches(steps, batch),
        *_about_attempts(attempts, warmup),
        *_about_outliers(kept, middle, quantity),
    )
    return Steady(value=middle, low=low, high=high, lines=len(values), warmup=warmup, notes=notes)


def _attempts(steps: Sequence[Step]) -> Iterator[list[Step]]:
    """The steps of each start of the run, each once, whoever printed it."""
    found: defaultdict[int, defaultdict[int, list[Step]]]
    found = defaultdict(lambda: defaultdict(list))
    furthest: dict[str, int] = {}
    attempt: defaultdict[str, int] = defaultdict(int)
    for step in steps:
        before = furthest.get(step.stream, step.number)
        if step.number <= before - _RANKS_APART:
            attempt[step.stream] += 1
            before = step.number
        furthest[step.stream] = max(before, step.number)
        found[attempt[step.stream]][step.number].append(step)
    for numbers in found.values():
        yield [
            replace(
                same[0],
                value=median(step.value for step in same),
                after=next((step.after for step in same if step.after), ""),
            )
            for same in numbers.values()
        ]


def _warmup(attempt: Sequence[Step]) -> int:
    """How many lines of a start are left out: some steps, a tenth, never more than half."""
    lines = len(attempt)
    if lines < 2:
        return 0
    every = max((attempt[-1].number - attempt[0].number) / (lines - 1), 1.0)
    share = min(int(lines * _WARMUP_SHARE), _MOST_WARMUP)
    return min(max(math.ceil(_WARMUP_STEPS / every), share), lines // 2)


def _spread(values: Sequence[float]) -> tuple[float, float]:
    if len(values) == 1:
        return values[0], values[0]
    tenths = quantiles(values, n=10, method="inclusive")
    return tenths[0], tenths[-1]


def _about_batches(steps: Sequence[Step], batch: int) -> Iterator[str]:
    others = sorted({step.batch for step in steps} - {batch})
    if others:
        words = ", ".join(map(str, others))
        yield f"lines of other global batch sizes ({words}) are left out: {batch} came last"


def _about_attempts(attempts: Sequence[Sequence[Step]], warmup: int) -> Iterator[str]:
    if len(attempts) > 1:
        starts = ", ".join(str(attempt[0].number) for attempt in attempts[1:])
        yield f"the run started again at step {starts}: each start warms up anew"
    if not warmup:
        yield "there is one line only: warm-up is in it"


def _about_outliers(kept: Sequence[Step], middle: float, quantity: str) -> Iterator[str]:
    slower = [(_times(step.value, middle, quantity), step) for step in kept]
    slow = sorted((pair for pair in slower if pair[0] > _SLOW), key=lambda pair: -pair[0])
    if not slow:
        return
    told = ", ".join(
        f"step {step.number} {times:.1f} times{f' after {step.after}' if step.after else ''}"
        for times, step in slow[:_MOST_TOLD]
    )
    more = f", {len(slow) - _MOST_TOLD} more" if len(slow) > _MOST_TOLD else ""
    yield f"{len(slow)} of {len(kept)} lines are slower than {_SLOW:g} medians: {told}{more}"


def _times(value: float, middle: float, quantity: str) -> float:
    if quantity == STEP_TIME:
        return value / middle
    return middle / value if value else math.inf
