"""What makes a configuration impossible, rule by rule, with the remainder operator."""

from __future__ import annotations

from scalar_machine import Layout, World
from scalar_modules import known
from scalar_offload import WEIGHTS
from scalar_parameters import layers_like_logits
from scalar_tensors import kept, named


def broken(world: World, c: Layout) -> set[str]:
    """Names of the rules that a configuration breaks."""
    model_parallel = c.tensor_parallel * c.context_parallel * c.pipeline_parallel
    if c.num_gpus % model_parallel:
        # Without a whole number of replicas the rules on batches have no meaning.
        return {"gpu_count"}
    rules = (_batch, _shape, _schedule, _sequence, _experts, _sharding, _options, _support)
    return set().union(*(rule(world, c) for rule in rules))


def _named(**violations: bool) -> set[str]:
    return {name for name, violated in violations.items() if violated}


def _batch(world: World, c: Layout) -> set[str]:
    replicas = int(c.data_parallel)
    return _named(global_batch_size=c.global_batch_size % (replicas * c.micro_batch_size) != 0)


def _shape(world: World, c: Layout) -> set[str]:
    t, heads, widths = c.tensor_parallel, False, False
    for group in world.model.layer_groups:
        attention, mlp = group.attention, group.feed_forward
        if attention and attention.kind in ("linear", "mamba2"):
            heads |= attention.linear_num_value_heads % t != 0
            heads |= attention.linear_num_key_heads % t != 0
        elif attention:
            kv = attention.num_key_value_heads
            heads |= attention.num_attention_heads % t != 0
            heads |= attention.kind == "standard" and kv % t != 0 and t % kv != 0
        if mlp:
            width = mlp.shared_intermediate_size if mlp.num_experts else mlp.intermediate_size
            widths |= width % t != 0
    return _named(attention_heads=heads, intermediate_size=widths)


