"""Peak memory of the fullest GPU, by part."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields

import numpy as np

from planner.arrays import FloatArray, Numeric, add, largest
from planner.configurations.training import TrainingConfigurations
from planner.enums import Recompute, ZeroStage
from planner.estimators.frozen import frozen_bytes, gathered_bytes, stage_gathered_bytes
from planner.estimators.saved_activations import all_bytes, layer_bytes, layer_input_bytes
from planner.estimators.sharding import StageParameters
from planner.estimators.share import Share
from planner.formulas.model_states import sharded_bytes
from planner.formulas.pipeline import micro_batches_in_flight


@dataclass(frozen=True, kw_only=True)
class MemoryBreakdown:
    """Bytes on one GPU; the parts add up to the peak.

    ``working``: the largest short-lived set, one layer in its backward pass or the loss.
    ``gathered``: full weights and gradients of the layers ZeRO-3 has gathered.
    """

    weights: FloatArray
    gradients: FloatArray
    optimizer_states: FloatArray
    activations: FloatArray
    working: FloatArray
    gathered: FloatArray
    fragmentation: FloatArray
    communication_buffers: FloatArray
    reserved: FloatArray

    @property
    def total(self) -> FloatArray:
        """The peak."""
        return add(getattr(self, name) for name in MEMORY_PARTS)


MEMORY_PARTS = tuple(field.name for field in fields(MemoryBreakdown))


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Memory of the candidates for the fullest stage, and their maximum."""

    stages: tuple[MemoryBreakdown, ...]
    peak: FloatArray
    totals: tuple[FloatArray, ...]

    @property
    def fullest(self) -> MemoryBreakdown:
        """The parts on the fullest stage of each configuration."""
        index = np.argmax(np.stack(np.broadcast_arrays(*self.totals)), axis=0)

        def chosen(part: str) -> FloatArray:
            values = np.broadcast_arrays(*(getattr(stage, part) for stage in self.stages), index)
            return np.asarray(np.take_along_axis(np.stack(values[:-1]), index[None], axis=0)[0])

        return MemoryBreakdown(**{part: chosen(part) for part in MEMORY_PARTS})


def peak_memory(share: Share, c: TrainingConfigurations, parameters: StageParameters) -> Memory:
    """Memory of every configuration, on each of its candidate stages."""
    groups = share.setting.model.layer_groups
    kept = [layer_bytes(share, group, c.recompute) for group in groups]
    whole = [all_bytes(share, group, core_recomputed=False) for group in groups]
    parts = _state_parts(share, c, parameters)
    stages = tuple(
        _stage_memory(share, c, parameters, stage, kept, whole, parts)
        for stage in range(len(parameters.dense))
    )
    totals = tuple(stage.total for stage in stages)
    return Memory(stages=stages, totals=totals, peak=largest(totals))


def _stage_memory(
    share: Share,
    c: TrainingConfigurations,
    parameters: StageParameters,
    stage: int,
    kept: list[FloatArray],
    whole: list[FloatArray],
    state: Callable[[str, int], FloatArray],
) -> MemoryBreakdown:
    memory = share.setting.framework.memory
    in_flight = _in_flight(c, parameters.layers.ranks[stage])
    activations = add(
        bytes_per_layer * (count * in_flight)
        for bytes_per_layer, count in zip(kept, parameters.layers.counts[stage], strict=True)
    )
    loss = np.where(parameters.is_last[stage], _loss_bytes(share), 0.0)
    held = _largest_held(whole, parameters.layers.counts[stage])
    working = np.maximum(_layer_working_set(share, c, held), loss)
    return MemoryBreakdown(
        weights=state("weight", stage),
        gradients=state("gradient", stage),
        optimizer_states=state("optimizer", stage),
        activations=activations,
        working=working,
        gathered=_gathered(share, c, parameters, stage),
        fragmentation=memory.fragmentation * (activations + working),
        communication_buffers=np.asarray(memory.communication_buffer),
        reserved=np.asarray(memory.reserved),
    )


