"""What a pass of a micro-batch over a chunk of layers takes: computing, exchanging, sending."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from planner.base.arrays import FloatArray, first
from planner.base.records import record
from planner.estimators.estimate import Estimate
from planner.estimators.operators import Operator
from planner.estimators.recomputation import Recomputation
from planner.estimators.stages import chunk_layers
from planner.estimators.step_time import Block
from planner.estimators.timeline.schedules import BACKWARD, FORWARD, WEIGHTS
from planner.estimators.timeline.spans import COMPUTE, EXCHANGE, TRANSFER

PASSES = (FORWARD, BACKWARD, WEIGHTS)


@record(kw_only=True)
class Chunk:
    """Seconds of each pass over a chunk by stream, and the layers that it has."""

    seconds: Mapping[str, Mapping[str, float]]
    layers: float

    def total(self, kind: str) -> float:
        """Seconds of a pass."""
        return sum(self.seconds[kind].values())


def chunks_of(estimate: Estimate, ranks: int, per_rank: int, *, splits: bool) -> list[Chunk]:
    """The chunks of the one configuration of an estimate, from the input to the output.

    ``splits``: gradients of weights are a pass of their own. All passes over the chunks of a rank
    add up to the seconds of its stage (`planner.estimators.step_time.StepTime`).
    """
    time, model = estimate.time, estimate.setting.model
    layout = estimate.setting.workload.pipeline_layout
    layers = chunk_layers(model, ranks, per_rank, layout)
    counts = np.zeros((len(layers), len(time.blocks)))
    counts[:, : layers.shape[1]] = layers
    for block, end in enumerate(time.blocks[layers.shape[1] :], start=layers.shape[1]):
        # Embedding and vision tower stand first; logits and further predictions at the end.
        counts[0 if end.on_first else -1, block] = first(end.whole)
    each = [_passes(block, time.recomputation, splits=splits) for block in time.blocks]
    sends = first(time.pipeline_transfer) / per_rank / 2
    return [
        Chunk(seconds=_summed(mine, each, sends), layers=float(layers[at].sum()))
        for at, mine in enumerate(counts)
    ]


def _summed(
    counts: FloatArray, each: list[dict[str, dict[str, float]]], sends: float
) -> dict[str, dict[str, float]]:
    """Seconds by pass and stream of so many of each block, and of sending on what they made."""
    found = {}
    for kind in PASSES:
        found[kind] = {
            stream: float(sum(n * one[kind][stream] for n, one in zip(counts, each, strict=True)))
            for stream in (COMPUTE, EXCHANGE)
        }
        found[kind][TRANSFER] = 0.0 if kind == WEIGHTS else sends
    return found


def _passes(block: Block, again: Recomputation, *, splits: bool) -> dict[str, dict[str, float]]:
    """Seconds of the passes of one block.

    Gathers and copies are known of both passes together: each has its share of their time.
    """
    time = block.time
    totals = {FORWARD: first(time.forward_total), BACKWARD: first(time.backward_total)}
    both = sum(totals.values()) or 1.0
    shown = first(block.gather) + first(block.offload)
    found = {}
    for kind, total in totals.items():
        inside = sum(_exchanged(operator, again, kind) for operator in time.operators)
        found[kind] = {COMPUTE: total - inside, EXCHANGE: inside + shown * total / both}
    found[FORWARD][COMPUTE] += first(block.reference)
    weights = first(time.weights) if splits else 0.0
    found[BACKWARD][COMPUTE] -= weights
    return {**found, WEIGHTS: {COMPUTE: weights, EXCHANGE: 0.0}}


def _exchanged(operator: Operator, again: Recomputation, kind: str) -> float:
    """Seconds of a pass that an operator exchanges; what recomputation repeats of it, too."""
    if operator.part == "compute":
        return 0.0
    if kind == FORWARD:
        return first(operator.forward)
    return first(operator.backward) + first(operator.repeated(again))
