"""A model as layers of operators, and its parameter counts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cached_property, lru_cache
from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from planner.base.arrays import FloatArray
from planner.base.enums import PositionEmbedding
from planner.base.records import record
from planner.layers.attention import attention_block
from planner.layers.feed_forward import (
    altup_correct,
    altup_ends,
    feed_forward_block,
    norm,
    norm_weights,
    one_of_streams,
    per_layer_block,
    per_layer_embedding,
    sources,
)
from planner.layers.operators import (
    AttentionCore,
    ColumnPart,
    Experts,
    LayerOperator,
    Lookup,
    Loss,
    MatrixProduct,
    MatrixSplit,
    ParameterPart,
    RankSpread,
    SavedTensor,
    Scan,
    VocabularyReduce,
    Weights,
    columns,
    even_columns,
)
from planner.specs.model import AudioTower, LayerGroup, ModelSpec, Placement, VisionTower


def embedding(model: ModelSpec) -> Iterator[LayerOperator]:
    """Yield the token and position embedding layer [2]_, with its norm if any."""
    h, learned = model.hidden_size, 0
    if model.position_embedding is PositionEmbedding.LEARNED:
        learned = (model.max_position_embeddings or 0) + model.position_embedding_offset
    yield Lookup(
        name="embedding",
        module="embedding",
        columns=even_columns(h),
        spread=RankSpread.TOKENS,
        forward=2,
        backward=5,
        weights=(model.vocab_size + learned) * h,
        holder=ParameterPart.EMBEDDING,
        sharded=True,
    )
    yield from per_layer_embedding(model)
    yield from altup_ends("altup_streams", h, model.altup_num_inputs)
    if model.embedding_norm:
        weights = norm_weights(h, 1, model.final_norm_bias)
        yield Weights(name="embedding_norm", module="norm", weights=weights)
    yield VocabularyReduce(name="embedding_tensor_parallel", module="embedding", backward=False)


def logits(model: ModelSpec) -> Iterator[LayerOperator]:
    """Yield the output layer: final norm, logits (may be tied [1]_) and cross-entropy.

    Labels in their place are a product that every rank computes, and no softmax.
    """
    yield from one_of_streams(model.hidden_size, model.residual_streams)
    yield from altup_ends("altup_result", model.hidden_size, model.altup_num_inputs)
    yield from sources("final_sources", model.hidden_size, model.residual_sources)
    yield norm("final_norm", model.hidden_size, 1, model.final_norm_bias)
    if model.num_labels:
        yield MatrixProduct(
            name="score",
            module="logits",
            depth=model.hidden_size,
            columns=even_columns(model.num_labels),
            split=MatrixSplit.NONE,
            sharded=False,
            holder=ParameterPart.LOGITS,
            sixteen_bit=True,
        )
        return
    yield MatrixProduct(
        name="logits",
        module="logits",
        depth=model.hidden_size,
        columns=even_columns(model.vocab_size),
        bias=model.vocab_size if model.logits_bias else 0,
        tied=model.tie_word_embeddings,
        holder=ParameterPart.LOGITS,
        sixteen_bit=True,
    )
    yield Loss(name="loss", module="loss", columns=even_columns(model.vocab_size))
    yield VocabularyReduce(name="logits_tensor_parallel", module="logits", backward=True)


def prediction(model: ModelSpec) -> Iterator[LayerOperator]:
    """Yield the operators of a multi-token-prediction module outside its layers.

    Two norms, the projection of state and embedding to one state, and logits of its own tokens by
    the model's matrix.
    """
    h = model.hidden_size
    yield replace(
        norm("prediction_norms", 2 * h, 1, model.final_norm_bias), holder=ParameterPart.PREDICTION
    )
    yield MatrixProduct(
        name="prediction_projection",
        module="prediction",
        depth=2 * h,
        columns=even_columns(h),
        holder=ParameterPart.PREDICTION,
    )
    for op in logits(model):
        if isinstance(op, MatrixProduct):
            yield replace(op, tied=True, bias=0)
        else:
            yield replace(op, holder=ParameterPart.PREDICTION)


Kind = TypeVar("Kind", bound=LayerOperator)


@record(kw_only=True, eq=False)
class Layer:
    """A layer, or an end of a model, as the list of its operators."""

    operators: tuple[LayerOperator, ...]

    @cached_property
    def core(self) -> AttentionCore | None:
        """Softmax attention of the layer, or None."""
        return next(self.of(AttentionCore), None)

    @cached_property
    def scan(self) -> Scan | None:
        """Linear attention or Mamba-2 of the layer, or None."""
        return next(self.of(Scan), None)

    @cached_property
    def experts(self) -> Experts | None:
        """Routed experts of the layer, or None."""
        return next(self.of(Experts), None)

    @cached_property
    def side_by_side(self) -> bool:
        """Whether its blocks read the same norm and are added up together."""
        names = {op.name for op in self.operators if op.in_feed_forward}
        return bool(names) and "feed_forward_norm" not in names and self.core is not None

    @cached_property
    def modules(self) -> frozenset[str]:
        """Modules that recomputation may repeat by themselves."""
        return frozenset(name for op in self.operators for name in op.repeated_by)

    @cached_property
    def saved_tensors(self) -> tuple[SavedTensor, ...]:
        """Tensors saved for the backward pass, merged by element type and recomputation."""
        sums: dict[tuple[object, ...], list[SavedTensor]] = {}
        for op in self.operators:
            for each in op.keeps:
                key = (each.element, each.spread, each.remade_by, each.eager)
                sums.setdefault(key, []).append(each)
        merged = []
        for tensors in sums.values():
            split = sum(each.columns.split for each in tensors)
            copied = (part for each in tensors for part in each.columns.copied)
            all_columns = columns(ColumnPart(name="", count=split), *copied)
            merged.append(replace(tensors[0], columns=all_columns))
        return tuple(merged)

    @cached_property
    def widest(self) -> int:
        """Most elements per token at once between two matrices of the layer."""
        inner = [op for op in self.of(MatrixProduct) if op.holder is ParameterPart.FEED_FORWARD]
        widths = [op.columns.total for op in inner if op.split is MatrixSplit.COLUMNS]
        if core := self.core:
            widths.append((core.heads + 2 * core.key_value_heads) * core.qk_dim)
        if scan := self.scan:
            widths.append(scan.projected)
        if experts := self.experts:
            widths.append(2 * experts.width * experts.per_token)
        return max(widths)

    @cached_property
    def num_matrices(self) -> tuple[int, int]:
        """Count quantizable matrices: (outside the feed-forward block, inside)."""
        counts = [0, 0]
        for product in self.of(MatrixProduct):
            counts[product.in_feed_forward] += 0 if product.sixteen_bit else product.joined
        for experts in self.of(Experts):
            counts[1] += experts.num_experts * experts.matrices
        return counts[0], counts[1]

    def of(self, kind: type[Kind]) -> Iterator[Kind]:
        """Operators of the layer of a kind."""
        return (op for op in self.operators if isinstance(op, kind))


@lru_cache(maxsize=4096)
def describe(hidden_size: int, group: LayerGroup, rotary: bool = True) -> Layer:
    """Return one layer of ``group`` with ``hidden_size``, with or without rotary positions."""
    return Layer(
        operators=(
            *attention_block(hidden_size, group, rotary),
            *feed_forward_block(hidden_size, group),
            *altup_correct(hidden_size, group.altup_num_inputs),
            *per_layer_block(hidden_size, group),
        )
    )


def layer_of(model: ModelSpec, group: LayerGroup) -> Layer:
    """One layer of a group of ``model``."""
    rotary = model.position_embedding is PositionEmbedding.ROTARY
    return describe(model.hidden_size, group, rotary)


@lru_cache(maxsize=256)
def embedding_of(model: ModelSpec) -> Layer:
    """The operators before the first layer of ``model``."""
    return _end(embedding(model))


@lru_cache(maxsize=256)
def logits_of(model: ModelSpec) -> Layer:
    """The operators after the last layer."""
    return _end(logits(model))


@lru_cache(maxsize=256)
def prediction_of(model: ModelSpec) -> Layer:
    """A multi-token prediction module without its layers."""
    return _end(prediction(model))


def _end(operators: Iterator[LayerOperator]) -> Layer:
    """A layer at an end of a model, without recomputation and without saved layer inputs."""
    return Layer(
        operators=tuple(replace(op, repeatable=False, repeated_by=(), keeps=()) for op in operators)
    )


_MODULE = "vision"
Tower: TypeAlias = VisionTower | AudioTower
"""What makes tokens of what is no text."""


@lru_cache(maxsize=256)
def tower_layer(tower: Tower, group: LayerGroup) -> Layer:
    """One layer of a group of the tower."""
    return _named(describe(tower.hidden_size, group).operators)


@lru_cache(maxsize=256)
def patch_embedding(tower: Tower) -> Layer:
    """Return the matrix product that embeds image patches [1]_."""
    return _named(
        (
            MatrixProduct(
                name="patch_embedding",
                module=_MODULE,
                depth=tower.patch_width,
                columns=even_columns(tower.hidden_size),
                split=MatrixSplit.NONE,
                bias=tower.hidden_size if tower.patch_bias else 0,
                holder=ParameterPart.EMBEDDING,
                reads="patches",
            ),
        )
    )


@lru_cache(maxsize=256)
def projector(tower: Tower) -> Layer:
    """Return the projector from vision tower to language model, as one product [2]_."""
    depth = tower.patches_per_token * tower.hidden_size
    return _named(
        (
            MatrixProduct(
                name="projector",
                module=_MODULE,
                depth=depth,
                columns=even_columns(max(round(tower.projector_parameters / depth), 1)),
                split=MatrixSplit.NONE,
                holder=ParameterPart.EMBEDDING,
                reads="patches",
            ),
        )
    )


def _named(operators: tuple[LayerOperator, ...]) -> Layer:
    return Layer(
        operators=tuple(replace(op, name=f"vision_{op.name}", module=_MODULE) for op in operators)
    )


@record(kw_only=True)
class LayerParameters:
    """Parameters of one layer; ``feed_forward`` is the dense MLP or the shared expert.

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
    """Parameters of a model by part; tied logits count in ``embedding``.

    ``active_experts`` is the part of ``experts`` that one token visits, ``looked_up`` the part of
    ``embedding`` that no matrix multiplication reads, ``prediction`` the part of multi-token
    prediction modules outside their layers.
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
    """Count the parameters of one layer of ``group``, by part."""
    layer = describe(hidden_size, group)
    counts = parameters_by_part(layer.operators)
    return LayerParameters(
        attention=counts[ParameterPart.ATTENTION],
        feed_forward=counts[ParameterPart.FEED_FORWARD],
        experts=counts[ParameterPart.EXPERTS],
        active_experts=layer.experts.met if layer.experts else 0,
        router=counts[ParameterPart.ROUTER],
        norms=counts[ParameterPart.NORMS],
    )


def parameters_by_part(operators: Iterable[LayerOperator]) -> dict[ParameterPart, int]:
    """Sum the parameters of operators by model part (attention, experts, ...)."""
    counts = dict.fromkeys(ParameterPart, 0)
    for op in operators:
        counts[op.holder] += op.parameters
    return counts


def logits_per_token(model: ModelSpec) -> int:
    """Parameters of the logits per token: once, and once per prediction module."""
    return (1 + model.mtp_num_layers) * model.head_columns * model.hidden_size


@lru_cache(maxsize=256)
def count_parameters(model: ModelSpec) -> ParameterCount:
    """Count the parameters of ``model`` by part, as its checkpoint stores them."""
    counts = dict.fromkeys(ParameterPart, 0)
    active_experts = 0
    layers = [
        *((group.num_hidden_layers, layer_of(model, group)) for group in model.layer_groups),
        (1, embedding_of(model)),
        (1, logits_of(model)),
        (model.mtp_num_layers, prediction_of(model)),
    ]
    for number, layer in layers:
        active_experts += number * (layer.experts.met if layer.experts else 0)
        for holder, parameters in parameters_by_part(layer.operators).items():
            counts[holder] += number * parameters
    used = model.vocab_size * model.hidden_size if model.ties_head else 0
    return ParameterCount(
        embedding=counts[ParameterPart.EMBEDDING],
        attention=counts[ParameterPart.ATTENTION],
        feed_forward=counts[ParameterPart.FEED_FORWARD],
        experts=counts[ParameterPart.EXPERTS],
        active_experts=active_experts,
        router=counts[ParameterPart.ROUTER],
        norms=counts[ParameterPart.NORMS],
        logits=counts[ParameterPart.LOGITS],
        prediction=counts[ParameterPart.PREDICTION],
        looked_up=counts[ParameterPart.EMBEDDING] - used,
    )


def tower_parameters(tower: Tower) -> int:
    """Count the parameters of a vision or audio tower, projector included."""
    h = tower.hidden_size
    embedding = (tower.patch_width + tower.patch_bias + tower.num_position_embeddings) * h
    layers = sum(
        group.num_hidden_layers * layer_parameters(h, group).total for group in tower.layer_groups
    )
    return embedding + layers + tower.projector_parameters


def layer_kinds(groups: tuple[LayerGroup, ...]) -> NDArray[np.int64]:
    """Return the group index of each layer by depth; interleaved groups alternate evenly."""
    depth: list[tuple[float, int]] = []
    start = 0.0
    spread = [g.num_hidden_layers for g in groups if g.placement is Placement.INTERLEAVED]
    for index, group in enumerate(groups):
        n = group.num_hidden_layers
        if group.placement is Placement.INTERLEAVED:
            depth += [(1e9 + (i + 0.5) / n * sum(spread), index) for i in range(n)]
        else:
            depth += [(start + i, index) for i in range(n)]
            start += n
    return np.array([index for _, index in sorted(depth)])


def trained_shares(model: ModelSpec, trained_layers: int) -> FloatArray:
    """Return the share of each group's layers among the last ``trained_layers``; 0: all of them.

    Only these are trained or have adapters [1]_ [2]_: the backward pass ends there, and the layers
    before keep nothing for it.

    References
    ----------
    .. [1] ml-explore/mlx-lm at 0304b28, mlx_lm/lora.py: train_model unfreezes or adapts the last
       num_layers.
    .. [2] hiyouga/LLaMA-Factory at 01d87b8, src/llamafactory/model/adapter.py:
       _setup_freeze_tuning.
    """
    kinds = layer_kinds(model.layer_groups)
    counts = np.bincount(kinds, minlength=len(model.layer_groups))
    trained = np.bincount(kinds[-trained_layers:], minlength=len(counts))
    return np.asarray(trained / np.maximum(counts, 1))
