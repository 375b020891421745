"""Kinds of operators in a layer.

Sizes are those of the unsharded model; the sizes of a rank follow from the spread over ranks.
Operators do not depend on a GPU, a framework or a configuration; estimators add these.
"""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum

import numpy as np

from planner.base.arrays import FloatArray, Numeric
from planner.base.enums import AdapterTargets
from planner.base.records import record


class RankSpread(StrEnum):
    """Split of a layer's numbers over the ranks of a tensor-parallel group.

    ``TENSOR``: all tokens, a share of the columns. ``TOKENS``: all columns of the tokens whose
    residual stream a rank holds. ``EXPERTS``: all columns of those tokens, once per expert they
    visit.
    """

    TENSOR = "tensor"
    TOKENS = "tokens"
    EXPERTS = "experts"


class Element(StrEnum):
    """Kind of a saved number, which sets its bytes in each software.

    ``RESIDUAL``: of the stream between blocks, in 16 bit; ``SIXTEEN_BIT``: any other in 16 bit;
    ``FP32``. ``ATTENTION_INPUT``, ``FEED_FORWARD_INPUT``: what a matrix product of these blocks
    keeps for the gradient of its weights, ``DOWN_INPUT`` the last one of a feed-forward.
    ``ACTIVATION_INPUT``: of a non-linear function. ``EXPERT_OUTPUT``: an output of an expert,
    before it is weighted. ``DROPOUT_MASK``: a bit that takes a byte. ``SCORE``: a query's score of
    a key of the sequence, where no fused kernel makes it again. ``STATISTIC``: a fused kernel's one
    number per query and head, in fp32.
    """

    RESIDUAL = "residual"
    SIXTEEN_BIT = "sixteen_bit"
    FP32 = "fp32"
    ATTENTION_INPUT = "attention_input"
    FEED_FORWARD_INPUT = "feed_forward_input"
    DOWN_INPUT = "down_input"
    ACTIVATION_INPUT = "activation_input"
    EXPERT_OUTPUT = "expert_output"
    DROPOUT_MASK = "dropout_mask"
    SCORE = "score"
    STATISTIC = "statistic"


@record(kw_only=True)
class ColumnPart:
    """``count`` heads or columns of ``width`` numbers that belong together.

    With ``copied`` every tensor-parallel rank has one at least: key-value heads, fewer than
    ranks. ``adapter`` is the narrowest choice of targets that gives it an adapter, None where
    none does.
    """

    name: str
    count: int
    width: int = 1
    copied: bool = False
    adapter: AdapterTargets | None = None

    @property
    def columns(self) -> int:
        """Numbers of the unsharded part."""
        return self.count * self.width


@record()
class Columns:
    """The columns of a matrix or of a tensor, part by part."""

    parts: tuple[ColumnPart, ...]

    @property
    def total(self) -> int:
        """Numbers of all parts."""
        return sum(part.columns for part in self.parts)

    @property
    def split(self) -> int:
        """Numbers of the parts that ranks divide evenly."""
        return sum(part.columns for part in self.parts if not part.copied)

    @property
    def copied(self) -> tuple[ColumnPart, ...]:
        """The parts with at least one head on every rank."""
        return tuple(part for part in self.parts if part.copied)

    def on_rank(self, tensor_parallel: Numeric) -> Numeric:
        """Return columns (elements) on one of ``tensor_parallel`` ranks."""
        local: Numeric = self.split / tensor_parallel
        for part in self.copied:
            local = local + heads_on_rank(part.count, tensor_parallel) * part.width
        return local


def heads_on_rank(heads: int, tensor_parallel: Numeric) -> Numeric:
    """Key-value heads on a rank; fewer heads than ranks are replicated."""
    return np.maximum(heads / np.asarray(tensor_parallel), 1.0)


def columns(*parts: ColumnPart) -> Columns:
    """Columns of these parts."""
    return Columns(parts)


def even_columns(width: int, name: str = "") -> Columns:
    """Columns that ranks divide evenly."""
    return Columns((ColumnPart(name=name, count=width),))


@record(kw_only=True)
class SavedTensor:
    """Numbers per token that a layer keeps for its backward pass.

    ``remade_by``: modules (``planner.base.software_enums``) whose recomputation makes them again.
    ``eager``: only eager kernels (one operation each) save it, in addition to those of fused ones.
    """

    columns: Columns
    element: Element
    spread: RankSpread
    remade_by: tuple[str, ...] = ()
    eager: bool = False

    def also_by(self, *modules: str) -> SavedTensor:
        """A copy that recomputation of these modules rebuilds too."""
        return replace(self, remade_by=(*self.remade_by, *modules))


def saved_tensor(
    width: int | Columns,
    element: Element = Element.SIXTEEN_BIT,
    spread: RankSpread = RankSpread.TENSOR,
    remade_by: tuple[str, ...] = (),
    *,
    eager: bool = False,
) -> SavedTensor:
    """Return a `SavedTensor` of ``width`` elements per token; ``spread``: how ranks shard it."""
    which = even_columns(width) if isinstance(width, int) else width
    return SavedTensor(
        columns=which, element=element, spread=spread, remade_by=remade_by, eager=eager
    )


