"""Bytes that a layer of each group keeps for its backward pass."""

from __future__ import annotations

import numpy as np

from planner.arrays import FloatArray, Numeric, add
from planner.enums import AdapterTargets, AttentionKind, ComputePrecision
from planner.estimators.adapters import adapted_matrices
from planner.estimators.attention_block import value_dim
from planner.estimators.linear_attention import linear_attention_bytes
from planner.estimators.share import Share, repeats_outputs
from planner.formulas.activations import (
    feed_forward_bytes,
    fused_attention_bytes,
    linear_input_bytes,
    norm_and_residual_bytes,
    unfused_attention_bytes,
)
from planner.specs.model import AttentionSpec, FeedForwardSpec, LayerGroup


def layer_bytes(share: Share, group: LayerGroup) -> FloatArray:
    """Bytes one layer keeps per micro-batch, the mean over those repeated whole and the others.

    Full recomputation keeps the layer's input alone, that of feed-forward blocks their input.
    """
    again = share.recomputation
    profile = share.setting.framework
    repeated = profile.memory.selective_dropped
    if repeated is None:
        repeated = profile.execution.selective_share
    whole = all_bytes(share, group, core_recomputed=False)
    without_core = all_bytes(share, group, core_recomputed=True)
    layer_input = layer_input_bytes(share)
    kept_outputs = without_core - _repeated_bytes(share, group)
    selective = (1 - repeated) * kept_outputs + repeated * layer_input
    kept = np.where(again.selective, selective, whole)
    if again.of_some_feed_forward:
        kept = np.where(again.feed_forward, whole - kept_by_feed_forward(share, group), kept)
    return np.where(again.any_full, again.full * layer_input + (1 - again.full) * whole, kept)


def _adapter_bytes(share: Share, group: LayerGroup) -> FloatArray:
    """What the adapters of a layer keep of their own."""
    width = share.setting.framework.memory.adapter_input
    if not (width and share.setting.workload.is_frozen):
        return np.zeros(())
    matrices = adapted_matrices(share.setting, group)
    depths = [matrix.local(share.tensor_parallel)[0] for matrix in matrices]
    return add(width * share.tokens * np.asarray(depth) for depth in depths)


def _repeated_bytes(share: Share, group: LayerGroup) -> FloatArray:
    """Outputs of norms, of the experts' activation and of latent up-projections, if repeated."""
    attention, experts = group.attention, group.feed_forward
    if experts is None or not np.any(repeats := repeats_outputs(share, group)):
        return np.zeros(())
    norms = linear_input_bytes(
        tokens=share.tokens,
        width=share.hidden_size,
        split=share.split,
        element_bytes=(_element_bytes(share) if attention else 0.0)
        + _feed_forward_element_bytes(share),
    )
    pairs = share.own_tokens * experts.num_experts_per_tok
    activated = pairs * experts.moe_intermediate_size * _feed_forward_element_bytes(share)
    projected: Numeric = 0.0
    if attention and attention.kind is AttentionKind.LATENT:
        widths = _attention_widths(share, attention)
        projected = fused_attention_bytes(tokens=share.tokens, **{**widths, "num_heads": 0.0})
    kept = share.setting.framework.memory.kept_activations
    return repeats * kept * add((norms, activated, projected))


def kept_by_feed_forward(share: Share, group: LayerGroup) -> FloatArray:
    """What the feed-forward of a layer keeps beside its input."""
    if not group.feed_forward:
        return np.zeros(())
    kept = share.setting.framework.memory.kept_activations
    return kept * feed_forward_block_bytes(share, group.feed_forward)


def layer_input_bytes(share: Share) -> FloatArray:
    """Bytes of the residual stream that enters a layer."""
    return 2.0 * share.own_tokens * share.hidden_size


def all_bytes(share: Share, group: LayerGroup, core_recomputed: bool) -> FloatArray:
    """Bytes of everything that a layer keeps for its backward pass."""
    norms = norm_and_residual_bytes(
        tokens=share.tokens,
        hidden_size=share.hidden_size,
        num_norms=1 if group.parallel_residual else min(group.norms_per_layer, group.num_blocks),
        num_residuals=group.num_blocks,
        split=share.split,
        dropout=share.setting.workload.dropout,
    )
    parts = [norms, _adapter_bytes(share, group)]
    if group.attention:
        parts.append(attention_bytes(share, group.attention, core_recomputed))
    if group.feed_forward:
        parts.append(feed_forward_block_bytes(share, group.feed_forward))
    return add(parts) * share.setting.framework.memory.kept_activations


