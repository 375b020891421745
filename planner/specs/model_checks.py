"""What no model config can be: faults that only show when two fields are read together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from planner.base.enums import AttentionKind, PositionEmbedding, Quantization
from planner.errors import did_you_mean

if TYPE_CHECKING:
    from planner.specs.model import (
        AttentionSpec,
        FeedForwardSpec,
        LayerGroup,
        ModelSpec,
        TrainingDefaults,
        VisionTower,
    )

MOST_LAYERS = 10_000
WIDEST_HEAD = 8192
WIDEST_TO_HIDDEN = 256
LINEAR_FIELDS = (
    "linear_num_key_heads",
    "linear_num_value_heads",
    "linear_key_head_dim",
    "linear_value_head_dim",
    "linear_conv_kernel_dim",
)
INDEX_FIELDS = ("index_n_heads", "index_head_dim", "index_topk")
_LATENT_FIELDS = ("v_head_dim", "qk_rope_head_dim", "q_lora_rank", "kv_lora_rank")
_STANDARD_FLAGS = ("qkv_bias", "output_bias", "qk_norm", "sinks", "attn_output_gate")
_KINDS_OF_FIELDS = {
    (*_LATENT_FIELDS, *INDEX_FIELDS): (AttentionKind.LATENT,),
    LINEAR_FIELDS: (AttentionKind.LINEAR, AttentionKind.MAMBA2),
}
_FEED_FORWARD_WIDTHS = (
    "intermediate_size",
    "moe_intermediate_size",
    "moe_latent_size",
    "shared_intermediate_size",
)
MOST = {"hidden_size": 10**6, "vocab_size": 10**8, "num_experts": 10**5}


def refuse(faults: Iterator[str]) -> None:
    """Raise all faults as one ``ValueError``, if there are any."""
    found = list(faults)
    if found:
        raise ValueError("; ".join(found))


def attention_faults(attention: AttentionSpec) -> Iterator[str]:
    """Faults of one attention table."""
    heads, shared = attention.num_attention_heads, attention.num_key_value_heads
    if heads % shared:
        yield f"num_key_value_heads {shared} does not divide num_attention_heads {heads}"
    if attention.head_dim > WIDEST_HEAD:
        yield f"head_dim {attention.head_dim} is more than {WIDEST_HEAD}"
    if attention.qk_norm_per_head and not attention.qk_norm:
        yield "qk_norm_per_head needs qk_norm = true"
    for fields, kinds in _KINDS_OF_FIELDS.items():
        if attention.kind not in kinds:
            needed = " or ".join(f'"{kind}"' for kind in kinds)
            for name in _set(attention, fields):
                yield f"{name} needs kind = {needed}"
    if attention.kind == AttentionKind.LATENT:
        yield from _latent_faults(attention)
    elif attention.has_state:
        yield from _linear_faults(attention)


def _latent_faults(attention: AttentionSpec) -> Iterator[str]:
    if not attention.kv_lora_rank:
        yield 'kind = "latent" needs kv_lora_rank'
    if not attention.v_head_dim:
        yield 'kind = "latent" needs v_head_dim'
    if attention.qk_rope_head_dim >= attention.head_dim:
        yield (
            f"qk_rope_head_dim {attention.qk_rope_head_dim} must be less than "
            f"head_dim {attention.head_dim}, which includes it"
        )
    for name in _set(attention, _STANDARD_FLAGS):
        yield f'{name} does not go with kind = "latent"'
    yield from _indexer_faults(attention)


def _indexer_faults(attention: AttentionSpec) -> Iterator[str]:
    given = _set(attention, INDEX_FIELDS)
    if not given:
        return
    for name in INDEX_FIELDS:
        if name not in given:
            yield f"an indexer of sparse attention needs {name}"
    if not attention.q_lora_rank:
        yield "an indexer of sparse attention needs q_lora_rank, which its queries come from"


def _linear_faults(attention: AttentionSpec) -> Iterator[str]:
    for name in LINEAR_FIELDS:
        if not getattr(attention, name):
            yield f'kind = "{attention.kind}" needs {name}'
    keys, values = attention.linear_num_key_heads, attention.linear_num_value_heads
    if keys and values % keys:
        yield f"linear_num_key_heads {keys} does not divide linear_num_value_heads {values}"
    for name in ("linear_key_head_dim", "linear_value_head_dim"):
        if getattr(attention, name) > WIDEST_HEAD:
            yield f"{name} {getattr(attention, name)} is more than {WIDEST_HEAD}"
    for name in _set(attention, (*_STANDARD_FLAGS, "sliding_window")):
        yield f'{name} does not go with kind = "{attention.kind}"'


def _set(attention: AttentionSpec, names: Iterable[str]) -> list[str]:
    return [name for name in names if getattr(attention, name)]


def tower_faults(tower: VisionTower) -> Iterator[str]:
    """Faults of one vision tower."""
    if not tower.layer_groups:
        yield "layer_groups is empty"
    for index, group in enumerate(tower.layer_groups):
        attention = group.attention
        if attention is None or group.feed_forward is None or group.num_experts:
            yield f"layer_groups[{index}] of a vision tower has attention and a dense MLP"
        elif attention.kind is not AttentionKind.STANDARD or attention.causal:
            yield f"layer_groups[{index}]: attention of a vision tower is standard, causal = false"
    if tower.tokens_per_image < 1:
        yield f"image_size {tower.image_size} is smaller than what one token is made of"


def layer_faults(layer: LayerGroup) -> Iterator[str]:
    """Faults of one layer group."""
    if not layer.num_blocks:
        yield "needs attention, feed_forward, or both"
    if layer.num_blocks == 1 and layer.parallel_residual:
        yield "parallel_residual needs both attention and feed_forward"


def feed_forward_faults(feed_forward: FeedForwardSpec) -> Iterator[str]:
    """Faults of one feed-forward table."""
    if feed_forward.num_experts:
        yield from _expert_faults(feed_forward)
    else:
        yield from _dense_faults(feed_forward)


def _expert_faults(feed_forward: FeedForwardSpec) -> Iterator[str]:
    experts, routed = feed_forward.num_experts, feed_forward.num_experts_per_tok
    if not 1 <= routed <= experts:
        yield f"num_experts_per_tok {routed} must be from 1 to num_experts {experts}"
    if experts > MOST["num_experts"]:
        yield f"num_experts {experts} is more than {MOST['num_experts']}"
    if not feed_forward.moe_intermediate_size:
        yield "num_experts needs moe_intermediate_size"
    if feed_forward.intermediate_size:
        yield (
            "intermediate_size is for layers without experts; an MLP beside the experts "
            "is shared_intermediate_size"
        )
    if feed_forward.shared_expert_gate and not feed_forward.shared_intermediate_size:
        yield "shared_expert_gate needs shared_intermediate_size"


def _dense_faults(feed_forward: FeedForwardSpec) -> Iterator[str]:
    if not feed_forward.intermediate_size:
        yield "needs intermediate_size, or num_experts for a mixture of experts"
    for name in (
        "num_experts_per_tok",
        "moe_intermediate_size",
        "moe_latent_size",
        "shared_intermediate_size",
        "shared_expert_gate",
        "router_bias",
    ):
        if getattr(feed_forward, name):
            yield f"{name} needs num_experts"


def model_faults(model: ModelSpec) -> Iterator[str]:
    """Faults that show only over the whole model."""
    if not model.name.strip():
        yield "name is empty"
    if not model.layer_groups:
        yield "layer_groups is empty"
    elif not model.attentions:
        yield "no layer group has attention"
    if len(set(model.aliases)) < len(model.aliases) or "" in model.aliases:
        yield "aliases are empty or written twice"
    if model.num_hidden_layers > MOST_LAYERS:
        yield f"{model.num_hidden_layers} layers are more than {MOST_LAYERS}"
    for name in ("hidden_size", "vocab_size"):
        if getattr(model, name) > MOST[name]:
            yield f"{name} {getattr(model, name)} is more than {MOST[name]}"
    yield from _width_faults(model)
    yield from _position_faults(model)


def _width_faults(model: ModelSpec) -> Iterator[str]:
    limit = WIDEST_TO_HIDDEN * model.hidden_size
    for number, group in enumerate(model.layer_groups):
        widths: dict[str, int] = {}
        if group.attention:
            widths |= _attention_widths(group.attention)
        if group.feed_forward:
            widths |= {name: getattr(group.feed_forward, name) for name in _FEED_FORWARD_WIDTHS}
        for name, width in widths.items():
            if width > limit:
                yield (
                    f"layer_groups.{number}: {name} = {width} is more than "
                    f"{WIDEST_TO_HIDDEN} times hidden_size {model.hidden_size}"
                )


def _attention_widths(attention: AttentionSpec) -> dict[str, int]:
    return {
        "num_attention_heads x head_dim": attention.num_attention_heads * attention.head_dim,
        "q_lora_rank": attention.q_lora_rank,
        "kv_lora_rank": attention.kv_lora_rank,
        "linear_num_key_heads x linear_key_head_dim": attention.linear_keys,
        "linear_num_value_heads x linear_value_head_dim": attention.linear_values,
        "linear_conv_kernel_dim": attention.linear_conv_kernel_dim,
        "index_n_heads x index_head_dim": attention.index_n_heads * attention.index_head_dim,
    }


def _position_faults(model: ModelSpec) -> Iterator[str]:
    learned = model.position_embedding == PositionEmbedding.LEARNED
    positions = model.max_position_embeddings
    if learned and positions is None:
        yield 'position_embedding = "learned" needs max_position_embeddings'
    if model.position_embedding_offset and not learned:
        yield 'position_embedding_offset needs position_embedding = "learned"'
    if learned and positions and model.training and model.training.sequence_length > positions:
        yield (
            f"training.sequence_length {model.training.sequence_length} is more than the "
            f"{positions} learned positions"
        )


def training_faults(training: TrainingDefaults) -> Iterator[str]:
    """Faults of one training table."""
    batch, total = training.global_batch_tokens, training.total_tokens
    if batch is not None and batch < training.sequence_length:
        yield (
            f"global_batch_tokens {batch:g} is less than one sequence of {training.sequence_length}"
        )
    if batch is not None and total is not None and total < batch:
        yield f"total_tokens {total:g} is less than global_batch_tokens {batch:g}"


def quantization_word(text: str) -> str:
    """The word of a type of weights, from any of its names."""
    word, known = Quantization.meant(text), Quantization.words()
    if word not in known:
        hint = did_you_mean(text, [*known, *Quantization.aliases()])
        raise ValueError(f"is one of {', '.join(known)}.{hint}")
    return word
