"""The vision tower in training: time before a micro-batch, weights, saved activations.

Every rank of a tensor- and context-parallel group computes the unsharded tower for its micro-batch
(Transformers' plans of tensor parallelism name only matrices of the language model: 5.x,
``models/qwen2_5_vl/configuration_qwen2_5_vl.py``, ``base_model_tp_plan``). ZeRO shards it over the
data-parallel ranks. It is on the first stage; a frozen tower runs only forward.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property, lru_cache
from operator import attrgetter

import numpy as np

from planner.base.arrays import FloatArray, Numeric, add
from planner.base.enums import ZeroStage
from planner.base.records import record
from planner.configurations.configuration_tables import TrainingConfigurations
from planner.estimators.kernel_work import attribute_work
from planner.estimators.training.compilation import layer_launch_time
from planner.estimators.training.layer_operators import layer_operators
from planner.estimators.training.micro_batch_share import MicroBatchShare, TrainingInputs
from planner.estimators.training.operators import LayerTime, OperatorGroup, layer_time
from planner.estimators.training.saved_activations import layer_bytes
from planner.estimators.training.sharding import DataParallelTime, StageParameters, sharded
from planner.layers.model import (
    Layer,
    layer_parameters,
    patch_embedding,
    projector,
    tower_layer,
    tower_parameters,
)
from planner.specs.image_processing import tiles_of
from planner.specs.model import ModelSpec, VisionTower

_SIXTEEN_BIT = 2.0


def tower_of(inputs: TrainingInputs) -> VisionTower | None:
    """The tower that is computed or kept: None where a model is trained as a text model."""
    return inputs.model.vision_tower if inputs.workload.has_tower else None


@lru_cache(maxsize=256)
def _encoder(tower: VisionTower) -> ModelSpec:
    """Return the layers of a vision tower as a model spec."""
    return ModelSpec(
        name="vision tower",
        hidden_size=tower.hidden_size,
        vocab_size=1,
        layer_groups=tower.layer_groups,
        source=tower.source,
    )


@record(kw_only=True)
class TowerShare:
    """Images or tiles of a micro-batch on one GPU: patches, and tokens after the projector."""

    tower: VisionTower
    share: MicroBatchShare
    images: FloatArray
    tokens_per_image: int

    @classmethod
    def of(cls, share: MicroBatchShare, c: TrainingConfigurations) -> TowerShare | None:
        """Return the vision tower's work on one GPU; None if the model has no computed tower."""
        tower, work = tower_of(share.inputs), share.inputs.workload
        if tower is None or not work.images_per_sample:
            return None
        sequences = work.sequences_per_sample * c.micro_batch_size
        each = work.tokens_per_image or tower.tokens_per_image
        tiles = tiles_of(tower, each)
        return cls(
            tower=tower,
            share=share,
            images=np.asarray(work.images_per_sample * sequences * tiles),
            tokens_per_image=round(each / tiles),
        )

    @cached_property
    def patches(self) -> MicroBatchShare:
        """Sizes of what the layers of the tower compute, in 16 bits, split over no ranks."""
        unity, disabled = np.ones(()), np.zeros((), dtype=np.bool_)
        sixteen = self.share.inputs.machine.sixteen_bit
        return replace(
            self.share,
            inputs=replace(self.share.inputs, model=_encoder(self.tower)),
            tensor_parallel=unity,
            context_parallel=unity,
            sequences=self.images,
            sequence_length=self.tokens_per_image * self.tower.patches_per_token,
            precision=sixteen,
            kernel_format=sixteen,
            sequence_parallel=disabled,
            fp8_attention=disabled,
            tp_comm_overlap=disabled,
        )

    @cached_property
    def tokens(self) -> MicroBatchShare:
        """Sizes of the tokens that the projector outputs."""
        return replace(self.patches, sequence_length=self.tokens_per_image)

    def kept_bytes(self) -> FloatArray:
        """Return activation bytes per micro-batch of the vision tower; 0 if frozen."""
        if self.share.inputs.workload.freezes_tower:
            return np.zeros(())
        return add(
            group.num_hidden_layers * layer_bytes(self.patches, group)
            for group in self.tower.layer_groups
        )

    def blocks(
        self, parameters: StageParameters, exchange: DataParallelTime
    ) -> Iterator[OperatorGroup]:
        """Yield the tower's blocks on the first stage: patch embedding, layers, projector."""
        launch, h = layer_launch_time(self.patches), self.tower.hidden_size
        for group in self.tower.layer_groups:
            number, layer = float(group.num_hidden_layers), tower_layer(self.tower, group)
            num_parameters = layer_parameters(h, group).total
            time = self._time(self.patches, layer, launch)
            yield self._block(time, number, num_parameters, parameters, exchange)
        ends = (self.patches, patch_embedding(self.tower)), (self.tokens, projector(self.tower))
        for share, end in ends:
            num_parameters = sum(op.parameters for op in end.operators)
            time = self._time(share, end, 0.0)
            yield self._block(time, 1.0, num_parameters, parameters, exchange)

    def _time(self, share: MicroBatchShare, layer: Layer, launch_time: Numeric) -> LayerTime:
        """Return the time of one layer of the vision tower; a frozen tower only runs forward."""
        ledger = share.inputs.machine.ledger
        operators = attribute_work(ledger, layer_operators(share, layer), attrgetter("forward"))
        if not share.inputs.workload.freezes_tower:
            return layer_time(operators, share.recomputation, launch_time)
        nothing = np.zeros(())
        # No gradient reaches frozen layers before all trained layers.
        forward_only = (
            replace(operator, backward=nothing, weights=0.0, repeatable=False, selective=0.0)
            for operator in operators
        )
        time = layer_time(forward_only, share.recomputation, launch_time)
        return replace(time, launch_wait_backward=nothing)

    def _block(
        self,
        time: LayerTime,
        number: float,
        num_parameters: int,
        parameters: StageParameters,
        exchange: DataParallelTime,
    ) -> OperatorGroup:
        """Return ``number`` equal tower layers as a block of the first pipeline stage."""
        work = self.share.inputs.workload
        # ZeRO gathers it as it gathers an end of the model, in proportion to the parameters.
        part = num_parameters / parameters.end
        passes = exchange.end_forward, 0.0 if work.freezes_tower else exchange.end_backward
        windows = time.forward_total, time.backward_total
        overlap = self.share.inputs.framework.overlap
        shown = add(
            (1 - overlap.weight_gather) * part * gather
            + overlap.weight_gather * np.maximum(part * gather - window, 0.0)
            for gather, window in zip(passes, windows, strict=True)
        )
        return OperatorGroup(
            time=time,
            gather=np.asarray(shown),
            offload=np.zeros(()),
            counts=number * parameters.is_first.astype(np.float64),
            fully_recomputed=number,
            reference=np.asarray(sum(work.forward_passes) * time.forward_total),
            on_first=True,
        )


def frozen_tower_bytes(
    inputs: TrainingInputs, c: TrainingConfigurations, parameters: StageParameters, stage: int
) -> FloatArray:
    """Return bytes of a frozen vision tower's 16-bit weights on one GPU of a stage."""
    tower = tower_of(inputs)
    if tower is None or not inputs.workload.freezes_tower or inputs.workload.is_frozen:
        return np.zeros(())
    num_parameters = np.where(parameters.is_first[stage], float(tower_parameters(tower)), 0.0)
    sharded_from = ZeroStage(inputs.framework.states.weights_sharded_from)
    return sharded(c, sharded_from, ((num_parameters, _SIXTEEN_BIT, parameters.dense_group),))
