"""A naive twin of the estimator: one configuration, plain floats, a loop over every stage.

Pipelines as in arXiv:2104.04473, activations as in arXiv:2205.05198, sharding as in
arXiv:1910.02054. The estimator looks at some stages that it holds for the heaviest only;
this looks at all of them.
"""

from __future__ import annotations

import math
from dataclasses import replace

from scalar_activations import kept_bytes, rebuilt_experts, repeated_layers, ring_peak
from scalar_adapters import (
    frozen,
    frozen_counts,
    launches,
    reached,
    saves,
    trained_in_end,
    trained_in_layer,
    trained_in_stages,
    trains_part,
    weight_bytes,
)
from scalar_compile import launch_time
from scalar_gathered import gathered, whole_weights
from scalar_layer import Ops, accumulation, embedding, layer, logits, prediction, softmax_falls_back
from scalar_loop import hooks, loop_launches
from scalar_loss import evaluated_logit_bytes, logit_bytes
from scalar_machine import (
    Layout,
    World,
    collective,
    elementwise,
    of_gradients,
    own_tokens,
    rank_wait,
    send,
    shown,
)
from scalar_modules import block, modules
from scalar_offload import STATES, WEIGHTS, copy, gradients_leave, moved_bytes, shown_copies, update
from scalar_optimizers import (
    copy_of_weights,
    state_bytes,
    stored_bytes,
    update_temporary,
    update_traffic,
)
from scalar_overheads import at_once, buffers, reserved
from scalar_parameters import end_parameters, groups, layer_parameters, stage_parameters, stages
from scalar_schedules import behind_others, idle_time, shown_gather

Parts = dict[str, float]


def step_time(world: World, layout: Layout) -> Parts:
    """Exposed seconds of a step by part, with their sum as ``total``."""
    return step_times(world, layout)[0]


def step_times(world: World, layout: Layout) -> list[Parts]:
    """The same with the parts of each stage that is as slow as the slowest.

    The slowest stage runs its m micro-batches; filling and draining takes every other
    stage once, or 1/v of it with v chunks per stage.
    """
    every = range(layout.pipeline_parallel)
    asides: list[Parts] = [{"weights": 0.0, "backward": 0.0} for _ in every]
    per_stage = [stage_parts(world, layout, stage, asides[stage]) for stage in every]
    times = [sum(parts.values()) for parts in per_stage]
    slowest = [stage for stage in every if _tied(times[stage], times)]
    return [
        _of_step(world, layout, per_stage[stage], times, idle_time(layout, times, asides, stage))
        for stage in slowest
    ]


def _tied(time: float, times: list[float]) -> bool:
    return time >= max(times) * (1 - 1e-9)


def _of_step(
    world: World, layout: Layout, of_stage: Parts, times: list[float], idle: float
) -> Parts:
    profile, slowest, m = world.framework, max(times), layout.num_micro_batches
    parts = {name: m * seconds for name, seconds in of_stage.items()}
    parts["pipeline_bubble"] = idle
    parts["data_parallel"] = _end_of_step(world, layout, slowest)
    parts["optimizer"] = _optimizer(world, layout)
    overhead = profile.execution.step_overhead + m * profile.execution.micro_batch_overhead
    if layout.zero_stage == 1:
        (ranks, _), _ = groups(layout)
        overhead += profile.execution.weight_broadcast_time * (ranks - 1)
    parts["overhead"] = overhead
    out = world.cluster.scale_out
    doublings = math.log2(max(layout.num_gpus / out.pod_size, 1))
    parts["slow_nodes"] = sum(parts.values()) * out.slowdown_per_doubling * doublings
    return parts | {"total": sum(parts.values())}