def _schedule(world: World, c: Layout) -> set[str]:
    p, v = c.pipeline_parallel, c.virtual_pipeline
    layers = sum(group.num_hidden_layers for group in world.model.layer_groups)
    supported = world.framework.interleaved_schedule
    most = -(-layers // (p * v))
    lighter = min(1, most) + min(layers_like_logits(world.model), most)
    own_layers = layers - world.model.mtp_num_layers
    is_uneven = world.framework.equal_chunks and own_layers % (p * v) != 0
    return _named(
        trained_layers=p > 1 and world.workload.trained_layers > 0,
        num_hidden_layers=p * v > layers + (2 if v > 1 else 0) or is_uneven,
        virtual_pipeline=v > 1 and (p == 1 or not supported),
        layer_split=c.layer_split and (p == 1 or v > 1),
        interleaved_micro_batches=v > 1 and c.num_micro_batches % p != 0,
        pipeline_schedule=_wrong_schedule(c),
        interleaved_layers=v > 1 and most * p * v - layers > lighter,
    )


def _wrong_schedule(c: Layout) -> bool:
    p, m = c.pipeline_parallel, c.num_micro_batches
    if c.pipeline_schedule not in ("zero_bubble", "dualpipe"):
        return False
    both = p % 2 == 0 and m % 2 == 0 and m >= 2 * p
    return p == 1 or c.virtual_pipeline > 1 or (c.pipeline_schedule == "dualpipe" and not both)


def _odd_heads(world: World, c: Layout) -> bool:
    cores = [g.attention for g in world.model.layer_groups if g.attention]
    softmax = [core for core in cores if core.kind not in ("linear", "mamba2")]
    ranks = c.tensor_parallel * c.context_parallel
    return any(core.num_attention_heads % ranks for core in softmax)


def _sequence(world: World, c: Layout) -> set[str]:
    halves = 1 if c.cp_comm_type == "a2a" else 2
    pieces = halves * c.context_parallel if c.context_parallel > 1 else 1
    pieces *= c.tensor_parallel if c.sequence_parallel else 1
    return _named(
        sequence_parallel=c.sequence_parallel and c.tensor_parallel == 1,
        sequence_length=world.workload.sequence_length % pieces != 0,
        context_parallel=c.context_parallel > 1 and not c.fused,
        cp_comm_type=c.cp_comm_type == "a2a" and c.context_parallel > 1 and _odd_heads(world, c),
        tp_comm_overlap=c.tp_comm_overlap and not (c.tensor_parallel > 1 and c.sequence_parallel),
    )


def _experts(world: World, c: Layout) -> set[str]:
    counts = [g.feed_forward.num_experts for g in world.model.layer_groups if g.feed_forward]
    sparse, e = any(counts), c.expert_parallel
    uneven = any(count % e for count in counts if count)
    uneven |= (c.num_gpus // c.pipeline_parallel) % (e * c.expert_tensor_parallel) != 0
    widths = {
        g.feed_forward.moe_intermediate_size
        for g in world.model.layer_groups
        if g.feed_forward and g.feed_forward.num_experts
    }
    part = any(width % c.expert_tensor_parallel for width in widths)
    routed = c.token_dispatcher != "auto" or c.expert_imbalance > 1 or c.expert_capacity_factor > 0
    routed |= c.expert_compute == "loop"
    blocks = [g.feed_forward for g in world.model.layer_groups if g.feed_forward]
    apart = [one.num_experts / one.num_experts_per_tok for one in blocks if one.num_experts]
    crowded = sparse and c.expert_imbalance > max(apart)
    alone = e == 1 or c.recompute == "full" or c.token_dispatcher == "allgather"
    alone |= any(str(mixer.kind) in ("mamba1", "mamba2") for mixer in world.model.attentions)
    dual = c.pipeline_schedule == "dualpipe"
    alone |= c.pipeline_parallel > 1 and c.virtual_pipeline == 1 and not dual
    return _named(
        expert_tensor_parallel=part if sparse else c.expert_tensor_parallel > 1,
        expert_routing=crowded if sparse else routed,
        overlap_expert_parallel=c.overlap_expert_parallel and alone,
        input_bits=c.fc1_input_bits > 32,
        recompute_modules=_unrepeated(world, c),
        saved_tensors=_unkept(c),
        expert_parallel=uneven if sparse else e > 1,
        expert_sequence_parallel=sparse and c.tensor_parallel > 1 and not c.sequence_parallel,
    )


def _unrepeated(world: World, c: Layout) -> bool:
    names = named(c.recompute_modules)
    return bool(names) and (c.recompute != "selective" or not names & known(world.model))


def _unkept(c: Layout) -> bool:
    saved, moved = named(c.saved_tensors), named(c.offloaded_tensors)
    both = saved & moved or (moved and c.offload.endswith("activations"))
    return bool(both) or (bool(saved | moved) and c.recompute != "full")


def _sharding(world: World, c: Layout) -> set[str]:
    ranks, replicas = c.data_parallel * c.context_parallel, c.data_parallel_replicas
    uneven = ranks % replicas != 0 or ranks // replicas < 2
    expert_ranks = c.expert_parallel * c.expert_tensor_parallel
    if any(g.feed_forward.num_experts for g in world.model.layer_groups if g.feed_forward):
        uneven |= c.num_gpus / c.pipeline_parallel / expert_ranks % replicas != 0
    return _named(
        zero_stage=c.zero_stage > 0 and ranks == 1 and c.num_gpus > 1,
        data_parallel_replicas=replicas > 1 and (uneven or c.zero_stage == 0),
        expert_shards=_leaves_shards(world, c),
    )


def _leaves_shards(world: World, c: Layout) -> bool:
    copies = c.data_parallel_replicas if c.zero_stage else c.data_parallel
    ranks = c.num_gpus / c.pipeline_parallel / copies
    return (
        world.framework.experts_in_shards
        and c.expert_parallel > 1
        and ranks % c.expert_parallel != 0
    )


def _options(world: World, c: Layout) -> set[str]:
    layers = sum(group.num_hidden_layers for group in world.model.layer_groups)
    some, part = c.recompute_num_layers > 0, c.recompute_num_layers * c.pipeline_parallel < layers
    cores = [g.attention for g in world.model.layer_groups if g.attention]
    wide = any(core.head_dim > 192 for core in cores if core.kind not in ("linear", "mamba2"))
    kernels = world.gpu.efficiency.fp8_attention is not None and not wide
    usable = kernels and c.fused and c.precision in ("fp8", "fp4")
    lacks = {
        "mxfp8": "fp4" not in world.gpu.peak_flops,
        "blockwise": "fp8_block" not in world.gpu.efficiency.quantized_gemm,
    }.get(c.fp8_recipe, False)
    widest = max((core.head_dim for core in cores if core.kind not in _STATES), default=0)
    return _named(
        attention_kernel=_no_kernel(world, c, widest),
        loss_chunks=c.loss_chunks > 0 and c.loss_kernel not in ("chunked", "linear"),
        fp8_recipe=lacks or (c.fp8_recipe != "auto" and c.precision != "fp8"),
        recompute_num_layers=some and (c.recompute != "full" or not part),
        fp8_attention=c.fp8_attention and not usable,
        paged_optimizer=c.paged_optimizer and _unpaged(world, c),
        optimizer_in_backward=c.optimizer_in_backward
        and (c.num_micro_batches > 1 or c.pipeline_parallel > 1 or "optimizer" in c.offload),
    )


_STATES = ("linear", "mamba2")


def _unpaged(world: World, c: Layout) -> bool:
    own, host = world.framework.states, world.gpu.host
    told = c.optimizer_state_precision
    wide = told in ("fp32", "int8") or (
        told == "framework" and own.optimizer - own.main_weight >= 8
    )
    known = world.gpu.vendor == "NVIDIA" and host is not None and host.bandwidth
    leaves = c.offload.startswith("optimizer")
    return not known or leaves or not wide or c.optimizer not in ("adam", "lion")


def _no_kernel(world: World, c: Layout, widest: int) -> bool:
    gpu, kernel = world.gpu, c.attention_kernel
    modern = gpu.vendor == "NVIDIA" and gpu.architecture not in ("pascal", "volta", "turing")
    runs = {
        "fa2": modern or gpu.vendor == "AMD",
        "fa3": gpu.architecture == "hopper",
        "fa4": gpu.architecture in ("hopper", "blackwell"),
        "cudnn": modern,
    }
    too_wide = kernel in ("fa2", "fa3", "fa4") and widest > 256
    unfused = kernel not in ("auto", "eager") and not c.flash_attention
    return not runs.get(kernel, True) or too_wide or unfused


def _support(world: World, c: Layout) -> set[str]:
    profile = world.framework
    second = c.zero_stage in profile.fsdp_zero_stages and c.optimizer in ("adam", "sgd")
    lacking = c.zero_stage not in profile.zero_stages and not second
    lacking |= c.pipeline_parallel > 1 and c.zero_stage not in profile.pipeline_zero_stages
    for kind in ("tensor_parallel", "pipeline_parallel", "context_parallel", "expert_parallel"):
        in_turns = kind == "pipeline_parallel" and c.layer_split and profile.layer_split
        sharded = c.zero_stage >= 2 or c.data_parallel == 1
        if kind == "expert_parallel":
            sharded |= c.zero_stage == 0 and c.expert_parallel == c.data_parallel
            sharded = sharded and c.tensor_parallel * c.context_parallel == 1
        if kind == "context_parallel" and profile.head_exchange and c.cp_comm_type == "a2a":
            sharded = True
        has = getattr(profile, kind) or (kind in profile.sharded_parallel and sharded)
        lacking |= getattr(c, kind) > 1 and not has and not in_turns
    lacking |= c.layer_split and not profile.layer_split
    hybrid = "data_parallel_replicas" in profile.sharded_parallel and c.zero_stage >= 2
    lacking |= c.data_parallel_replicas > 1 and not (profile.hybrid_sharding or hybrid)
    lacking |= c.recompute_num_layers > 0 and not profile.partial_recompute
    lacking |= bool(named(c.recompute_modules) - set(profile.recompute_modules))
    lacking |= bool(kept(c)) and not profile.saved_tensors
    lacking |= c.recompute == "feed_forward" and not profile.feed_forward_recompute
    lacking |= c.recompute == "selective" and not profile.selective_recompute
    lacking |= c.sequence_parallel and not profile.sequence_parallel
    lacking |= c.fp8_attention and not profile.fp8_attention
    lacking |= c.optimizer not in profile.optimizers
    lacking |= c.optimizer_state_precision not in ("framework", *profile.state_precisions)
    for told in (c.main_params_precision, c.main_grads_precision):
        lacking |= told not in ("framework", *profile.main_precisions)
    lacking |= c.paged_optimizer and not profile.paged_optimizer
    lacking |= c.optimizer_in_backward and not profile.optimizer_in_backward
    lacking |= c.reduce_bucket_size > 0 and not profile.memory.reduce_bucket_size
    lacking |= c.sub_group_size > 0 and not profile.memory.sub_group_size
    lacking |= c.stage3_max_live_parameters > 0 and not profile.memory.max_live_parameters
    lacking |= not c.zero3_init and not profile.offloading.loaded_per_process
    lacking |= c.expert_tensor_parallel > 1 and not profile.expert_tensor_parallel
    lacking |= c.overlap_expert_parallel and not profile.expert_overlap
    lacking |= c.torch_compile != "auto" and not profile.compilation.selectable
    lacking |= c.expert_compute == "loop" and not profile.execution.expert_loop_time
    lacking |= c.token_dispatcher not in ("auto", *profile.token_dispatchers)
    lacking |= c.cp_comm_type == "a2a" and not profile.head_exchange
    lacking |= c.tp_comm_overlap and not profile.overlap.asynchronous_tensor_parallel
    usual = ("one_forward_one_backward", "interleaved")
    lacking |= c.pipeline_schedule not in (*usual, *profile.pipeline_schedules)
    precision = c.precision not in world.gpu.peak_flops
    return _named(framework=lacking, offload=_no_offload(world, c), precision=precision)


def _no_offload(world: World, c: Layout) -> bool:
    """The framework lacks it, its weights are whole on every rank, or there is no known link."""
    unknown = world.gpu.host is None or world.gpu.host.bandwidth is None
    if c.offload == "none":
        return named(c.offloaded_tensors) != set() and unknown
    profile = world.framework
    first = profile.states.weights_sharded_from if c.offload in WEIGHTS else 1
    first = 0 if c.offload == "activations" else 3 if c.offload.endswith("nvme") else first
    whole = c.zero_stage < first and c.data_parallel * c.context_parallel != 1
    parts = {c.offload}
    if c.offload in ("optimizer_activations", "optimizer_weights_activations"):
        parts = {c.offload.removesuffix("_activations"), "activations"}
    return not parts <= set(profile.offloading.kinds) or whole or unknown
