"""Evaluate training: from specs and configurations to an estimate."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property, partial
from itertools import chain

import numpy as np

from planner.base.arrays import BoolArray, CodeArray, FloatArray, Numeric, add, largest, lowest_code
from planner.base.enums import PipelineSchedule, ZeroStage
from planner.base.records import record
from planner.configurations.configuration_tables import (
    OUT_OF_HOST_MEMORY,
    TrainingConfigurations,
    broken_by_shape,
)
from planner.configurations.training_rules import REJECTING, RULES, Context
from planner.estimators.adapters import (
    adapted_matrices,
    training_adapter_launches,
    training_adapters,
    without_adapters,
)
from planner.estimators.attention_core import softmax_launches
from planner.estimators.layer_operators import layer_operators
from planner.estimators.operators import Operator, attribute_work
from planner.estimators.towers import TowerShare
from planner.estimators.training.compilation import layer_launch_time
from planner.estimators.training.flat_step import (
    TENSOR_PARALLEL,
    FlatStep,
    hardware_flops_per_token,
)
from planner.estimators.training.flops import model_flops_per_token
from planner.estimators.training.micro_batch_share import (
    MicroBatchShare,
    TrainingInputs,
    fullest_and_mean_share,
    tokens_of_sample,
)
from planner.estimators.training.model_states import (
    HostCopies,
    ModelStates,
    host_copies,
    host_update_time,
    host_updates,
    keeps_states,
    moved_activations,
    muon_time,
    paging_time,
    streamed_states_time,
)
from planner.estimators.training.peak_memory import Memory, peak_memory
from planner.estimators.training.sharding import (
    DataParallelTime,
    StageParameters,
    data_parallel_time,
    logits_in_layers,
    stage_parameters,
)
from planner.estimators.training.step_time import (
    LayerTime,
    OperatorGroup,
    StepTime,
    gradient_accumulation,
    hook_launches,
    layer_time,
    loop_launches,
    without_backward,
)
from planner.formulas.collectives import exposed_time, unhidden_time
from planner.formulas.pipeline import (
    bubble_time_1f1b,
    dualpipe_bubble_time,
    sequential_bubble_time,
    zero_bubble_time,
)
from planner.layers.model import embedding_of, layer_of, logits_of, prediction_of, trained_shares


def pipeline_bubble(
    c: TrainingConfigurations,
    blocks: Sequence[OperatorGroup],
    stages: Sequence[FloatArray],
    transfer: FloatArray,
) -> FloatArray:
    """Return seconds per step that the slowest pipeline stage is idle (the bubble).

    ``stages`` are the seconds of a micro-batch on each candidate stage, ``transfer`` those that
    show of sending it on.
    """
    p, slowest = c.pipeline_parallel, largest(stages)
    all_stages = add((*(block.total * block.fully_recomputed for block in blocks), p * transfer))
    bubble = bubble_time_1f1b(
        all_stages=all_stages, slowest_stage=slowest, virtual_pipeline=c.virtual_pipeline
    )
    if c.layer_split.any():
        turns = sequential_bubble_time(
            all_stages=all_stages, slowest_stage=slowest, num_micro_batches=c.num_micro_batches
        )
        bubble = np.where(c.layer_split, turns, bubble)
    schedule = c.pipeline_schedule
    if np.all(schedule <= PipelineSchedule.INTERLEAVED):
        return bubble
    weights = [block.time.weights for block in blocks]
    on_stages = [
        add(seconds * block.counts[stage] for seconds, block in zip(weights, blocks, strict=True))
        for stage in range(len(stages))
    ]
    all_weights = add(
        seconds * block.fully_recomputed for seconds, block in zip(weights, blocks, strict=True)
    )
    filled = zero_bubble_time(
        all_stages=all_stages,
        slowest_stage=slowest,
        all_weights=all_weights,
        slowest_weights=_of_slowest(stages, on_stages),
    )
    from_both_ends = dualpipe_bubble_time(
        stages=p,
        mean_stage=all_stages / p,
        mean_backward=add(block.time.backward_total * block.fully_recomputed for block in blocks)
        / p,
        mean_weights=all_weights / p,
    )
    return np.where(
        schedule == PipelineSchedule.DUALPIPE,
        from_both_ends,
        np.where(schedule == PipelineSchedule.ZERO_BUBBLE, filled, bubble),
    )


def _of_slowest(stages: Sequence[FloatArray], values: Sequence[FloatArray]) -> FloatArray:
    """Return ``values`` of the slowest stage of each configuration; the first if several."""
    times = np.stack(np.broadcast_arrays(*stages, *values)[: len(stages)])
    all_values = np.stack(np.broadcast_arrays(*stages, *values)[len(stages) :])
    index = np.argmax(times, axis=0)
    return np.asarray(np.take_along_axis(all_values, index[None], axis=0)[0])


_Passes = tuple[FloatArray, FloatArray]
"""Seconds of the forward and of the backward pass of one layer or end."""


def step_time(
    share: MicroBatchShare,
    c: TrainingConfigurations,
    parameters: StageParameters,
    paged: FloatArray | None = None,
) -> StepTime:
    """Predict the seconds of a training step, by part, for every configuration.

    ``m t + (T - t)/v`` for m micro-batches on the slowest stage t, T all stages together, v chunks
    per stage; then what shows of the gradient exchange, the optimizer, and what many nodes wait for
    each other. ``paged``: bytes of optimizer states that go to the host and back.
    """
    exchange = data_parallel_time(share.inputs, c, parameters)
    close = share.machine.close
    groups = share.inputs.model.layer_groups
    moved = [moved_activations(share, group, c) for group in groups]
    copies = host_copies(share.inputs, c, parameters, moved)
    close("offload")
    blocks = _blocks(share, c, parameters, exchange, copies)
    close("")
    transfer = _pipeline_transfer(share, c)
    close("pipeline_transfer")
    stages = tuple(
        add((*(block.total * block.counts[stage] for block in blocks), transfer))
        for stage in range(len(parameters.dense))
    )
    slowest = largest(stages)
    bubble = pipeline_bubble(c, blocks, stages, transfer)
    data_parallel = _exposed_exchange(share, exchange, slowest, late_share(share, parameters))
    optimizer = _optimizer_time(share, c, parameters)
    if paged is not None and np.any(paged):
        optimizer = optimizer + paging_time(share.inputs, paged)
    close("optimizer")
    overhead = _overhead(share, c, parameters)
    m = c.num_micro_batches
    without_waits = add((m * slowest, bubble, data_parallel, optimizer, overhead))
    slow_nodes = share.machine.large_scale_wait(without_waits, c.num_gpus)
    tuned = without_waits + slow_nodes
    beyond = share.inputs.slowdown - 1.0
    untuned = np.asarray(beyond * tuned) if beyond else np.zeros(())
    return StepTime(
        total=tuned + untuned,
        blocks=blocks,
        stage_times=stages,
        recomputation=share.recomputation,
        num_micro_batches=m,
        pipeline_transfer=transfer,
        pipeline_bubble=bubble,
        data_parallel=data_parallel,
        optimizer=optimizer,
        overhead=overhead,
        slow_nodes=slow_nodes,
        untuned=untuned,
        works=share.machine.recorded_parts(),
    )


def _overlap_expert_exchange(
    share: MicroBatchShare, c: TrainingConfigurations, operators: Iterable[Operator]
) -> tuple[Operator, ...]:
    """Hide the experts' all-to-all behind another micro-batch's layer, if passes overlap.

    DualPipe and ``overlap_expert_parallel`` run the forward pass of one micro-batch while the
    backward pass of another runs.
    """
    all_operators = tuple(operators)
    is_concurrent = _has_concurrent_passes(c)
    if not is_concurrent.any():
        return all_operators
    window = add(o.forward + o.backward for o in all_operators if o.part == "compute") / 2
    g = share.overlap.interference

    def exposed(time: FloatArray) -> FloatArray:
        behind = exposed_time(communication=time, computation=window, interference=g)
        return np.where(is_concurrent, behind, time)

    return tuple(
        replace(o, forward=exposed(o.forward), backward=exposed(o.backward))
        if o.part == "expert_parallel"
        else o
        for o in all_operators
    )


def _has_concurrent_passes(c: TrainingConfigurations) -> BoolArray:
    """Return a mask: True if forward and backward of two micro-batches overlap."""
    dual = c.pipeline_schedule == PipelineSchedule.DUALPIPE
    return np.asarray(c.overlap_expert_parallel | dual)


def _blocks(
    share: MicroBatchShare,
    c: TrainingConfigurations,
    parameters: StageParameters,
    exchange: DataParallelTime,
    copies: HostCopies,
) -> tuple[OperatorGroup, ...]:
    """Return times of a layer of each group, of those before all trained ones, and of the ends."""
    inputs = share.inputs
    launch, trained = layer_launch_time(share), parameters.trained
    blocks, frozen, nothing = [], [], np.zeros(())
    shares = trained_shares(inputs.model, inputs.workload.trained_layers)
    for index, group in enumerate(inputs.model.layer_groups):
        layer = layer_of(inputs.model, group)
        operators: Iterable[Operator] = _record_work(
            share,
            layer_operators(share, layer),
            training_adapters(share, group),
            gradient_accumulation(
                share,
                np.asarray(trained.layer_dense[index] + trained.layer_experts[index]),
                c.num_micro_batches,
            ),
        )
        of_block, loops = launch / 2, loop_launches(share, c, layer)
        adapters = adapted_matrices(inputs, group) if inputs.workload.is_frozen else ()
        hooks = partial(hook_launches, share, c, layer, adapters)
        softmax = softmax_launches(share, layer.core)
        base_launches = of_block * group.num_blocks, softmax, loops, hooks()
        launches_by_module = {"attention": of_block + softmax}
        launches_by_module["moe" if layer.experts else "mlp"] = of_block + loops
        of_modules = {
            name: launches_by_module[name] + hooks(name)
            for name in launches_by_module
            if name in layer.modules
        }
        waits = inputs.framework.execution.expert_host_wait if layer.experts else 0.0
        operators = _overlap_expert_exchange(share, c, operators)
        timed = partial(
            layer_time,
            recomputation=share.recomputation,
            block_launch_times=of_modules,
            expert_wait=waits,
            every_wait=share.reduce_wait,
        )
        of_adapters = training_adapter_launches(share, group)
        time = reference = timed(operators, launch_time=add((*base_launches, of_adapters)))
        is_partial = inputs.workload.trained_layers or any(inputs.workload.forward_passes)
        if inputs.workload.is_frozen and is_partial:
            without = training_adapter_launches(share, group, switched_off=True)
            launches = add((*base_launches, without))
            reference = timed(without_adapters(operators), launch_time=launches)
        gathers = exchange.layer_forward[index], exchange.layer_backward[index]
        moves = copies.layer_forward[index], copies.layer_backward[index]
        counts = parameters.trained.layers.counts[:, index]
        block = OperatorGroup(
            time=time,
            gather=_exposed_gather(share, time, gathers, _has_concurrent_passes(c)),
            offload=_exposed_copies(share, time, gathers, moves),
            counts=counts,
            fully_recomputed=shares[index] * group.num_hidden_layers,
            reference=_without_gradients(share, time, reference, gathers, moves),
        )
        blocks.append(block)
        if shares[index] < 1:
            forward = without_backward(reference)
            in_forward = (gathers[0], nothing), (moves[0], nothing)
            block = OperatorGroup(
                time=forward,
                gather=_exposed_gather(share, forward, in_forward[0]),
                offload=_exposed_copies(share, forward, *in_forward),
                counts=parameters.layers.counts[:, index] - counts,
                fully_recomputed=(1 - shares[index]) * group.num_hidden_layers,
                reference=_without_gradients(share, forward, forward, *in_forward),
                on_first=True,
            )
            frozen.append(block)
    ends = _end_blocks(share, c, parameters, exchange, copies)
    if (images := TowerShare.of(share, c)) is None:
        return (*blocks, *frozen, *ends)
    return (*blocks, *frozen, *ends, *images.blocks(parameters, exchange))


def _end_blocks(
    share: MicroBatchShare,
    c: TrainingConfigurations,
    parameters: StageParameters,
    exchange: DataParallelTime,
    copies: HostCopies,
) -> Iterable[OperatorGroup]:
    """Yield the embedding, logits and multi-token-prediction blocks with their times and stages."""
    model = share.inputs.model
    on_stages = {
        embedding_of(model): (1.0, parameters.is_first),
        logits_of(model): (1.0, parameters.is_last),
    }
    if model.mtp_num_layers:
        on_stages[prediction_of(model)] = (float(model.mtp_num_layers), parameters.is_last)
    summed = _record_work(
        share, gradient_accumulation(share, parameters.trained.end, c.num_micro_batches)
    )
    for end, (count, is_there) in on_stages.items():
        operators = (*_record_work(share, layer_operators(share, end)), *summed)
        time = layer_time(operators, share.recomputation, 0.0)
        gathers = exchange.end_forward, exchange.end_backward
        moves = copies.end_forward, copies.end_backward
        yield OperatorGroup(
            time=time,
            gather=_exposed_gather(share, time, gathers),
            offload=_exposed_copies(share, time, gathers, moves),
            counts=count * is_there.astype(np.float64),
            fully_recomputed=count,
            reference=_without_gradients(share, time, time, gathers, moves),
            on_first=end is embedding_of(model),
        )


def _without_gradients(
    share: MicroBatchShare, time: LayerTime, reference: LayerTime, gathers: _Passes, copies: _Passes
) -> FloatArray:
    """Return forward-only seconds per layer: policy passes and ``reference`` model passes.

    Only their own gathers and copies overlap them.
    """
    of_policy, of_reference = share.inputs.workload.forward_passes
    nothing = np.zeros(())
    if not of_policy + of_reference:
        return nothing

    def forward_seconds(layer: LayerTime) -> FloatArray:
        """Return seconds of a layer's forward pass, with exposed gathers and host copies."""
        forward_only = replace(
            layer, backward=nothing, recompute=nothing, launch_wait_backward=nothing
        )
        gathered = gathers[0], nothing
        gather = _exposed_gather(share, forward_only, gathered)
        copied = _exposed_copies(share, forward_only, gathered, (copies[0], nothing))
        return add((forward_only.forward_total, gather, copied))

    each = (of_policy, time), (of_reference, reference)
    return add((nothing, *(passes * forward_seconds(layer) for passes, layer in each if passes)))


