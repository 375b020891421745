"""Bytes of the weights on the fullest GPU of a replica."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.arrays import FloatArray, add
from planner.configurations.serving import ServingConfigurations
from planner.estimators.inference.formats import dense_part, weight_formats
from planner.estimators.inference.setting import ServingSetting
from planner.estimators.parameters import count_parameters, layer_parameters
from planner.specs.quantization import SIXTEEN_BIT_BYTES


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
    routed = sum(number * layer.experts for number, layer in groups)
    logits = counts.logits or counts.embedding * int(model.tie_word_embeddings)
    embedding = 0 if model.tie_word_embeddings else counts.embedding
    small = sum(number * (layer.router + layer.norms) for number, layer in groups)
    return WeightBytes(
        attention=attention * formats.bytes_of("attention", code) * uneven / t,
        feed_forward=feed_forward * uneven / t,
        experts=routed * formats.bytes_of("experts", own) * uneven / c.stage_gpus,
        embedding=np.asarray(of_end * embedding * one / t),
        logits=np.asarray(of_end * logits * one / t + 2.0 * small * uneven),
    )
