"""The parameters of a model, part by part."""

from __future__ import annotations

from dataclasses import dataclass

from planner.enums import AttentionKind, PositionEmbedding
from planner.formulas import parameters as formulas
from planner.specs.model import AttentionSpec, FeedForwardSpec, LayerGroup, ModelSpec


@dataclass(frozen=True, kw_only=True)
class LayerParameters:
    """One layer; ``feed_forward`` is the dense MLP or the shared expert.

    ``experts`` are all routed experts; ``active_experts`` those one token visits; ``router``
    includes the projections into and out of the experts' latent space.
    """

    attention: int
    feed_forward: int
    experts: int
    active_experts: int
    router: int
    norms: int

    @property
    def total(self) -> int:
        """Parameters of the layer."""
        return self.attention + self.feed_forward + self.experts + self.router + self.norms


@dataclass(frozen=True, kw_only=True)
class ParameterCount:
    """A whole model; tied logits count in ``embedding``.

    ``active_experts`` is the part of ``experts`` one token visits, ``looked_up`` the part
    of ``embedding`` that no matrix multiplication reads, ``prediction`` what modules of
    multi-token prediction have beside layers.
    """

    embedding: int
    attention: int
    feed_forward: int
    experts: int
    router: int
    norms: int
    logits: int
    prediction: int
    active_experts: int
    looked_up: int

    @property
    def total(self) -> int:
        """Parameters of the model."""
        layers = self.attention + self.feed_forward + self.experts + self.router + self.norms
        return self.embedding + layers + self.logits + self.prediction

    @property
    def active_with_embedding(self) -> int:
        """Total without the experts a token skips: the count of Mixtral, Qwen and Llama 4."""
        return self.total - self.experts + self.active_experts

    @property
    def active(self) -> int:
        """Parameters a token is multiplied with: the count of DeepSeek and gpt-oss."""
        return self.active_with_embedding - self.looked_up


def layer_parameters(hidden_size: int, group: LayerGroup) -> LayerParameters:
    """Parameters of one layer of ``group``."""
    norms = formulas.norm_parameters(
        hidden_size=hidden_size, num_norms=group.norms_per_layer, norm_bias=group.norm_bias
    )
    mlp = group.feed_forward
    return LayerParameters(
        attention=_attention(hidden_size, group.attention) if group.attention else 0,
        feed_forward=_dense(hidden_size, mlp) if mlp else 0,
        experts=_experts(hidden_size, mlp, mlp.num_experts) if mlp else 0,
        active_experts=_experts(hidden_size, mlp, mlp.num_experts_per_tok) if mlp else 0,
        router=_router(hidden_size, mlp) if mlp else 0,
        norms=int(norms),
    )


def prediction_parameters(model: ModelSpec) -> int:
    """Parameters of a module of multi-token prediction beside its layers.

    The projection of two states to one, their norms and that before the logits.
    """
    h = model.hidden_size
    norms = formulas.norm_parameters(hidden_size=h, num_norms=3, norm_bias=model.final_norm_bias)
    return 2 * h * h + int(norms)


def logits_met(model: ModelSpec) -> int:
    """Parameters of the logits, as often as a token meets them: once, and once per module."""
    return (1 + model.mtp_num_layers) * model.vocab_size * model.hidden_size


def count_parameters(model: ModelSpec) -> ParameterCount:
    """Parameters of ``model``, as its checkpoint stores them."""
    hidden = model.hidden_size
    layers = [
        (group.num_hidden_layers, layer_parameters(hidden, group)) for group in model.layer_groups
    ]
    embedding = _embedding(model)
    logits = formulas.logits_parameters(
        hidden_size=hidden,
        vocab_size=model.vocab_size,
        tie_word_embeddings=model.tie_word_embeddings,
        logits_bias=model.logits_bias,
    )
    used = model.vocab_size * hidden if model.tie_word_embeddings else 0
    return ParameterCount(
        embedding=embedding,
        attention=sum(number * layer.attention for number, layer in layers),
        feed_forward=sum(number * layer.feed_forward for number, layer in layers),
        experts=sum(number * layer.experts for number, layer in layers),
        active_experts=sum(number * layer.active_experts for number, layer in layers),
        router=sum(number * layer.router for number, layer in layers),
        norms=sum(number * layer.norms for number, layer in layers) + _norms_outside_layers(model),
        logits=int(logits),
        prediction=model.mtp_num_layers * prediction_parameters(model),
        looked_up=embedding - used,
    )