def _record_work(share: MicroBatchShare, *operators: Iterable[Operator]) -> tuple[Operator, ...]:
    """Consecutive operators, with their work if it is recorded."""
    ledger = share.machine.ledger
    return tuple(attribute_work(ledger, chain(*operators)))


def _exposed_gather(
    share: MicroBatchShare,
    time: LayerTime,
    gathers: _Passes,
    is_concurrent: BoolArray | None = None,
) -> FloatArray:
    """Return seconds of ZeRO gathers and scatters of a layer that computation does not hide.

    Where passes overlap (``is_concurrent``), both hide the transfers of both: experts' exchanges
    have hidden behind both.
    """
    overlap = share.overlap
    windows = time.forward_total, time.backward_total
    separate = _exposed(gathers, windows, overlap.weight_gather, overlap.interference)
    if is_concurrent is None or not is_concurrent.any():
        return separate
    nothing = np.zeros(())
    both = (gathers[0] + gathers[1], nothing)
    joint = (windows[0] + windows[1], nothing)
    side_by_side = _exposed(both, joint, overlap.weight_gather, overlap.interference)
    return np.where(is_concurrent, side_by_side, separate)


def _exposed_copies(
    share: MicroBatchShare, time: LayerTime, gathers: _Passes, copies: _Passes
) -> FloatArray:
    """Return seconds of host copies of a layer that computation and ZeRO gathers leave unhidden."""
    if not (np.any(copies[0]) or np.any(copies[1])):
        return np.zeros(())
    totals = time.forward_total, time.backward_total
    forward, backward = (
        np.maximum(total - gather, 0.0) for total, gather in zip(totals, gathers, strict=True)
    )
    return _exposed(copies, (forward, backward), share.inputs.framework.offloading.hidden, 0.0)


