"""Pipeline schedules: passes of the ranks in order, with their start times."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from planner.base.enums import PipelineSchedule
from planner.base.records import record
from planner.base.units import ceil_div

FORWARD, BACKWARD, WEIGHTS = "forward", "backward", "weights"
"""Passes of a micro-batch; ``weights`` makes gradients of weights, where that is split off."""


@dataclass(frozen=True, slots=True)
class MicroBatchPass:
    """A pass of a micro-batch over one chunk of a model's layers.

    Chunks count from the input to the output. ``direction`` is 1 of micro-batches that enter a
    pipeline at its last rank.
    """

    kind: str
    micro_batch: int
    chunk: int
    direction: int = 0

    @property
    def key(self) -> tuple[str, int, int, int]:
        """A key that is unique in a schedule."""
        return self.kind, self.micro_batch, self.chunk, self.direction


def one_forward_one_backward(*, ranks: int, micro_batches: int) -> list[list[MicroBatchPass]]:
    """Return the 1F1B order of passes per rank: fill, alternate, drain [1]_.

    References
    ----------
    .. [1] D. Narayanan et al., "Memory-efficient pipeline-parallel DNN training," 2021,
       arXiv:2006.09503.
    """
    schedule = []
    for rank in range(ranks):
        forward, backward = (
            [MicroBatchPass(kind, each, rank) for each in range(micro_batches)]
            for kind in (FORWARD, BACKWARD)
        )
        schedule.append(_alternating(forward, backward, ranks - rank - 1))
    return schedule


def interleaved(*, ranks: int, chunks: int, micro_batches: int) -> list[list[MicroBatchPass]]:
    """Return the interleaved 1F1B order of passes per rank over ``chunks`` model chunks [1]_.

    References
    ----------
    .. [1] D. Narayanan et al., "Efficient large-scale language model training on GPU clusters
       using Megatron-LM," 2021, arXiv:2104.04473, section 2.2.
    """
    schedule = []
    for rank in range(ranks):
        forward = [
            MicroBatchPass(FORWARD, micro_batch, chunk * ranks + rank)
            for chunk, micro_batch in _round_robin(ranks, chunks, micro_batches)
        ]
        backward = [
            MicroBatchPass(BACKWARD, micro_batch, (chunks - 1 - chunk) * ranks + rank)
            for chunk, micro_batch in _round_robin(ranks, chunks, micro_batches)
        ]
        schedule.append(
            _alternating(forward, backward, 2 * (ranks - rank - 1) + (chunks - 1) * ranks)
        )
    return schedule


def zero_bubble(*, ranks: int, micro_batches: int) -> list[list[MicroBatchPass]]:
    """Return the ZB-H1 order of passes per rank: 1F1B with delayed weight gradients [1]_.

    References
    ----------
    .. [1] P. Qi et al., "Zero bubble pipeline parallelism," 2024, arXiv:2401.10241, section 2.
    """
    schedule = []
    for rank, works in enumerate(
        one_forward_one_backward(ranks=ranks, micro_batches=micro_batches)
    ):
        passes: list[MicroBatchPass] = []
        for work in works:
            passes.append(work)
            if work.kind == BACKWARD and work.micro_batch >= rank:
                passes.append(MicroBatchPass(WEIGHTS, work.micro_batch - rank, rank))
        late = range(max(micro_batches - rank, 0), micro_batches)
        schedule.append([*passes, *(MicroBatchPass(WEIGHTS, each, rank) for each in late)])
    return schedule


def dualpipe(*, ranks: int, micro_batches: int) -> list[list[MicroBatchPass]]:
    """Return the DualPipe order of passes per rank, with micro-batches from both ends [1]_.

    Needs an even number of ranks, and of micro-batches at least twice as many.

    References
    ----------
    .. [1] DeepSeek-AI, "DualPipe," 2025, github.com/deepseek-ai/DualPipe, ``dualpipe.py``.
    """
    return [list(_dualpipe_rank(rank, ranks, micro_batches // 2)) for rank in range(ranks)]


def one_at_a_time(*, ranks: int, micro_batches: int) -> list[list[MicroBatchPass]]:
    """Return the order of passes per rank if micro-batches run one after another."""
    return [
        [
            MicroBatchPass(kind, each, rank)
            for each in range(micro_batches)
            for kind in (FORWARD, BACKWARD)
        ]
        for rank in range(ranks)
    ]


def _alternating(
    forward: list[MicroBatchPass], backward: list[MicroBatchPass], warm_up: int
) -> list[MicroBatchPass]:
    """Return ``warm_up`` forward passes, then alternating passes, then the rest."""
    first = min(warm_up, len(forward))
    steady = zip(forward[first:], backward, strict=False)
    mixed = [work for pair in steady for work in pair]
    return [*forward[:first], *mixed, *backward[len(forward) - first :]]


def _round_robin(ranks: int, chunks: int, micro_batches: int) -> Iterator[tuple[int, int]]:
    """Yield (chunk, micro-batch) pairs in turn: all chunks of one group of micro-batches."""
    for start in range(0, micro_batches, ranks):
        for chunk in range(chunks):
            for micro_batch in range(start, min(start + ranks, micro_batches)):
                yield chunk, micro_batch


class _DualPipe:
    """A rank of DualPipe: numbers what it does, and holds back gradients of weights."""

    def __init__(self, rank: int, ranks: int) -> None:
        self.near_direction = 0 if rank < ranks // 2 else 1
        self.chunk = (rank, ranks - 1 - rank)
        self.done = {FORWARD: [0, 0], BACKWARD: [0, 0]}
        self.waiting: list[MicroBatchPass] = []

    def pass_(self, kind: str, phase: int) -> MicroBatchPass:
        """The next pass of a phase: 0 is the direction that enters at the nearer end."""
        direction = phase ^ self.near_direction
        number = self.done[kind][direction]
        self.done[kind][direction] += 1
        return MicroBatchPass(kind, number, self.chunk[direction], direction)

    def backward(self, phase: int, *, late: bool = False) -> Iterator[MicroBatchPass]:
        """A backward pass with its gradients of weights, or these ``late``."""
        work = self.pass_(BACKWARD, phase)
        weights = MicroBatchPass(WEIGHTS, work.micro_batch, work.chunk, work.direction)
        yield work
        if late:
            self.waiting.append(weights)
        else:
            yield weights

    def both(self, forward: int, backward: int) -> Iterator[MicroBatchPass]:
        """A forward pass of one phase that overlaps a backward pass of the other."""
        yield self.pass_(FORWARD, forward)
        yield from self.backward(backward)


def _dualpipe_rank(rank: int, ranks: int, each: int) -> Iterator[MicroBatchPass]:
    """Yield the passes of one rank in DualPipe; ``each``: micro-batches per direction."""
    state, half = _DualPipe(rank, ranks), ranks // 2
    distance = min(rank, ranks - 1 - rank)
    for _ in range(2 * (half - distance - 1)):
        yield state.pass_(FORWARD, 0)
    for _ in range(distance + 1):
        yield state.pass_(FORWARD, 0)
        yield state.pass_(FORWARD, 1)
    for _ in range(half - distance - 1):
        yield from state.backward(1, late=True)
        yield state.waiting.pop(0)
        yield state.pass_(FORWARD, 1)
    for _ in range(each - ranks + distance + 1):
        yield from state.both(0, 1)
        yield from state.both(1, 0)
    for _ in range(half - distance - 1):
        yield from state.backward(1)
        yield from state.both(1, 0)
    late = False
    for step in range(distance + 1):
        late = late or (step == (distance + 1) // 2 and distance % 2 == 1)
        yield from state.backward(1, late=late)
        late = late or (step == (distance + 1) // 2 and distance % 2 == 0)
        yield from state.backward(0, late=late)
    for _ in range(half - distance - 1):
        if state.waiting:
            yield state.waiting.pop(0)
        yield from state.backward(0, late=True)
    yield from state.waiting


def topological_order(waits: Sequence[Sequence[int]]) -> list[int]:
    """Return works in topological order: each after the works that it waits for.

    Raises ValueError if some wait for each other.
    """
    left = [len(each) for each in waits]
    waited_by: list[list[int]] = [[] for _ in waits]
    for work, each in enumerate(waits):
        for other in each:
            waited_by[other].append(work)
    order = [work for work, number in enumerate(left) if number == 0]
    for work in order:
        for other in waited_by[work]:
            left[other] -= 1
            if left[other] == 0:
                order.append(other)
    if len(order) < len(waits):
        raise ValueError("Works wait for each other.")
    return order


def starts(
    order: Sequence[int],
    before: Sequence[int],
    waits: Sequence[Sequence[int]],
    durations: Sequence[float],
    share: float,
) -> tuple[list[float], list[float]]:
    """Return the start time of each work, and the derivative with respect to ``share``.

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
        """Number of micro-batches drawn; the others repeat them."""
        p, unit, least = self.ranks, 1, self.ranks + 3
        if self.turns:
            least = 3
        elif self.schedule == PipelineSchedule.DUALPIPE:
            unit, least = 2, 2 * p + 2
        elif self.chunks > 1:
            unit, least = p, 2 * p
        shown = ceil_div(max(least, _LEAST_SHOWN), unit) * unit
        return min(shown, self.micro_batches)

    def works(self, micro_batches: int) -> list[list[MicroBatchPass]]:
        """Return the works of each rank in order."""
        sizes = {"ranks": self.ranks, "micro_batches": micro_batches}
        if self.turns:
            return one_at_a_time(**sizes)
        if self.schedule == PipelineSchedule.DUALPIPE:
            return dualpipe(**sizes)
        if self.schedule == PipelineSchedule.ZERO_BUBBLE:
            return zero_bubble(**sizes)
        if self.chunks > 1:
            return interleaved(chunks=self.chunks, **sizes)
        return one_forward_one_backward(**sizes)


