"""Adapters served beside a model: what an engine keeps for them.

An engine allocates its slots at the start: a pair of thin matrices of the greatest rank beside
every matrix that may have one, for as many adapters as a step may have. Where tensor parallelism
splits the columns of a matrix, the first of a pair is whole on every rank; where it splits the
rows, the second is [1]_ [2]_. Those of embedding and logits are not counted.

References
----------
.. [1] ``create_lora_weights`` of vllm/lora/layers/base_linear.py, column_parallel_linear.py and
   fused_moe.py, vLLM 0.33.
.. [2] ``get_lora_A_shape`` and ``get_lora_B_shape`` of python/sglang/srt/lora/mem_pool.py.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from planner.base.arrays import FloatArray, Numeric, add
from planner.base.enums import AdapterTargets
from planner.configurations.serving import ServingConfigurations
from planner.estimators.inference.setting import ServingSetting
from planner.estimators.inference.weights import held_experts
from planner.layers.model import Layer, layer_of
from planner.layers.operators import Experts, Holder, Product, Split
from planner.specs.quantization import SIXTEEN_BIT_BYTES

_ADAPTED = (Holder.ATTENTION, Holder.FEED_FORWARD)
_NARROWER = {
    target: tuple(AdapterTargets)[: index + 1] for index, target in enumerate(AdapterTargets)
}


def is_adapted(op: Product, targets: AdapterTargets) -> bool:
    """Whether a product may have adapters: all its matrices do, where one of them may."""
    if op.holder not in _ADAPTED:
        return False
    is_any = any(part.adapter in _NARROWER[targets] for part in op.columns.parts)
    return is_any or targets is AdapterTargets.ALL_LINEAR


def has_adapted_experts(setting: ServingSetting) -> bool:
    """Whether routed experts have adapters too."""
    is_all = setting.workload.lora_targets is AdapterTargets.ALL_LINEAR
    return is_all and setting.engine.memory.adapted_experts


def adapted_sides(op: Product, tensor_parallel: Numeric) -> tuple[Numeric, Numeric]:
    """Inputs of the first matrices of adapters and outputs of the second ones on a rank.

    Matrices that are one product have an adapter each.
    """
    if op.split is Split.ROWS:
        return op.joined * op.depth / tensor_parallel, op.columns.whole
    is_split = op.split is Split.COLUMNS
    outputs = op.columns.on_rank(tensor_parallel) if is_split else op.columns.whole
    return op.joined * op.depth, outputs


def adapter_bytes(setting: ServingSetting, c: ServingConfigurations) -> FloatArray:
    """Bytes of all slots on a GPU of the fullest stage."""
    slots, rank = setting.max_loras, setting.workload.lora_rank
    if not slots:
        return np.zeros(())
    layers = setting.model.num_hidden_layers
    uneven = np.ceil(layers / c.pipeline_parallel) / layers
    numbers = add(
        group.num_hidden_layers * sides
        for group in setting.model.layer_groups
        for sides in _sides(setting, layer_of(setting.model, group), c)
    )
    return np.asarray(SIXTEEN_BIT_BYTES * slots * rank * numbers * uneven)


def _sides(setting: ServingSetting, layer: Layer, c: ServingConfigurations) -> Iterator[Numeric]:
    """Inputs and outputs of adapters of a layer on a GPU: parameters of one of rank 1."""
    for op in layer.of(Product):
        if is_adapted(op, setting.workload.lora_targets):
            yield sum(adapted_sides(op, c.tensor_parallel))
    if has_adapted_experts(setting):
        for experts in layer.of(Experts):
            local = held_experts(setting, experts.num_experts, c) / c.expert_parallel
            width = experts.width / c.expert_tensor_parallel
            yield local * experts.matrices * (experts.depth + width)
