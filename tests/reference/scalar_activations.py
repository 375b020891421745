"""Bytes a layer keeps for its backward pass, one tensor per line (arXiv:2205.05198, 4.1)."""

from __future__ import annotations

from remembered import remembered
from scalar_adapters import frozen, thin_matrices, virtual
from scalar_compile import keeps_copies, kept_activations
from scalar_machine import (
    COMPUTE_BYTES,
    Layout,
    World,
    expert_load,
    key_heads,
    own_tokens,
    tokens,
    value_dim,
)
from scalar_modules import block, modules, remade
from scalar_state import State
from scalar_tensors import kept as kept_tensors
from scalar_tensors import tensor_bytes

from planner.specs.attention import AttentionSpec
from planner.specs.model import FeedForwardSpec, LayerGroup


def repeated_layers(world: World, layout: Layout) -> float:
    """Share of the layers that full recomputation repeats: some of each stage, or all."""
    if layout.recompute != "full":
        return 0.0
    if not layout.recompute_num_layers:
        return 1.0
    layers = sum(group.num_hidden_layers for group in world.model.layer_groups)
    return min(layout.recompute_num_layers * layout.pipeline_parallel / layers, 1.0)


@remembered
def kept_bytes(world: World, layout: Layout, group: LayerGroup, recompute: str) -> float:
    """Per micro-batch; ``full`` keeps the input and named tensors, ``selective`` drops the scores.

    ``feed_forward`` drops all of that block, whose input the residual stream holds.

    A framework may recompute a share of whole layers as its selective recomputation.
    """
    h, own = world.model.hidden_size, own_tokens(world, layout)
    layer_input = 2 * own * h
    if recompute == "full":
        share = repeated_layers(world, layout)
        tensors = tensor_bytes(world, layout, group, kept_tensors(layout) - {"layer_input"})
        return share * (layer_input + tensors) + (1 - share) * kept_bytes(
            world, layout, group, "none"
        )
    blocks = (group.attention is not None) + (group.feed_forward is not None)
    norms = 1 if group.parallel_residual else min(group.norms_per_layer, blocks)
    kept = {
        "norm_inputs": (layout.norm_input_bits / 8 or 2) * own * h * norms,
        "dropout_masks": blocks * own * h if world.workload.dropout else 0,
    }
    if group.attention and group.attention.kind in ("linear", "mamba2"):
        kept |= _state(world, layout, State.of(group.attention))
    elif group.attention:
        of_core = "none" if modules(layout) else recompute
        kept |= _attention(world, layout, group.attention, of_core)
    if group.feed_forward and recompute != "feed_forward":
        kept |= _feed_forward(world, layout, group.feed_forward)
    if frozen(world):
        each = world.framework.memory.adapter_input
        for name, matrix in thin_matrices(world, layout, group).items():
            kept[f"{name}_adapter_input"] = each * tokens(world, layout) * matrix.depth
    told = modules(layout) if recompute == "selective" else set()
    if recompute in ("mlp", "moe", "attention", "shared_experts"):
        told = {recompute}
    names = told | set(world.framework.memory.remade)
    kept = {
        what: size
        for what, size in kept.items()
        if not any(remade(group, name, what) for name in names)
    }
    if recompute == "selective" and not told and repeats_outputs(world, layout):
        # moe_act, layernorm and mla_up_proj of Megatron-Core; shared experts keep theirs
        kept |= {"projection_input": 0, "block_input": 0, "expert_down_inputs": 0}
        if group.attention and group.attention.kind == "latent":
            kept |= {"queries": 0, "keys": 0, "values": 0}
    dropped = world.framework.memory.selective_dropped
    if dropped is None:
        dropped = world.framework.execution.selective_share
    again = dropped if recompute == "selective" and not told else 0.0
    again_too = {block(group)} if recompute == "feed_forward" else set()
    of_share = recompute == "selective" and not told and dropped
    beside = 0.0 if of_share else _eager_copies(world, layout, group, names | again_too)
    copies = kept_activations(world, layout)
    grouped = world.framework.execution.selective_grouped
    if grouped is None or not again:
        return (1 - again) * copies * sum(kept.values()) + again * layer_input + beside
    of_experts = {what: kept.pop(what) for what in _INSIDE if what in kept}
    brought = of_experts.pop("dispatched", 0.0) if layout.expert_parallel > 1 else 0.0
    left = (1 - again) * sum(kept.values()) + (1 - grouped) * sum(of_experts.values()) + brought
    return copies * left + again * layer_input + beside


def ring_peak(world: World, layout: Layout, group: LayerGroup) -> float:
    """PyTorch's ring in its backward pass: one tensor per line; keys and values are of all ranks.

    With the rest of the attention block, if that was made again.
    """
    core, ranks = group.attention, layout.context_parallel
    is_ring = ranks > 1 and layout.cp_comm_type == "p2p"
    if not (core and is_ring and world.framework.memory.gathers_ring):
        return 0.0
    if core.kind in ("linear", "mamba2"):
        return 0.0
    n, t = tokens(world, layout), layout.tensor_parallel
    queries = n * core.num_attention_heads * core.head_dim / t
    pairs = n * key_heads(core, layout) * (core.head_dim + value_dim(core))
    held = {
        "gathered": 2 * ranks * pairs,
        "own_copy": 2 * pairs,
        "query_sums": 4 * queries + 4 * queries,
        "pair_sums": 4 * pairs + 4 * pairs + 4 * pairs,
        "returned": 2 * queries / 2 + 2 * pairs,
    }
    again = layout.recompute == "full"
    whole = kept_bytes(world, layout, group, "none")
    inside = whole - kept_bytes(world, layout, group, "attention")
    return sum(held.values()) + again * inside