def attention_bytes(share: Share, attention: AttentionSpec, core_recomputed: bool) -> FloatArray:
    """Input of the projections, queries, keys, values, scores, input of the output."""
    if attention.has_state:
        return linear_attention_bytes(share, attention, _element_bytes(share))
    widths = _attention_widths(share, attention)
    fused = fused_attention_bytes(tokens=share.tokens, **widths)
    unfused = unfused_attention_bytes(
        tokens=share.tokens,
        sequence_length=share.setting.workload.sequence_length,
        dropout=share.setting.workload.dropout,
        core_recomputed=core_recomputed,
        **widths,
    )
    element = _element_bytes(share)
    projected = linear_input_bytes(
        tokens=share.tokens, width=share.hidden_size, split=share.split, element_bytes=element
    )
    latent = linear_input_bytes(
        tokens=share.tokens,
        width=attention.q_lora_rank + attention.kv_lora_rank + attention.qk_rope_head_dim,
        split=share.split,
        element_bytes=2.0,
    )
    output = linear_input_bytes(
        tokens=share.tokens,
        width=attention.num_attention_heads * value_dim(attention),
        split=share.tensor_parallel,
        element_bytes=2.0,
    )
    is_latent = attention.kind is AttentionKind.LATENT
    gated = 2.0 * output if attention.attn_output_gate else 0.0
    core = np.where(share.flash_attention, fused, unfused)
    return add((core, projected, latent if is_latent else 0.0, gated, output))


def _attention_widths(share: Share, attention: AttentionSpec) -> dict[str, Numeric]:
    t = share.tensor_parallel
    heads = attention.num_attention_heads
    key_heads = share.key_value_heads(attention.num_key_value_heads) * t
    return {
        "query_width": heads * attention.head_dim,
        "key_width": key_heads * attention.head_dim,
        "value_width": key_heads * value_dim(attention),
        "num_heads": heads,
        "tensor_parallel": t,
    }


def feed_forward_block_bytes(share: Share, feed_forward: FeedForwardSpec) -> FloatArray:
    """Inputs of the block's linear layers and activations, dense and routed."""
    element = _feed_forward_element_bytes(share)
    block_input = linear_input_bytes(
        tokens=share.tokens, width=share.hidden_size, split=share.split, element_bytes=element
    )
    dense = feed_forward_bytes(
        tokens=share.tokens,
        intermediate_size=feed_forward.shared_width,
        gated=feed_forward.gated,
        split=share.tensor_parallel,
        element_bytes=element,
        activation_bytes=_activation_input_bytes(share),
    )
    return add((block_input, dense, _routed_bytes(share, feed_forward)))


def _routed_bytes(share: Share, feed_forward: FeedForwardSpec) -> FloatArray:
    """Dispatched tokens, their activations, the experts' outputs and the router's scores."""
    if not feed_forward.num_experts:
        return np.zeros(())
    element = _feed_forward_element_bytes(share)
    pairs = share.own_tokens * feed_forward.num_experts_per_tok
    width = feed_forward.expert_inputs(share.hidden_size)
    kept_output = share.setting.framework.memory.expert_output
    dispatched = pairs * width * (element + kept_output)
    if feed_forward.moe_latent_size:
        dispatched = dispatched + share.own_tokens * width * 2.0
    inner = feed_forward_bytes(
        tokens=pairs,
        intermediate_size=feed_forward.moe_intermediate_size,
        gated=feed_forward.gated,
        split=1.0,
        element_bytes=element,
        activation_bytes=_activation_input_bytes(share),
    )
    scores = 4.0 * 2 * share.own_tokens * feed_forward.num_experts
    return add((dispatched, inner, scores))


def _element_bytes(share: Share) -> Numeric:
    """Bytes per element of what a linear layer keeps of its input; none where none is adapted."""
    if share.setting.workload.has_virtual_tokens:
        return 0.0
    return share.linear_input_bytes if share.setting.framework.memory.fp8_inputs else 2.0


def _activation_input_bytes(share: Share) -> Numeric:
    """Bytes per element of what the activation function keeps of its inputs."""
    in_eight_bits = share.setting.framework.memory.fp8_activation_inputs
    if not (in_eight_bits and share.setting.workload.is_frozen):
        return 2.0
    return np.where(share.precision >= ComputePrecision.FP8, 1.0, 2.0)


def _feed_forward_element_bytes(share: Share) -> Numeric:
    """The same of the feed-forward: nothing is kept of frozen matrices without adapter."""
    workload = share.setting.workload
    if workload.is_frozen and workload.lora_targets is not AdapterTargets.ALL_LINEAR:
        return 0.0
    return _element_bytes(share)