class ParameterPart(StrEnum):
    """The part of a model's parameters that an operator's weights count in."""

    ATTENTION = "attention"
    FEED_FORWARD = "feed_forward"
    EXPERTS = "experts"
    ROUTER = "router"
    NORMS = "norms"
    EMBEDDING = "embedding"
    LOGITS = "logits"
    PREDICTION = "prediction"


class MatrixSplit(StrEnum):
    """The side of a matrix that tensor parallelism divides."""

    COLUMNS = "columns"
    ROWS = "rows"
    NONE = "none"


@record(kw_only=True)
class LayerOperator:
    """Base class of operators.

    ``weights``: parameters, counted in ``holder``; tensor parallelism divides them if ``sharded``.
    ``keeps``: what it keeps for the backward pass. ``repeated_by``: modules
    (`planner.base.software_enums`) whose recomputation repeats it. ``in_feed_forward``: it is of
    the feed-forward block or the norm before it. ``repeatable``: full recomputation repeats it.
    ``makes``: the tensor (`planner.base.software_enums`) that it makes, which full recomputation
    may keep instead; ``unread``: nothing of the backward pass reads that.
    """

    name: str
    module: str
    holder: ParameterPart = ParameterPart.NORMS
    weights: int = 0
    sharded: bool = False
    keeps: tuple[SavedTensor, ...] = ()
    repeated_by: tuple[str, ...] = ()
    in_feed_forward: bool = False
    repeatable: bool = True
    makes: str = ""
    unread: bool = False

    @property
    def parameters(self) -> int:
        """Number of parameters."""
        return self.weights

    @property
    def met(self) -> int:
        """Number of parameters that one token visits."""
        return self.parameters


@record(kw_only=True)
class Weights(LayerOperator):
    """Parameters whose own work is too little to describe: norms of heads, sinks, gates."""


@record(kw_only=True)
class MatrixProduct(LayerOperator):
    """A product with a matrix of ``depth`` rows and ``columns``, for the tokens of ``rows``.

    ``bias``: numbers added to the outputs, part of the weights. ``tied``: the matrix is another
    operator's, and counted there. ``sixteen_bit``: no recipe quantizes it. ``reads``: its input;
    products with the same input can be joined, and their adapters with them. ``joined``: number of
    checkpoint matrices that it joins.
    """

    depth: int
    columns: Columns
    split: MatrixSplit = MatrixSplit.COLUMNS
    rows: RankSpread = RankSpread.TENSOR
    bias: int = 0
    tied: bool = False
    sharded: bool = True
    sixteen_bit: bool = False
    reads: str = ""
    joined: int = 1

    @property
    def parameters(self) -> int:
        """Matrix, bias and other weights."""
        matrix = 0 if self.tied else self.depth * self.columns.total
        return matrix + self.bias + self.weights

    def on_rank(self, tensor_parallel: Numeric) -> tuple[Numeric, Numeric]:
        """Return depth and columns of the matrix on one of ``tensor_parallel`` ranks."""
        if self.split is MatrixSplit.ROWS:
            return self.depth / tensor_parallel, self.columns.total
        is_split = self.split is MatrixSplit.COLUMNS
        return self.depth, self.columns.on_rank(tensor_parallel) if is_split else self.columns.total


def unsharded_product(
    name: str, module: str, depth: int, width: int, holder: ParameterPart, reads: str
) -> MatrixProduct:
    """Return a matrix product that every rank computes in full for its tokens."""
    return MatrixProduct(
        name=name, module=module, depth=depth, columns=even_columns(width), split=MatrixSplit.NONE,
        rows=RankSpread.TOKENS, holder=holder, reads=reads,
    )  # fmt: skip


@record(kw_only=True)
class Elementwise(LayerOperator):
    """A memory-bound kernel over ``columns`` of each token.

    ``forward`` and ``backward`` are how many 16-bit tensors of that size a fused kernel reads and
    writes; ``eager`` the same, forward and backward, of PyTorch's kernels for each operation, where
    these are not one kernel too (`planner.layers.feed_forward`).
    """

    columns: Columns
    spread: RankSpread
    forward: int
    backward: int
    eager: tuple[int, int] | None = None

    @property
    def in_eager(self) -> tuple[int, int]:
        """Tensors of the forward and of the backward pass in eager kernels."""
        return self.eager or (self.forward, self.backward)


@record(kw_only=True)
class Lookup(Elementwise):
    """Rows of a table, which get gradients and pass none on."""


