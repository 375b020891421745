"""The operators of a layer and of the two ends of a model, one dictionary each."""

from __future__ import annotations

from dataclasses import dataclass, replace

from remembered import remembered
from scalar_activations import repeats_outputs
from scalar_adapters import adapter_times, frozen, saves, trains_part
from scalar_attention import attention_kernels, kernel_rates
from scalar_compile import passes
from scalar_loss import logit_passes
from scalar_machine import (
    Layout,
    World,
    all_to_all,
    cast,
    collective,
    elementwise,
    expert_load,
    fused_attention,
    gemm,
    grouped_gemm,
    kernel_dims,
    key_heads,
    of_gradients,
    own_tokens,
    reached,
    recipe_of,
    send,
    shown,
    tokens,
    value_dim,
)
from scalar_modules import modules, repeated
from scalar_state import State, scan
from scalar_tensors import repeated_share

from planner.specs.attention import AttentionSpec
from planner.specs.model import FeedForwardSpec, LayerGroup


@dataclass(frozen=True, kw_only=True)
class Op:
    """Exposed seconds of one operator, and the shares of it that recomputation runs again."""

    forward: float
    backward: float
    part: str = "compute"
    selective: float = 0.0
    feed_forward: float = 0.0
    full: float = 1.0
    weights: float = 0.0

    def repeated(self, recompute: str, layers: float) -> float:
        """Under full recomputation that share of the layers."""
        shares = {"none": 0.0, "selective": self.selective, "feed_forward": self.feed_forward}
        return (shares | {"full": self.full * layers})[recompute]


Ops = dict[str, Op]
_CHEAP = ("attention_norm", "feed_forward_norm", "q_up", "kv_up")


@remembered
def layer(world: World, layout: Layout, group: LayerGroup) -> Ops:
    """One layer: attention block, then feed-forward block."""
    ops: Ops = {}
    if group.attention:
        ops |= _attention_block(world, layout, group.attention, group.norm_bias)
    if group.feed_forward:
        ops |= _feed_forward_block(world, layout, group)
    if names := modules(layout):
        ops = {
            name: replace(op, selective=_of_modules(group, names, name, op))
            for name, op in ops.items()
        }
    activation = _of_activation(world, layout, group, ops)
    if "moe_act" in names and "experts" in ops and "moe" not in names:
        ops["experts"] = replace(ops["experts"], selective=activation)
    if not names and repeats_outputs(world, layout):
        if "experts" in ops:
            ops["experts"] = replace(ops["experts"], selective=activation)
        ops |= {name: replace(ops[name], selective=1.0) for name in ops if name in _CHEAP}
    ops = {
        name: replace(op, full=op.full * repeated_share(world, layout, group, name))
        for name, op in ops.items()
    }
    share = 0.0 if names else world.framework.execution.selective_share
    for name, (forward, backward) in adapter_times(world, layout, group).items():
        ops[f"{name}_adapter"] = Op(forward=forward, backward=backward, selective=share)
    return ops


def _of_modules(group: LayerGroup, names: set[str], name: str, op: Op) -> float:
    """A fused core has nothing to repeat unless all of attention is repeated."""
    in_attention = op.feed_forward == 0
    share = repeated(group, names, name, in_attention=in_attention)
    if name in ("core", "ring") and "core_attn" in names:
        share = max(share, op.selective)
    return share


def _of_activation(world: World, layout: Layout, group: LayerGroup, ops: Ops) -> float:
    """Share of the experts that is their activation function."""
    if "experts" not in ops:
        return 0.0
    mlp = group.feed_forward
    pairs = own_tokens(world, layout) * mlp.num_experts_per_tok * expert_load(layout)
    matrices = 3 if mlp.gated else 2
    activation = elementwise(world, 2 * matrices * pairs * mlp.moe_intermediate_size)
    return activation / ops["experts"].forward


def _attention_block(
    world: World, layout: Layout, attention: AttentionSpec, norm_bias: bool
) -> Ops:
    h, n = world.model.hidden_size, tokens(world, layout)
    own = own_tokens(world, layout) * h
    ops: Ops = {"attention_norm": _memory(world, layout, own, 4, 6, norm_bias)}
    if attention.kind in ("linear", "mamba2"):
        ops |= _state_layer(world, layout, State.of(attention))
    else:
        ops |= _projections(world, layout, attention)
        ops |= _attention(world, layout, attention)
        values = attention.num_attention_heads * value_dim(attention) / layout.tensor_parallel
        if attention.attn_output_gate:  # sigmoid(gate) * values
            ops["gate"] = _memory(world, layout, n * values, 6, 10)
        ops["attention_output"] = _linear(world, layout, n, h, values)
    ops["attention_residual"] = _memory(world, layout, own, 6, 6)
    ops["attention_tensor_parallel"] = _tensor_exchange(world, layout)
    return ops