def stage_parts(world: World, layout: Layout, stage: int, aside: Parts | None = None) -> Parts:
    """Seconds of one micro-batch on one stage, forward and backward.

    Those of the backward pass, and of its gradients of weights, are added up in ``aside``.
    """
    aside = {"weights": 0.0, "backward": 0.0} if aside is None else aside
    model, last = world.model, layout.pipeline_parallel - 1
    launch = launch_time(world, layout)
    parts: Parts = {}
    held = stages(model, layout)[stage]
    for index, is_reached in zip(held, reached(world, layout, stage), strict=True):
        group = model.layer_groups[index]
        blocks = (group.attention is not None) + (group.feed_forward is not None)
        time = launch * blocks / 2 + launches(world, layout, group, is_reached)
        if softmax_falls_back(world, layout, group.attention):  # five kernels more than 18
            time += launch * 5 / 18
        looped = loop_launches(world, layout, group)
        time += looped + hooks(world, layout, group)
        added = accumulation(world, layout, trained_in_layer(world, layout, group))
        again = repeated_layers(world, layout) * time
        if layout.recompute == "feed_forward" and group.feed_forward:
            again = launch / 2 + looped + hooks(world, layout, group, "feed_forward")
        if names := modules(layout):
            of_core = launch * 5 / 18 * softmax_falls_back(world, layout, group.attention)
            of_core += hooks(world, layout, group, "attention")
            again = (group.attention is not None and "attention" in names) * (launch / 2 + of_core)
            whole = group.feed_forward is not None and block(group) in names
            of_block = hooks(world, layout, group, "feed_forward")
            again += whole * (launch / 2 + looped + of_block)
        ops = behind_others(world, layout, layer(world, layout, group) | added)
        sparse = group.feed_forward is not None and group.feed_forward.num_experts > 0
        host = world.framework.execution.expert_host_wait * sparse
        _add(
            parts,
            aside,
            world,
            layout,
            ops,
            index,
            launch=time,
            launch_again=again,
            host_wait=host,
            rank_wait=rank_wait(world, layout),
            is_reached=is_reached,
        )
    added = accumulation(world, layout, trained_in_end(world, layout))
    if stage == 0:
        _add(parts, aside, world, layout, embedding(world, layout) | added)
    if stage == last:
        _add(parts, aside, world, layout, logits(world, layout) | added)
        for _ in range(model.mtp_num_layers):
            _add(parts, aside, world, layout, prediction(world, layout) | added)
    if last > 0:
        num_bytes = 2 * own_tokens(world, layout) * model.hidden_size
        distance = layout.num_gpus / layout.pipeline_parallel
        leaves = distance >= world.cluster.scale_up.domain_size
        exposed = 1 - world.framework.overlap.pipeline_parallel
        transfer = 2 * layout.virtual_pipeline * send(world, num_bytes, leaves)
        parts["pipeline_transfer"] = exposed * transfer
    return parts


def _add(
    parts: Parts,
    aside: Parts,
    world: World,
    layout: Layout,
    ops: Ops,
    group: int | None = None,
    launch: float = 0.0,
    launch_again: float = 0.0,
    host_wait: float = 0.0,
    rank_wait: float = 0.0,
    is_reached: bool = True,
) -> None:
    """Sum one layer or end; the host's launches and ZeRO's gathers may outlast its kernels.

    No gradient reaches a layer before all that are trained or have adapters.
    """
    forward = backward = 0.0
    if not is_reached:
        ops = {
            name: replace(op, backward=0.0, full=0.0, selective=0.0, feed_forward=0.0, weights=0.0)
            for name, op in ops.items()
            if not name.endswith("_adapter") or "dequantize" in name
        }
    repeated = repeated_layers(world, layout)
    for op in ops.values():
        repeat = op.forward * op.repeated(layout.recompute, repeated)
        times = {"forward": op.forward, "backward": op.backward, "recompute": repeat}
        for direction, seconds in times.items():
            name = direction if op.part == "compute" else op.part
            parts[name] = parts.get(name, 0.0) + seconds
        forward, backward = forward + op.forward, backward + op.backward + repeat
    backward_launches = 2 * launch + launch_again
    blocks = layout.recompute == "feed_forward" or "moe" in modules(layout)
    passes = 1.0 if blocks else repeated  # of experts, in backward
    waits = (
        max(launch - forward, 0.0) + host_wait + rank_wait,
        max(backward_launches - backward, 0.0)
        + host_wait * (1 + passes)
        + rank_wait * (1 + repeated),
    )
    waits = waits if is_reached else (waits[0], 0.0)
    parts["launch_wait"] = parts.get("launch_wait", 0.0) + sum(waits)
    windows = forward + waits[0], backward + waits[1]
    aside["weights"] += sum(op.weights for op in ops.values())
    aside["backward"] += windows[1]
    transfers = _transfers(world, layout, group)
    transfers = transfers if is_reached else (transfers[0], 0.0)
    gather = shown_gather(world, layout, group, transfers, windows)
    parts["weight_gather"] = parts.get("weight_gather", 0.0) + gather
    left = (max(t - n, 0.0) for t, n in zip(windows, transfers, strict=True))
    copies = shown_copies(world, layout, group, *left)
    parts["offload"] = parts.get("offload", 0.0) + copies


