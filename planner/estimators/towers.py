"""Vision and audio towers in training and serving: weights, memory, and time.

Training: every rank of a tensor- and context-parallel group computes the unsharded tower for its
micro-batch (Transformers' plans of tensor parallelism name only matrices of the language model:
5.x, ``models/qwen2_5_vl/configuration_qwen2_5_vl.py``, ``base_model_tp_plan``). ZeRO shards it over
the data-parallel ranks. It is on the first stage; a frozen tower runs only forward.

Serving: engines store towers in 16 bits and split their matrices over the tensor-parallel ranks of
the first stage, as vLLM does unless ``--mm-encoder-tp-mode`` is data (vllm 0.33,
``config/multimodal.py``). Inputs whose tokens are in the prefix cache are not encoded again
(``v1/core/sched/scheduler.py``, ``_try_schedule_encoder_inputs``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property, lru_cache

import numpy as np

from planner.base.arrays import FloatArray, Numeric, add
from planner.base.enums import AttentionKernels, ZeroStage
from planner.base.records import record
from planner.configurations.configuration_tables import (
    ServingConfigurations,
    TrainingConfigurations,
)
from planner.estimators.attention_core import fused_work
from planner.estimators.inference.batch_share import ServingInputs
from planner.estimators.layer_operators import layer_operators
from planner.estimators.machine import CommunicationGroup, Machine
from planner.estimators.operators import attribute_work
from planner.estimators.training.compilation import layer_launch_time
from planner.estimators.training.micro_batch_share import MicroBatchShare, TrainingInputs
from planner.estimators.training.saved_activations import layer_bytes
from planner.estimators.training.sharding import DataParallelTime, StageParameters, sharded
from planner.estimators.training.step_time import LayerTime, OperatorGroup, layer_time
from planner.formulas.attention import mean_keys_per_query
from planner.layers.model import (
    Layer,
    Tower,
    layer_parameters,
    patch_embedding,
    projector,
    tower_layer,
    tower_parameters,
)
from planner.layers.operators import AttentionCore, BlockExchange, Elementwise, MatrixProduct
from planner.specs.image_processing import audio_tokens, tiles_of
from planner.specs.model import ModelSpec, VisionTower
from planner.specs.quantization import SIXTEEN_BIT_BYTES

_STREAMS = 4
"""Numbers of a patch as wide as a layer: what it reads, its norm, what it adds, and the sum."""


def _tiles(tower: VisionTower, image_tokens: float) -> tuple[float, int]:
    """Return how many tiles an image of so many tokens has, and the tokens of each."""
    tiles = tiles_of(tower, image_tokens)
    return tiles, round(image_tokens / tiles)


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
        tiles, tokens = _tiles(tower, work.tokens_per_image or tower.tokens_per_image)
        return cls(
            tower=tower,
            share=share,
            images=np.asarray(work.images_per_sample * sequences * tiles),
            tokens_per_image=tokens,
        )

    @cached_property
    def patches(self) -> MicroBatchShare:
        """Sizes of what the layers of the tower compute, in 16 bits, split over no ranks."""
        unity, disabled = np.ones(()), np.zeros((), dtype=np.bool_)
        sixteen = self.share.machine.sixteen_bit
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
        ledger = share.machine.ledger
        operators = attribute_work(ledger, layer_operators(share, layer))
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
        overlap = self.share.overlap
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
    if inputs.workload.trains_part:  # among the frozen weights of its stage
        return np.zeros(())
    num_parameters = np.where(parameters.is_first[stage], float(tower_parameters(tower)), 0.0)
    sharded_from = ZeroStage(inputs.framework.states.weights_sharded_from)
    return sharded(c, sharded_from, ((num_parameters, SIXTEEN_BIT_BYTES, parameters.dense_group),))


@record(kw_only=True)
class EncoderTokens:
    """Input of a tower in a prompt: ``parts`` of ``patches`` each; ``largest``: tokens of one
    input."""

    tower: Tower
    parts: float
    patches: int
    largest: int


def encoder_inputs(shared_inputs: ServingInputs) -> list[EncoderTokens]:
    """Return the inputs of the vision and audio towers in a prompt."""
    model, work, inputs = shared_inputs.model, shared_inputs.workload, []
    if (tower := model.vision_tower) is not None and work.images_per_sample:
        image_tokens = work.tokens_per_image or tower.tokens_per_image
        tiles, tokens = _tiles(tower, image_tokens)
        patches = tokens * tower.patches_per_token
        parts = work.images_per_sample * tiles
        inputs.append(
            EncoderTokens(tower=tower, parts=parts, patches=patches, largest=image_tokens)
        )
    if (sound := model.audio_tower) is not None and work.audio_seconds:
        seconds, window = work.audio_seconds, sound.window
        parts = np.ceil(seconds / window) if sound.pads else max(seconds / window, 1.0)
        part = window if sound.pads else min(seconds, window)
        patches, tokens = round(part * sound.frames_per_second), audio_tokens(sound, seconds)
        inputs.append(
            EncoderTokens(tower=sound, parts=float(parts), patches=patches, largest=tokens)
        )
    return inputs


def largest_image(inputs: ServingInputs) -> EncoderTokens | None:
    """Return the largest image that an engine encodes at its start; None if it encodes none.

    Its tokens are those of the most pixels or tiles of its processor, at most those of a request
    (vllm 0.33, ``multimodal/encoder_budget.py``).
    """
    tower = inputs.model.vision_tower
    if tower is None or not inputs.engine.memory.profiles_images:
        return None
    pixels_of_token = (tower.patch_size * tower.spatial_merge_size) ** 2
    tokens = float(tower.tokens_per_image) * max(tower.max_tiles, 1)
    if tower.max_pixels:
        tokens = tower.max_pixels / pixels_of_token
    if (longest := inputs.workload.max_model_len) is not None:
        tokens = min(tokens, longest)
    tiles, tokens_of_tile = _tiles(tower, tokens)
    patches = tokens_of_tile * tower.patches_per_token
    return EncoderTokens(tower=tower, parts=tiles, patches=patches, largest=round(tokens))


def tower_weights(inputs: ServingInputs, configurations: ServingConfigurations) -> FloatArray:
    """Bytes of the towers on one GPU of the first stage; 0 for a text model."""
    towers = (inputs.model.vision_tower, inputs.model.audio_tower)
    num_bytes = SIXTEEN_BIT_BYTES * sum(tower_parameters(tower) for tower in towers if tower)
    return np.asarray(num_bytes / configurations.tensor_parallel) if num_bytes else np.zeros(())


def encoder_memory(
    inputs: ServingInputs, configurations: ServingConfigurations, tokens: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return bytes of stored tower outputs during a step, and of the towers' working set.

    Both for the ``tokens`` of a step, or for one image or sound where that has more: at most so
    many are encoded before a step, and stored until their request has read them (vllm 0.33,
    ``v1/core/encoder_cache_manager.py``, ``compute_mm_encoder_budget``). Nothing without any, but
    for the image that the engine encodes at its start.
    """
    stored = working = np.zeros(())
    copies = SIXTEEN_BIT_BYTES * inputs.engine.memory.activation_copies
    at_start = largest_image(inputs)
    for encoder_input in [*encoder_inputs(inputs), *([at_start] if at_start else [])]:
        tower, encoded_tokens = encoder_input.tower, np.maximum(tokens, encoder_input.largest)
        widest = max(tower_layer(tower, group).widest for group in tower.layer_groups)
        width = _STREAMS * tower.hidden_size + widest / configurations.tensor_parallel
        working = np.maximum(working, copies * encoded_tokens * tower.patches_per_token * width)
        stored = np.maximum(stored, SIXTEEN_BIT_BYTES * encoded_tokens * inputs.model.hidden_size)
    return stored, working