def _state_layer(world: World, layout: Layout, state: State) -> Ops:
    """Projection, causal convolution, scan, gated norm, projection."""
    h, n, t = world.model.hidden_size, tokens(world, layout), layout.tensor_parallel
    seconds = scan(world, layout, state)
    volume = 2 * n * (state.projected + state.inner) / t
    traded = all_to_all(world, volume, layout.context_parallel, stride=t)
    return {
        "in_projection": _linear(world, layout, n, state.projected / t, h),
        "convolution": _memory(world, layout, n * state.channels / t, 4, 8, True),
        "scan": Op(forward=seconds, backward=2.5 * seconds),
        "gated_norm": _memory(world, layout, n * state.inner / t, 6, 10, True),
        "out_projection": _linear(world, layout, n, h, state.inner / t),
        "context_parallel": Op(forward=traded, backward=traded, part="context_parallel"),
    }


def _feed_forward_block(world: World, layout: Layout, group: LayerGroup) -> Ops:
    mlp, own = group.feed_forward, own_tokens(world, layout) * world.model.hidden_size
    ops: Ops = {}
    if not group.parallel_residual:
        ops["feed_forward_norm"] = _memory(world, layout, own, 4, 6, group.norm_bias)
    if mlp.num_experts:
        ops |= _experts(world, layout, mlp)
    width = mlp.shared_intermediate_size if mlp.num_experts else mlp.intermediate_size
    if width:
        ops |= _mlp(world, layout, mlp, width)
    ops = {name: replace(op, feed_forward=1.0) for name, op in ops.items()}
    ops["feed_forward_residual"] = _memory(world, layout, own, 6, 6)
    return ops


@remembered
def embedding(world: World, layout: Layout) -> Ops:
    """Lookup, and the sum over vocabulary shards."""
    h, n = world.model.hidden_size, tokens(world, layout)
    lookup = _once(_memory(world, layout, own_tokens(world, layout) * h, 4, 10))
    if (frozen(world) and not saves(world)) or trains_part(world):
        lookup = replace(lookup, backward=0.0)
    total = collective(world, "all_reduce", 2 * n * h, layout.tensor_parallel, 1)
    reduce = Op(forward=total, backward=0.0, part="tensor_parallel", full=0.0)
    return {"embedding": lookup, "embedding_tensor_parallel": reduce}


@remembered
def logits(world: World, layout: Layout) -> Ops:
    """Final norm, logits in 16 bit, cross-entropy, and the sum of input gradients."""
    h, n = world.model.hidden_size, tokens(world, layout)
    columns = world.model.vocab_size / layout.tensor_parallel
    is_frozen = (frozen(world) and not saves(world)) or trains_part(world)
    bits = world.sixteen_bit
    final = _linear(world, layout, n, columns, h, precision=bits, is_frozen=is_frozen)
    loss = elementwise(world, 2 * logit_passes(world, layout) * n * columns) / 2
    total = collective(world, "all_reduce", 2 * n * h, layout.tensor_parallel, 1)
    return {
        "final_norm": _once(
            _memory(world, layout, own_tokens(world, layout) * h, 4, 6, world.model.final_norm_bias)
        ),
        "logits": _once(final),
        "loss": Op(forward=loss, backward=loss, full=0.0),
        "logits_tensor_parallel": Op(forward=0.0, backward=total, part="tensor_parallel", full=0.0),
    }


@remembered
def prediction(world: World, layout: Layout) -> Ops:
    """A module of multi-token prediction beside its layer (arXiv:2412.19437, equation 21)."""
    h, n = world.model.hidden_size, tokens(world, layout)
    both = own_tokens(world, layout) * 2 * h
    joined = _linear(world, layout, n, h / layout.tensor_parallel, 2 * h)
    own = {
        "norms": _once(_memory(world, layout, both, 4, 6, world.model.final_norm_bias)),
        "projection": _once(joined),
    }
    return own | logits(world, layout)


def _final_norm(world: World, layout: Layout, elements: float) -> Op:
    return _once(_memory(world, layout, elements, 4, 6, world.model.final_norm_bias))


