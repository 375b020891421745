"""Seconds of a layer and of a training step, summed over operators."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property

import numpy as np

from planner.base.arrays import CodeArray, FloatArray, Numeric, add
from planner.base.enums import ZeroStage
from planner.base.records import record
from planner.base.software_enums import ExpertCompute
from planner.configurations.configuration_tables import TrainingConfigurations
from planner.estimators.adapters import AdaptedMatrix
from planner.estimators.kernel_work import KernelWork
from planner.estimators.operators import Operator
from planner.estimators.training.micro_batch_share import MicroBatchShare
from planner.estimators.training.recomputation import Recomputation
from planner.layers.model import Layer
from planner.layers.operators import MatrixProduct
from planner.question.terms import terms_about

COLLECTIVES = terms_about("collective")


def gradient_accumulation(
    share: MicroBatchShare, num_parameters: Numeric, num_micro_batches: FloatArray
) -> Iterator[Operator]:
    """Yield the kernels that add a micro-batch's gradients to the accumulated gradients.

    Those of the first of a step are added to nothing; the time is the mean over them.
    """
    traffic = share.gradients.accumulation_traffic
    if not np.any(traffic):
        return
    once = share.machine.memory_time(traffic * num_parameters)
    yield Operator(
        name="gradient_accumulation",
        module="gradient_accumulation",
        forward=np.zeros(()),
        backward=np.where(traffic > 0, once * (1 - 1 / num_micro_batches), 0.0),
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
    recomputation: Recomputation,
    launch_time: Numeric,
    block_launch_times: Mapping[str, Numeric] | None = None,
    expert_wait: float = 0.0,
    every_wait: Numeric = 0.0,
) -> LayerTime:
    """Sum the operators of a layer; each pass lasts at least as long as its kernel launches.

    ``block_launch_times`` are those parts of ``launch_time`` which modules take that may be
    repeated by themselves, ``expert_wait`` what each pass of its experts adds as the GPU waits for
    the host, and ``every_wait`` what each pass of the layer adds as ranks wait for each other.
    """
    operators = tuple(operators)
    forward = add(o.forward for o in operators)
    backward = add(o.backward for o in operators)
    repeated = add(recomputation.repeated_time(o) for o in operators)
    launches = (2.0 + recomputation.full) * launch_time
    for module, time in (block_launch_times or {}).items():
        if module in recomputation.some:
            launches = launches + recomputation.repeats((module,)) * time
    waits = (
        expert_wait * (1.0 + recomputation.full + recomputation.repeats(("moe",)))
        if expert_wait
        else 0.0
    )
    if np.any(every_wait):
        waits = waits + every_wait * (1.0 + recomputation.full)
    return LayerTime(
        operators=operators,
        forward=forward,
        backward=backward,
        recompute=repeated,
        launch_wait_forward=np.maximum(launch_time - forward, 0.0) + expert_wait + every_wait,
        launch_wait_backward=np.maximum(launches - (backward + repeated), 0.0) + waits,
    )


def without_backward(time: LayerTime) -> LayerTime:
    """Return the time of a layer before all trained ones: no gradient reaches it."""
    nothing = np.zeros(())
    operators = (
        replace(o, backward=nothing, weights=nothing, repeatable=False) for o in time.operators
    )
    return replace(
        time,
        operators=tuple(operators),
        backward=nothing,
        recompute=nothing,
        launch_wait_backward=nothing,
    )


def loop_launches(share: MicroBatchShare, c: TrainingConfigurations, layer: Layer) -> Numeric:
    """Return host seconds to launch a loop over a GPU's experts in a forward pass.

    Each expert has kernels of its own, and waits for the number of its tokens. ZeRO-3 gathers
    each of its matrices inside the loop, since the experts with tokens are not known before.
    """
    execution = share.execution
    if layer.experts is None or not np.any(c.expert_compute == ExpertCompute.LOOP):
        return 0.0
    op = layer.experts
    gathers = np.where(c.zero_stage == ZeroStage.WEIGHTS, op.matrices, 0)
    each = execution.expert_loop_time + execution.module_gather_time * gathers
    local = op.num_experts / share.expert_parallel
    return np.where(c.expert_compute == ExpertCompute.LOOP, local * each, 0.0)


def hook_launches(
    share: MicroBatchShare,
    c: TrainingConfigurations,
    layer: Layer,
    adapters: Sequence[AdaptedMatrix],
    module: str = "",
) -> Numeric:
    """Return host seconds of ZeRO-3's hooks around a layer's matrices in a forward pass.

    Of those that recomputation of ``module`` repeats, if one is named. Each matrix outside routed
    experts is a module with hooks of its own, and so are both of an
    adapter (deepspeedai/DeepSpeed 0.19.6, runtime/zero/parameter_offload.py,
    ``_register_deepspeed_module``).
    """
    each = share.execution.module_hook_time
    if not each:
        return 0.0
    products = [op for op in layer.of(MatrixProduct) if not module or module in op.repeated_by]
    adapted = [matrix for matrix in adapters if not module or module in matrix.repeated_by]
    num_modules = sum(product.joined for product in products) + 2 * len(adapted)
    return np.where(c.zero_stage == ZeroStage.WEIGHTS, num_modules * each, 0.0)


_ONCE_A_STEP = (
    "pipeline_bubble",
    "data_parallel",
    "optimizer",
    "overhead",
    "slow_nodes",
    "untuned",
)
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
class OperatorGroup:
    """Operators that a stage runs ``counts[stage]`` times per micro-batch.

    ``counts`` has shape ``(stages, ...)``; ``fully_recomputed`` is the number in the whole model.
    ``gather`` is exposed ZeRO communication [s], ``offload`` exposed copies to and from the host.
    ``reference``: passes without gradients, as of a reference model, with all that shows in them.
    ``on_first``: it stands before the layers, on the first stage.
    """

    time: LayerTime
    gather: FloatArray
    offload: FloatArray
    counts: FloatArray
    fully_recomputed: Numeric
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

    ``slowest`` is the index of the candidate stage whose pace the pipeline takes. ``untuned``: what
    the step takes beyond that of a tuned run. ``works``: what
    is behind the parts that belong to no operator, where that is recorded.
    """

    total: FloatArray
    blocks: tuple[OperatorGroup, ...]
    stage_times: tuple[FloatArray, ...]
    recomputation: Recomputation
    num_micro_batches: FloatArray
    pipeline_transfer: FloatArray
    pipeline_bubble: FloatArray
    data_parallel: FloatArray
    optimizer: FloatArray
    overhead: FloatArray
    slow_nodes: FloatArray
    untuned: FloatArray
    works: Mapping[str, tuple[KernelWork, ...]] = field(default_factory=dict)

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
        """Seconds of each of ``TIME_PARTS``; cached for a single row."""
        return self._of_one if self.total.size == 1 else self._parts()

    @cached_property
    def _of_one(self) -> dict[str, FloatArray]:
        return self._parts()

    def _parts(self) -> dict[str, FloatArray]:
        """Sum seconds per step by part, such as compute, tensor_parallel or launch_wait."""
        m = self.num_micro_batches
        sums: dict[str, FloatArray] = {name: np.zeros(()) for name in TIME_PARTS}
        for operator, time in self.operator_times():
            if operator.part == "compute":
                for name, seconds in time.items():
                    sums[name] = sums[name] + seconds
            else:
                sums[operator.part] = sums[operator.part] + add(time.values())
        for block, runs in self.runs:
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
        """Yield each operator with its forward, backward and recompute seconds per step."""
        for block, runs in self.runs:
            for operator in block.time.operators:
                yield (
                    operator,
                    {
                        "forward": runs * operator.forward,
                        "backward": runs * operator.backward,
                        "recompute": runs * self.recomputation.repeated_time(operator),
                    },
                )

    @cached_property
    def runs(self) -> Sequence[tuple[OperatorGroup, FloatArray]]:
        """Return each block with how often it runs per step on the slowest pipeline stage."""
        slowest, runs = self.slowest, []
        for block in self.blocks:
            counts = np.broadcast_arrays(*block.counts, slowest)[:-1]
            count = np.take_along_axis(np.stack(counts), slowest[None].astype(np.intp), axis=0)
            runs.append((block, count[0] * self.num_micro_batches))
        return runs