@record(kw_only=True)
class ScheduledPasses:
    """Works of each rank with when they start [s]; ``hand_over`` as `placed` says."""

    works: Sequence[Sequence[MicroBatchPass]]
    starts: Sequence[Sequence[float]]
    hand_over: float


def schedule_passes(
    works: Sequence[Sequence[MicroBatchPass]],
    duration: Callable[[MicroBatchPass], float],
    last_chunk: int,
    makespan: float,
) -> ScheduledPasses:
    """Return the start time [s] of each work; the last one ends at ``makespan`` [s].

    A rank works in its order; a pass starts when the neighbouring stage has handed over. The
    step-time model has the bubble in closed form. Strict waiting reproduces it exactly if all
    stages take equally long: a pass is then handed over at its end, a share of 1 of its duration.
    If stages differ, all passes are handed over earlier or later by the same share.
    """
    flat = [work for passes in works for work in passes]
    numbers = {work.key: number for number, work in enumerate(flat)}
    before = _previous_works(works)
    waits = [[numbers[key] for key in _dependencies(work, last_chunk)] for work in flat]
    durations = [duration(work) for work in flat]
    linked = [[*w, *([b] if b >= 0 else [])] for w, b in zip(waits, before, strict=True)]
    order = topological_order(linked)
    share, start_times = 1.0, [0.0]
    for _ in range(_ROUNDS):
        start_times, slopes = starts(order, before, waits, durations, share)
        last = max(range(len(flat)), key=lambda n: start_times[n] + durations[n])
        remaining = makespan - start_times[last] - durations[last]
        if abs(remaining) <= _CLOSE * makespan or (not slopes[last] and remaining < 0):
            break
        share = share + remaining / slopes[last] if slopes[last] else 2 * share
    times = iter(start_times)
    return ScheduledPasses(
        works=works, starts=[[next(times) for _ in passes] for passes in works], hand_over=share
    )


