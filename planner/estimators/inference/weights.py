"""Bytes of the weights on the fullest GPU of a replica."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.arrays import FloatArray, Numeric, add
from planner.configurations.serving import ServingConfigurations
from planner.enums import AttentionKind
from planner.estimators.inference.formats import dense_part, weight_formats
from planner.estimators.inference.setting import ServingSetting
from planner.estimators.parameters import count_parameters, layer_parameters
from planner.specs.model import LayerGroup
from planner.specs.quantization import SIXTEEN_BIT_BYTES
from planner.specs.serving import redundant_experts


@dataclass(frozen=True, kw_only=True)
class WeightBytes:
    """Bytes on one GPU by part; router and norms stay in 16 bit, most engines' ends too."""

    attention: FloatArray
    feed_forward: FloatArray
    experts: FloatArray
    embedding: FloatArray
    logits: FloatArray

    @property
    def total(self) -> FloatArray:
        """Bytes of all weights on the GPU."""
        return add((self.attention, self.feed_forward, self.experts, self.embedding, self.logits))


def weight_bytes(setting: ServingSetting, configurations: ServingConfigurations) -> WeightBytes:
    """Weights of the fullest stage: its layers are rounded up, both ends count on one stage."""
    c, model = configurations, setting.model
    hidden = model.hidden_size
    groups = [
        (group.num_hidden_layers, layer_parameters(hidden, group)) for group in model.layer_groups
    ]
    p = c.pipeline_parallel
    uneven = np.ceil(model.num_hidden_layers / p) / model.num_hidden_layers
    formats, code, own = weight_formats(setting), c.quantization, c.expert_quantization
    of_end = formats.weight[code] if setting.engine.quantized_ends else SIXTEEN_BIT_BYTES
    t = c.tensor_parallel
    counts = count_parameters(model)
    one = np.where(p > 1, 0.5, 1.0)
    attention = sum(number * layer.attention for number, layer in groups)
    parts = [dense_part(group.feed_forward) for group in model.layer_groups]
    feed_forward = add(
        number * layer.feed_forward * formats.bytes_of(part, code)
        for part, (number, layer) in zip(parts, groups, strict=True)
    )
    routed = add(
        number * layer.experts * _copies(setting, group, c)
        for group, (number, layer) in zip(model.layer_groups, groups, strict=True)
    )
    kept = formats.bytes_of("attention", code)
    latent = add(_of_latent(group, hidden, t, kept) for group in model.layer_groups)
    logits = counts.logits or counts.embedding * int(model.tie_word_embeddings)
    embedding = 0 if model.tie_word_embeddings else counts.embedding
    small = sum(number * (layer.router + layer.norms) for number, layer in groups)
    return WeightBytes(
        attention=(attention * kept / t + latent) * uneven,
        feed_forward=feed_forward * uneven / t,
        experts=routed * formats.bytes_of("experts", own) * uneven / c.stage_gpus,
        embedding=np.asarray(of_end * embedding * one / t),
        logits=np.asarray(of_end * logits * one / t + 2.0 * small * uneven),
    )


def _copies(setting: ServingSetting, group: LayerGroup, c: ServingConfigurations) -> Numeric:
    """Experts that a layer holds over those it has."""
    number = group.num_experts
    if not number or not setting.engine.redundant_experts:
        return 1.0
    return 1.0 + redundant_experts(setting.workload, number, c.expert_parallel) / number


def _of_latent(group: LayerGroup, hidden: int, t: FloatArray, stored: FloatArray) -> FloatArray:
    """Bytes that latent attention holds beside its share of the matrices, all layers of a group.

    Every rank has the projections into the latent space whole, and 16-bit copies of those out of
    it, which decoding folds into queries and outputs.
    """
    a = group.attention
    if a is None or a.kind is not AttentionKind.LATENT:
        return np.zeros(())
    down = hidden * (a.q_lora_rank + a.kv_lora_rank + a.qk_rope_head_dim)
    values = a.v_head_dim or a.head_dim
    up = a.kv_lora_rank * a.num_attention_heads * (a.head_dim - a.qk_rope_head_dim + values)
    more = down * (1 - 1 / t) * stored + up / t * SIXTEEN_BIT_BYTES
    return np.asarray(group.num_hidden_layers * more)
