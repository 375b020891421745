"""A layer as a list of operators: what each does, how long it takes, who repeats it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field

import numpy as np

from planner.base.arrays import FloatArray, Numeric, add
from planner.base.records import record
from planner.estimators.ledger import Work
from planner.estimators.training.recomputation import Recomputation
from planner.estimators.training.share import Share
from planner.layers.operators import Op
from planner.question.terms import terms_about

COLLECTIVES = terms_about("collective")


@record(kw_only=True)
class Operator:
    """One operator of one layer and one micro-batch on one GPU.

    ``forward`` and ``backward`` are seconds (of a communication: exposed seconds),
    ``flops`` those of the forward pass. ``part`` is ``compute`` or the parallelism that
    communicates. The backward pass runs the forward again under full recomputation if
    ``repeatable``, all but the share ``spared``; where modules are repeated by themselves, all of
    it by one ``repeated_by``, a part by those of ``parts``, and the share ``selective`` where a
    framework has no modules but shares. ``weights``:
    seconds of the backward pass that make gradients of weights, which nothing waits for. ``works``:
    what its seconds are made of, where that is recorded.
    """

    name: str
    module: str
    forward: FloatArray
    backward: FloatArray
    flops: FloatArray
    part: str = "compute"
    repeatable: bool = True
    selective: Numeric = 0.0
    repeated_by: tuple[str, ...] = ()
    parts: Mapping[str, Numeric] = field(default_factory=dict)
    spared: Numeric = 0.0
    weights: FloatArray | float = 0.0
    works: tuple[Work, ...] = ()

    def repeated(self, again: Recomputation) -> FloatArray:
        """Seconds of the repeated forward, the mean over the layers."""
        if not self.repeatable:
            return np.zeros(())
        share = again.share_of(self.repeated_by, self.parts)
        if np.any(self.selective):
            share = np.where(again.by_share, np.maximum(self.selective, share), share)
        partly = share * self.forward
        return np.where(again.any_full, again.full * (1 - self.spared) * self.forward, partly)


def timed(
    op: Op,
    *,
    forward: FloatArray,
    backward: FloatArray,
    flops: FloatArray | None = None,
    part: str = "compute",
    selective: Numeric = 0.0,
    parts: Mapping[str, Numeric] | None = None,
    weights: FloatArray | float = 0.0,
) -> Operator:
    """What a described operator takes."""
    return Operator(
        name=op.name,
        module=op.module,
        forward=forward,
        backward=backward,
        flops=np.zeros(()) if flops is None else flops,
        part=part,
        repeatable=op.repeatable,
        selective=selective,
        repeated_by=op.repeated_by,
        parts=parts or {},
        weights=weights,
    )


def gradient_accumulation(
    share: Share, num_parameters: Numeric, num_micro_batches: FloatArray
) -> Iterator[Operator]:
    """Adding a micro-batch's gradients to those before it, by kernels of their own.

    Those of the first of a step are added to nothing; the time is the mean over them.
    """
    traffic = share.gradients.accumulation_traffic
    if not np.any(traffic):
        return
    nothing = np.zeros(())
    once = share.setting.machine.memory_time(traffic * num_parameters)
    yield Operator(
        name="gradient_accumulation",
        module="gradient_accumulation",
        forward=nothing,
        backward=np.where(traffic > 0, once * (1 - 1 / num_micro_batches), 0.0),
        flops=nothing,
        repeatable=False,
    )


@record(kw_only=True)
class LayerTime:
    """Seconds of one layer and micro-batch on one GPU, summed over its operators.

    ``launch_wait`` is what the host adds when it cannot launch kernels fast enough.
    """

    operators: tuple[Operator, ...]
    forward: FloatArray
    backward: FloatArray
    recompute: FloatArray
    launch_wait_forward: FloatArray
    launch_wait_backward: FloatArray

    @property
    def weights(self) -> FloatArray:
        """Seconds of the backward pass that make gradients of weights."""
        return add(np.asarray(o.weights) for o in self.operators)

    @property
    def forward_total(self) -> FloatArray:
        """Seconds of the forward pass."""
        return self.forward + self.launch_wait_forward

    @property
    def backward_total(self) -> FloatArray:
        """Seconds of the backward pass with its recomputation."""
        return add((self.backward, self.recompute, self.launch_wait_backward))


def layer_time(
    operators: Iterable[Operator],
    again: Recomputation,
    launch_time: Numeric,
    block_launch_times: Mapping[str, Numeric] | None = None,
    expert_wait: float = 0.0,
    every_wait: Numeric = 0.0,
) -> LayerTime:
    """Sum a layer; forward and backward each last at least as long as their launches.

    ``block_launch_times`` are those parts of ``launch_time`` which modules take that may be
    repeated by themselves, ``expert_wait`` what each pass of its experts adds as the GPU waits for
    the host, and ``every_wait`` what each pass of the layer adds as ranks wait for each other.
    """
    operators = tuple(operators)
    forward = add(o.forward for o in operators)
    backward = add(o.backward for o in operators)
    repeated = add(o.repeated(again) for o in operators)
    launches = (2.0 + again.full) * launch_time
    for module, time in (block_launch_times or {}).items():
        if module in again.some:
            launches = launches + again.repeats((module,)) * time
    waits = expert_wait * (1.0 + again.full + again.repeats(("moe",))) if expert_wait else 0.0
    if np.any(every_wait):
        waits = waits + every_wait * (1.0 + again.full)
    return LayerTime(
        operators=operators,
        forward=forward,
        backward=backward,
        recompute=repeated,
        launch_wait_forward=np.maximum(launch_time - forward, 0.0) + expert_wait + every_wait,
        launch_wait_backward=np.maximum(launches - (backward + repeated), 0.0) + waits,
    )