def _exposed(
    transfers: _Passes, windows: _Passes, hidden: float, interference: float
) -> FloatArray:
    """Return seconds of transfers not hidden by ``windows``; ``hidden``: share that may overlap."""
    if not (np.any(transfers[0]) or np.any(transfers[1])):
        return np.zeros(())
    behind = [
        exposed_time(communication=n, computation=t, interference=interference)
        for n, t in zip(transfers, windows, strict=True)
    ]
    return add((*(hidden * part for part in behind), (1 - hidden) * (transfers[0] + transfers[1])))


def _pipeline_transfer(share: MicroBatchShare, c: TrainingConfigurations) -> FloatArray:
    """Return unhidden seconds per micro-batch to send activations between pipeline stages."""
    p = c.pipeline_parallel
    num_bytes = share.number_bytes * share.local_tokens * share.inputs.model.stream_width
    distance = c.num_gpus / p
    send = share.machine.send_time(num_bytes, distance)
    shown = unhidden_time(
        communication=2 * c.virtual_pipeline * send, hidden=share.overlap.pipeline_parallel
    )
    return np.where(p > 1, shown, 0.0)


def late_share(share: MicroBatchShare, parameters: StageParameters) -> FloatArray:
    """Return the share of exchanged gradients that is ready only at the end of the backward pass.

    These are the gradients of a saved embedding, half of all and more with adapters. In frameworks
    that train every weight the measured overlap includes them.
    """
    trained = parameters.trained
    if not share.inputs.workload.saves_ends:
        return np.zeros(())
    first = np.where(parameters.is_first, trained.end / trained.dense, 0.0)
    return np.asarray(np.max(first, axis=0) if first.ndim > trained.end.ndim else first)