_INSIDE = ("dispatched", "expert_outputs", "expert_activation_inputs", "expert_down_inputs")


def rebuilt_experts(world: World, layout: Layout, group: LayerGroup) -> float:
    """What recomputation by operator makes again of a layer's experts at once."""
    grouped = world.framework.execution.selective_grouped
    if not grouped or not group.feed_forward or modules(layout):
        return 0.0
    kept = _feed_forward(world, layout, group.feed_forward)
    inside = set(_INSIDE) - ({"dispatched"} if layout.expert_parallel > 1 else set())
    of_experts = sum(size for what, size in kept.items() if what in inside)
    return grouped * kept_activations(world, layout) * of_experts


def _eager_copies(world: World, layout: Layout, group: LayerGroup, names: set[str]) -> float:
    """Inputs of RMS norms in fp32, functions of gates."""
    if not keeps_copies(world, layout):
        return 0.0
    own, n, t = own_tokens(world, layout), tokens(world, layout), layout.tensor_parallel
    mlp, attention, found = group.feed_forward, group.attention, 0.0
    if not group.norm_bias:
        before = {"attention": set(), "feed_forward": {block(group)}}
        blocks = ["attention"] * (attention is not None)
        blocks += ["feed_forward"] * (mlp is not None and not group.parallel_residual)
        for name in blocks[: group.norms_per_layer]:
            if not names & ({"layernorm"} | before[name]):
                found += 4 * own * world.model.hidden_size
    if attention and attention.attn_output_gate and "attention" not in names:
        found += 2 * n * attention.num_attention_heads * value_dim(attention) / t
    if mlp and mlp.gated:
        width = mlp.shared_intermediate_size if mlp.num_experts else mlp.intermediate_size
        again = {"mlp_act", block(group)} | ({"shared_experts"} if mlp.num_experts else set())
        found += 0.0 if names & again else 2 * n * width / t
    return found


def repeats_outputs(world: World, layout: Layout) -> bool:
    """Whether selective recomputation makes cheap outputs of a model with experts again."""
    wanted = world.framework.execution.selective_outputs and layout.fused
    return wanted and world.model.num_experts > 0


def _element(world: World, layout: Layout) -> int:
    """Bytes per element of the kept input of a matrix."""
    if virtual(world):
        return 0
    return COMPUTE_BYTES[layout.precision] if world.framework.memory.fp8_inputs else 2


def _attention(
    world: World, layout: Layout, attention: AttentionSpec, recompute: str
) -> dict[str, float]:
    n, own, h = tokens(world, layout), own_tokens(world, layout), world.model.hidden_size
    a, d = attention.num_attention_heads / layout.tensor_parallel, attention.head_dim
    dv, keys = value_dim(attention), key_heads(attention, layout)
    kept = {
        "projection_input": _element(world, layout) * own * h,
        "queries": 2 * n * a * d,
        "keys": 2 * n * keys * d,
        "values": 2 * n * keys * dv,
        "output_input": 2 * n * a * dv,
    }
    if attention.attn_output_gate:
        kept |= {"gate": 2 * n * a * dv, "ungated_values": 2 * n * a * dv}
    if attention.kind == "latent":
        rank = attention.q_lora_rank + attention.kv_lora_rank + attention.qk_rope_head_dim
        kept["latents"] = 2 * own * rank
    if layout.fused:
        kept["log_sum_exp"] = 4 * n * a
    elif recompute != "selective":
        scores = a * n * world.workload.sequence_length
        kept["softmax"] = 2 * scores
        if world.workload.dropout:
            kept["score_mask"] = scores
            kept["score_dropout"] = 2 * scores
    return kept


def _state(world: World, layout: Layout, state: State) -> dict[str, float]:
    n, t = tokens(world, layout), layout.tensor_parallel
    return {
        "projection_input": _element(world, layout)
        * own_tokens(world, layout)
        * world.model.hidden_size,
        "projected": 2 * n * state.projected / t,
        "convolved": 2 * n * state.channels / t,
        "scanned": 2 * n * state.inner / t,
        "output_input": 2 * n * state.inner / t,
    }


def _feed_forward(world: World, layout: Layout, mlp: FeedForwardSpec) -> dict[str, float]:
    n, own, h = tokens(world, layout), own_tokens(world, layout), world.model.hidden_size
    element = _element(world, layout)
    if frozen(world) and world.workload.lora_targets != "all_linear":
        element = 0  # no weight gradient needs the inputs
    first, last = (
        (bits / 8 or element) if element else 0
        for bits in (layout.fc1_input_bits, layout.fc2_input_bits)
    )
    inputs = 2 if mlp.gated else 1
    in_eight_bits = world.framework.memory.fp8_activation_inputs
    each = 1 if in_eight_bits and layout.precision in ("fp8", "fp4") else 2
    each = layout.activation_input_bits / 8 or each
    width = mlp.shared_intermediate_size if mlp.num_experts else mlp.intermediate_size
    f = width / layout.tensor_parallel
    kept = {
        "block_input": first * own * h,
        "activation_inputs": each * inputs * n * f,
        "down_input": last * n * f,
    }
    if mlp.num_experts:
        pairs = own * mlp.num_experts_per_tok * expert_load(layout)
        outside = pairs * layout.expert_tensor_parallel
        latent = mlp.moe_latent_size
        kept["expert_latents"] = 2 * own * latent
        kept["dispatched"] = first * outside * (latent or h)
        kept["expert_outputs"] = world.framework.memory.expert_output * outside * (latent or h)
        kept["expert_activation_inputs"] = each * inputs * pairs * mlp.moe_intermediate_size
        kept["expert_down_inputs"] = last * pairs * mlp.moe_intermediate_size
        kept["router_logits_and_scores"] = 2 * 4 * own * mlp.num_experts
    return kept
