"""Operators of a layer with their FLOPs and seconds, and the exposed time of a step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import cached_property

import numpy as np

from planner.base.arrays import CodeArray, FloatArray, Numeric, add
from planner.base.enums import TokenDispatcher, ZeroStage
from planner.base.records import record
from planner.base.software_enums import ExpertCompute
from planner.configurations.configuration_tables import TrainingConfigurations
from planner.estimators.kernel_work import KernelWork
from planner.estimators.machine import CommunicationGroup
from planner.estimators.training.micro_batch_share import MicroBatchShare
from planner.estimators.training.recomputation import Recomputation
from planner.formulas.collectives import distinct_domain_share, unhidden_time
from planner.layers.model import Layer
from planner.layers.operators import ExpertBias, ExpertExchange, Experts, LayerOperator, Permute
from planner.question.terms import terms_about

COLLECTIVES = terms_about("collective")


@record(kw_only=True)
class Operator:
    """One operator of one layer and one micro-batch on one GPU.

    ``forward`` and ``backward`` are seconds (of a communication: exposed seconds), ``flops`` those
    of the forward pass. ``part`` is ``compute`` or the parallelism that communicates. The backward
    pass runs the forward again under full recomputation if ``repeatable``, all but the share
    ``spared``; where modules are repeated by themselves, all of it by one ``repeated_by``, a part
    by those of ``parts``, and the share ``selective`` where a framework has no modules but shares.
    ``weights``: seconds of the backward pass that make gradients of weights, which nothing waits
    for. ``works``: what its seconds are made of, where that is recorded.
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
    works: tuple[KernelWork, ...] = ()

    def repeated(self, recomputation: Recomputation) -> FloatArray:
        """Return seconds of this operator that recomputation repeats, averaged over layers."""
        if not (self.repeatable and recomputation.is_any):
            return np.zeros(())
        share = recomputation.share_of(self.repeated_by, self.parts)
        some = self.selective
        if some if isinstance(some, float) else some.any():
            share = np.where(recomputation.by_share, np.maximum(self.selective, share), share)
        partly = share * self.forward
        return np.where(
            recomputation.any_full, recomputation.full * (1 - self.spared) * self.forward, partly
        )


def make_operator(
    op: LayerOperator,
    *,
    forward: FloatArray,
    backward: FloatArray,
    flops: FloatArray | None = None,
    part: str = "compute",
    selective: Numeric = 0.0,
    parts: Mapping[str, Numeric] | None = None,
    weights: FloatArray | float = 0.0,
) -> Operator:
    """Return the `Operator` with forward and backward seconds of a layer operator."""
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
    share: MicroBatchShare, num_parameters: Numeric, num_micro_batches: FloatArray
) -> Iterator[Operator]:
    """Yield the kernels that add a micro-batch's gradients to the accumulated gradients.

    Those of the first of a step are added to nothing; the time is the mean over them.
    """
    traffic = share.gradients.accumulation_traffic
    if not np.any(traffic):
        return
    nothing = np.zeros(())
    once = share.inputs.machine.memory_time(traffic * num_parameters)
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
    repeated = add(o.repeated(recomputation) for o in operators)
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


# In fp32, two casts and two products of 8 bytes each and a sum of 4 for both gradients.
_BIAS_BACKWARD = 1.5


def experts(share: MicroBatchShare, op: Experts, layer: Layer) -> Iterator[Operator]:
    """Yield the matrix products of all experts on one GPU, on the tokens routed to them.

    The fullest rank's, if routing is not balanced. Ranks that split experts compute a part of
    the width of each for the tokens of all of them. What goes into a product and the gradients
    of what comes out of one are cast as the operands of other products are.
    """
    pairs, split = expert_pairs(share, op.per_token), share.expert_tensor_parallel
    local_experts = op.num_experts / share.expert_parallel
    machine = share.inputs.machine
    matmul = machine.grouped_gemm_time(
        pairs * split, local_experts, op.depth, op.width / split, op.matrices, share.kernel_format
    )
    launches = share.inputs.framework.execution.expert_launch_time
    matmul = matmul + launches * local_experts
    # It reads and writes as many tensors as there are matrices.
    activation = machine.memory_time(share.number_bytes * op.matrices * pairs * op.width)
    inside = op.matrices - 1
    depth = op.depth * split
    cast_inputs = machine.expert_cast_time(pairs * (depth + op.width), share.kernel_format)
    cast_outputs = machine.expert_cast_time(
        pairs * (depth + inside * op.width), share.kernel_format
    )
    backward = 2 * (matmul + activation)
    if share.inputs.workload.is_frozen:
        backward = matmul + 2 * activation
    yield make_operator(
        op,
        forward=matmul + activation + cast_inputs,
        backward=backward + cast_outputs,
        flops=2.0 * op.matrices * op.depth * op.width * pairs,
        parts={"moe_act": activation / (matmul + activation + cast_inputs)},
        weights=0.0 if share.inputs.workload.is_frozen else matmul,
    )