def _exchange(
    world: World,
    layout: Layout,
    kind: str,
    width: float,
    counts: tuple[float, float],
    nics: int = 0,
) -> float:
    """A collective over the dense group, then one over the expert group."""
    return sum(
        collective(world, kind, width * count, *group, nics)
        for count, group in zip(counts, groups(layout), strict=True)
        if count
    )


def _scattered(world: World, layout: Layout, counts: tuple[float, float], nics: int = 0) -> float:
    """Gradients scatter within a copy; the ranks of each shard then add it up over the copies."""
    width = of_gradients(world, layout, "gradient_on_wire")
    seconds = _exchange(world, layout, "reduce_scatter", width, counts, nics)
    for count, (ranks, stride) in zip(counts, groups(layout), strict=True):
        if count:
            copies = layout.data_parallel_replicas, ranks * stride
            seconds += collective(world, "all_reduce", width * count / ranks, *copies, nics)
    return seconds


def _transfers(world: World, layout: Layout, group: int | None) -> tuple[float, float]:
    """ZeRO's gathers before one layer or end, its gathers and scatters after, per micro-batch."""
    model, states = world.model, world.framework.states
    of_layer, of_end = weight_bytes(world, layout)
    if group is None:
        width, counts = of_end, (model.vocab_size * model.hidden_size / layout.tensor_parallel, 0.0)
        trained = trained_in_end(world, layout)
    else:
        width, counts = of_layer, layer_parameters(model, model.layer_groups[group], layout)
        trained = trained_in_layer(world, layout, model.layer_groups[group])
    nics = world.framework.overlap.gather_nics
    weights = _exchange(world, layout, "all_gather", width, counts, nics)
    gradients = _scattered(world, layout, trained, nics)
    zero = layout.zero_stage
    before = weights if zero >= states.weights_sharded_from else 0.0
    return before, (weights if zero == 3 else 0.0) + (gradients if zero >= 2 else 0.0)


def _end_of_step(world: World, layout: Layout, window: float) -> float:
    """The longest exchange of a stage, partly behind its last micro-batch."""
    states, overlap = world.framework.states, world.framework.overlap
    longest = 0.0
    on_wire = of_gradients(world, layout, "gradient_on_wire")
    scattered = of_gradients(world, layout, "scattered_gradients")
    for counts in trained_in_stages(world, layout):
        reduce = _exchange(world, layout, "all_reduce", on_wire, counts)
        scatter = _scattered(world, layout, counts) if scattered else reduce
        gather = _exchange(world, layout, "all_gather", states.weight_on_wire, counts)
        between = gather if states.weights_sharded_from > 2 else 0.0
        longest = max(longest, [reduce, scatter + gather, between, 0.0][layout.zero_stage])
    if overlap.data_parallel == 0:
        return longest
    late = 0.0  # nothing is computed behind the gradients of a saved embedding
    if saves(world):
        late = longest * trained_in_end(world, layout)[0] / trained_in_stages(world, layout)[0][0]
    longest -= late
    behind = shown(longest, window, overlap.interference)
    return late + overlap.data_parallel * behind + (1 - overlap.data_parallel) * longest


def _optimizer(world: World, layout: Layout) -> float:
    (dense_ranks, _), (expert_ranks, _) = groups(layout)
    if layout.zero_stage == 0:
        dense_ranks = expert_ranks = 1
    owned = [
        dense / dense_ranks + own / expert_ranks for dense, own in trained_in_stages(world, layout)
    ]
    on_gpu = elementwise(world, update_traffic(world, layout) * max(owned))
    paged = max(_paged_bytes(world, layout, s) for s in range(layout.pipeline_parallel))
    return update(world, layout, on_gpu) + copy(world, 2 * paged)


def peak_memory(world: World, layout: Layout) -> Parts:
    """Bytes by part on the fullest GPU of all stages, with their sum as ``total``."""
    return max(peak_memories(world, layout), key=lambda parts: parts["total"])


def peak_memories(world: World, layout: Layout) -> list[Parts]:
    """The same of each stage that is as full as the fullest: paging fills several to the brim."""
    every = [stage_memory(world, layout, stage) for stage in range(layout.pipeline_parallel)]
    totals = [parts["total"] for parts in every]
    return [parts for parts in every if _tied(parts["total"], totals)]


