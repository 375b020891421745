"""The works of a pipeline placed in time, so that all ends when the step-time model says."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from planner.base.enums import PipelineSchedule
from planner.base.records import record
from planner.estimators.timeline.schedules import (
    BACKWARD,
    FORWARD,
    Work,
    dualpipe,
    in_turns,
    interleaved,
    one_forward_one_backward,
    zero_bubble,
)


def in_order(waits: Sequence[Sequence[int]]) -> list[int]:
    """Works so that each comes after those that it waits for.

    Raises
    ------
    ValueError
        Some wait for each other.
    """
    left = [len(each) for each in waits]
    waited_by: list[list[int]] = [[] for _ in waits]
    for work, each in enumerate(waits):
        for other in each:
            waited_by[other].append(work)
    found = [work for work, number in enumerate(left) if number == 0]
    for work in found:
        for other in waited_by[work]:
            left[other] -= 1
            if left[other] == 0:
                found.append(other)
    if len(found) < len(waits):
        raise ValueError("Works wait for each other.")
    return found


def starts(
    order: Sequence[int],
    before: Sequence[int],
    waits: Sequence[Sequence[int]],
    durations: Sequence[float],
    share: float,
) -> tuple[list[float], list[float]]:
    """When each work starts, and how fast that grows with ``share``.

    A work starts when the one ``before`` it on its rank ends (-1: none), and when ``share`` of the
    duration of each that it ``waits`` for has passed since that started.
    """
    begin, slope = [0.0] * len(durations), [0.0] * len(durations)
    for work in order:
        start, grows = 0.0, 0.0
        previous = before[work]
        if previous >= 0:
            start, grows = begin[previous] + durations[previous], slope[previous]
        for other in waits[work]:
            ready = begin[other] + share * durations[other]
            if ready > start:
                start, grows = ready, slope[other] + durations[other]
        begin[work], slope[work] = start, grows
    return begin, slope


_ROUNDS = 60
_CLOSE = 1e-13
_LEAST_SHOWN = 12
"""Micro-batches that are shown of a short pipeline before any are left out."""


@record(kw_only=True)
class Pipeline:
    """Ranks, chunks on each of them, micro-batches, and who takes turns how."""

    ranks: int
    chunks: int
    micro_batches: int
    schedule: PipelineSchedule
    turns: bool = False

    def shown(self) -> int:
        """Micro-batches that show how it fills, runs and drains; the others repeat them."""
        p, unit, least = self.ranks, 1, self.ranks + 3
        if self.turns:
            least = 3
        elif self.schedule == PipelineSchedule.DUALPIPE:
            unit, least = 2, 2 * p + 2
        elif self.chunks > 1:
            unit, least = p, 2 * p
        wanted = -(-max(least, _LEAST_SHOWN) // unit) * unit
        return min(wanted, self.micro_batches)

    def works(self, micro_batches: int) -> list[list[Work]]:
        """The works of each rank in its order."""
        few = {"ranks": self.ranks, "micro_batches": micro_batches}
        if self.turns:
            return in_turns(**few)
        if self.schedule == PipelineSchedule.DUALPIPE:
            return dualpipe(**few)
        if self.schedule == PipelineSchedule.ZERO_BUBBLE:
            return zero_bubble(**few)
        if self.chunks > 1:
            return interleaved(chunks=self.chunks, **few)
        return one_forward_one_backward(**few)


@record(kw_only=True)
class Placed:
    """Works of each rank with when they start [s]; ``hand_over`` as `placed` says."""

    works: Sequence[Sequence[Work]]
    starts: Sequence[Sequence[float]]
    hand_over: float


def placed(
    works: Sequence[Sequence[Work]],
    duration: Callable[[Work], float],
    last_chunk: int,
    makespan: float,
) -> Placed:
    """When each work starts, so that the last one ends at ``makespan`` [s].

    A rank works in its order; a pass starts when that of the neighbouring stage has handed over.
    The bubble of the step-time model is a closed form, which strict waiting keeps exactly where
    all stages take the same: there a pass is handed over when it ends, a share of 1 of it. Where
    stages differ, it is handed over a little earlier or later, all by the same share of their
    durations.
    """
    flat = [work for mine in works for work in mine]
    at = {work.key: number for number, work in enumerate(flat)}
    before = _before(works)
    waits = [[at[key] for key in _waits_for(work, last_chunk)] for work in flat]
    durations = [duration(work) for work in flat]
    linked = [[*w, *([b] if b >= 0 else [])] for w, b in zip(waits, before, strict=True)]
    order = in_order(linked)
    share, found = 1.0, [0.0]
    for _ in range(_ROUNDS):
        found, slopes = starts(order, before, waits, durations, share)
        last = max(range(len(flat)), key=lambda n: found[n] + durations[n])
        rest = makespan - found[last] - durations[last]
        if abs(rest) <= _CLOSE * makespan or (not slopes[last] and rest < 0):
            break
        share = share + rest / slopes[last] if slopes[last] else 2 * share
    begins = iter(found)
    return Placed(
        works=works, starts=[[next(begins) for _ in mine] for mine in works], hand_over=share
    )


def _before(works: Sequence[Sequence[Work]]) -> list[int]:
    """The number of the work before each on its rank, -1 for the first."""
    found: list[int] = []
    for mine in works:
        first = len(found)
        found += [first + n - 1 if n else -1 for n in range(len(mine))]
    return found


def _waits_for(work: Work, last_chunk: int) -> list[tuple[str, int, int, int]]:
    """The passes of other chunks that a pass needs; its own forward pass at the last chunk."""
    kind, micro_batch, chunk, direction = work.key
    if kind == FORWARD:
        return [(FORWARD, micro_batch, chunk - 1, direction)] if chunk else []
    if kind != BACKWARD:
        return []
    if chunk == last_chunk:
        return [(FORWARD, micro_batch, chunk, direction)]
    return [(BACKWARD, micro_batch, chunk + 1, direction)]