def _exposed_exchange(
    share: MicroBatchShare, exchange: DataParallelTime, window: FloatArray, late: FloatArray
) -> FloatArray:
    """Return seconds of the gradient exchange per step that computation does not hide."""
    overlap = share.overlap
    at_end, longest = late * exchange.step, (1 - late) * exchange.step
    if overlap.data_parallel == 0:
        return exchange.step
    behind = exposed_time(
        communication=longest, computation=window, interference=overlap.interference
    )
    return at_end + overlap.data_parallel * behind + (1 - overlap.data_parallel) * longest


def _optimizer_time(
    share: MicroBatchShare, c: TrainingConfigurations, parameters: StageParameters
) -> FloatArray:
    """Return seconds per step of the optimizer, on the GPU or the host."""
    inputs = share.inputs
    owned = [
        count / np.where(c.zero_stage >= ZeroStage.OPTIMIZER, group.size, 1.0)
        for count, group in (
            (parameters.trained.dense, parameters.dense_group),
            (parameters.trained.experts, parameters.expert_group),
        )
    ]
    max_owned = np.max(add(owned), axis=0)
    states = ModelStates.of(inputs, c)
    on_gpu = inputs.machine.memory_time(states.traffic * max_owned) + muon_time(
        inputs, c, parameters
    )
    if not c.any_offload or not np.any(keeps_states(c.offload)):
        return on_gpu
    on_host = host_updates(inputs, c.offload)
    inputs.machine.unused(on_host)
    if np.any(on_host):
        offloaded = host_update_time(inputs, c, max_owned, states)
    else:
        offloaded = np.maximum(on_gpu, streamed_states_time(inputs, c, max_owned, states))
    return np.where(keeps_states(c.offload), offloaded, on_gpu)


