"""Orders of pipeline schedules: every pass once, bubbles as published."""

from __future__ import annotations

from collections import Counter
from itertools import accumulate, pairwise

import pytest

from planner.base.enums import (
    PipelineSchedule,
)
from planner.estimators.timeline.pipeline_schedule import (
    BACKWARD,
    FORWARD,
    WEIGHTS,
    MicroBatchPass,
    Pipeline,
    schedule_passes,
    starts,
    topological_order,
)
from planner.formulas.pipeline import (
    bubble_time_1f1b,
    dualpipe_bubble_time,
    micro_batches_in_flight,
    zero_bubble_time,
)

F, B, W = 1.0, 1.4, 0.6

CASES = [
    (PipelineSchedule.ONE_FORWARD_ONE_BACKWARD, 4, 1, 9),
    (PipelineSchedule.ONE_FORWARD_ONE_BACKWARD, 8, 1, 3),
    (PipelineSchedule.INTERLEAVED, 4, 3, 8),
    (PipelineSchedule.INTERLEAVED, 2, 5, 2),
    (PipelineSchedule.ZERO_BUBBLE, 6, 1, 12),
    (PipelineSchedule.ZERO_BUBBLE, 6, 1, 3),
    (PipelineSchedule.DUALPIPE, 8, 1, 20),
    (PipelineSchedule.DUALPIPE, 2, 1, 4),
]


def _pipeline(schedule: PipelineSchedule, ranks: int, chunks: int, number: int) -> Pipeline:
    return Pipeline(ranks=ranks, chunks=chunks, micro_batches=number, schedule=schedule)


def _duration(chunks: int, *, splits: bool):
    passes = {FORWARD: F, BACKWARD: B if splits else B + W, WEIGHTS: W}
    return lambda work: passes[work.kind] / chunks


def _strict(pipeline: Pipeline, *, splits: bool) -> float:
    """The end where every pass waits for the whole of what it needs."""
    works = pipeline.works(pipeline.micro_batches)
    duration = _duration(pipeline.chunks, splits=splits)
    chunks = pipeline.ranks * pipeline.chunks
    found = schedule_passes(works, duration, chunks - 1, 1e-9)  # no share is small enough
    busy = sum(map(duration, works[0]))
    low, high = busy, 10 * busy
    for _ in range(60):  # the end at which a pass is handed over when it ends
        middle = (low + high) / 2
        found = schedule_passes(works, duration, chunks - 1, middle)
        low, high = (middle, high) if found.hand_over < 1 else (low, middle)
    return high


@pytest.mark.parametrize(("schedule", "ranks", "chunks", "number"), CASES)
def test_every_pass_is_done_once_and_backward_after_forward(schedule, ranks, chunks, number):
    works = _pipeline(schedule, ranks, chunks, number).works(number)
    counts = Counter(work.key for mine in works for work in mine)
    assert set(counts.values()) == {1}
    kinds = Counter(kind for kind, *_ in counts)
    assert kinds[FORWARD] == kinds[BACKWARD] == ranks * chunks * number
    splits = schedule >= PipelineSchedule.ZERO_BUBBLE
    assert kinds[WEIGHTS] == (ranks * number if splits else 0)
    for mine in works:
        place = {work.key: at for at, work in enumerate(mine)}
        for kind, *rest in place:
            if kind == BACKWARD:
                assert place[FORWARD, *rest] < place[BACKWARD, *rest]
            if kind == WEIGHTS:
                assert place[BACKWARD, *rest] < place[WEIGHTS, *rest]


@pytest.mark.parametrize(("schedule", "ranks", "chunks", "number"), CASES)
def test_works_keep_their_order_and_wait_for_what_they_need(schedule, ranks, chunks, number):
    pipeline = _pipeline(schedule, ranks, chunks, number)
    splits = schedule >= PipelineSchedule.ZERO_BUBBLE
    duration = _duration(chunks, splits=splits)
    end = 1.3 * number * (F + B + W) + ranks
    found = schedule_passes(pipeline.works(number), duration, ranks * chunks - 1, end)
    lanes = [[*zip(*lane, strict=True)] for lane in zip(found.works, found.starts, strict=True)]
    begin = {work.key: start for lane in lanes for work, start in lane}
    ends = [start + duration(work) for lane in lanes for work, start in lane]
    assert max(ends) == pytest.approx(end, rel=1e-12)
    for lane in lanes:
        for (work, start), (_, following) in pairwise(lane):
            assert following >= start + duration(work) - 1e-9
    for kind, micro_batch, chunk, direction in begin:
        if kind == FORWARD and chunk:
            before = begin[FORWARD, micro_batch, chunk - 1, direction]
            least = before + min(found.hand_over, 1) * duration(MicroBatchPass(FORWARD, 0, 0))
            assert begin[kind, micro_batch, chunk, direction] >= least - 1e-9


