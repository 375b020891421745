"""Bytes that a layer of each group keeps for its backward pass: sums over what operators keep."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from planner.base.arrays import FloatArray, Numeric, add
from planner.base.enums import AdapterTargets
from planner.estimators.adapters import adapted_matrices, expert_matrices
from planner.estimators.expert_operators import expert_pairs
from planner.estimators.kept_tensors import kept_tensor_bytes
from planner.estimators.number_bytes import is_narrow, widened
from planner.estimators.share import Share, repeats_outputs
from planner.formulas.activations import dropout_mask_bytes, kept_bytes, score_bytes
from planner.layers.model import Layer, layer_of
from planner.layers.sizes import Element, Kept, Spread
from planner.specs.model import LayerGroup


def layer_bytes(share: Share, group: LayerGroup) -> FloatArray:
    """Bytes one layer keeps per micro-batch, the mean over those repeated whole and the others.

    Full recomputation keeps the layer's input and the tensors that are named, that of feed-forward
    blocks their input.
    """
    again = share.recomputation
    profile = share.setting.framework
    repeated = profile.memory.selective_dropped
    if repeated is None:
        repeated = profile.execution.selective_share
    whole = all_bytes(share, group)
    layer_input = layer_input_bytes(share)
    kept_outputs = whole - _scores(share, group) - _repeated_bytes(share, group)
    selective = (1 - repeated) * kept_outputs + repeated * layer_input
    kept = np.where(again.selective, selective, whole)
    if again.of_some_feed_forward:
        kept = np.where(again.feed_forward, whole - kept_by_feed_forward(share, group), kept)
    tensors = kept_tensor_bytes(share, group, again.saved | again.offloaded)
    repeated_whole = again.full * (layer_input + tensors)
    return np.where(again.any_full, repeated_whole + (1 - again.full) * whole, kept)


def layer_input_bytes(share: Share) -> FloatArray:
    """Bytes of the residual stream that enters a layer."""
    return share.number_bytes * share.own_tokens * share.hidden_size


def all_bytes(share: Share, group: LayerGroup) -> FloatArray:
    """Bytes of everything that a layer keeps for its backward pass."""
    return _sum(share, group, lambda kept, in_feed_forward: True) + _adapter_bytes(share, group)


def kept_by_feed_forward(share: Share, group: LayerGroup) -> FloatArray:
    """What the feed-forward of a layer keeps beside its input."""
    return _sum(share, group, lambda kept, in_feed_forward: in_feed_forward)


def _scores(share: Share, group: LayerGroup) -> FloatArray:
    """What recomputation of the attention core does without."""
    if np.all(share.flash_attention):
        return np.zeros(())
    return _sum(share, group, lambda kept, in_feed_forward: kept.element is Element.SCORE)


def _repeated_bytes(share: Share, group: LayerGroup) -> FloatArray:
    """Outputs of norms, of the experts' activation and of latent up-projections, if repeated."""
    repeats = repeats_outputs(share)
    if not np.any(repeats):
        return np.zeros(())
    return repeats * _sum(share, group, lambda kept, in_feed_forward: kept.remade)


def _sum(share: Share, group: LayerGroup, wanted: Callable[[Kept, bool], bool]) -> FloatArray:
    """Bytes of what is wanted, as the framework's allocator counts them."""
    split: list[Numeric] = []
    own: list[Numeric] = []
    for kept, in_feed_forward in _layer(share, group).kept:
        if not wanted(kept, in_feed_forward):
            continue
        element = _ELEMENTS[kept.element](share)
        if kept.spread is Spread.TENSOR:
            split.append(kept.columns.on_rank(share.tensor_parallel) * element)
        else:
            if kept.spread is Spread.EXPERTS:
                element = element * _dispatched(share, kept)
            own.append(kept.columns.whole * element)
    every = kept_bytes(tokens=share.tokens, bytes_per_token=add(split))
    of_own = kept_bytes(tokens=share.own_tokens, bytes_per_token=add(own))
    return (every + of_own) * share.setting.framework.memory.kept_activations