def loop_launches(share: MicroBatchShare, c: TrainingConfigurations, layer: Layer) -> Numeric:
    """Return host seconds to launch a loop over a GPU's experts in a forward pass.

    Each expert has kernels of its own, and waits for the number of its tokens. ZeRO-3 gathers
    each of its matrices inside the loop, since the experts with tokens are not known before.
    """
    execution = share.inputs.framework.execution
    if layer.experts is None or not np.any(c.expert_compute == ExpertCompute.LOOP):
        return 0.0
    op = layer.experts
    gathers = np.where(c.zero_stage == ZeroStage.WEIGHTS, op.matrices, 0)
    each = execution.expert_loop_time + execution.module_gather_time * gathers
    local = op.num_experts / share.expert_parallel
    return np.where(c.expert_compute == ExpertCompute.LOOP, local * each, 0.0)


def permute(share: MicroBatchShare, op: Permute, layer: Layer) -> Iterator[Operator]:
    """Yield the memory-bound sort of tokens by expert, before the experts and after them."""
    machine, execution = share.inputs.machine, share.inputs.framework.execution
    elements = expert_pairs(share, op.per_token) * op.columns.total
    traffic = 2 * share.number_bytes * 2 * execution.permute_passes * elements
    time = machine.memory_time(traffic, kernels=2)
    yield make_operator(op, forward=time, backward=time)


def expert_bias(share: MicroBatchShare, op: ExpertBias, layer: Layer) -> Iterator[Operator]:
    """Yield the kernels that add each expert's weighted bias to its outputs.

    The backward pass casts as often, and sums the gradients of biases and weights.
    """
    passes = share.inputs.framework.execution.expert_bias_passes
    if not passes:
        return
    elements = expert_pairs(share, op.per_token) * op.columns.total
    time = share.inputs.machine.memory_time(share.number_bytes * passes * elements)
    yield make_operator(op, forward=time, backward=_BIAS_BACKWARD * time)


def expert_exchange(share: MicroBatchShare, op: ExpertExchange, layer: Layer) -> Iterator[Operator]:
    """Yield the all-to-all that sends tokens to their experts and back (dispatch, combine)."""
    bytes_of_pairs = share.number_bytes * expert_pairs(share, op.per_token) * op.columns.total
    time = np.where(
        share.token_dispatcher == TokenDispatcher.ALLGATHER,
        _allgather_time(share, op),
        _dispatch_time(share, op, bytes_of_pairs),
    )
    there_and_back = unhidden_time(
        communication=time, hidden=share.inputs.framework.overlap.expert_parallel
    )
    yield make_operator(op, forward=there_and_back, backward=there_and_back, part="expert_parallel")


def _dispatch_time(
    share: MicroBatchShare, op: ExpertExchange, bytes_of_pairs: FloatArray
) -> FloatArray:
    """Return seconds of an all-to-all each way, with collectives inside expert-tensor groups."""
    machine, framework = share.inputs.machine, share.inputs.framework
    gathers = share.token_dispatcher == TokenDispatcher.ALLGATHER
    domains = machine.num_domains(share.expert_group)
    once = distinct_domain_share(num_copies=op.per_token, num_domains=domains)
    default_dispatcher = (
        float(TokenDispatcher.FLEX) if framework.execution.deduplicated_dispatch else 0.0
    )
    used = np.where(
        share.token_dispatcher == TokenDispatcher.AUTO, default_dispatcher, share.token_dispatcher
    )
    one_way = machine.collective(
        "all_to_all",
        bytes_of_pairs,
        share.expert_group,
        sent_across=np.where(used == TokenDispatcher.FLEX, once, 1.0),
    )
    machine.unused(gathers, "all_to_all")
    if np.all(share.expert_tensor_parallel == 1):
        return 2 * one_way
    gathered = bytes_of_pairs * share.expert_tensor_parallel
    gather, scatter = (
        machine.collective(kind, gathered, share.expert_tensor_group)
        for kind in ("all_gather", "reduce_scatter")
    )
    return 2 * one_way + gather + scatter


def _allgather_time(share: MicroBatchShare, op: ExpertExchange) -> FloatArray:
    """Return seconds to all-gather tokens to expert ranks and reduce-scatter the outputs."""
    if not np.any(share.token_dispatcher == TokenDispatcher.ALLGATHER):
        return np.zeros(())
    ranks = share.expert_parallel * share.expert_tensor_parallel
    group = CommunicationGroup(size=ranks, stride=1)
    gathered = share.number_bytes * share.local_tokens * op.columns.total * ranks
    machine = share.inputs.machine
    return machine.collective("all_gather", gathered, group) + machine.collective(
        "reduce_scatter", gathered, group
    )


def expert_pairs(share: MicroBatchShare, per_token: int) -> FloatArray:
    """Pairs of token and expert on the fullest rank."""
    return np.asarray(share.local_tokens * per_token * share.expert_load)


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

    ``slowest`` is the index of the candidate stage whose pace the pipeline takes. ``works``: what
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
                        "recompute": runs * operator.repeated(self.recomputation),
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
