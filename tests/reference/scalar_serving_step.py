"""A step of a serving engine, operator by operator, and its way through the pipeline.

Part of the naive twin of serving: plain floats, standard and latent attention.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, floor
from typing import Any

import scalar_machine
import scalar_served_adapters
from scalar_machine import value_dim
from scalar_serving_kernels import (
    EMBEDDINGS,
    Replica,
    ServingWorld,
    all_reduce,
    decode_attention,
    elementwise,
    expert_slots,
    experts,
    fullest_rank,
    product,
    prompt_attention,
)
from scalar_serving_memory import cached_bytes, key_heads, stored_form, weights

Operators = dict[str, float]


@dataclass(frozen=True, kw_only=True)
class StepBatch:
    """What a replica computes in one step; lengths are means."""

    decoding: float = 0.0
    context: float = 0.0
    per_sequence: float = 1.0
    new_tokens: float = 0.0
    prompts: float = 0.0
    keys: float = 0.0
    cached: float = 0.0

    @property
    def tokens(self) -> float:
        return self.decoding * self.per_sequence + self.new_tokens


@dataclass(frozen=True, kw_only=True)
class Step:
    """Seconds of one step through all stages, and of the stage that the others wait for."""

    layers: tuple[Operators, ...]
    ends: Operators
    total: float
    slowest_stage: float
    waits: float

    def cycle(self, micro_batches: float) -> float:
        return max(self.total, micro_batches * self.slowest_stage)


class _Share:
    """What the busiest attention rank has of a batch: 1/a of all, at least one sequence."""

    def __init__(self, c: Replica, batch: StepBatch) -> None:
        self.decoding = batch.decoding * _busiest(c, batch.decoding)
        part = _busiest(c, batch.prompts)
        self.prompts = batch.prompts * part
        self.new_tokens = batch.new_tokens * part
        self.tokens = self.decoding * batch.per_sequence + self.new_tokens
        self.sampled = self.decoding * batch.per_sequence + self.prompts


def _busiest(c: Replica, sequences: float) -> float:
    return max(1 / c.attention_data_parallel, 1 / max(sequences, 1.0))


def step(world: ServingWorld, c: Replica, batch: StepBatch, decoding: bool) -> Step:
    """All layers, both ends, waits for launches and for the host, the messages of a pipeline."""
    own = _Share(c, batch)
    model, execution = world.model, world.execution
    layers = tuple(_layer(world, c, batch, own, group) for group in model.layer_groups)
    ends = _ends(world, c, own)
    kernels, launches = sum(ends.values()), 0.0
    for group, operators in zip(model.layer_groups, layers, strict=True):
        for _ in range(group.num_hidden_layers):
            kernels += sum(operators.values())
            launched = _launched(world, c, batch, group, decoding)
            launches += max(launched - sum(operators.values()), 0.0)
    overhead = execution.step_overhead + execution.sequence_overhead * own.sampled
    if batch.per_sequence > 1 and batch.decoding:
        overhead += execution.draft_overhead + execution.draft_sequence_overhead * own.decoding
    p, count = c.pipeline_parallel, model.num_hidden_layers
    message = 0.0
    if p > 1:
        leaves = c.stage_gpus >= world.cluster.scale_up.domain_size
        message = scalar_machine.send(world.links, 2 * own.tokens * model.hidden_size, leaves)
    layer = (kernels + launches - sum(ends.values())) / count
    fullest, last = ceil(count / p) * layer, floor(count / p) * layer + sum(ends.values())
    wait = host_wait(world, c, batch, kernels + launches)
    return Step(
        layers=layers,
        ends=ends,
        total=kernels + launches + wait + overhead + (p - 1) * message,
        slowest_stage=max(fullest, last) + message + overhead + wait / p,
        waits=wait,
    )


def _launched(
    world: ServingWorld, c: Replica, batch: StepBatch, group: Any, decoding: bool
) -> float:
    """Seconds in which the host launches a layer; graphs launch those of decode steps."""
    execution, blocks = world.execution, group.num_blocks / 2
    number = group.num_experts if group.num_experts > 1 else 0
    each = execution.expert_loop_time * number
    if execution.quantized_launch_time:
        of_attention, of_feed_forward = _matrices(group)
        narrow = c.expert_quantization if number else c.quantization
        matrices = of_attention if c.quantization != "w16a16" else 0
        matrices += of_feed_forward if narrow != "w16a16" else 0
        each += execution.quantized_launch_time * matrices
    captured = (
        decoding
        and batch.context <= (execution.captured_context or float("inf"))
        and batch.decoding * _busiest(c, batch.decoding)
        <= (execution.captured_batch or float("inf"))
    )
    if not captured or execution.decode_launch_time > 0:
        each += scalar_served_adapters.launched(world, c, group)
    if captured:
        routing = execution.decode_expert_launch_time if number else 0.0
        return float(blocks * execution.decode_launch_time + routing + each)
    routing = execution.expert_launch_time if number else 0.0
    of_host = world.engine.host_experts_by_architecture.get(world.gpu.architecture, ())
    if number and c.expert_quantization in of_host:
        routing += execution.host_expert_time
    kind = group.attention.kind if group.attention is not None else "standard"
    mixing = {
        "latent": execution.latent_launch_time,
        "linear": execution.recurrent_launch_time,
        "mamba2": execution.recurrent_launch_time,
    }.get(kind, 0.0)
    return float(blocks * execution.prefill_launch_time + routing + mixing + each)


def _matrices(group: Any) -> tuple[int, int]:
    """Matrices of a checkpoint in the attention and in the feed-forward of a layer."""
    a, mlp = group.attention, group.feed_forward
    attention = 0
    if a is not None and a.has_state:
        attention = 2
    elif a is not None and a.kind == "latent":
        attention = 4 + (a.q_lora_rank > 0) + (a.index_topk > 0)
    elif a is not None:
        attention = 4
    if mlp is None:
        return attention, 0
    each = 3 if mlp.gated else 2
    dense = 1 if (mlp.shared_intermediate_size or not mlp.num_experts) else 0
    return attention, each * (dense + mlp.num_experts) + (2 if mlp.moe_latent_size else 0)


def host_wait(world: ServingWorld, c: Replica, batch: StepBatch, busy: float) -> float:
    """Copies of offloaded weights of all stages, and of cache, that a step does not hide."""
    if c.weight_offload == c.kv_offload == 0:
        return 0.0
    execution, host = world.execution, world.gpu.host
    memory = world.cluster.host_memory_bandwidth or host.memory_bandwidth or 51.2e9
    by_host = execution.host_attention_fraction > 0 and c.kv_cache == "bf16"
    own = _Share(c, batch)
    moved = c.weight_offload * weights(world, c) * c.pipeline_parallel
    read = 0.0
    for group in world.model.layer_groups:
        seen = _visible(world, group.attention, batch.context)
        held = cached_bytes(world, c, group.attention) * seen * own.decoding * c.kv_offload
        queries = group.attention.num_attention_heads / group.attention.num_key_value_heads
        copied = group.attention.kind != "latent" and queries > 1
        if by_host:
            read += group.num_hidden_layers * held * (1 + 2 * queries if copied else 1)
        else:
            moved += group.num_hidden_layers * held
    copies = moved / min(host.bandwidth * execution.host_link_fraction, memory)
    wait = max(copies - execution.hidden_copies * busy, 0.0)
    return float(wait + (read / (memory * execution.host_attention_fraction) if by_host else 0.0))


def _visible(world: ServingWorld, attention: Any, context: float) -> float:
    window = attention.sliding_window if world.engine.sliding_windows else None
    return min(context, window or attention.index_topk or float("inf"))


def _layer(world: ServingWorld, c: Replica, batch: StepBatch, own: _Share, group: Any) -> Operators:
    """The operators of the model, and those of adapters beside them."""
    requests = own.decoding + own.prompts
    return _plain_layer(world, c, batch, own, group) | scalar_served_adapters.kernels(
        world, c, group, own.tokens, batch.tokens, requests
    )


def _plain_layer(
    world: ServingWorld, c: Replica, batch: StepBatch, own: _Share, group: Any
) -> Operators:
    h = world.model.hidden_size
    found = {"attention_norm": elementwise(world, 8 * own.tokens * h)}
    found |= _attention(world, c, batch, own, group.attention)
    if not (group.parallel_residual and world.execution.joined_all_reduce):
        found["attention_all_reduce"] = all_reduce(world, 2 * own.tokens * h, c.tensor_parallel)
    if not group.parallel_residual:
        found["feed_forward_norm"] = elementwise(world, 8 * own.tokens * h)
    mlp = group.feed_forward
    if not mlp.num_experts:
        found |= _dense(world, c, own, mlp, mlp.intermediate_size)
        found["feed_forward_all_reduce"] = all_reduce(world, 2 * own.tokens * h, c.tensor_parallel)
        return found
    if mlp.shared_intermediate_size:
        found |= _dense(world, c, own, mlp, mlp.shared_intermediate_size)
    return found | _routed(world, c, batch, own, mlp)


def _dense(world: ServingWorld, c: Replica, own: _Share, mlp: Any, width: int) -> Operators:
    h, local, inputs = world.model.hidden_size, width / c.tensor_parallel, 2 if mlp.gated else 1
    name = "gate_up" if mlp.gated else "up"
    form = stored_form(
        world, c.quantization, "shared_experts" if mlp.num_experts else "feed_forward"
    )
    return {
        name: product(world, own.tokens, inputs * local, h, form),
        "activation": elementwise(world, 2 * (inputs + 1) * own.tokens * local),
        "down": product(world, own.tokens, h, local, form),
    }


def _routed(world: ServingWorld, c: Replica, batch: StepBatch, own: _Share, mlp: Any) -> Operators:
    h, number, k = world.model.hidden_size, mlp.num_experts, mlp.num_experts_per_tok
    pairs = batch.tokens * k
    has_copies = expert_slots(world, c, mlp) > number
    dispersion = 0.0 if has_copies else world.workload.expert_dispersion
    mine = pairs / c.expert_parallel * fullest_rank(pairs, c.expert_parallel, number, dispersion)
    choosing = batch.tokens
    if world.workload.equal_prompts:
        choosing /= max(batch.decoding + batch.prompts, 1.0)
    everything, size = 2 * batch.tokens * h, c.stage_gpus
    exchange = all_reduce(world, everything, size)
    if c.attention_data_parallel > 1:
        gather = scalar_machine.collective(world.links, "all_gather", everything, size, 1)
        scatter = scalar_machine.collective(world.links, "reduce_scatter", everything, size, 1)
        copies = min(k, c.expert_parallel)

        def across(domains: float) -> float:
            return min(scalar_machine.reached(mlp, domains) / copies, 1.0)

        sent = 2 * own.tokens * h * copies
        there = scalar_machine.all_to_all(world.links, sent, size, sent_across=across)
        exchange = min(gather + scatter, 2 * there)
    return {
        "router": product(world, own.tokens, number, h, "w16a16"),
        "choose_experts": elementwise(world, 8 * own.tokens * number),
        "experts": experts(world, c, mlp, choosing, mine, batch.tokens * k),
        "experts_exchange": exchange,
    }


def _attention(
    world: ServingWorld, c: Replica, batch: StepBatch, own: _Share, attention: Any
) -> Operators:
    h, t = world.model.hidden_size, c.tensor_parallel
    a, g = attention.num_attention_heads / t, key_heads(c, attention)
    d, dv = attention.head_dim, value_dim(attention)
    latent = attention.kind == "latent"
    padded = world.engine.memory.expanded_latent_width if latent else 0
    held = cached_bytes(world, c, attention)
    form, found = stored_form(world, c.quantization, "attention"), {}
    if latent:
        rope, q, kv = attention.qk_rope_head_dim, attention.q_lora_rank, attention.kv_lora_rank
        decoded = own.tokens - own.new_tokens
        found["qkv_down"] = product(world, own.tokens, kv + rope + q, h, form)
        found["q_up"] = product(world, own.tokens, a * d, q or h, form)
        found["kv_up"] = product(world, own.new_tokens, a * (d - rope + dv), kv, form)
        found["absorb_keys"] = product(world, decoded, a * (d - rope), kv, "w16a16")
        found["absorb_values"] = product(world, decoded, a * dv, kv, "w16a16")
    else:
        gate = a * dv if attention.attn_output_gate else 0
        found["qkv"] = product(world, own.tokens, a * d + gate + g * (d + dv), h, form)
    if world.model.position_embedding == "rotary":
        rotated = attention.qk_rope_head_dim or d
        found["rope"] = elementwise(world, own.tokens * (4 * a * rotated + 2 * held))
    keys = _visible(world, attention, batch.keys)
    found["attention_prefill"] = prompt_attention(
        world, d, own.prompts, a, max(own.new_tokens / max(own.prompts, 1e-9), 1.0),
        2 * own.new_tokens * keys * a * (d + dv),
        2 * own.new_tokens * (a + g) * (d + dv) + own.prompts * batch.cached * held,
        attention.sinks,
    )  # fmt: skip
    # Folded into queries and outputs, the latent is one key and value head that all share.
    qk, v = (d, dv)
    if padded:
        qk, v = padded, padded
    elif latent:
        qk, v = kv + rope, kv
    context = _visible(world, attention, batch.context)
    queries = own.decoding * batch.per_sequence
    found["attention_decode"] = decode_attention(
        world, c, sequences=own.decoding, context=context,
        per_token=held * (1 - c.kv_offload), heads=a, group=1 if latent and not padded else a / g,
        query_bytes=2 * queries * a * (qk + v), flops=2 * queries * context * a * (qk + v),
    )  # fmt: skip
    heads = attention.num_attention_heads * dv / t
    found["attention_output"] = product(world, own.tokens, h, heads, form)
    return found


def _ends(world: ServingWorld, c: Replica, own: _Share) -> Operators:
    """Embedding, final norm, logits of what is sampled, three kernels that sample."""
    h, vocabulary, t = world.model.hidden_size, world.model.vocab_size, c.tensor_parallel
    form = c.quantization if world.engine.quantized_ends else "w16a16"
    form = "q6_k" if form in EMBEDDINGS else form
    gathered = 2 * own.sampled * vocabulary
    return {
        "embedding": elementwise(world, 4 * own.tokens * h),
        "embedding_all_reduce": all_reduce(world, 2 * own.tokens * h, t),
        "final_norm": elementwise(world, 8 * own.sampled * h),
        "logits": product(world, own.sampled, vocabulary / t, h, form),
        "logits_gather": scalar_machine.collective(world.links, "all_gather", gathered, t, 1),
        "sampling": elementwise(world, 12 * own.sampled * vocabulary, kernels=3),
    }