def stage_memory(world: World, layout: Layout, stage: int) -> Parts:
    """Bytes by part on a GPU of one stage, with their sum as ``total``, after paging."""
    moved = _paged_bytes(world, layout, stage)
    every = _moments(world, layout, stage)
    for parts in every:
        away = min(moved, parts["optimizer_states"])
        parts["optimizer_states"] -= away
        parts["total"] -= away
    return max(every, key=lambda parts: parts["total"])


def _paged_bytes(world: World, layout: Layout, stage: int) -> float:
    """Moments of the optimizer that find no room at the fullest time at which they are there."""
    if not layout.paged_optimizer:
        return 0.0
    each = state_bytes(world, layout)
    share = (each - copy_of_weights(world, layout)) / each if each else 0.0
    room = world.gpu.allocatable_memory
    return max(
        min(max(parts["total"] - room, 0.0), share * parts["optimizer_states"])
        for parts in _moments(world, layout, stage)
    )


def _moments(world: World, layout: Layout, stage: int) -> list[Parts]:
    """Bytes by part at each moment, nothing paged."""
    model, memory = world.model, world.framework.memory
    held = [model.layer_groups[index] for index in stages(model, layout)[stage]]
    in_flight = _in_flight(layout, stage)
    input_bytes = 2 * own_tokens(world, layout) * model.hidden_size
    has = zip(held, reached(world, layout, stage), strict=True)
    kept = sum(kept_bytes(world, layout, group, layout.recompute) for group, is_in in has if is_in)
    moved = [moved_bytes(world, layout, index) for index in stages(model, layout)[stage]]
    away = max(in_flight * sum(moved) - 2 * max(moved), 0.0)
    activations = in_flight * kept - away
    largest = max(kept_bytes(world, layout, group, "none") for group in held)
    blocks = [
        kept_bytes(world, layout, group, "none") - kept_bytes(world, layout, group, "feed_forward")
        for group in held
    ]
    rebuilt = {"full": largest, "feed_forward": max(blocks)}
    at_a_time = [
        kept_bytes(world, layout, group, "none") - kept_bytes(world, layout, group, name)
        for group in held
        for name in modules(layout) & {"attention", "mlp", "moe", "shared_experts"}
    ]
    at_a_time += [rebuilt_experts(world, layout, group) for group in held]
    rebuilt["selective"] = max(at_a_time, default=0)
    working = largest / 4 + rebuilt.get(layout.recompute, 0)
    working *= memory.sharded_copies if layout.zero_stage == 3 else 1.0
    rings = [ring_peak(world, layout, group) for group in held]
    working = max(working, *rings) + input_bytes
    whole = _states(world, layout, stage) | {
        "communication_buffers": buffers(world, layout, stage),
        "reserved": reserved(world),
    }
    gathered_now = gathered(world, layout, stage)
    if stage == layout.pipeline_parallel - 1:
        tokens = layout.micro_batch_size * world.workload.sequence_length / layout.context_parallel
        logits = tokens * model.vocab_size / layout.tensor_parallel
        if memory.loss_room and layout.loss_kernel != "fused":
            lasting = sum(size for name, size in whole.items() if name != "temporary")
            taken = lasting + gathered_now + (1 + memory.fragmentation) * activations
            free = max(world.gpu.allocatable_memory - taken, 0.0)
            logits = min(logits, min(memory.loss_room * free, memory.loss_chunk) / 4)
        loss = logit_bytes(world, layout) * logits
        read = 2 * own_tokens(world, layout) * 2 * (2 * model.hidden_size)
        working = max(working, loss + model.mtp_num_layers * (loss + read))
    evaluated = input_bytes + largest / 2
    if stage == layout.pipeline_parallel - 1:
        evaluated += evaluated_logit_bytes(world, layout) * (
            tokens * model.vocab_size / layout.tensor_parallel
        )
    if layout.attention_kernel == "masked" and layout.fused:
        mask = 2 * layout.micro_batch_size * world.workload.sequence_length**2
        working, evaluated = working + mask, evaluated + mask
    evaluated *= layout.eval_batch_size / layout.micro_batch_size
    temporary = at_once(world, layout, whole.pop("temporary"), stage)
    loss_or_backward = whole | {
        "activations": activations,
        "working": working,
        "gathered": gathered_now,
        "fragmentation": memory.fragmentation * (activations + working),
    }
    states = world.framework.states
    is_whole = states.unsynced_gradient > 0 and layout.zero_stage >= states.weights_sharded_from
    if not states.gradients_persist and (layout.num_micro_batches == 1 or is_whole):
        loss_or_backward["gradients"] = 0.0
    optimizer_step = whole | {
        "activations": 0.0,
        "working": temporary,
        "gathered": 0.0,
        "fragmentation": memory.fragmentation * temporary,
    }
    evaluation = whole | {
        "activations": 0.0,
        "working": evaluated,
        "gathered": gathered_now,
        "fragmentation": memory.fragmentation * evaluated,
    }
    if not states.gradients_persist:
        evaluation["gradients"] = 0.0
    moments = [loss_or_backward, optimizer_step, _loading(world, layout, stage, whole)]
    moments += [evaluation] if layout.eval_batch_size else []
    return [parts | {"total": sum(parts.values())} for parts in moments]