def _once(op: Op) -> Op:
    """The ends of a model are never recomputed."""
    return replace(op, selective=0.0, feed_forward=0.0, full=0.0)


def _memory(
    world: World,
    layout: Layout,
    elements: float,
    forward: float,
    backward: float,
    single: bool = False,
) -> Op:
    """An elementwise kernel; bytes per element when fused, times the framework's passes."""
    ahead, behind = passes(world, layout, (forward, backward), single=single)
    return Op(
        forward=elementwise(world, elements * ahead),
        backward=elementwise(world, elements * behind),
        selective=world.framework.execution.selective_share,
    )


def _linear(
    world: World,
    layout: Layout,
    rows: float,
    columns: float,
    depth: float,
    precision: str | None = None,
    is_frozen: bool | None = None,
) -> Op:
    """Forward C = A B; backward both gradients, the weights' one accumulated in place."""
    is_frozen = frozen(world) if is_frozen is None else is_frozen
    precision = precision or layout.precision
    by_itself = of_gradients(world, layout, "accumulation_traffic") > 0
    accumulated = 2.0 if by_itself else 2 * of_gradients(world, layout, "gradient")
    recipe = recipe_of(world, layout)
    forward = gemm(world, rows, columns, depth, precision, recipe=recipe)
    backward = gemm(world, rows, depth, columns, precision, recipe=recipe)
    weights = 0.0
    if not is_frozen:
        weights = gemm(world, columns, depth, rows, precision, accumulated, recipe)
    backward += weights
    forward += cast(world, rows * depth, precision, recipe)
    backward += cast(world, rows * columns, precision, recipe)
    share = world.framework.execution.selective_share
    return Op(forward=forward, backward=backward, selective=share, weights=weights)


def accumulation(world: World, layout: Layout, counts: tuple[float, float]) -> Ops:
    """Every micro-batch but the first adds its gradients to those before it."""
    traffic, m = of_gradients(world, layout, "accumulation_traffic"), layout.num_micro_batches
    if not traffic:
        return {}
    seconds = elementwise(world, traffic * sum(counts)) * (m - 1) / m
    return {"accumulation": Op(forward=0.0, backward=seconds, full=0.0)}


def _tensor_exchange(world: World, layout: Layout) -> Op:
    """arXiv:1909.08053: an all-reduce each way; arXiv:2205.05198: gather and scatter."""
    num_bytes = 2 * tokens(world, layout) * world.model.hidden_size
    kinds = ("all_gather", "reduce_scatter") if layout.sequence_parallel else ("all_reduce",)
    time = sum(collective(world, kind, num_bytes, layout.tensor_parallel, 1) for kind in kinds)
    overlap = world.framework.overlap
    asynchronous = overlap.asynchronous_tensor_parallel if layout.tp_comm_overlap else 0.0
    is_asked_for = world.model.num_experts and overlap.asynchronous_tensor_parallel
    usual = 0.0 if is_asked_for and not layout.tp_comm_overlap else overlap.tensor_parallel
    up = world.cluster.scale_up
    in_domain = layout.tensor_parallel <= up.domain_size
    if layout.sequence_parallel and in_domain and up.kind not in ("pcie", "network"):
        time *= 1 - max(usual, asynchronous)
    return Op(forward=time, backward=time, part="tensor_parallel")


def _projections(world: World, layout: Layout, attention: AttentionSpec) -> Ops:
    h, t, n = world.model.hidden_size, layout.tensor_parallel, tokens(world, layout)
    a, d, dv = attention.num_attention_heads / t, attention.head_dim, value_dim(attention)
    rotated_heads, rotated = a, attention.qk_rope_head_dim or d
    if attention.kind == "latent":  # arXiv:2405.04434, equations 37-47
        own, rope = own_tokens(world, layout), attention.qk_rope_head_dim
        q, kv = attention.q_lora_rank, attention.kv_lora_rank
        ops = {"q_down": _linear(world, layout, own, q, h)} if q else {}
        ops["q_up"] = _linear(world, layout, n, a * d, q or h)
        ops["kv_down"] = _linear(world, layout, own, kv + rope, h)
        ops["kv_up"] = _linear(world, layout, n, a * (d - rope + dv), kv)
    else:
        keys = key_heads(attention, layout)
        columns = a * d + keys * d + keys * dv + (a * dv if attention.attn_output_gate else 0)
        ops = {"qkv": _linear(world, layout, n, columns, h)}
        rotated_heads += keys
    if world.model.position_embedding == "rotary":
        ops["rope"] = _memory(world, layout, n * rotated_heads * rotated, 4, 4)
    if attention.index_topk:
        ops |= _indexer(world, layout, attention)
    return ops


