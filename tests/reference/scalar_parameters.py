"""Layers and parameters of every pipeline stage, as explicit lists."""

from __future__ import annotations

from fractions import Fraction
from math import ceil

from remembered import remembered
from scalar_machine import Layout, World, value_dim
from scalar_state import State
from scalar_state import parameters as state_parameters

from planner.specs.attention import AttentionSpec
from planner.specs.model import FeedForwardSpec, LayerGroup, ModelSpec

Counts = tuple[float, float]


def layer_list(model: ModelSpec) -> list[int]:
    """The group of each layer from bottom to top; interleaved groups alternate evenly."""
    runs, spread = [], []
    for index, group in enumerate(model.layer_groups):
        n = group.num_hidden_layers
        if group.placement == "interleaved":
            spread += [(Fraction(2 * i + 1, 2 * n), index) for i in range(n)]
        else:
            runs += [index] * n
    return runs + [index for _, index in sorted(spread)]


@remembered
def stages(model: ModelSpec, layout: Layout) -> list[list[int]]:
    """The layers of every stage: chunk c stands on stage c mod p (arXiv:2104.04473, 2.2).

    Where layers do not divide, inner chunks take the extra ones, then the first, then the
    last, as embedding and logits stand there (arXiv:2407.21783, section 3.3.2). The last one
    leaves as many as the logits of multi-token prediction weigh, but keeps one. Of an interleaved
    schedule only first and last lack layers, if these are enough, and may be empty; of more than
    two that are missing the last one lacks as many as the logits weigh.
    """
    layers, p = layer_list(model), layout.pipeline_parallel
    chunks = p * layout.virtual_pipeline
    if layout.virtual_pipeline > 1:
        sizes = _interleaved_sizes(model, len(layers), chunks)
        if sum(sizes) == len(layers):
            return _dealt(layers, sizes, p)
    sizes = [len(layers) // chunks] * chunks
    inner_first = [*range(1, chunks - 1), 0, chunks - 1]
    extra = len(layers) % chunks
    for chunk in inner_first[:extra]:
        sizes[chunk] += 1
    for _ in range(1, int(layers_like_logits(model)) if model.mtp_num_layers else 1):
        light = [chunk for chunk in inner_first[extra:-1] if sizes[chunk] < max(sizes)]
        if extra and sizes[-1] > 1 and light:
            sizes[-1] -= 1
            sizes[light[0]] += 1
    return _dealt(layers, sizes, p)


def _interleaved_sizes(model: ModelSpec, num_layers: int, chunks: int) -> list[int]:
    sizes = [ceil(num_layers / chunks)] * chunks
    missing = sum(sizes) - num_layers
    by_hand = missing > 2 or model.mtp_num_layers > 0
    for _ in range(layers_like_logits(model) if by_hand else 1):
        if sum(sizes) > num_layers and sizes[-1]:
            sizes[-1] -= 1
    if sum(sizes) > num_layers:
        sizes[0] -= 1
    return sizes


def _dealt(layers: list[int], sizes: list[int], p: int) -> list[list[int]]:
    held: list[list[int]] = [[] for _ in range(p)]
    for chunk, size in enumerate(sizes):
        taken, layers = layers[:size], layers[size:]
        held[chunk % p] += taken
    return held


def layers_like_logits(model: ModelSpec) -> int:
    """How many layers have as many parameters per token as all logits, rounded up."""
    per_token = 0
    for index in layer_list(model):
        group = model.layer_groups[index]
        per_token += attention_parameters(model, group)
        if mlp := group.feed_forward:
            width = mlp.shared_intermediate_size if mlp.num_experts else mlp.intermediate_size
            per_token += _mlp(model.hidden_size, width, mlp.gated, mlp.bias) if width else 0
            per_token += mlp.num_experts_per_tok * _expert(model.hidden_size, mlp)
    logits = (1 + model.mtp_num_layers) * model.vocab_size * model.hidden_size
    return ceil(Fraction(logits * len(layer_list(model)), int(per_token)))


@remembered
def layer_parameters(model: ModelSpec, group: LayerGroup, layout: Layout) -> tuple[float, float]:
    """Parameters of one layer on one GPU: of all its ranks alike, and of its own experts."""
    h, t, mlp = model.hidden_size, layout.tensor_parallel, group.feed_forward
    whole = group.norms_per_layer * h * (2 if group.norm_bias else 1)
    split, experts = attention_parameters(model, group), 0.0
    whole += _copied(h, group.attention, t) if group.attention else 0.0
    if mlp:
        width = mlp.shared_intermediate_size if mlp.num_experts else mlp.intermediate_size
        split += _mlp(h, width, mlp.gated, mlp.bias) if width else 0
        whole += mlp.num_experts * (h + (1 if mlp.router_bias else 0))
        whole += h if mlp.shared_expert_gate else 0
        whole += 2 * h * mlp.moe_latent_size
        experts = (
            mlp.num_experts
            * _expert(h, mlp)
            / (layout.expert_parallel * layout.expert_tensor_parallel)
        )
    return split / t + whole, experts


def expert_ranks(layout: Layout) -> int:
    """GPUs that one copy of the experts is spread over."""
    return layout.expert_parallel * layout.expert_tensor_parallel


def _expert(h: int, mlp: FeedForwardSpec) -> int:
    if not mlp.num_experts:
        return 0
    return _mlp(mlp.moe_latent_size or h, mlp.moe_intermediate_size, mlp.gated, mlp.bias)


def attention_parameters(model: ModelSpec, group: LayerGroup) -> float:
    """Of one layer, whole."""
    if not group.attention:
        return 0
    return sum(_attention_matrices(model.hidden_size, group.attention).values())


def feed_forward_parameters(
    model: ModelSpec, group: LayerGroup, layout: Layout
) -> tuple[float, int]:
    """Parameters of one layer on a GPU, and the number of their matrices in the layer."""
    h, mlp = model.hidden_size, group.feed_forward
    if not mlp:
        return 0.0, 0
    width = mlp.shared_intermediate_size if mlp.num_experts else mlp.intermediate_size
    count = _mlp(h, width, mlp.gated, mlp.bias) / layout.tensor_parallel if width else 0.0
    count += mlp.num_experts * _expert(h, mlp) / expert_ranks(layout)
    blocks = (1 if width else 0) + mlp.num_experts
    return count, blocks * (3 if mlp.gated else 2) + (2 if mlp.moe_latent_size else 0)


def _copied(h: int, attention: AttentionSpec, t: int) -> float:
    """Key and value weights a rank holds beyond its share: a head is copied, not split."""
    if attention.kind != "standard":
        return 0.0
    share = attention.num_key_value_heads / t
    held = max(share, 1.0)
    return (held - share) * h * (attention.head_dim + value_dim(attention))


def _mlp(h: int, width: int, gated: bool, bias: bool) -> int:
    inputs = 2 if gated else 1
    biases = inputs * width + h if bias else 0
    return inputs * h * width + width * h + biases


def _attention_matrices(h: int, attention: AttentionSpec) -> dict[str, int]:
    if attention.kind in ("linear", "mamba2"):
        return state_parameters(h, State.of(attention))
    a, g, d = attention.num_attention_heads, attention.num_key_value_heads, attention.head_dim
    dv = value_dim(attention)
    if attention.kind == "latent":
        q, kv, rope = attention.q_lora_rank, attention.kv_lora_rank, attention.qk_rope_head_dim
        queries = {"q_down": h * q, "q_norm": q, "q_up": q * a * d} if q else {"q": h * a * d}
        return {
            **queries,
            "kv_down": h * (kv + rope),
            "kv_norm": kv,
            "kv_up": kv * a * (d - rope + dv),
            "output": a * dv * h,
            **_indexer(h, attention),
        }
    norm_sets = (a + g) if attention.qk_norm_per_head else 2
    return {
        "q": h * a * d,
        "k": h * g * d,
        "v": h * g * d,
        "output": a * d * h,
        "qkv_bias": (a + 2 * g) * d if attention.qkv_bias else 0,
        "output_bias": h if attention.output_bias else 0,
        "gate": h * a * dv if attention.attn_output_gate else 0,
        "qk_norm": norm_sets * d if attention.qk_norm else 0,
        "sinks": a if attention.sinks else 0,
    }


def _indexer(h: int, attention: AttentionSpec) -> dict[str, int]:
    """Queries from the latent, one key with a layer norm, a weight per query head."""
    if not attention.index_topk:
        return {}
    heads, d = attention.index_n_heads, attention.index_head_dim
    queries = attention.q_lora_rank * heads * d
    return {"index_q": queries, "index_k": h * d + 2 * d, "index_weights": h * heads}


def end_parameters(model: ModelSpec, layout: Layout, stage: int) -> float:
    """Embedding and its norm on the first stage, final norm and logits on the last.

    Tied weights are one matrix where both stand on one stage, else a copy on each. Every
    tensor-parallel rank holds the norms whole. Modules of multi-token prediction (arXiv:2412.19437,
    section 2.2) have a copy of the embedding, three norms and a projection of two states to one.
    """
    h, t, last = model.hidden_size, layout.tensor_parallel, layout.pipeline_parallel - 1
    matrix = model.vocab_size * h
    norm = h * (2 if model.final_norm_bias else 1)
    norms = norm * ((stage == 0 and model.embedding_norm) + (stage == last))
    count = 0
    if stage == 0:
        positions = (model.max_position_embeddings or 0) + model.position_embedding_offset
        count += matrix + (positions * h if model.position_embedding == "learned" else 0)
    if stage == last:
        count += 0 if model.tie_word_embeddings and last == 0 else matrix
        count += model.vocab_size if model.logits_bias else 0
        modules = model.mtp_num_layers
        if modules:
            untied_copy = last > 0 and not model.tie_word_embeddings
            count += modules * 2 * h * h + (matrix if untied_copy else 0)
            norms += modules * 3 * norm
    return count / t + norms


@remembered
def stage_parameters(world: World, layout: Layout) -> list[tuple[float, float]]:
    """Dense and expert parameters on a GPU of every stage."""
    model = world.model
    counts, each = [], [layer_parameters(model, group, layout) for group in model.layer_groups]
    for stage, layers in enumerate(stages(model, layout)):
        dense, experts = end_parameters(model, layout, stage), 0.0
        for index in layers:
            dense, experts = dense + each[index][0], experts + each[index][1]
        copies = 2 if layout.pipeline_schedule == "dualpipe" else 1
        counts.append((copies * dense, copies * experts))
    return counts


def groups(layout: Layout) -> tuple[tuple[float, float], tuple[float, float]]:
    """Size and stride of the ranks that shard one copy of the dense and of the expert weights."""
    of_copy = layout.num_gpus / layout.pipeline_parallel / layout.data_parallel_replicas
    t, e = layout.tensor_parallel, expert_ranks(layout)
    return (of_copy / t, t), (of_copy / e, e)