def _loading(world: World, layout: Layout, stage: int, whole: Parts) -> Parts:
    """The whole model, with some software beside the shard that is kept of it, and nothing else."""
    (ranks, _), _ = groups(layout)
    weights = whole["weights"]
    if layout.zero_stage >= world.framework.states.weights_sharded_from and ranks > 1:
        weights += world.framework.memory.loaded_whole * sum(stage_parameters(world, layout)[stage])
        if not layout.zero3_init:
            weights = max(weights, whole_weights(world, layout, stage))
    zero = dict.fromkeys(("activations", "working", "gathered", "fragmentation"), 0.0)
    gone = dict.fromkeys(("gradients", "optimizer_states", "communication_buffers"), 0.0)
    return whole | zero | gone | {"weights": weights}


def _in_flight(layout: Layout, stage: int) -> float:
    """Micro-batches a stage holds: counts the forward chunks before its first backward one."""
    p, v, m = layout.pipeline_parallel, layout.virtual_pipeline, layout.num_micro_batches
    if layout.layer_split:
        return 1
    if layout.pipeline_schedule == "dualpipe":
        return min(m, p + 1)
    if v == 1:
        return min(m, p - stage)
    warm_up_chunks = 2 * (p - 1 - stage) + (v - 1) * p
    return min(m, (warm_up_chunks + 1) / v)


def _states(world: World, layout: Layout, stage: int) -> Parts:
    """arXiv:1910.02054, section 5: each state is whole, or divided from some stage on."""
    states = world.framework.states
    names = {
        "weights": (None, states.weights_sharded_from),
        "gradients": (of_gradients(world, layout, "gradient"), 2),
        "optimizer_states": (state_bytes(world, layout), 1),
        "temporary": (update_temporary(world, layout), 1),
    }
    parts = {}
    for name, (width, sharded_from) in names.items():
        parts[name] = 0.0
        dense, experts = trained_in_stages(world, layout)[stage]
        ends = (
            0.0
            if frozen(world) or trains_part(world)
            else end_parameters(world.model, layout, stage)
        )
        if name == "gradients" and layout.optimizer_in_backward:
            dense, experts = _largest_unit(world, layout, stage)
            ends = 0.0
        (dense_ranks, _), (expert_ranks, _) = groups(layout)
        counts = ((dense - ends, dense_ranks), (ends, dense_ranks), (experts, expert_ranks))
        for (count, ranks), in_layer in zip(counts, (True, False, True), strict=True):
            each = stored_bytes(world, layout, in_layer) if width is None else width
            parts[name] += each * count / (ranks if layout.zero_stage >= sharded_from else 1)
    for count, width, kind in frozen_counts(world, layout, stage):
        ranks = groups(layout)[kind][0] if layout.zero_stage >= states.weights_sharded_from else 1
        parts["weights"] += width * count / ranks
    host_updates = layout.offload in STATES and world.framework.offloading.host_update
    away = {
        "weights": layout.offload in WEIGHTS,
        "gradients": gradients_leave(world, layout),
        "optimizer_states": layout.offload in STATES,
        "temporary": host_updates,
    }
    return {name: 0.0 if away[name] else num_bytes for name, num_bytes in parts.items()}


def _largest_unit(world: World, layout: Layout, stage: int) -> tuple[float, float]:
    """Parameters of the layer or end that is largest: its gradients alone are there."""
    whole = trained_in_stages(world, layout)[stage][0]
    has = zip(stages(world.model, layout)[stage], reached(world, layout, stage), strict=True)
    held = {world.model.layer_groups[index] for index, is_in in has if is_in}
    each = [trained_in_layer(world, layout, group) for group in held]
    dense = max(*(one[0] for one in each), trained_in_end(world, layout)[0])
    return min(dense, whole), max(one[1] for one in each)