def _indexer(world: World, layout: Layout, attention: AttentionSpec) -> Ops:
    """arXiv:2512.02556, equation 1: every query scores every earlier token with all heads."""
    n, s = tokens(world, layout), world.workload.sequence_length
    width = attention.index_n_heads * attention.index_head_dim
    pairs = n * (s + 1) / 2
    compute = 2 * width * pairs / world.gpu.peak_flops[world.sixteen_bit]
    latency = world.gpu.efficiency.memory_bound.latency
    seconds = max(compute, elementwise(world, (4 + 4) * pairs) + latency)
    return {
        "index_q": _linear(world, layout, n, width, attention.q_lora_rank),
        "index_scores": Op(forward=seconds, backward=2 * seconds),
    }


def softmax_falls_back(world: World, layout: Layout, attention: AttentionSpec | None) -> bool:
    """Megatron's softmax kernel takes multiples of 4 matrices."""
    if layout.fused or attention is None or attention.has_state:
        return False
    matrices = layout.micro_batch_size * attention.num_attention_heads // layout.tensor_parallel
    return matrices % world.framework.execution.softmax_multiple > 0


def _attention(world: World, layout: Layout, attention: AttentionSpec) -> Ops:
    s, b = world.workload.sequence_length, layout.micro_batch_size
    a, d, dv = attention.num_attention_heads, attention.head_dim, value_dim(attention)
    a /= layout.tensor_parallel
    if not layout.fused:
        precision = world.sixteen_bit
        passes = world.framework.execution.softmax_passes
        if softmax_falls_back(world, layout, attention):  # fp32 kernels: 36 bytes for 4
            passes += 16
        time = gemm(world, b * a * s, s, d, precision) + gemm(world, b * a * s, dv, s, precision)
        lanes = world.gpu.efficiency.vector_product_fraction
        if d % world.framework.execution.head_dim_multiple and lanes:
            time = 2 * b * a * s * s * (d + dv) / (world.gpu.peak_flops["fp32"] * lanes)
        time += elementwise(world, 2 * passes * b * a * s * s)
        return {"core": Op(forward=time, backward=2 * time, selective=1.0)}
    forward = fused_attention(world, attention, layout)
    ahead, behind = kernel_rates(world.gpu.efficiency, attention_kernels(world, layout))
    backward = 2.5 * forward / world.gpu.efficiency.attention_backward_fraction * ahead / behind
    row = world.gpu.efficiency.attention_kernels.get("masked")
    if (
        layout.attention_kernel == "masked"
        and row
        and max(kernel_dims(attention)) > row.register_width
    ):
        backward /= 0.3
    rates = world.gpu.efficiency.fp8_attention
    if layout.fp8_attention and rates is not None:
        forward, backward = forward / rates.forward, backward / rates.backward
    if attention.index_topk and attention.index_n_heads:
        # The indexer's loss needs the scores of the chosen keys once more: half a core and less.
        d_qk, d_v = kernel_dims(attention)
        forward += forward * d_qk / (d_qk + d_v)
    ops = {"core": Op(forward=forward, backward=backward)}
    c = layout.context_parallel
    if c > 1 and layout.cp_comm_type == "a2a":  # arXiv:2309.14509
        keys = max(key_heads(attention, layout), c)  # a rank has one head at least
        read = a * d + keys * (d + dv)
        there, back = (
            all_to_all(world, 2 * tokens(world, layout) * width, c, stride=layout.tensor_parallel)
            for width in (read, a * dv)
        )
        ops["ring"] = Op(forward=there + back, backward=there + back, part="context_parallel")
    elif c > 1:  # arXiv:2310.01889: keys and values go round the ring behind the core
        keys = key_heads(attention, layout)
        block = 2 * tokens(world, layout) * keys * (d + dv)
        leaves = layout.tensor_parallel * c > world.cluster.scale_up.domain_size
        ring = (c - 1) * send(world, block, leaves)
        g = world.framework.overlap.interference
        ops["ring"] = Op(
            forward=shown(ring, forward, g),
            backward=shown(2 * ring, backward, g),
            part="context_parallel",
        )
        merges = (c - 1) * elementwise(world, 6 * tokens(world, layout) * a * dv)
        ops["merges"] = Op(forward=merges, backward=merges)
    return ops


