"""Parameters on one GPU of each stage, and the groups over which ZeRO shards them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.arrays import FloatArray
from planner.configurations.training import TrainingConfigurations
from planner.estimators.machine import Group
from planner.estimators.parameters import LayerParameters, count_parameters, layer_parameters
from planner.estimators.stages import stage_layers
from planner.specs.model import ModelSpec


@dataclass(frozen=True, kw_only=True)
class StageParameters:
    """Parameters on one GPU: those every data-parallel rank has, and routed experts.

    ``dense`` and ``experts`` have shape ``(3, ...)``: first, middle and last stage.
    ``layer_dense`` and ``layer_experts`` hold one layer of each group, ``end`` the
    embedding or logits matrix.
    """

    layers: FloatArray
    dense: FloatArray
    experts: FloatArray
    layer_dense: tuple[FloatArray, ...]
    layer_experts: tuple[FloatArray, ...]
    end: FloatArray
    dense_group: Group
    expert_group: Group


def stage_parameters(model: ModelSpec, c: TrainingConfigurations) -> StageParameters:
    """What each stage holds under each configuration."""
    layers = stage_layers(model, c.pipeline_parallel, c.virtual_pipeline)
    per_layer = [layer_parameters(model.hidden_size, group) for group in model.layer_groups]
    dense = tuple(_dense_share(layer, c.tensor_parallel) for layer in per_layer)
    experts = tuple(layer.experts / c.expert_parallel for layer in per_layer)
    ends = _end_parameters(model, c)
    ranks = c.tensor_parallel * c.context_parallel * c.data_parallel
    return StageParameters(
        layers=layers,
        dense=np.stack(
            [_on_stage(layers[stage], dense) + ends[stage] for stage in range(len(layers))]
        ),
        experts=np.stack([_on_stage(layers[stage], experts) for stage in range(len(layers))]),
        layer_dense=dense,
        layer_experts=experts,
        end=model.vocab_size * model.hidden_size / c.tensor_parallel,
        dense_group=Group(size=ranks / c.tensor_parallel, stride=c.tensor_parallel),
        expert_group=Group(size=ranks / c.expert_parallel, stride=c.expert_parallel),
    )


def _dense_share(layer: LayerParameters, tensor_parallel: FloatArray) -> FloatArray:
    split = layer.attention + layer.feed_forward
    return np.asarray(split / tensor_parallel + layer.router + layer.norms)


def _on_stage(layers: FloatArray, per_layer: tuple[FloatArray, ...]) -> FloatArray:
    total: FloatArray = sum(
        (count * parameters for count, parameters in zip(layers, per_layer, strict=True)),
        start=np.zeros(()),
    )
    return total


def _end_parameters(model: ModelSpec, c: TrainingConfigurations) -> list[FloatArray]:
    """Embedding and logits on the first, middle and last stage; tied ones meet on one stage."""
    counts = count_parameters(model)
    embedding = counts.embedding / c.tensor_parallel
    logits = counts.logits / c.tensor_parallel
    if model.tie_word_embeddings:
        logits = logits + model.vocab_size * model.hidden_size / c.tensor_parallel
    alone = c.pipeline_parallel == 1
    both = counts.embedding / c.tensor_parallel + counts.logits / c.tensor_parallel
    first = np.where(alone, both, embedding)
    last = np.where(alone, both, logits)
    middle = np.where(alone, both, np.where(c.pipeline_parallel == 2, first, 0.0))
    return [first, middle, last]
