"""Adapters beside the matrices of a served model in plain floats: what is kept, read, launched.

Part of the naive twin of serving: standard attention, dense feed-forwards and routed experts.
"""

from __future__ import annotations

from math import ceil
from typing import Any

from scalar_machine import value_dim
from scalar_serving_kernels import (
    Replica,
    ServingWorld,
    expert_slots,
    experts_visited,
    memory_time,
)

Sides = dict[str, tuple[float, float]]


def at_once(world: ServingWorld) -> int:
    """Adapters that a step may have."""
    w = world.workload
    return (w.max_loras or world.engine.memory.adapter_slots) if w.lora_rank else 0


def sides(world: ServingWorld, c: Replica, group: Any) -> Sides:
    """Inputs and outputs of the pairs beside each product of a layer on a rank.

    Columns that are split leave the first of a pair whole, rows the second.
    """
    h, t, a, mlp = world.model.hidden_size, c.tensor_parallel, group.attention, group.feed_forward
    d, dv = a.head_dim, value_dim(a)
    keys = max(a.num_key_value_heads / t, 1.0)
    gate = a.num_attention_heads / t * dv if a.attn_output_gate else 0
    found: Sides = {
        "qkv": (3 * h, a.num_attention_heads / t * d + gate + keys * (d + dv)),
        "attention_output": (a.num_attention_heads * dv / t, h),
    }
    if world.workload.lora_targets.name != "ALL_LINEAR":
        return found
    width = mlp.shared_intermediate_size if mlp.num_experts else mlp.intermediate_size
    if width:
        number = 2 if mlp.gated else 1
        found["gate_up" if mlp.gated else "up"] = (number * h, number * width / t)
        found["down"] = (width / t, h)
    return found


def adapts_experts(world: ServingWorld, group: Any) -> bool:
    all_linear = world.workload.lora_targets.name == "ALL_LINEAR"
    adapted = world.engine.memory.adapted_experts and all_linear
    return bool(adapted and group.feed_forward.num_experts)


def kept(world: ServingWorld, c: Replica) -> float:
    """Bytes of all slots on a GPU of the fullest stage."""
    numbers = 0.0
    for group in world.model.layer_groups:
        each = sum(sum(pair) for pair in sides(world, c, group).values())
        if adapts_experts(world, group):
            mlp = group.feed_forward
            local = expert_slots(world, c, mlp) / c.expert_parallel
            width = mlp.moe_intermediate_size / (c.stage_gpus / c.expert_parallel)
            each += local * (3 if mlp.gated else 2) * (world.model.hidden_size + width)
        numbers += group.num_hidden_layers * each
    layers = world.model.num_hidden_layers
    share = ceil(layers / c.pipeline_parallel) / layers
    return 2 * at_once(world) * world.workload.lora_rank * numbers * share


def kernels(
    world: ServingWorld, c: Replica, group: Any, tokens: float, all_tokens: float, requests: float
) -> dict[str, float]:
    """Seconds beside each operator of a layer: pairs of different adapters, rows in and out."""
    if not at_once(world):
        return {}
    different = experts_visited(at_once(world), 1, requests, 0.0)
    found = {
        f"{name}_adapters": _time(world, tokens, pair, different, 1)
        for name, pair in sides(world, c, group).items()
    }
    if adapts_experts(world, group):
        mlp, h = group.feed_forward, world.model.hidden_size
        k, ranks, before = mlp.num_experts_per_tok, c.expert_parallel, 2 if mlp.gated else 1
        width = mlp.moe_intermediate_size / (c.stage_gpus / ranks)
        visited = experts_visited(mlp.num_experts, k, all_tokens, world.workload.expert_dispersion)
        rows = all_tokens * k / ranks
        pair = (before * h + width, before * width + h)
        read = min(visited / ranks * different, rows)
        found["experts_adapters"] = _time(world, rows, pair, read, 2)
    return found


def launched(world: ServingWorld, c: Replica, group: Any) -> float:
    """Seconds of the host."""
    if not at_once(world):
        return 0.0
    number = len(sides(world, c, group)) + 2 * adapts_experts(world, group)
    return float(number * world.execution.adapter_launch_time)


def _time(
    world: ServingWorld, rows: float, pair: tuple[float, float], read: float, sets: int
) -> float:
    if rows <= 0:
        return 0.0
    inputs, outputs = pair
    moved = 2 * read * world.workload.lora_rank * (inputs + outputs)
    moved += rows * (2 * inputs + 4 * outputs)
    e = world.execution
    return memory_time(world, moved / e.adapter_bandwidth_fraction, sets * e.adapter_kernels)
