"""Bytes of the weights on the fullest GPU of a replica."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np

from planner.base.arrays import CodeArray, FloatArray, Numeric, add
from planner.base.enums import Quantization
from planner.base.records import record
from planner.configurations.configuration_tables import ServingConfigurations
from planner.estimators.inference.batch_share import ServingInputs
from planner.layers.model import Layer, count_parameters, layer_of, layer_parameters
from planner.layers.operators import MatrixProduct, MatrixSplit
from planner.specs.quantization import SIXTEEN_BIT_BYTES, end_bytes
from planner.specs.serving_workload import redundant_experts

_LATENT: Mapping[str, Callable[[MatrixProduct], bool]] = {
    "down": lambda op: op.reads == "residual" and op.split is MatrixSplit.NONE,
    "up": lambda op: op.reads == "key_latent",
}


@record(kw_only=True)
class WeightBytes:
    """Weight bytes on one GPU by part; router, norms and most engines' ends stay in 16 bit."""

    attention: FloatArray
    feed_forward: FloatArray
    experts: FloatArray
    embedding: FloatArray
    logits: FloatArray

    @property
    def total(self) -> FloatArray:
        """Bytes of all weights on the GPU."""
        return self.of(ServingConfigurations.weight_parts)

    def of(self, parts: Iterable[str]) -> FloatArray:
        """Bytes of some of the parts on the GPU."""
        return add(getattr(self, part) for part in parts)


def weight_bytes(inputs: ServingInputs, configurations: ServingConfigurations) -> WeightBytes:
    """Return weight bytes per GPU of the fullest stage (layers rounded up, both ends)."""
    c, model = configurations, inputs.model
    hidden = model.hidden_size
    groups = [
        (group.num_hidden_layers, layer_parameters(hidden, group)) for group in model.layer_groups
    ]
    p = c.pipeline_parallel
    uneven = stage_layers(inputs, c) / model.num_hidden_layers
    formats, code, expert_code = inputs.weight_formats, c.quantization, c.expert_quantization
    of_embedding, of_logits = _end_bytes(inputs, code)
    t = c.tensor_parallel
    counts = count_parameters(model)
    end_share = np.where(p > 1, 0.5, 1.0)
    attention = sum(number * layer.attention for number, layer in groups)
    parts = [
        ("shared_experts" if layer_of(model, group).experts else "feed_forward")
        for group in model.layer_groups
    ]
    feed_forward = add(
        number * layer.feed_forward * formats.bytes_of(part, code)
        for part, (number, layer) in zip(parts, groups, strict=True)
    )
    routed = add(
        number
        * layer.experts
        * held_experts(inputs, group.num_experts, c)
        / group.num_experts
        * padded_experts(inputs, layer_of(model, group), c)
        for group, (number, layer) in zip(model.layer_groups, groups, strict=True)
        if group.num_experts
    )
    attention_bytes = formats.bytes_of("attention", code)
    latent = add(
        group.num_hidden_layers * _of_latent(layer_of(model, group), t, attention_bytes)
        for group in model.layer_groups
    )
    logits = counts.logits or counts.embedding * int(model.ties_head)
    embedding = 0 if model.ties_head else counts.embedding
    small = sum(number * (layer.router + layer.norms) for number, layer in groups)
    return WeightBytes(
        attention=(attention * attention_bytes / t + latent) * uneven,
        feed_forward=feed_forward * uneven / t,
        experts=routed * formats.bytes_of("experts", expert_code) * uneven / c.stage_gpus,
        embedding=np.asarray(of_embedding * embedding * end_share / t),
        logits=np.asarray(of_logits * logits * end_share / t + 2.0 * small * uneven),
    )


def _end_bytes(inputs: ServingInputs, code: CodeArray) -> tuple[Numeric, Numeric]:
    """Return bytes of a weight of embedding and logits; logits that share them have theirs."""
    if inputs.workload.embedding_bits is not None:
        return (inputs.workload.embedding_bits / 8,) * 2
    if not inputs.engine.quantized_ends:
        return SIXTEEN_BIT_BYTES, SIXTEEN_BIT_BYTES
    embedding, logits = end_bytes(inputs.weight_formats.weight)
    return embedding[code], logits[code]


def stage_layers(inputs: ServingInputs, c: ServingConfigurations) -> FloatArray:
    """Layers of the fullest pipeline stage: as specified, else as even as possible."""
    layers = inputs.model.num_hidden_layers
    specified = inputs.workload.stage_layers
    even = np.ceil(layers / c.pipeline_parallel)
    if specified is None:
        return even
    return np.where(c.pipeline_parallel > 1, np.clip(specified, even, layers), even)


def held_experts(inputs: ServingInputs, number: int, c: ServingConfigurations) -> Numeric:
    """Experts that a layer holds on all ranks, copies of its ``number`` counted."""
    if not number or not inputs.engine.redundant_experts:
        return float(number)
    return number + redundant_experts(inputs.workload, number, c.expert_parallel)


def padded_experts(inputs: ServingInputs, layer: Layer, c: ServingConfigurations) -> Numeric:
    """Stored over counted weights of experts: kernels of MXFP4 pad both widths to their tiles."""
    padding = inputs.engine.mxfp4_padding_by_architecture
    tiles, experts = padding.get(inputs.machine.gpu.architecture), layer.experts
    if not tiles or experts is None:
        return 1.0
    inner, hidden = experts.width / c.expert_tensor_parallel, inputs.model.hidden_size
    stored = np.ceil(inner / tiles[0]) * tiles[0] * np.ceil(hidden / tiles[1]) * tiles[1]
    is_padded = c.expert_quantization == Quantization.MXFP4
    return np.where(is_padded, stored / (inner * hidden), 1.0)


def _of_latent(layer: Layer, t: FloatArray, stored: FloatArray) -> FloatArray:
    """Return bytes per layer that latent attention (MLA) stores beyond its matrix shards.

    Every rank has unsharded projections into the latent space, and 16-bit copies of the
    projections out of it, which decoding folds into queries and outputs.
    """
    if layer.core is None or not layer.core.latent_width:
        return np.zeros(())
    matrices = {
        name: sum(op.depth * op.columns.total for op in layer.of(MatrixProduct) if is_of(op))
        for name, is_of in _LATENT.items()
    }
    more = matrices["down"] * (1 - 1 / t) * stored + matrices["up"] / t * SIXTEEN_BIT_BYTES
    return np.asarray(more)
