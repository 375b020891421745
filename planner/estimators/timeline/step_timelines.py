"""Timelines of a training step, of an engine's step, and of a reinforcement learning step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from planner.base.arrays import FloatArray, first
from planner.base.enums import PipelineSchedule
from planner.base.records import record
from planner.estimators.inference.engine_step import PARTS_WITHOUT_OPERATOR, InferenceStep
from planner.estimators.operators import Operator
from planner.estimators.rl.rl_step import TRAINER_PHASES, RlStep
from planner.estimators.timeline.pipeline_schedule import (
    BACKWARD,
    BUBBLE,
    COMPUTE,
    EXCHANGE,
    FORWARD,
    IDLE,
    MORE,
    TRANSFER,
    WAIT,
    WEIGHTS,
    MicroBatchPass,
    Pipeline,
    Span,
    Timeline,
    schedule_passes,
)
from planner.estimators.training.recomputation import Recomputation
from planner.estimators.training.sharding import chunk_layers
from planner.estimators.training.step_time import OperatorGroup
from planner.estimators.training.training_estimate import Estimate, evaluate
from planner.layers.model import trained_shares

PASSES = (FORWARD, BACKWARD, WEIGHTS)


@record(kw_only=True)
class ChunkTimes:
    """Seconds of each pass over a chunk by stream, and the layers that it has."""

    seconds: Mapping[str, Mapping[str, float]]
    layers: float

    def total(self, kind: str) -> float:
        """Seconds of a pass."""
        return sum(self.seconds[kind].values())


def chunks_of(estimate: Estimate, ranks: int, per_rank: int, *, splits: bool) -> list[ChunkTimes]:
    """Return times of each model chunk of a single-configuration estimate, in model order.

    ``splits``: gradients of weights are a pass of their own. All passes over the chunks of a rank
    add up to the seconds of its stage (`planner.estimators.training.step_time.StepTime`).
    """
    time, model = estimate.time, estimate.inputs.model
    layout = estimate.inputs.workload.pipeline_layout
    layers = chunk_layers(model, ranks, per_rank, layout)
    counts = np.zeros((len(layers), len(time.blocks)))
    trained = trained_shares(model, estimate.inputs.workload.trained_layers)
    counts[:, : layers.shape[1]] = layers * trained
    for block, end in enumerate(time.blocks[layers.shape[1] :], start=layers.shape[1]):
        # Embedding and vision tower come first; logits and multi-token prediction last.
        counts[0 if end.on_first else -1, block] = first(end.fully_recomputed)
    each = [_passes(block, time.recomputation, splits=splits) for block in time.blocks]
    sends = first(time.pipeline_transfer) / per_rank / 2
    return [
        ChunkTimes(seconds=_sum_blocks(count, each, sends), layers=float(layers[index].sum()))
        for index, count in enumerate(counts)
    ]


def _sum_blocks(
    counts: FloatArray, blocks: list[dict[str, dict[str, float]]], sends: float
) -> dict[str, dict[str, float]]:
    """Sum seconds by pass and stream over ``counts`` of each block, and sends."""
    seconds = {}
    for kind in PASSES:
        seconds[kind] = {
            stream: float(
                sum(n * block[kind][stream] for n, block in zip(counts, blocks, strict=True))
            )
            for stream in (COMPUTE, EXCHANGE)
        }
        seconds[kind][TRANSFER] = 0.0 if kind == WEIGHTS else sends
    return seconds


def _passes(
    block: OperatorGroup, recomputation: Recomputation, *, splits: bool
) -> dict[str, dict[str, float]]:
    """Return seconds of the passes of one block; gathers and copies are split by time."""
    time = block.time
    totals = {FORWARD: first(time.forward_total), BACKWARD: first(time.backward_total)}
    both = sum(totals.values()) or 1.0
    shown = first(block.gather) + first(block.offload)
    passes = {}
    for kind, total in totals.items():
        exchanges = [operator for operator in time.operators if operator.part != "compute"]
        inside = sum(
            first(operator.forward)
            if kind == FORWARD
            else first(operator.backward) + first(recomputation.repeated_time(operator))
            for operator in exchanges
        )
        passes[kind] = {COMPUTE: total - inside, EXCHANGE: inside + shown * total / both}
    passes[FORWARD][COMPUTE] += first(block.reference)
    weights = first(time.weights) if splits else 0.0
    passes[BACKWARD][COMPUTE] -= weights
    return {**passes, WEIGHTS: {COMPUTE: weights, EXCHANGE: 0.0}}


ONCE = ("data_parallel", "optimizer", "overhead", "slow_nodes", "untuned")
"""What follows the pipeline, as far as it shows."""

_STREAMS = {"data_parallel": EXCHANGE, "optimizer": COMPUTE}
_SHORT = {FORWARD: "F", BACKWARD: "B", WEIGHTS: "W"}
_LEAST = 1e-12
"""Of a step: shorter gaps are what rounding leaves."""


@record(kw_only=True)
class _Step:
    """A single-configuration estimate on every stage of its pipeline."""

    estimate: Estimate
    pipeline: Pipeline
    chunks: Sequence[ChunkTimes]

    @property
    def pace(self) -> float:
        """Seconds per further micro-batch."""
        times = [first(stage) for stage in self.estimate.time.stage_times]
        return sum(times) if self.pipeline.turns else max(times)

    @property
    def pipeline_time(self) -> float:
        """Seconds of the whole pipeline."""
        time = self.estimate.time
        slowest = max(first(stage) for stage in time.stage_times)
        return self.pipeline.micro_batches * slowest + first(time.pipeline_bubble)


def training_timeline(estimate: Estimate) -> Timeline:
    """Return the timeline of a training step of a single-configuration estimate.

    It ends at the step time of the estimate: the pipeline with the bubble, then the exposed
    exchange of gradients, the optimizer and the rest. Of many micro-batches those of the middle are
    left out (`Span` of ``MORE``).
    """
    step = _step(estimate)
    shown, num_micro_batches = step.pipeline.shown(), step.pipeline.micro_batches
    left_out = num_micro_batches - shown
    later = left_out * step.pace
    works = step.pipeline.works(shown)
    schedule = schedule_passes(
        works,
        lambda work: step.chunks[work.chunk].total(work.kind),
        len(step.chunks) - 1,
        step.pipeline_time - later,
    )
    cut = (step.pipeline_time - later) / 2 if left_out else np.inf
    each = left_out // 2 if step.pipeline.schedule == PipelineSchedule.DUALPIPE else left_out
    lanes = [
        list(_lane(step, lane, passes, starts, cut, later, each))
        for lane, (passes, starts) in enumerate(zip(works, schedule.starts, strict=True))
    ]
    makespan = first(estimate.step_time)
    spans = [
        span
        for lane, passes in enumerate(lanes)
        for span in (*_add_bubbles(lane, passes, step.pipeline_time), *_once_per_step(step, lane))
    ]
    memory = [_memory(step, lane, passes) for lane, passes in enumerate(lanes)]
    capacity = estimate.inputs.machine.gpu.allocatable_memory
    return Timeline(
        title="",
        lanes=[f"stage {lane + 1}" for lane in range(len(lanes))],
        spans=spans,
        makespan=makespan,
        skipped=_skipped_intervals(lanes),
        memory=memory,
        peak=max(amount for series in memory for _, amount in series),
        capacity=capacity,
        hand_over=schedule.hand_over,
    )


def _step(estimate: Estimate) -> _Step:
    """Return all stages of the first configuration of an estimate with its pipeline schedule."""
    c = estimate.configurations
    full = evaluate(estimate.inputs, c, every_stage=True)
    ranks, per_rank = int(first(c.pipeline_parallel)), int(first(c.virtual_pipeline))
    schedule = PipelineSchedule(int(first(c.pipeline_schedule)))
    splits = schedule >= PipelineSchedule.ZERO_BUBBLE
    return _Step(
        estimate=full,
        pipeline=Pipeline(
            ranks=ranks,
            chunks=per_rank,
            micro_batches=int(first(c.num_micro_batches)),
            schedule=schedule,
            turns=bool(np.ravel(c.layer_split)[0]),
        ),
        chunks=chunks_of(full, ranks, per_rank, splits=splits),
    )


def _lane(
    step: _Step,
    lane: int,
    works: Sequence[MicroBatchPass],
    starts: Sequence[float],
    cut: float,
    later: float,
    more: int,
) -> Iterator[tuple[MicroBatchPass | None, list[Span]]]:
    """Works of a lane with their spans, ``later`` from ``cut`` on; None: micro-batches between."""
    end, is_cut = 0.0, False
    for work, start in zip(works, starts, strict=True):
        shift = start >= cut
        if shift and not is_cut:
            yield None, [_middle(step, lane, end, start + later)]
            is_cut = True
        spans = [*_spans(step, lane, work, start + shift * later, shift * more)]
        end = spans[-1].end if spans else end
        yield work, spans


def _spans(step: _Step, lane: int, work: MicroBatchPass, start: float, more: int) -> Iterator[Span]:
    """Yield the spans of a pass in order: compute, exchange, send."""
    name = f"{_SHORT[work.kind]}{work.micro_batch + more + 1}"
    if step.pipeline.chunks > 1:
        name += f", chunk {work.chunk // step.pipeline.ranks + 1}"
    if step.pipeline.schedule == PipelineSchedule.DUALPIPE:
        name += ", from the end" if work.direction else ", from the start"
    for stream, seconds in step.chunks[work.chunk].seconds[work.kind].items():
        if seconds > 0:
            part = work.kind if stream == COMPUTE else stream
            yield Span(lane, stream, name, part, start, seconds)
            start += seconds


def _middle(step: _Step, lane: int, start: float, end: float) -> Span:
    """The micro-batches that are left out, with what the lane does meanwhile."""
    pipeline = step.pipeline
    number = pipeline.micro_batches - pipeline.shown()
    within: dict[str, float] = {}
    chunks = [chunk * pipeline.ranks + lane for chunk in range(pipeline.chunks)]
    if pipeline.schedule == PipelineSchedule.DUALPIPE:  # micro-batches come from both ends
        chunks = [lane, pipeline.ranks - 1 - lane]
    for chunk in chunks:
        for kind, streams in step.chunks[chunk].seconds.items():
            for stream, seconds in streams.items():
                part = kind if stream == COMPUTE else stream
                share = number / (2 if pipeline.schedule == PipelineSchedule.DUALPIPE else 1)
                within[part] = within.get(part, 0.0) + share * seconds
    within[BUBBLE] = max(end - start - sum(within.values()), 0.0)
    return Span(lane, COMPUTE, f"{number:,} micro-batches more", MORE, start, end - start, within)


def _add_bubbles(
    lane: int, works: Sequence[tuple[MicroBatchPass | None, list[Span]]], end: float
) -> Iterator[Span]:
    """Yield the spans of a lane with the idle gaps (bubbles) between them."""
    now = 0.0
    for span in (span for _, spans in works for span in spans):
        if span.start - now > _LEAST * end:
            yield Span(lane, WAIT, "bubble", BUBBLE, now, span.start - now)
        yield span
        now = span.end
    if end - now > _LEAST * end:
        yield Span(lane, WAIT, "bubble", BUBBLE, now, end - now)


def _once_per_step(step: _Step, lane: int) -> Iterator[Span]:
    """Yield the spans of a step after the pipeline, such as the optimizer."""
    now = step.pipeline_time
    for part in ONCE:
        seconds = first(getattr(step.estimate.time, part))
        if seconds > 0:
            stream = _STREAMS.get(part, WAIT)
            yield Span(lane, stream, part.replace("_", " "), part, now, seconds)
            now += seconds


def _skipped_intervals(
    lanes: Sequence[Sequence[tuple[MicroBatchPass | None, list[Span]]]],
) -> list[tuple[float, float]]:
    """Return the intervals in which all lanes are in the omitted middle."""
    middles = [spans[0] for lane in lanes for work, spans in lane if work is None]
    if len(middles) < len(lanes):
        return []
    start, end = max(span.start for span in middles), min(span.end for span in middles)
    return [(start, end)] if end > start else []


def _memory(
    step: _Step, lane: int, works: Sequence[tuple[MicroBatchPass | None, list[Span]]]
) -> list[tuple[float, float]]:
    """Times [s] and bytes that a lane holds from then on: states, and activations of passes.

    Activations of a forward pass are held from its start to the end of the backward pass. The sum
    is scaled to the peak of the estimate, whose rule sets how many micro-batches are in flight.
    """
    backward, *others = step.estimate.memory.moments[lane]
    activations = first(backward.allocated_activations)
    working = first(backward.working) * (1 + first(backward.fragmentation_share))
    base = first(backward.total) - activations - working
    held = [*_held_layers(step, works)]
    max_held = max((amount for _, amount, _ in held), default=0.0) or 1.0
    is_loaded = bool(step.estimate.inputs.framework.memory.loaded_whole)
    # A model that is loaded unsharded takes memory before the step.
    levels = [(0.0, first(others[-1].total))] if is_loaded else []
    levels += [(0.0, base)]
    levels += [
        (start, base + activations * amount / max_held + working * is_backward)
        for start, amount, is_backward in held
    ]
    levels.append((max(step.pipeline_time, levels[-1][0]), base))
    if len(others) > is_loaded:
        optimizer = levels[-1][0] + first(step.estimate.time.data_parallel)
        end = optimizer + first(step.estimate.time.optimizer)
        levels += [(optimizer, first(others[0].total)), (end, base)]
    return levels


def _held_layers(
    step: _Step, works: Sequence[tuple[MicroBatchPass | None, list[Span]]]
) -> Iterator[tuple[float, float, bool]]:
    """Times from which layers of micro-batches are held, and whether a backward pass runs."""
    held, most = 0.0, 0.0
    end = 0.0
    for work, spans in works:
        if not spans:  # gradients of frozen weights take nothing
            continue
        # Of a pass that starts when the last one ends the start may be rounded down.
        start, end = max(spans[0].start, end), spans[-1].end
        if work is None:
            yield start, most, True
        elif work.kind == FORWARD:
            held += step.chunks[work.chunk].layers
            most = max(most, held)
            yield start, held, False
        else:
            yield start, held, work.kind == BACKWARD
            held -= step.chunks[work.chunk].layers * (work.kind == BACKWARD)
            yield end, held, False


_SHOWN = 2
"""Layers of a kind that are shown, with the last one, before the rest are left out."""


def step_timeline(
    step: InferenceStep, title: str, *, memory: float = 0.0, capacity: float = 0.0
) -> Timeline:
    """Return the timeline of the operators of the first configuration's step.

    Transfers between pipeline stages and all waits of the GPU follow them. ``memory`` [bytes] is
    held throughout; ``capacity`` bytes may be used.
    """
    lane = _Lane()
    spans: list[Span] = []
    embedding = [operator for operator in step.ends if operator.module == "embedding"]
    logits = [operator for operator in step.ends if operator.module != "embedding"]
    spans += lane.operators(embedding, "")
    for number, (count, operators) in enumerate(step.layers):
        kind = f" of kind {number + 1}" if len(step.layers) > 1 else ""
        spans += lane.layers(count, operators, kind)
    spans += lane.operators(logits, "")
    for part in PARTS_WITHOUT_OPERATOR:
        stream = TRANSFER if part == "pipeline" else WAIT
        spans += lane.add_span(part.replace("_", " "), part, stream, first(getattr(step, part)))
    return Timeline(
        title=title,
        lanes=["GPU"],
        spans=spans,
        makespan=lane.now,
        skipped=lane.skipped,
        memory=[[(0.0, memory)]] if memory else (),
        peak=memory,
        capacity=capacity,
    )


class _Lane:
    """Consecutive spans: ``now`` is the start of the next one [s]."""

    def __init__(self) -> None:
        self.now = 0.0
        self.skipped: list[tuple[float, float]] = []

    def add_span(self, name: str, part: str, stream: str, seconds: float) -> Iterator[Span]:
        """A span, where it takes anything."""
        if seconds > 0:
            yield Span(0, stream, name, part, self.now, seconds)
            self.now += seconds

    def operators(self, operators: Sequence[Operator], suffix: str) -> Iterator[Span]:
        """Yield the spans of operators in order."""
        for operator in operators:
            is_compute = operator.part == "compute"
            part = operator.module if is_compute else operator.part
            name = f"{operator.name.replace('_', ' ')}{suffix}"
            stream = COMPUTE if is_compute else EXCHANGE
            yield from self.add_span(name, part, stream, first(operator.forward))

    def layers(self, count: int, operators: Sequence[Operator], kind: str) -> Iterator[Span]:
        """Spans of the layers of a kind; of many, those of the middle are one span."""
        shown = range(count) if count <= _SHOWN + 2 else range(_SHOWN)
        for layer in shown:
            yield from self.operators(operators, f", layer {layer + 1}{kind}")
        if len(shown) == count:
            return
        more = count - _SHOWN - 1
        within: dict[str, float] = {}
        for operator in operators:
            part = operator.module if operator.part == "compute" else operator.part
            within[part] = within.get(part, 0.0) + more * first(operator.forward)
        seconds, start = sum(within.values()), self.now
        if seconds > 0:
            yield Span(0, COMPUTE, f"{more} layers more{kind}", MORE, start, seconds, within)
            self.now += seconds
            self.skipped.append((start, self.now))
        yield from self.operators(operators, f", layer {count}{kind}")


LANES = "trainer", "rollout"


def rl_timeline(step: RlStep) -> Timeline:
    """Return the timeline of the first configuration's RL step.

    Generation is drawn whole as long as all places of the engines hold an answer, and then as a
    wedge that thins out until the longest is done. Where both sides work at the same time each
    starts with the step, on answers that the other has from the step before.
    """
    c, total = step.configurations, first(step.total)
    overlaps = bool(first(step.overlaps))
    seconds = {name: first(times) for name, times in step.times.items()}
    generate = seconds["generate"]
    steady = min(first(step.rollout.steady), generate)
    lane = [
        Span(1, COMPUTE, "generate", "generate", 0.0, steady),
        Span(1, COMPUTE, "tail", "generate", steady, generate - steady, left=0.06),
        *_consecutive_spans(generate, 1, [("reward", seconds["reward"])]),
    ]
    start = 0.0 if overlaps else generate + seconds["reward"]
    half = seconds["switch"] / 2
    if half:
        lane += [Span(index, EXCHANGE, "switch", "switch", start, half) for index in (0, 1)]
        start += half
    training = [(name, seconds[name]) for name in TRAINER_PHASES]
    lane += _consecutive_spans(start, 0, training)
    end = total - seconds["sync"]
    if half:
        lane += [Span(index, EXCHANGE, "switch", "switch", end - half, half) for index in (0, 1)]
    lane += [Span(index, EXCHANGE, "sync", "sync", end, seconds["sync"]) for index in (0, 1)]
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
        spans=[*spans, *_idle_spans(spans, total)],
        makespan=total,
    )


def _consecutive_spans(
    start: float, lane: int, phases: Iterable[tuple[str, float]]
) -> Iterator[Span]:
    """Yield the spans of consecutive phases on a lane from ``start`` [s]."""
    for name, seconds in phases:
        yield Span(lane, COMPUTE, name.replace("_", " "), name, start, seconds)
        start += seconds


def _idle_spans(spans: Iterable[Span], total: float) -> Iterator[Span]:
    """Yield the idle spans of each lane up to ``total`` [s]."""
    for lane in range(len(LANES)):
        now = 0.0
        for span in sorted(
            (busy for busy in spans if busy.lane == lane), key=lambda busy: busy.start
        ):
            if span.start - now > 1e-9 * total:
                yield Span(lane, WAIT, "idle", IDLE, now, span.start - now)
            now = max(now, span.start + span.duration)
        if total - now > 1e-9 * total:
            yield Span(lane, WAIT, "idle", IDLE, now, total - now)