@pytest.mark.parametrize(("schedule", "ranks", "chunks", "number"), CASES[:6])
def test_as_many_micro_batches_are_held_as_the_memory_has(schedule, ranks, chunks, number):
    for rank, mine in enumerate(_pipeline(schedule, ranks, chunks, number).works(number)):
        steps = [{FORWARD: 1, BACKWARD: -1, WEIGHTS: 0}[work.kind] for work in mine]
        held = micro_batches_in_flight(
            pipeline_parallel=ranks, virtual_pipeline=chunks, num_micro_batches=number, stage=rank
        )
        assert max(accumulate(steps)) / chunks == pytest.approx(held)


@pytest.mark.parametrize(("ranks", "number"), [(2, 4), (4, 8), (8, 32)])
def test_equal_stages_have_the_bubble_of_the_formula(ranks, number):
    t = F + B + W
    equal = {"all_stages": ranks * t, "slowest_stage": t}
    one = PipelineSchedule.ONE_FORWARD_ONE_BACKWARD
    bubble = bubble_time_1f1b(**equal, virtual_pipeline=1)
    assert _strict(_pipeline(one, ranks, 1, number), splits=False) == pytest.approx(
        number * t + bubble, rel=1e-9
    )
    for chunks in (2, 3):
        pipeline = _pipeline(PipelineSchedule.INTERLEAVED, ranks, chunks, number)
        bubble = bubble_time_1f1b(**equal, virtual_pipeline=chunks)
        assert _strict(pipeline, splits=False) == pytest.approx(number * t + bubble, rel=1e-9)
    bubble = zero_bubble_time(**equal, all_weights=ranks * W, slowest_weights=W)
    pipeline = _pipeline(PipelineSchedule.ZERO_BUBBLE, ranks, 1, number)
    assert _strict(pipeline, splits=True) == pytest.approx(number * t + bubble, rel=1e-9)


def test_dualpipe_idles_no_longer_than_its_formula():
    ranks, number, t = 8, 32, F + B + W
    bubble = dualpipe_bubble_time(stages=ranks, mean_stage=t, mean_backward=B + W, mean_weights=W)
    found = _strict(_pipeline(PipelineSchedule.DUALPIPE, ranks, 1, number), splits=True)
    assert number * t < found <= number * t + bubble


def test_turns_pass_all_ranks_one_after_the_other():
    pipeline = Pipeline(
        ranks=3,
        chunks=1,
        micro_batches=4,
        schedule=PipelineSchedule.ONE_FORWARD_ONE_BACKWARD,
        turns=True,
    )
    assert _strict(pipeline, splits=False) == pytest.approx(4 * 3 * (F + B + W))


@pytest.mark.parametrize("schedule", PipelineSchedule)
def test_of_many_micro_batches_few_are_shown(schedule):
    chunks = 2 if schedule == PipelineSchedule.INTERLEAVED else 1
    pipeline = _pipeline(schedule, 64, chunks, 512)
    assert 64 < pipeline.shown() <= 130
    assert _pipeline(schedule, 4, chunks, 8).shown() == 8


def test_works_that_wait_for_each_other_are_refused():
    with pytest.raises(ValueError, match="wait for each other"):
        topological_order([[1], [0]])


def test_a_work_starts_after_the_one_before_it_and_what_it_waits_for():
    begin, slope = starts([0, 1, 2], [-1, -1, 1], [[], [0], [0]], [2.0, 3.0, 1.0], 0.5)
    assert begin == [0.0, 1.0, 4.0]
    assert slope == [0.0, 2.0, 2.0]