def encoder_time(inputs: ServingInputs, configurations: ServingConfigurations) -> FloatArray:
    """Return seconds to encode the images and sound of one prompt, the mean over cache hits."""
    machine, t = replace(inputs.machine, ledger=None), configurations.tensor_parallel
    prefixes = inputs.prefixes
    hit_rate = inputs.workload.prefix_cache_hit_rate if prefixes is None else prefixes.hit_rate
    times: list[FloatArray] = [np.zeros(())]
    for encoder_input in encoder_inputs(inputs):
        tower, parts, patches = encoder_input.tower, encoder_input.parts, encoder_input.patches
        times += [
            group.num_hidden_layers
            * _layer_time(machine, tower_layer(tower, group), parts, patches, t)
            for group in tower.layer_groups
        ]
        tokens = max(patches // tower.patches_per_token, 1)
        times.append(_layer_time(machine, patch_embedding(tower), parts, patches, t))
        times.append(_layer_time(machine, projector(tower), parts, tokens, t))
    return (1 - hit_rate) * inputs.slowdown * add(times)


def _layer_time(
    machine: Machine, layer: Layer, images: float, length: int, t: FloatArray
) -> FloatArray:
    """Return seconds of a tower layer on ``length`` patches per image, split over ``t`` ranks."""
    rows, precision = images * length, machine.sixteen_bit
    times: list[Numeric] = []
    for op in layer.operators:
        if isinstance(op, MatrixProduct):
            columns = op.columns.total / t
            times.append(machine.gemm_time(rows, columns, op.depth, precision))
        elif isinstance(op, AttentionCore):
            times.append(_core_time(machine, op, images, length, t))
        elif isinstance(op, Elementwise):
            moved = SIXTEEN_BIT_BYTES * op.forward * rows * op.columns.total
            times.append(machine.memory_time(moved))
        elif isinstance(op, BlockExchange):
            moved = 2.0 * rows * next(op.depth for op in layer.of(MatrixProduct))
            reduce = machine.collective("all_reduce", moved, CommunicationGroup(size=t, stride=1))
            times.append(np.where(t > 1, reduce, 0.0))
    return add(np.asarray(time) for time in times)


def _core_time(
    machine: Machine, op: AttentionCore, images: float, length: int, t: FloatArray
) -> FloatArray:
    """Return seconds of attention of each patch to its image or window."""
    keys = mean_keys_per_query(
        sequence_length=length, sliding_window=op.most_keys or length, causal=op.causal
    )
    heads = op.heads / t
    flops, moved = fused_work(
        tokens=images * length,
        keys=keys,
        heads=heads,
        key_value_heads=heads,
        qk_dim=op.qk_dim,
        v_dim=op.v_dim,
    )
    rate = machine.attention_rate(AttentionKernels.FLASH_ATTENTION_2)
    return machine.kernels.attention(flops, moved, images, heads, length, op.qk_dim, rate=rate)