def _overhead(
    share: MicroBatchShare, c: TrainingConfigurations, parameters: StageParameters
) -> FloatArray:
    """Return the fixed seconds per step of the framework, with its seconds per micro-batch."""
    execution = share.execution
    overhead = execution.step_overhead + c.num_micro_batches * execution.micro_batch_overhead
    if execution.weight_broadcast_time:
        waiting = execution.weight_broadcast_time * (parameters.dense_group.size - 1)
        overhead = overhead + np.where(c.zero_stage == ZeroStage.OPTIMIZER, waiting, 0.0)
    return np.asarray(overhead)


REJECTIONS = tuple(rule.name for rule in REJECTING)

_OUT_OF_HOST_MEMORY = np.int8(REJECTIONS.index(OUT_OF_HOST_MEMORY.name) + 1)


@record(kw_only=True)
class Estimate:
    """Predictions for every configuration; arrays broadcast to the configurations' shape.

    ``rejected_by`` is 0 where a configuration is possible and fits, else the one-based
    position in ``REJECTIONS`` of the first rule that rejects it. Predictions of rejected
    configurations have no meaning, except the memory of those that run out of it. Times are
    computed on first use, since they are not needed where nothing fits.
    """

    inputs: TrainingInputs
    configurations: TrainingConfigurations
    share: MicroBatchShare
    parameters: StageParameters
    memory: Memory
    rejected_by: CodeArray
    flops_efficiency: float | tuple[float, ...] | None = None

    @cached_property
    def time(self) -> StepTime:
        """Seconds of a step by part."""
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            return step_time(self.share, self.configurations, self.parameters, self.memory.paged)

    @cached_property
    def step_time(self) -> FloatArray:
        """Predicted seconds of a training step of each configuration."""
        if self.flops_efficiency is None:
            return self.time.total
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            return self.flat.total

    @property
    def peak_memory(self) -> FloatArray:
        """Bytes on the fullest GPU."""
        return self.memory.peak

    @property
    def is_flat(self) -> bool:
        """Whether ``step_time`` comes from a flat efficiency, and ``time`` does not explain it."""
        return self.flops_efficiency is not None

    @property
    def time_parts(self) -> dict[str, FloatArray]:
        """Seconds of a step by part; see `FlatStep` for those of a specified efficiency."""
        if not self.is_flat:
            return self.time.parts()
        return self.flat.parts(self._tensor_parallel)

    @property
    def flat_modules(self) -> dict[str, dict[str, FloatArray]]:
        """Seconds of a step of a specified efficiency by module and pass."""
        return self.flat.modules(self._tensor_parallel)

    @property
    def _tensor_parallel(self) -> FloatArray:
        """Seconds of a step in which tensor-parallel communication is not hidden."""
        return self.time.parts()[TENSOR_PARALLEL]

    @cached_property
    def flat(self) -> FlatStep:
        """Step time if every part reaches the specified ``flops_efficiency``."""
        return FlatStep(
            inputs=self.inputs,
            configurations=self.configurations,
            efficiency=np.nan if self.flops_efficiency is None else self.flops_efficiency,
        )

    @property
    def tokens_per_step(self) -> FloatArray:
        """Trained tokens of one step."""
        return self.configurations.global_batch_size * tokens_of_sample(self.inputs.workload)

    @property
    def samples_per_second(self) -> FloatArray:
        """Samples per second on all GPUs."""
        return np.asarray(self.configurations.global_batch_size / self.step_time)

    @property
    def tokens_per_second(self) -> FloatArray:
        """Trained tokens per second on all GPUs."""
        return np.asarray(self.tokens_per_step / self.step_time)

    @cached_property
    def model_flops_utilization(self) -> FloatArray:
        """MFU: model FLOP/s over the dense peak of all GPUs at the compute precision."""
        inputs = self.inputs
        length = inputs.workload.sequence_length
        per_token = model_flops_per_token(inputs.model, length, inputs)
        return self._utilization(np.asarray(per_token))

    @property
    def hardware_flops_utilization(self) -> FloatArray:
        """Model FLOPs and recomputed FLOPs over the dense peak."""
        return self._utilization(hardware_flops_per_token(self.inputs, self.configurations))

    @property
    def model_flops_per_second_per_gpu(self) -> FloatArray:
        """Achieved FLOP/s per GPU, recomputation excluded."""
        return self.model_flops_utilization * _peak(self.inputs, self.configurations)

    def _utilization(self, flops_per_token: FloatArray) -> FloatArray:
        peak = self.configurations.num_gpus * _peak(self.inputs, self.configurations)
        return np.asarray(self.tokens_per_second * flops_per_token / peak)


