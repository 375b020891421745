"""The vision tower in serving: its weights and working set, and its time before a prompt.

Engines keep it in 16 bits and split its matrices over the tensor-parallel ranks of the first stage,
as vLLM does unless ``--mm-encoder-tp-mode`` says data (vllm 0.33, ``config/multimodal.py``). Images
whose tokens are found in the prefix cache are not seen again (``v1/core/sched/scheduler.py``,
``_try_schedule_encoder_inputs``).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from planner.base.arrays import FloatArray, Numeric, add
from planner.base.enums import (
    AttentionKernels,
)
from planner.configurations.table import ServingConfigurations
from planner.estimators.inference.setting import ServingSetting
from planner.estimators.machine import Group, Machine
from planner.estimators.parameters import tower_parameters
from planner.formulas.attention import (
    attention_core_bytes,
    attention_core_flops,
    mean_keys_per_query,
)
from planner.layers.model import Layer, patch_embedding, projector, tower_layer
from planner.layers.operators import AttentionCore, BlockExchange, Elementwise, Product
from planner.specs.quantization import SIXTEEN_BIT_BYTES

_STREAMS = (
    4  # numbers of a patch as wide as a layer: what it reads, its norm, what it adds, the sum
)


def tower_weights(setting: ServingSetting, configurations: ServingConfigurations) -> FloatArray:
    """Bytes of the tower on one GPU of the first stage; 0 of a text model."""
    tower = setting.model.vision_tower
    if tower is None:
        return np.zeros(())
    held = SIXTEEN_BIT_BYTES * tower_parameters(tower)
    return np.asarray(held / configurations.tensor_parallel)


def encoder_memory(
    setting: ServingSetting, configurations: ServingConfigurations, tokens: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Bytes of what the tower has made, kept beside a step, and of its own working set.

    Both of as many ``tokens`` as a step has, or of one image where that has more: so much is made
    before a step at most, and kept until its request has read it (vllm 0.33,
    ``v1/core/encoder_cache_manager.py``, ``compute_mm_encoder_budget``). Nothing without images.
    """
    tower, work = setting.model.vision_tower, setting.workload
    if tower is None or not work.images_per_sample:
        return np.zeros(()), np.zeros(())
    made = np.maximum(tokens, work.tokens_per_image or tower.tokens_per_image)
    t, h = configurations.tensor_parallel, tower.hidden_size
    widest = max(tower_layer(tower, group).widest for group in tower.layer_groups)
    working = made * tower.patches_per_token * (_STREAMS * h + widest / t)
    working = working * setting.engine.memory.activation_copies
    kept = made * setting.model.hidden_size
    return np.asarray(SIXTEEN_BIT_BYTES * kept), np.asarray(SIXTEEN_BIT_BYTES * working)


def images_time(setting: ServingSetting, configurations: ServingConfigurations) -> FloatArray:
    """Seconds in which the images of one prompt become tokens."""
    tower, work = setting.model.vision_tower, setting.workload
    if tower is None or not work.images_per_sample:
        return np.zeros(())
    whole = work.tokens_per_image or tower.tokens_per_image
    tiles = tower.tiles(whole)
    each, images = round(whole / tiles), work.images_per_sample * tiles
    images = images * (1 - work.prefix_cache_hit_rate)
    machine, t = replace(setting.machine, ledger=None), configurations.tensor_parallel
    patches = each * tower.patches_per_token

    def seconds(layer: Layer, length: int) -> FloatArray:
        return _layer_time(machine, layer, images, length, t)

    layers = (
        group.num_hidden_layers * seconds(tower_layer(tower, group), patches)
        for group in tower.layer_groups
    )
    ends = seconds(patch_embedding(tower), patches), seconds(projector(tower), each)
    return add((*layers, *ends))


def _layer_time(
    machine: Machine, layer: Layer, images: float, length: int, t: FloatArray
) -> FloatArray:
    """Seconds of a layer on the ``length`` patches of each image, split over ``t`` ranks."""
    rows, precision = images * length, machine.sixteen_bit
    times: list[Numeric] = []
    for op in layer.operators:
        if isinstance(op, Product):
            whole = op.columns.whole / t
            times.append(machine.gemm_time(rows, whole, op.depth, precision))
        elif isinstance(op, AttentionCore):
            times.append(_core_time(machine, op, images, length, t))
        elif isinstance(op, Elementwise):
            moved = SIXTEEN_BIT_BYTES * op.forward * rows * op.columns.whole
            times.append(machine.memory_time(moved))
        elif isinstance(op, BlockExchange):
            moved = 2.0 * rows * layer_width(layer)
            reduce = machine.collective("all_reduce", moved, Group(size=t, stride=1))
            times.append(np.where(t > 1, reduce, 0.0))
    return add(np.asarray(time) for time in times)


def layer_width(layer: Layer) -> int:
    """Numbers that a patch has between the layers."""
    return next(op.depth for op in layer.of(Product))


def _core_time(
    machine: Machine, op: AttentionCore, images: float, length: int, t: FloatArray
) -> FloatArray:
    """Every patch attends to all of its image, or of its window."""
    window, dims = op.most_keys or length, {"qk_head_dim": op.qk_dim, "v_head_dim": op.v_dim}
    keys = mean_keys_per_query(sequence_length=length, sliding_window=window, causal=op.causal)
    rows, heads = images * length, op.heads / t
    return machine.attention_time(
        attention_core_flops(num_queries=rows, keys_per_query=keys, num_heads=heads, **dims),
        attention_core_bytes(num_queries=rows, num_heads=heads, num_key_value_heads=heads, **dims),
        images,
        heads,
        length,
        op.qk_dim,
        rate=machine.attention_rate(AttentionKernels.FLASH_ATTENTION_2),
    )