def _previous_works(works: Sequence[Sequence[MicroBatchPass]]) -> list[int]:
    """Return the index of the previous work on the same rank; -1 for the first."""
    previous: list[int] = []
    for work in works:
        first = len(previous)
        previous += [first + n - 1 if n else -1 for n in range(len(work))]
    return previous


def _dependencies(work: MicroBatchPass, last_chunk: int) -> list[tuple[str, int, int, int]]:
    """Return the passes that a pass waits for."""
    kind, micro_batch, chunk, direction = work.key
    if kind == FORWARD:
        return [(FORWARD, micro_batch, chunk - 1, direction)] if chunk else []
    if kind != BACKWARD:
        return []
    if chunk == last_chunk:
        return [(FORWARD, micro_batch, chunk, direction)]
    return [(BACKWARD, micro_batch, chunk + 1, direction)]


COMPUTE, EXCHANGE, TRANSFER, WAIT = "compute", "exchange", "transfer", "wait"
STREAMS = (COMPUTE, EXCHANGE, TRANSFER, WAIT)
"""What a rank does at once only one of, as shown: what hides behind other work is not there."""

MORE, BUBBLE, IDLE = "more", "pipeline_bubble", "idle"
"""Parts of spans: what is left out of the middle, and idle time, which is hatched where a whole
side has it."""


@dataclass(frozen=True, slots=True)
class Span:
    """Seconds in which a lane does one thing.

    ``part`` is a part of the step's time, or a pass; ``within`` has the seconds by part of a span
    of ``MORE``; ``left`` is the share of a lane's GPUs or places that still work when it ends.
    """

    lane: int
    stream: str
    name: str
    part: str
    start: float
    duration: float
    within: Mapping[str, float] = field(default_factory=dict)
    left: float = 1.0

    @property
    def end(self) -> float:
        """When it ends [s]."""
        return self.start + self.duration


@record(kw_only=True)
class Timeline:
    """One step of several lanes: the stages of a pipeline, or a GPU.

    ``makespan`` [s] is the step's time. ``skipped`` are times in which all lanes repeat the work
    before and after. ``memory``: for each lane, times and the bytes held from then on; ``peak`` is
    the most of all, ``capacity`` the usable bytes. ``hand_over``: the share of a pass after which
    the next stage takes it on (`planner.estimators.timeline.pipeline_schedule`).
    """

    title: str
    lanes: Sequence[str]
    spans: Sequence[Span]
    makespan: float
    skipped: Sequence[tuple[float, float]] = ()
    memory: Sequence[Sequence[tuple[float, float]]] = ()
    peak: float = 0.0
    capacity: float = 0.0
    hand_over: float = 1.0

    def of_lane(self, lane: int) -> Iterator[Span]:
        """The spans of a lane in order."""
        return iter(sorted((s for s in self.spans if s.lane == lane), key=lambda s: s.start))

    def seconds(self, lane: int) -> dict[str, float]:
        """Return seconds of a lane by part, including parts omitted in the middle."""
        sums: dict[str, float] = {}
        for span in self.of_lane(lane):
            for part, seconds in (span.within or {span.part: span.duration}).items():
                sums[part] = sums.get(part, 0.0) + seconds
        return sums