def evaluate(
    inputs: TrainingInputs,
    configurations: TrainingConfigurations,
    flops_efficiency: float | tuple[float, ...] | None = None,
    broken: CodeArray | None = None,
    usable_share: Numeric = 1.0,
    *,
    every_stage: bool = False,
) -> Estimate:
    """Predict memory and step time of every configuration, and the rule that rejects it.

    ``flops_efficiency`` replaces the time model: it is the share of the dense peak that the whole
    step reaches, communication and bubble inside it; or one for each `ComputePrecision`. ``broken``
    is the `broken_rule` of the configurations if computed before. ``usable_share`` is the share of
    a GPU's memory that the predicted peak may reach. ``every_stage``: return all stages of the
    pipelines, not only those that may be the slowest or fullest; the predictions are the same.
    """
    c = configurations
    if broken is None:
        broken = broken_rule(inputs, c)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        fullest, mean = fullest_and_mean_share(inputs, c)
        parameters = stage_parameters(inputs.model, c, inputs, every_stage=every_stage)
        memory = peak_memory(fullest, c, parameters)
        too_large = ~(memory.least <= usable_share * inputs.machine.gpu.allocatable_memory)
        needed = host_need(inputs, memory)
        if np.any(needed):
            host_full = (broken == 0) & ~(needed <= inputs.machine.host_room(c.num_gpus))
            broken = np.where(host_full, _OUT_OF_HOST_MEMORY, broken)
    full = np.int8(len(REJECTIONS))
    rejected_by = np.where((broken == 0) & too_large, full, broken)
    return Estimate(
        inputs=inputs,
        configurations=c,
        share=mean,
        parameters=parameters,
        memory=memory,
        rejected_by=rejected_by,
        flops_efficiency=flops_efficiency,
    )


def host_need(inputs: TrainingInputs, memory: Memory) -> FloatArray:
    """Return bytes of host memory that each GPU needs, for offloading and model loading.

    Memory to load unsharded models counts only if the host memory of a node is specified.
    """
    if inputs.machine.cluster.host_memory is None:
        return memory.host
    return np.maximum(memory.host, memory.loading)


def broken_rule(inputs: TrainingInputs, configurations: TrainingConfigurations) -> CodeArray:
    """Return the one-based number of the first rule that each configuration breaks; 0: none."""
    return lowest_code(rule_codes(inputs, configurations))


def rule_codes(inputs: TrainingInputs, configurations: TrainingConfigurations) -> list[CodeArray]:
    """Return codes of broken rules in arrays of several shapes; the lowest is `broken_rule`."""
    context = Context(
        gpu=inputs.machine.gpu,
        model=inputs.model,
        framework=inputs.framework,
        workload=inputs.workload,
        logits_in_layers=logits_in_layers(inputs.model),
        specified=inputs.specified,
    )
    return broken_by_shape(RULES, configurations, context)


def _peak(inputs: TrainingInputs, c: TrainingConfigurations) -> FloatArray:
    return inputs.machine.peak(c.precision)
