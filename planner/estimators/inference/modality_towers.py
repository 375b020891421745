"""Vision and audio towers in serving: weights, working sets, and time before a prompt.

Engines store them in 16 bits and split their matrices over the tensor-parallel ranks of the first
stage, as vLLM does unless ``--mm-encoder-tp-mode`` is data (vllm 0.33, ``config/multimodal.py``).
Inputs whose tokens are in the prefix cache are not encoded again (``v1/core/sched/scheduler.py``,
``_try_schedule_encoder_inputs``).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from planner.base.arrays import FloatArray, Numeric, add
from planner.base.enums import AttentionKernels
from planner.base.records import record
from planner.configurations.configuration_tables import ServingConfigurations
from planner.estimators.inference.context import ServingInputs
from planner.estimators.machine import CommunicationGroup, Machine
from planner.formulas.attention import (
    attention_core_bytes,
    attention_core_flops,
    mean_keys_per_query,
)
from planner.layers.model import (
    Layer,
    Tower,
    patch_embedding,
    projector,
    tower_layer,
    tower_parameters,
)
from planner.layers.operators import AttentionCore, BlockExchange, Elementwise, MatrixProduct
from planner.specs.image_processing import audio_tokens, tiles_of
from planner.specs.quantization import SIXTEEN_BIT_BYTES

_STREAMS = 4
"""Numbers of a patch as wide as a layer: what it reads, its norm, what it adds, and the sum."""


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
        tiles = tiles_of(tower, image_tokens)
        patches = round(image_tokens / tiles) * tower.patches_per_token
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
    ``v1/core/encoder_cache_manager.py``, ``compute_mm_encoder_budget``). Nothing without any.
    """
    stored = working = np.zeros(())
    copies = SIXTEEN_BIT_BYTES * inputs.engine.memory.activation_copies
    for encoder_input in encoder_inputs(inputs):
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
    return (1 - hit_rate) * add(times)


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
    window, dims = op.most_keys or length, {"qk_head_dim": op.qk_dim, "v_head_dim": op.v_dim}
    keys = mean_keys_per_query(sequence_length=length, sliding_window=window, causal=op.causal)
    rows, heads = images * length, op.heads / t
    return machine.kernels.attention(
        attention_core_flops(num_queries=rows, keys_per_query=keys, num_heads=heads, **dims),
        attention_core_bytes(num_queries=rows, num_heads=heads, num_key_value_heads=heads, **dims),
        images,
        heads,
        length,
        op.qk_dim,
        rate=machine.attention_rate(AttentionKernels.FLASH_ATTENTION_2),
    )
