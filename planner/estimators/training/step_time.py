"""Exposed time of a training step, by part and by operator."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from functools import cached_property

import numpy as np

from planner.base.arrays import CodeArray, FloatArray, Numeric, add
from planner.base.records import record
from planner.estimators.kernel_work import Work
from planner.estimators.training.operators import COLLECTIVES, LayerTime, Operator
from planner.estimators.training.recomputation import Recomputation

_ONCE_A_STEP = ("pipeline_bubble", "data_parallel", "optimizer", "overhead", "slow_nodes")
TIME_PARTS = (
    "forward",
    "backward",
    "recompute",
    "reference",
    "launch_wait",
    *COLLECTIVES,
    "weight_gather",
    "offload",
    "pipeline_transfer",
    *_ONCE_A_STEP,
)
_COMPUTING = ("forward", "backward", "recompute", "reference", "optimizer")


@record(kw_only=True)
class Block:
    """Operators that a stage runs ``counts[stage]`` times per micro-batch.

    ``counts`` has shape ``(stages, ...)``; ``whole`` is the number
    in the whole model. ``gather`` is exposed ZeRO communication [s], ``offload`` exposed copies
    to and from the host. ``reference``: passes without gradients, as of a reference model, with
    all that shows in them. ``on_first``: it stands before the layers, on the first stage.
    """

    time: LayerTime
    gather: FloatArray
    offload: FloatArray
    counts: FloatArray
    whole: Numeric
    reference: FloatArray = field(default_factory=lambda: np.zeros(()))
    on_first: bool = False

    @property
    def total(self) -> FloatArray:
        """Seconds of one run, forward and backward."""
        passes = (self.time.forward_total, self.time.backward_total, self.gather, self.offload)
        return add((*passes, self.reference)) if self.reference.any() else add(passes)


@record(kw_only=True)
class StepTime:
    """Seconds of a step; every part is what shows of it, so that they add up to ``total``.

    ``slowest`` is the index of the candidate stage whose pace the pipeline takes. ``works``: what
    is behind the parts that belong to no operator, where that is recorded.
    """

    total: FloatArray
    blocks: tuple[Block, ...]
    stage_times: tuple[FloatArray, ...]
    recomputation: Recomputation
    num_micro_batches: FloatArray
    pipeline_transfer: FloatArray
    pipeline_bubble: FloatArray
    data_parallel: FloatArray
    optimizer: FloatArray
    overhead: FloatArray
    slow_nodes: FloatArray
    works: Mapping[str, tuple[Work, ...]] = field(default_factory=dict)

    @property
    def slowest(self) -> CodeArray:
        """Index of the slowest stage."""
        stacked = np.stack(np.broadcast_arrays(*self.stage_times))
        return np.asarray(np.argmax(stacked, axis=0), dtype=np.int8)

    @property
    def computing_share(self) -> FloatArray:
        """Part of a step in which the slowest stage computes; in the rest it waits."""
        parts = self.parts()
        return np.asarray(add(parts[name] for name in _COMPUTING) / self.total)

    def parts(self) -> dict[str, FloatArray]:
        """Seconds of each of ``TIME_PARTS``; of one row they are worked out once."""
        return self._of_one if self.total.size == 1 else self._parts()

    @cached_property
    def _of_one(self) -> dict[str, FloatArray]:
        return self._parts()

    def _parts(self) -> dict[str, FloatArray]:
        m = self.num_micro_batches
        sums: dict[str, FloatArray] = {name: np.zeros(()) for name in TIME_PARTS}
        for operator, time in self.operator_times():
            if operator.part == "compute":
                for name, seconds in time.items():
                    sums[name] = sums[name] + seconds
            else:
                sums[operator.part] = sums[operator.part] + add(time.values())
        for block, runs in self.runs():
            waits = block.time.launch_wait_forward + block.time.launch_wait_backward
            sums["launch_wait"] = sums["launch_wait"] + runs * waits
            sums["weight_gather"] = sums["weight_gather"] + runs * block.gather
            sums["offload"] = sums["offload"] + runs * block.offload
            sums["reference"] = sums["reference"] + runs * block.reference
        sums["pipeline_transfer"] = m * self.pipeline_transfer
        for name in _ONCE_A_STEP:
            sums[name] = getattr(self, name)
        return sums

    def operator_times(self) -> Iterable[tuple[Operator, dict[str, FloatArray]]]:
        """Each operator with its forward, backward and repeated seconds in a step."""
        for block, runs in self.runs():
            for operator in block.time.operators:
                yield (
                    operator,
                    {
                        "forward": runs * operator.forward,
                        "backward": runs * operator.backward,
                        "recompute": runs * operator.repeated(self.recomputation),
                    },
                )

    def runs(self) -> Iterable[tuple[Block, FloatArray]]:
        """How often the slowest stage runs each block in a step."""
        slowest = self.slowest
        for block in self.blocks:
            counts = np.broadcast_arrays(*block.counts, slowest)[:-1]
            count = np.take_along_axis(np.stack(counts), slowest[None].astype(np.intp), axis=0)
            yield block, count[0] * self.num_micro_batches