@record(kw_only=True)
class AttentionCore(LayerOperator):
    """Scores, softmax and weighted values of softmax attention, with its exchange of tokens.

    Sizes of heads are those of the expanded form. ``latent_width``: numbers per token of the
    latent that is cached in place of keys and values, the last ``rope_dim`` being the keys'
    rotary part; 0 without latent. ``sliding_window`` and ``index_topk`` are the most keys that a
    query sees, None and 0 where it sees all; ``index_dim`` numbers per token are cached to choose.
    With a ``compress_ratio`` a query sees its window, and one entry for so many tokens outside it:
    all of these, or ``index_topk`` at most. One that ``shares_cache`` caches nothing. Keys after a
    query are seen where it is not ``causal``. Each head has a learned sink with ``sinks``.
    """

    heads: int
    key_value_heads: int
    qk_dim: int
    v_dim: int
    latent_width: int = 0
    rope_dim: int = 0
    sliding_window: int | None = None
    index_topk: int = 0
    index_dim: int = 0
    compress_ratio: int = 0
    shares_cache: bool = False
    causal: bool = True
    sinks: bool = False

    @property
    def latent_rank(self) -> int:
        """Numbers of the latent that keys and values are expanded from; 0 without latent."""
        return self.latent_width - self.rope_dim if self.latent_width else 0

    @property
    def most_keys(self) -> int | None:
        """Most uncompressed keys that a query sees; None: all."""
        return self.sliding_window or self.index_topk or None

    def compressed_keys(self, context: Numeric) -> FloatArray:
        """Compressed entries of ``context`` tokens that the last token sees."""
        if not self.compress_ratio:
            return np.zeros(())
        return np.minimum(np.asarray(context) / self.compress_ratio, self.index_topk or np.inf)

    @property
    def key_value_columns(self) -> Columns:
        """Return the key and value elements of one token."""
        return columns(
            ColumnPart(
                name="kv", count=self.key_value_heads, width=self.qk_dim + self.v_dim, copied=True
            )
        )


@record(kw_only=True)
class IndexScores(LayerOperator):
    """Scores of all keys before a query by ``heads`` of ``head_dim``, which choose what it reads.

    Every rank scores with all heads. There is one key for ``compress_ratio`` tokens.
    """

    heads: int
    head_dim: int
    compress_ratio: int = 1


@record(kw_only=True)
class Scan(LayerOperator):
    """The recurrence of linear attention or of a state-space layer over a state of fixed size.

    ``delta_rule``: the gated delta net. ``mixed``: numbers of queries, keys and values, which a
    convolution over ``taps`` tokens mixes; ``projected``: of all that it reads. ``by_channel``: in
    Mamba-1 each number of the state has a decay of its own, so that no matrix product computes
    many tokens at once, and keys and queries are made of what is mixed.
    """

    heads: int
    key_heads: int
    key_dim: int
    value_dim: int
    taps: int
    projected: int
    delta_rule: bool
    by_channel: bool = False

    @property
    def keys(self) -> int:
        """Numbers of the keys of one token, and of its queries."""
        return self.key_heads * self.key_dim

    @property
    def values(self) -> int:
        """Numbers of the values of one token, and of its output."""
        return self.heads * self.value_dim

    @property
    def mixed(self) -> int:
        """Numbers of the queries, keys and values of one token."""
        return self.values + (0 if self.by_channel else 2 * self.keys)

    @property
    def expanded_keys(self) -> int:
        """Numbers of keys with one head for each head of values."""
        return self.heads * self.key_dim

    @property
    def state(self) -> int:
        """Numbers in the state of one sequence."""
        return self.values * self.key_dim


@record(kw_only=True)
class Experts(LayerOperator):
    """All matrices of routed experts, each on the tokens sent to it.

    ``depth`` is the width of what an expert reads and writes, ``width`` that between its matrices;
    ``bias``: numbers added in one expert. A token goes to experts of ``topk_group`` of the
    ``n_group`` groups.
    """

    num_experts: int
    per_token: int
    n_group: int
    topk_group: int
    depth: int
    width: int
    matrices: int
    bias: int

    @property
    def parameters_per_expert(self) -> int:
        """Parameters of one expert."""
        return self.matrices * self.depth * self.width + self.bias

    @property
    def parameters(self) -> int:
        """Parameters of all experts."""
        return self.num_experts * self.parameters_per_expert

    @property
    def met(self) -> int:
        """Parameters of the experts that a token visits."""
        return self.per_token * self.parameters_per_expert


@record(kw_only=True)
class Permute(LayerOperator):
    """Sorting ``columns`` of each copy of a token by expert, and back after the experts."""

    columns: Columns
    per_token: int


@record(kw_only=True)
class ExpertBias(LayerOperator):
    """Adding the weighted bias of each expert to its outputs, where kernels of their own do."""

    columns: Columns
    per_token: int


@record(kw_only=True)
class ExpertExchange(LayerOperator):
    """``columns`` of each token's copies go to their experts and come back."""

    columns: Columns
    per_token: int


@record(kw_only=True)
class BlockExchange(LayerOperator):
    """Tensor-parallel exchange around a block that ends in a row-split product."""


@record(kw_only=True)
class HeadExchange(LayerOperator):
    """Context parallelism trades tokens for heads: ``columns`` before a scan and after it."""

    columns: Columns


@record(kw_only=True)
class VocabularyReduce(LayerOperator):
    """The sum over shards of the vocabulary: of embeddings forward, of gradients ``backward``."""

    backward: bool


@record(kw_only=True)
class Loss(LayerOperator):
    """Softmax and cross-entropy over ``columns`` of logits."""

    columns: Columns