def _dispatched(share: Share, kept: Kept) -> FloatArray:
    """Tokens of the experts on the fullest rank over its own copies of tokens.

    Ranks that split experts have the inputs and outputs of all of them whole.
    """
    inside = kept.remade or kept.element is Element.ACTIVATION_INPUT
    return share.expert_load * (1.0 if inside else share.expert_tensor_parallel)


def _adapter_bytes(share: Share, group: LayerGroup) -> FloatArray:
    """What the adapters of a layer keep of their own."""
    memory = share.setting.framework.memory
    if not (memory.adapter_input and share.setting.workload.is_frozen):
        return np.zeros(())
    matrices = adapted_matrices(share.setting, group)
    depths = [matrix.local(share.tensor_parallel)[0] for matrix in matrices]
    inputs = add(memory.adapter_input * share.tokens * np.asarray(depth) for depth in depths)
    if op := _layer(share, group).experts:
        sent = expert_pairs(share, op.per_token) * share.expert_tensor_parallel
        of_experts = (
            matrix.local(share.expert_tensor_parallel)[0]
            for matrix in expert_matrices(share.setting, group)
        )
        inputs = add((inputs, *(memory.adapter_input * sent * depth for depth in of_experts)))
    return inputs * memory.kept_activations


def _layer(share: Share, group: LayerGroup) -> Layer:
    return layer_of(share.setting.model, group)


def _attention_input(share: Share) -> Numeric:
    """Bytes per element of what a linear layer keeps of its input; none where none is adapted."""
    if share.setting.workload.has_virtual_tokens:
        return 0.0
    narrows = share.setting.framework.memory.fp8_inputs
    return share.linear_input_bytes if narrows else share.number_bytes


def _feed_forward_input(share: Share) -> Numeric:
    """The same of the feed-forward: nothing is kept of frozen matrices without adapter."""
    workload = share.setting.workload
    if workload.is_frozen and workload.lora_targets is not AdapterTargets.ALL_LINEAR:
        return 0.0
    return _attention_input(share)


def _activation_input(share: Share) -> Numeric:
    """Bytes per element of what the activation function keeps of its inputs."""
    if not share.setting.framework.memory.fp8_activation_inputs:
        return share.number_bytes
    return np.where(is_narrow(share.precision), 1.0, share.number_bytes)


def _expert_output(share: Share) -> Numeric:
    """Bytes per element that is kept of the outputs of experts, if any is."""
    usual = share.setting.framework.memory.expert_output
    return widened(usual, share.precision) if usual else 0.0


def _score(share: Share) -> Numeric:
    """Bytes per query and head of all its scores, none where a fused kernel makes them again."""
    workload = share.setting.workload
    scores = score_bytes(
        num_keys=share.sequence_length,
        dropout=workload.dropout,
        element_bytes=share.number_bytes,
    )
    return np.where(share.flash_attention, 0.0, scores)


_ELEMENTS: dict[Element, Callable[[Share], Numeric]] = {
    Element.RESIDUAL: lambda share: share.number_bytes,
    Element.SIXTEEN_BIT: lambda share: share.number_bytes,
    Element.FP32: lambda share: 4.0,
    Element.ATTENTION_INPUT: _attention_input,
    Element.FEED_FORWARD_INPUT: _feed_forward_input,
    Element.ACTIVATION_INPUT: _activation_input,
    Element.EXPERT_OUTPUT: lambda share: _expert_output(share),
    Element.DROPOUT_MASK: lambda share: dropout_mask_bytes(dropout=share.setting.workload.dropout),
    Element.SCORE: _score,
    Element.STATISTIC: lambda share: np.where(share.flash_attention, 4.0, 0.0),
}
"""Bytes per number of each kind, in a share's software and precision."""