def _mlp(world: World, layout: Layout, mlp: FeedForwardSpec, width: int) -> Ops:
    h, n, f = world.model.hidden_size, tokens(world, layout), width / layout.tensor_parallel
    inputs = 2 if mlp.gated else 1
    return {
        "up": _linear(world, layout, n, inputs * f, h),
        "activation": _memory(world, layout, n * f, 2 * inputs + 2, 4 * inputs + 2, not mlp.gated),
        "down": _linear(world, layout, n, h, f),
        "feed_forward_tensor_parallel": _tensor_exchange(world, layout),
    }


def _experts(world: World, layout: Layout, mlp: FeedForwardSpec) -> Ops:
    """Each GPU's own tokens leave k times; at the fullest as many and more arrive."""
    hidden, own, e = world.model.hidden_size, own_tokens(world, layout), layout.expert_parallel
    h, split = mlp.moe_latent_size or hidden, layout.expert_tensor_parallel
    pairs = own * mlp.num_experts_per_tok * expert_load(layout)
    width = mlp.moe_intermediate_size
    matrices = 3 if mlp.gated else 2
    local = mlp.num_experts / e
    recipe, bits = recipe_of(world, layout), layout.precision
    part = width / split
    experts = grouped_gemm(world, pairs * split, local, h, part, matrices, bits, recipe)
    cast_inputs = cast(world, pairs * split * (h + part), bits, recipe, of_experts=True)
    outputs = pairs * split * (h + (matrices - 1) * part)
    cast_outputs = cast(world, outputs, bits, recipe, of_experts=True)
    experts += local * world.framework.execution.expert_launch_time
    activation = elementwise(world, 2 * matrices * pairs * width)
    gradients = 1 if frozen(world) else 2
    grouped = world.framework.execution.selective_grouped
    grouped = world.framework.execution.selective_share if grouped is None else grouped
    passes = world.framework.execution.permute_passes
    permute = sum(elementwise(world, passes * 4 * pairs * h) for _ in ("there", "back"))
    there_and_back = _expert_exchange(world, layout, h, mlp)
    there_and_back *= 1 - world.framework.overlap.expert_parallel
    router = _linear(world, layout, own, mlp.num_experts, hidden, precision=world.sixteen_bit)
    latent: Ops = {}
    if mlp.moe_latent_size:
        latent["down"] = _linear(world, layout, own, h, hidden)
        latent["up"] = _linear(world, layout, own, hidden, h)
    bias: Ops = {}
    passes = world.framework.execution.expert_bias_passes
    if mlp.bias and passes:  # 16-bit passes forward, half as many again backward
        seconds = elementwise(world, 2 * passes * pairs * h)
        bias["expert_bias"] = Op(forward=seconds, backward=1.5 * seconds)
    return bias | {
        "router": router,
        **{f"latent_{name}": op for name, op in latent.items()},
        "permute": Op(forward=permute, backward=permute, selective=grouped),
        "experts": Op(
            forward=experts + activation + cast_inputs,
            backward=gradients * experts + 2 * activation + cast_outputs,
            selective=grouped,
            weights=0.0 if frozen(world) else experts,
        ),
        "all_to_all": Op(forward=there_and_back, backward=there_and_back, part="expert_parallel"),
    }


def _expert_exchange(world: World, layout: Layout, h: int, mlp: FeedForwardSpec) -> float:
    """Tokens there and back, by dispatcher; ranks that split experts gather and add up."""
    own, e = own_tokens(world, layout), layout.expert_parallel
    split, copies = layout.expert_tensor_parallel, mlp.num_experts_per_tok
    named, ranks = layout.token_dispatcher, e * split
    if named == "allgather":
        whole = 2 * own * h * ranks
        kinds = ("all_gather", "reduce_scatter")
        return sum(collective(world, kind, whole, ranks, 1) for kind in kinds)
    once = world.framework.execution.deduplicated_dispatch if named == "auto" else named == "flex"
    num_bytes = 2 * own * copies * expert_load(layout) * h
    # DeepEP: a token goes once to each rank that has an expert of it.
    ranks = reached(mlp, e)
    sent = ranks / copies * num_bytes if once else num_bytes

    def across(domains: float) -> float:
        return reached(mlp, domains) / ranks if once else 1.0

    seconds = 2 * all_to_all(world, sent, e, split, across)
    for kind in ("all_gather", "reduce_scatter"):
        seconds += collective(world, kind, num_bytes * split, split, 1)
    return seconds
