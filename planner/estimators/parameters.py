"""The parameters of a model, part by part: sums over the weights of its operators."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from planner.base.records import record
from planner.layers.model import (
    Layer,
    Tower,
    describe,
    embedding_of,
    layer_of,
    logits_of,
    prediction_of,
)
from planner.layers.operators import Holder, Op
from planner.specs.model import LayerGroup, ModelSpec


@record(kw_only=True)
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


@record(kw_only=True)
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
    layer = describe(hidden_size, group)
    held = held_by(layer.operators)
    return LayerParameters(
        attention=held[Holder.ATTENTION],
        feed_forward=held[Holder.FEED_FORWARD],
        experts=held[Holder.EXPERTS],
        active_experts=layer.experts.met if layer.experts else 0,
        router=held[Holder.ROUTER],
        norms=held[Holder.NORMS],
    )


def held_by(operators: Iterable[Op]) -> dict[Holder, int]:
    """Parameters of operators, by the part of the model that they count in."""
    held = dict.fromkeys(Holder, 0)
    for op in operators:
        held[op.holder] += op.parameters
    return held


def logits_met(model: ModelSpec) -> int:
    """Parameters of the logits, as often as a token meets them: once, and once per module."""
    return (1 + model.mtp_num_layers) * model.head_columns * model.hidden_size


@lru_cache(maxsize=256)
def count_parameters(model: ModelSpec) -> ParameterCount:
    """Parameters of ``model``, as its checkpoint stores them."""
    held = dict.fromkeys(Holder, 0)
    active_experts = 0
    for number, layer in _pieces(model):
        active_experts += number * (layer.experts.met if layer.experts else 0)
        for holder, parameters in held_by(layer.operators).items():
            held[holder] += number * parameters
    used = model.vocab_size * model.hidden_size if model.ties_head else 0
    return ParameterCount(
        embedding=held[Holder.EMBEDDING],
        attention=held[Holder.ATTENTION],
        feed_forward=held[Holder.FEED_FORWARD],
        experts=held[Holder.EXPERTS],
        active_experts=active_experts,
        router=held[Holder.ROUTER],
        norms=held[Holder.NORMS],
        logits=held[Holder.LOGITS],
        prediction=held[Holder.PREDICTION],
        looked_up=held[Holder.EMBEDDING] - used,
    )


def tower_parameters(tower: Tower) -> int:
    """Parameters of a tower: embedding of patches or frames, layers, projector."""
    h = tower.hidden_size
    embedding = (tower.patch_width + tower.patch_bias + tower.num_position_embeddings) * h
    layers = sum(
        group.num_hidden_layers * layer_parameters(h, group).total for group in tower.layer_groups
    )
    return embedding + layers + tower.projector_parameters


def _pieces(model: ModelSpec) -> Iterable[tuple[int, Layer]]:
    """Layers and ends of ``model``, and how many it has of each."""
    for group in model.layer_groups:
        yield group.num_hidden_layers, layer_of(model, group)
    yield 1, embedding_of(model)
    yield 1, logits_of(model)
    yield model.mtp_num_layers, prediction_of(model)
