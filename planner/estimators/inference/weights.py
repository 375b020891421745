"""Bytes of the weights on the fullest GPU of a replica."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.arrays import FloatArray, add
from planner.configurations.serving import ServingConfigurations
from planner.enums import Quantization
from planner.estimators.inference.setting import ServingSetting
from planner.estimators.parameters import count_parameters, layer_parameters
from planner.specs.quantization import FORMATS

_WEIGHT_BYTES = np.array([FORMATS[code].weight for code in Quantization])


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
    dense, experts = _WEIGHT_BYTES[c.quantization], _WEIGHT_BYTES[c.expert_quantization]
    of_end = dense if setting.engine.quantized_ends else 2.0
    t = c.tensor_parallel
    counts = count_parameters(model)
    one = np.where(p > 1, 0.5, 1.0)
    attention = sum(number * layer.attention for number, layer in groups)
    feed_forward = sum(number * layer.feed_forward for number, layer in groups)
    routed = sum(number * layer.experts for number, layer in groups)
    logits = counts.logits or counts.embedding * int(model.tie_word_embeddings)
    embedding = 0 if model.tie_word_embeddings else counts.embedding
    small = sum(number * (layer.router + layer.norms) for number, layer in groups)
    return WeightBytes(
        attention=attention * dense * uneven / t,
        feed_forward=feed_forward * dense * uneven / t,
        experts=routed * experts * uneven / c.stage_gpus,
        embedding=np.asarray(of_end * embedding * one / t),
        logits=np.asarray(of_end * logits * one / t + 2.0 * small * uneven),
    )
