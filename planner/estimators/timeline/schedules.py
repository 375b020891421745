"""The order in which each rank of a pipeline works on micro-batches, by schedule."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

FORWARD, BACKWARD, WEIGHTS = "forward", "backward", "weights"
"""Passes of a micro-batch; ``weights`` makes gradients of weights, where that is split off."""


@dataclass(frozen=True, slots=True)
class Work:
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
        """What tells it from all others."""
        return self.kind, self.micro_batch, self.chunk, self.direction


def one_forward_one_backward(*, ranks: int, micro_batches: int) -> list[list[Work]]:
    """Forward passes until the pipeline is full, then one backward pass for each forward [1]_.

    References
    ----------
    .. [1] D. Narayanan et al., "Memory-efficient pipeline-parallel DNN training," 2021,
       arXiv:2006.09503.
    """
    found = []
    for rank in range(ranks):
        forward, backward = _passes(micro_batches, rank)
        found.append(_alternating(forward, backward, ranks - rank - 1))
    return found


def interleaved(*, ranks: int, chunks: int, micro_batches: int) -> list[list[Work]]:
    """1F1B over ``chunks`` chunks on each rank, of as many micro-batches as ranks in turn [1]_.

    References
    ----------
    .. [1] D. Narayanan et al., "Efficient large-scale language model training on GPU clusters
       using Megatron-LM," 2021, arXiv:2104.04473, section 2.2.
    """
    found = []
    for rank in range(ranks):
        forward = [
            Work(FORWARD, micro_batch, chunk * ranks + rank)
            for chunk, micro_batch in _in_turn(ranks, chunks, micro_batches)
        ]
        backward = [
            Work(BACKWARD, micro_batch, (chunks - 1 - chunk) * ranks + rank)
            for chunk, micro_batch in _in_turn(ranks, chunks, micro_batches)
        ]
        found.append(_alternating(forward, backward, 2 * (ranks - rank - 1) + (chunks - 1) * ranks))
    return found


def zero_bubble(*, ranks: int, micro_batches: int) -> list[list[Work]]:
    """1F1B whose gradients of weights are made later, the more so the later the rank (ZB-H1) [1]_.

    References
    ----------
    .. [1] P. Qi et al., "Zero bubble pipeline parallelism," 2024, arXiv:2401.10241, section 2.
    """
    found = []
    for rank, works in enumerate(
        one_forward_one_backward(ranks=ranks, micro_batches=micro_batches)
    ):
        mine: list[Work] = []
        for work in works:
            mine.append(work)
            if work.kind == BACKWARD and work.micro_batch >= rank:
                mine.append(Work(WEIGHTS, work.micro_batch - rank, rank))
        late = range(max(micro_batches - rank, 0), micro_batches)
        found.append([*mine, *(Work(WEIGHTS, each, rank) for each in late)])
    return found


def dualpipe(*, ranks: int, micro_batches: int) -> list[list[Work]]:
    """Micro-batches from both ends, the passes of one direction beside those of the other [1]_.

    Needs an even number of ranks, and of micro-batches at least twice as many.

    References
    ----------
    .. [1] DeepSeek-AI, "DualPipe," 2025, github.com/deepseek-ai/DualPipe, ``dualpipe.py``.
    """
    return [list(_dualpipe_rank(rank, ranks, micro_batches // 2)) for rank in range(ranks)]


def in_turns(*, ranks: int, micro_batches: int) -> list[list[Work]]:
    """Every micro-batch passes all ranks and comes back before the next one starts."""
    return [
        [Work(kind, each, rank) for each in range(micro_batches) for kind in (FORWARD, BACKWARD)]
        for rank in range(ranks)
    ]


def _passes(micro_batches: int, chunk: int) -> tuple[list[Work], list[Work]]:
    forward, backward = (
        [Work(kind, each, chunk) for each in range(micro_batches)] for kind in (FORWARD, BACKWARD)
    )
    return forward, backward


def _alternating(forward: list[Work], backward: list[Work], warm_up: int) -> list[Work]:
    """``warm_up`` forward passes, then a forward and a backward pass in turn, then the rest."""
    first = min(warm_up, len(forward))
    steady = zip(forward[first:], backward, strict=False)
    mixed = [work for pair in steady for work in pair]
    return [*forward[:first], *mixed, *backward[len(forward) - first :]]


def _in_turn(ranks: int, chunks: int, micro_batches: int) -> Iterator[tuple[int, int]]:
    """Chunks and micro-batches: of so many micro-batches all chunks, then of the next ones."""
    for start in range(0, micro_batches, ranks):
        for chunk in range(chunks):
            for micro_batch in range(start, min(start + ranks, micro_batches)):
                yield chunk, micro_batch


class _DualPipe:
    """A rank of DualPipe: numbers what it does, and holds back gradients of weights."""

    def __init__(self, rank: int, ranks: int) -> None:
        self.own = 0 if rank < ranks // 2 else 1
        self.chunk = (rank, ranks - 1 - rank)
        self.done = {FORWARD: [0, 0], BACKWARD: [0, 0]}
        self.waiting: list[Work] = []

    def pass_(self, kind: str, phase: int) -> Work:
        """The next pass of a phase: 0 is the direction that enters at the nearer end."""
        direction = phase ^ self.own
        number = self.done[kind][direction]
        self.done[kind][direction] += 1
        return Work(kind, number, self.chunk[direction], direction)

    def backward(self, phase: int, *, late: bool = False) -> Iterator[Work]:
        """A backward pass with its gradients of weights, or these ``late``."""
        work = self.pass_(BACKWARD, phase)
        weights = Work(WEIGHTS, work.micro_batch, work.chunk, work.direction)
        yield work
        if late:
            self.waiting.append(weights)
        else:
            yield weights

    def both(self, forward: int, backward: int) -> Iterator[Work]:
        """A forward pass of one phase beside a backward pass of the other."""
        yield self.pass_(FORWARD, forward)
        yield from self.backward(backward)


def _dualpipe_rank(rank: int, ranks: int, each: int) -> Iterator[Work]:
    """The eight steps of a rank, for ``each`` micro-batches of a direction."""
    mine, half = _DualPipe(rank, ranks), ranks // 2
    near = min(rank, ranks - 1 - rank)
    for _ in range(2 * (half - near - 1)):
        yield mine.pass_(FORWARD, 0)
    for _ in range(near + 1):
        yield mine.pass_(FORWARD, 0)
        yield mine.pass_(FORWARD, 1)
    for _ in range(half - near - 1):
        yield from mine.backward(1, late=True)
        yield mine.waiting.pop(0)
        yield mine.pass_(FORWARD, 1)
    for _ in range(each - ranks + near + 1):
        yield from mine.both(0, 1)
        yield from mine.both(1, 0)
    for _ in range(half - near - 1):
        yield from mine.backward(1)
        yield from mine.both(1, 0)
    late = False
    for step in range(near + 1):
        late = late or (step == (near + 1) // 2 and near % 2 == 1)
        yield from mine.backward(1, late=late)
        late = late or (step == (near + 1) // 2 and near % 2 == 0)
        yield from mine.backward(0, late=late)
    for _ in range(half - near - 1):
        if mine.waiting:
            yield mine.waiting.pop(0)
        yield from mine.backward(0, late=True)
    yield from mine.waiting