def _in_flight(c: TrainingConfigurations, rank: FloatArray) -> FloatArray:
    return micro_batches_in_flight(
        pipeline_parallel=c.pipeline_parallel,
        virtual_pipeline=c.virtual_pipeline,
        num_micro_batches=c.num_micro_batches,
        stage=rank,
    )


def _largest_held(values: list[FloatArray], counts: FloatArray) -> FloatArray:
    """The largest of the values of the groups that have layers on a stage."""
    if len(values) == 1:
        return values[0]
    return largest(
        np.where(count > 0, value, 0.0) for value, count in zip(values, counts, strict=True)
    )


def _layer_working_set(share: Share, c: TrainingConfigurations, layer: FloatArray) -> FloatArray:
    """Gradients in flight in one layer, and what full recomputation builds up again."""
    memory = share.setting.framework.memory
    rebuilt = np.where(c.recompute == Recompute.FULL, layer, 0.0)
    late = np.where(c.zero_stage == ZeroStage.WEIGHTS, memory.sharded_copies, 1.0)
    return late * memory.unfused_copies * (rebuilt + layer / 4) + layer_input_bytes(share)


def _loss_bytes(share: Share) -> FloatArray:
    """Logits and their copies at the peak of the cross-entropy."""
    logits = share.tokens * share.setting.model.vocab_size / share.tensor_parallel
    return np.asarray(logits * share.setting.framework.memory.per_logit)


def _state_parts(
    share: Share, c: TrainingConfigurations, parameters: StageParameters
) -> Callable[[str, int], FloatArray]:
    states, trained = share.setting.framework.states, parameters.trained
    sharded_from = {
        "weight": ZeroStage(states.weights_sharded_from),
        "gradient": ZeroStage.GRADIENTS,
        "optimizer": ZeroStage.OPTIMIZER,
    }

    def state(name: str, stage: int) -> FloatArray:
        own = add(
            sharded_bytes(
                parameters=count[stage],
                bytes_per_parameter=getattr(states, name),
                group_size=group.size,
                zero_stage=c.zero_stage,
                sharded_from=sharded_from[name],
            )
            for count, group in (
                (trained.dense, parameters.dense_group),
                (trained.experts, parameters.expert_group),
            )
        )
        if name == "weight" and share.setting.workload.is_frozen:
            return own + frozen_bytes(share.setting, c, parameters, stage)
        return own

    return state


def _gathered(
    share: Share, c: TrainingConfigurations, parameters: StageParameters, stage: int
) -> FloatArray:
    """Full 16-bit weights and gradients of the layers that ZeRO-3 holds at once.

    FSDP at stage 2 holds the weights of the whole stage.
    """
    profile = share.setting.framework
    states = profile.states
    of_layer, of_end = gathered_bytes(share.setting, c.precision)

    def unit(held: StageParameters, of_layer: Numeric, of_end: float) -> FloatArray:
        layers = [
            dense + experts
            for dense, experts in zip(held.layer_dense, held.layer_experts, strict=True)
        ]
        largest_layer = _largest_held(layers, parameters.layers.counts[stage])
        together = largest_layer * profile.memory.gathered_layers
        return np.maximum(together * of_layer, held.end * of_end)

    gradients = unit(parameters.trained, states.gradient_on_wire, states.gradient_on_wire)
    weights = np.where(c.zero_stage == ZeroStage.WEIGHTS, unit(parameters, of_layer, of_end), 0.0)
    if states.weights_sharded_from == ZeroStage.GRADIENTS:
        whole = stage_gathered_bytes(share.setting, c, parameters, stage)
        weights = np.where(c.zero_stage == ZeroStage.GRADIENTS, whole, weights)
    return np.where(c.zero_stage >= states.weights_sharded_from, weights + gradients, 0.0)
