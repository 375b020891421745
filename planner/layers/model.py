"""A model's layers, its ends and its vision tower as operators."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property, lru_cache
from typing import TypeAlias, TypeVar

from planner.base.enums import PositionEmbedding
from planner.base.records import record
from planner.layers.attention import attention_block
from planner.layers.operators import (
    AttentionCore,
    Experts,
    Holder,
    Kept,
    Lookup,
    Loss,
    Op,
    Part,
    Product,
    Scan,
    Split,
    Spread,
    VocabularyReduce,
    Weights,
    columns,
    plain,
)
from planner.layers.residual import (
    altup_ends,
    corrected,
    feed_forward_block,
    norm,
    norm_weights,
    one_of_streams,
    per_layer_block,
    per_layer_embedding,
    sources,
)
from planner.specs.model import AudioTower, LayerGroup, ModelSpec, VisionTower


def embedding(model: ModelSpec) -> Iterator[Op]:
    """Lookup of tokens and of learned positions [2]_, and the norm after it."""
    h, learned = model.hidden_size, 0
    if model.position_embedding is PositionEmbedding.LEARNED:
        learned = (model.max_position_embeddings or 0) + model.position_embedding_offset
    yield Lookup(
        name="embedding",
        module="embedding",
        columns=plain(h),
        spread=Spread.TOKENS,
        forward=2,
        backward=5,
        weights=(model.vocab_size + learned) * h,
        holder=Holder.EMBEDDING,
        sharded=True,
    )
    yield from per_layer_embedding(model)
    yield from altup_ends("altup_streams", h, model.altup_num_inputs)
    if model.embedding_norm:
        weights = norm_weights(h, 1, model.final_norm_bias)
        yield Weights(name="embedding_norm", module="norm", weights=weights)
    yield VocabularyReduce(name="embedding_tensor_parallel", module="embedding", backward=False)


def logits(model: ModelSpec) -> Iterator[Op]:
    """Final norm, logits, which may be tied to the embedding [1]_, and cross-entropy.

    Labels in their place are a product that every rank computes, and no softmax.
    """
    yield from one_of_streams(model.hidden_size, model.residual_streams)
    yield from altup_ends("altup_result", model.hidden_size, model.altup_num_inputs)
    yield from sources("final_sources", model.hidden_size, model.residual_sources)
    yield norm("final_norm", model.hidden_size, 1, model.final_norm_bias)
    if model.num_labels:
        yield Product(
            name="score",
            module="logits",
            depth=model.hidden_size,
            columns=plain(model.num_labels),
            split=Split.NONE,
            sharded=False,
            holder=Holder.LOGITS,
            sixteen_bit=True,
        )
        return
    yield Product(
        name="logits",
        module="logits",
        depth=model.hidden_size,
        columns=plain(model.vocab_size),
        bias=model.vocab_size if model.logits_bias else 0,
        tied=model.tie_word_embeddings,
        holder=Holder.LOGITS,
        sixteen_bit=True,
    )
    yield Loss(name="loss", module="loss", columns=plain(model.vocab_size))
    yield VocabularyReduce(name="logits_tensor_parallel", module="logits", backward=True)


def prediction(model: ModelSpec) -> Iterator[Op]:
    """What a module of multi-token prediction has beside its layers.

    Two norms, the projection of state and embedding to one state, and logits of its own tokens by
    the model's matrix.
    """
    h = model.hidden_size
    yield replace(
        norm("prediction_norms", 2 * h, 1, model.final_norm_bias), holder=Holder.PREDICTION
    )
    yield Product(
        name="prediction_projection",
        module="prediction",
        depth=2 * h,
        columns=plain(h),
        holder=Holder.PREDICTION,
    )
    for op in logits(model):
        if isinstance(op, Product):
            yield replace(op, tied=True, bias=0)
        else:
            yield replace(op, holder=Holder.PREDICTION)


Kind = TypeVar("Kind", bound=Op)


@record(kw_only=True, eq=False)
class Layer:
    """A layer, or an end of a model, as the list of its operators."""

    operators: tuple[Op, ...]

    @cached_property
    def core(self) -> AttentionCore | None:
        """Its softmax attention; None where it has none."""
        return next(self.of(AttentionCore), None)

    @cached_property
    def scan(self) -> Scan | None:
        """Its linear attention or Mamba-2; None where it has none."""
        return next(self.of(Scan), None)

    @cached_property
    def experts(self) -> Experts | None:
        """Its routed experts; None where it has none."""
        return next(self.of(Experts), None)

    @cached_property
    def side_by_side(self) -> bool:
        """Whether its blocks read the same norm and are added up together."""
        names = {op.name for op in self.operators if op.in_feed_forward}
        return bool(names) and "feed_forward_norm" not in names and self.core is not None

    @cached_property
    def modules(self) -> frozenset[str]:
        """The modules that recomputation may repeat by themselves."""
        return frozenset(name for op in self.operators for name in op.repeated_by)

    @cached_property
    def kept(self) -> tuple[Kept, ...]:
        """What it keeps for its backward pass, added up by kind and by what makes it again."""
        sums: dict[tuple[object, ...], list[Kept]] = {}
        for op in self.operators:
            for each in op.keeps:
                key = (each.element, each.spread, each.remade_by, each.eager)
                sums.setdefault(key, []).append(each)
        return tuple(map(_together, sums.values()))

    @cached_property
    def widest(self) -> int:
        """Most numbers per token that it has at once between its matrices."""
        inner = [op for op in self.of(Product) if op.holder is Holder.FEED_FORWARD]
        widths = [op.columns.whole for op in inner if op.split is Split.COLUMNS]
        if core := self.core:
            widths.append((core.heads + 2 * core.key_value_heads) * core.qk_dim)
        if scan := self.scan:
            widths.append(scan.projected)
        if experts := self.experts:
            widths.append(2 * experts.width * experts.per_token)
        return max(widths)

    @cached_property
    def num_matrices(self) -> tuple[int, int]:
        """Matrices of a checkpoint that may be quantized: outside the feed-forward, and in it."""
        counts = [0, 0]
        for product in self.of(Product):
            counts[product.in_feed_forward] += 0 if product.sixteen_bit else product.joined
        for experts in self.of(Experts):
            counts[1] += experts.num_experts * experts.matrices
        return counts[0], counts[1]

    def of(self, kind: type[Kind]) -> Iterator[Kind]:
        """Its operators of a kind."""
        return (op for op in self.operators if isinstance(op, kind))


def _together(kept: list[Kept]) -> Kept:
    """The sum of what is kept alike."""
    split = sum(each.columns.split for each in kept)
    copied = (part for each in kept for part in each.columns.copied)
    return replace(kept[0], columns=columns(Part(name="", count=split), *copied))


@lru_cache(maxsize=4096)
def describe(hidden_size: int, group: LayerGroup, rotary: bool = True) -> Layer:
    """One layer of ``group`` in a model of this width, with or without rotary positions."""
    return Layer(
        operators=(
            *attention_block(hidden_size, group, rotary),
            *feed_forward_block(hidden_size, group),
            *corrected(hidden_size, group.altup_num_inputs),
            *per_layer_block(hidden_size, group),
        )
    )


def layer_of(model: ModelSpec, group: LayerGroup) -> Layer:
    """One layer of a group of ``model``."""
    rotary = model.position_embedding is PositionEmbedding.ROTARY
    return describe(model.hidden_size, group, rotary)


@lru_cache(maxsize=256)
def embedding_of(model: ModelSpec) -> Layer:
    """What stands before the first layer of ``model``."""
    return _end(embedding(model))


@lru_cache(maxsize=256)
def logits_of(model: ModelSpec) -> Layer:
    """What stands after its last layer."""
    return _end(logits(model))


@lru_cache(maxsize=256)
def prediction_of(model: ModelSpec) -> Layer:
    """What a module of multi-token prediction has beside its layers."""
    return _end(prediction(model))


def _end(operators: Iterator[Op]) -> Layer:
    """Nothing at an end is computed again, and nothing is kept that layers would keep."""
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
    """The product that makes a vector of each patch [1]_."""
    return _named(
        (
            Product(
                name="patch_embedding",
                module=_MODULE,
                depth=tower.patch_width,
                columns=plain(tower.hidden_size),
                split=Split.NONE,
                bias=tower.hidden_size if tower.patch_bias else 0,
                holder=Holder.EMBEDDING,
                reads="patches",
            ),
        )
    )


@lru_cache(maxsize=256)
def projector(tower: Tower) -> Layer:
    """What a token meets between tower and language model, as one product as large [2]_."""
    depth = tower.patches_per_token * tower.hidden_size
    return _named(
        (
            Product(
                name="projector",
                module=_MODULE,
                depth=depth,
                columns=plain(max(round(tower.projector_parameters / depth), 1)),
                split=Split.NONE,
                holder=Holder.EMBEDDING,
                reads="patches",
            ),
        )
    )


def _named(operators: tuple[Op, ...]) -> Layer:
    return Layer(
        operators=tuple(replace(op, name=f"vision_{op.name}", module=_MODULE) for op in operators)
    )