def _dense(hidden_size: int, mlp: FeedForwardSpec) -> int:
    if not mlp.shared_width:
        return 0
    dense = formulas.feed_forward_parameters(
        hidden_size=hidden_size, intermediate_size=mlp.shared_width, gated=mlp.gated, bias=mlp.bias
    )
    return int(dense)


def _experts(hidden_size: int, mlp: FeedForwardSpec, number: int) -> int:
    experts = formulas.expert_parameters(
        hidden_size=mlp.expert_inputs(hidden_size),
        num_experts=number,
        moe_intermediate_size=mlp.moe_intermediate_size,
        gated=mlp.gated,
        bias=mlp.bias,
    )
    return int(experts)


def _router(hidden_size: int, mlp: FeedForwardSpec) -> int:
    router = formulas.router_parameters(
        hidden_size=hidden_size,
        num_experts=mlp.num_experts,
        router_bias=mlp.router_bias,
        shared_expert_gate=mlp.shared_expert_gate,
    )
    return int(router) + 2 * hidden_size * mlp.moe_latent_size


def _attention(hidden_size: int, attention: AttentionSpec) -> int:
    if attention.kind == AttentionKind.LATENT:
        return _latent_attention(hidden_size, attention)
    if attention.has_state:
        is_mamba = attention.kind == AttentionKind.MAMBA2
        count = formulas.mamba2_parameters if is_mamba else formulas.linear_attention_parameters
        linear = count(
            hidden_size=hidden_size,
            linear_num_key_heads=attention.linear_num_key_heads,
            linear_num_value_heads=attention.linear_num_value_heads,
            linear_key_head_dim=attention.linear_key_head_dim,
            linear_value_head_dim=attention.linear_value_head_dim,
            linear_conv_kernel_dim=attention.linear_conv_kernel_dim,
        )
        return int(linear)
    standard = formulas.attention_parameters(
        hidden_size=hidden_size,
        num_attention_heads=attention.num_attention_heads,
        num_key_value_heads=attention.num_key_value_heads,
        head_dim=attention.head_dim,
        qkv_bias=attention.qkv_bias,
        output_bias=attention.output_bias,
        qk_norm=attention.qk_norm,
        qk_norm_per_head=attention.qk_norm_per_head,
        sinks=attention.sinks,
        attn_output_gate=attention.attn_output_gate,
    )
    return int(standard)


def _latent_attention(hidden_size: int, attention: AttentionSpec) -> int:
    latent = formulas.latent_attention_parameters(
        hidden_size=hidden_size,
        num_attention_heads=attention.num_attention_heads,
        head_dim=attention.head_dim,
        qk_rope_head_dim=attention.qk_rope_head_dim,
        v_head_dim=attention.v_head_dim or attention.head_dim,
        q_lora_rank=attention.q_lora_rank,
        kv_lora_rank=attention.kv_lora_rank,
    )
    indexer = formulas.indexer_parameters(
        hidden_size=hidden_size,
        q_lora_rank=attention.q_lora_rank,
        index_n_heads=attention.index_n_heads,
        index_head_dim=attention.index_head_dim,
    )
    return int(latent) + int(indexer)


def _embedding(model: ModelSpec) -> int:
    learned = model.position_embedding == PositionEmbedding.LEARNED
    positions = (model.max_position_embeddings or 0) + model.position_embedding_offset
    embedding = formulas.embedding_parameters(
        hidden_size=model.hidden_size,
        vocab_size=model.vocab_size,
        num_positions=positions if learned else 0,
    )
    return int(embedding)


def _norms_outside_layers(model: ModelSpec) -> int:
    norms = formulas.norm_parameters(
        hidden_size=model.hidden_size,
        num_norms=2 if model.embedding_norm else 1,
        norm_bias=model.final_norm_bias,
    )
    return int(norms)
