"""A transformer as groups of equal layers, in the words of Hugging Face's ``config.json``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import field
from enum import StrEnum
from typing import Annotated, Literal

from planner.base.enums import AttentionKind, PositionEmbedding
from planner.specs.checked import After, Interval, MinLen, Strict, checked
from planner.specs.images import Resizing, tower_faults
from planner.specs.quantization import Checkpoint, quantization_word

MOST_LAYERS = 10_000
WIDEST_HEAD = 8192
WIDEST_TO_HIDDEN = 256
LINEAR_FIELDS = (
    "linear_num_key_heads",
    "linear_num_value_heads",
    "linear_key_head_dim",
    "linear_value_head_dim",
    "linear_conv_kernel_dim",
)
INDEX_FIELDS = ("index_n_heads", "index_head_dim", "index_topk")
COMPRESSED_FIELDS = ("o_groups", "o_lora_rank")
_STANDARD_FLAGS = (
    "qkv_bias", "output_bias", "qk_norm", "sinks", "attn_output_gate", "shares_cache",
)  # fmt: skip
_LATENT_FLAGS = ("attn_output_gate", "shares_cache")
_FILTERED = (AttentionKind.LINEAR, AttentionKind.MAMBA1, AttentionKind.MAMBA2)
_SCANS = (*_FILTERED, AttentionKind.LIGHTNING)
_KINDS_OF_FIELDS = {
    ("v_head_dim", "kv_lora_rank"): (AttentionKind.LATENT,),
    ("q_lora_rank", "qk_rope_head_dim"): (AttentionKind.LATENT, AttentionKind.COMPRESSED),
    INDEX_FIELDS: (AttentionKind.LATENT, AttentionKind.COMPRESSED, AttentionKind.STANDARD),
    ("index_kpool",): (AttentionKind.LATENT,),
    (*COMPRESSED_FIELDS, "compress_ratio"): (AttentionKind.COMPRESSED,),
    LINEAR_FIELDS[:-1]: _SCANS,
    LINEAR_FIELDS[-1:]: (*_FILTERED, AttentionKind.CONVOLUTION),
    ("linear_gate_rank",): (AttentionKind.LINEAR, AttentionKind.MAMBA1),
    ("linear_channel_decay", "linear_full_gate"): (AttentionKind.LINEAR,),
}
_FEED_FORWARD_WIDTHS = (
    "intermediate_size",
    "moe_intermediate_size",
    "moe_latent_size",
    "shared_intermediate_size",
)
MOST = {"hidden_size": 10**6, "vocab_size": 10**8, "num_experts": 10**5}


Size = Annotated[int, Strict(), Interval(ge=1, le=10**9)]
SizeOrZero = Annotated[int, Strict(), Interval(ge=0, le=10**9)]
MOST_MODULES = 100
"""More modules of multi-token prediction than any model has make no sense."""
Modules = Annotated[int, Strict(), Interval(ge=0, le=MOST_MODULES)]
QuantizationWord = Annotated[str, After(quantization_word)]


class Placement(StrEnum):
    """Where the layers of a group stand: in one run, or spread evenly over the depth."""

    CONTIGUOUS = "contiguous"
    INTERLEAVED = "interleaved"


@checked
class AttentionSpec:
    """Multi-head, grouped-query or multi-query attention, latent or linear attention, Mamba-2.

    Latent attention (``kind = "latent"``) uses the ``*_lora_rank`` and ``qk_*`` fields;
    ``head_dim`` is then qk_nope_head_dim + qk_rope_head_dim. With ``index_topk`` it is
    DeepSeek's sparse attention: an indexer (``index_*``) chooses the keys of each query. A layer
    with ``index_topk`` alone attends to what the layer before it chose; with an ``index_kpool``
    a key of the indexer is of so many tokens (GLM-5.3). Standard attention that
    chooses blocks of keys has the keys in them as ``index_topk``. Compressed attention
    (``kind = "compressed"``), that of DeepSeek-V4, has one head of keys that are values, too, a
    ``sliding_window`` and, with a ``compress_ratio``, an entry for so many tokens, among which an
    indexer may choose; heads leave it in ``o_groups`` of ``o_lora_rank`` numbers. A layer that
    ``shares_cache`` has no keys and values of its own: it attends to those of one before it.
    Linear attention (``kind = "linear"``), the gated delta net, uses the ``linear_*`` fields
    alone; ``num_attention_heads``, ``num_key_value_heads`` and ``head_dim`` repeat those of
    the model's full attention, as ``config.json`` does. Mamba-2 (``kind = "mamba2"``) is read
    as the linear attention it is dual to [1]_: its groups of B and C are key heads, the state
    size their dimension, its heads value heads. With a ``linear_gate_rank`` decay and gate of
    linear attention are one per channel, from latents of that rank (Kimi Delta Attention), but for
    a ``linear_full_gate``; with ``linear_channel_decay`` they are so without a latent. Mamba-1
    (``kind = "mamba1"``) has a head of one number for each channel, one key head of the state's
    size, and the time step comes from ``linear_gate_rank`` numbers [2]_. Lightning attention
    (``kind = "lightning"``) has a decay that is no parameter, and no convolution [3]_. A gated
    short convolution (``kind = "convolution"``) has ``linear_conv_kernel_dim`` alone. With
    ``qk_norm_per_head`` every head has norm weights of its own instead of one ``head_dim`` for all.
    A query that is not ``causal`` sees the keys after it, too.

    Parameters
    ----------
    num_attention_heads : query heads
    num_key_value_heads : key-value heads
    head_dim : width of a head; of latent attention qk_nope_head_dim + qk_rope_head_dim
    kind : kind of attention or state-space mixer
    v_head_dim : width of a value head; None: ``head_dim``
    qk_rope_head_dim : rotary part of the width of a head (MLA)
    q_lora_rank : rank of the compressed queries (MLA); 0: not compressed
    kv_lora_rank : rank of the compressed keys and values (MLA)
    sliding_window : tokens that a query attends to; None: all
    qkv_bias : query, key and value projections have biases
    output_bias : the output projection has a bias
    qk_norm : queries and keys are normalized
    qk_norm_per_head : each head has norm weights, instead of one ``head_dim`` for all
    sinks : each head has a learned attention sink
    attn_output_gate : a gate multiplies the output of the heads
    linear_num_key_heads : key heads of linear attention; groups of B and C in Mamba-2
    linear_num_value_heads : value heads of linear attention
    linear_key_head_dim : width of a key head of linear attention; state size in Mamba
    linear_value_head_dim : width of a value head of linear attention
    linear_conv_kernel_dim : width of the short convolution [tokens]
    linear_gate_rank : rank of the latents of decay and gate, or of the time step in Mamba-1; 0: no
        latents
    linear_channel_decay : each channel has a decay, without latents
    linear_full_gate : the gate has no latent although ``linear_gate_rank`` is set
    index_n_heads : heads of the indexer of sparse attention
    index_head_dim : width of an indexer head
    index_topk : keys that each query attends to; 0: all
    index_kpool : tokens of one key of the indexer
    compress_ratio : tokens of one compressed cache entry; 0: not compressed
    o_groups : groups of the low-rank output projection
    o_lora_rank : numbers of a group of the output projection
    shares_cache : the layer attends to the keys and values of an earlier layer
    causal : queries see no later keys

    References
    ----------
    .. [1] T. Dao and A. Gu, "Transformers are SSMs," 2024, arXiv:2405.21060, section 5.
    .. [2] A. Gu and T. Dao, "Mamba: Linear-time sequence modeling with selective state spaces,"
       2023, arXiv:2312.00752, section 3.
    .. [3] MiniMax, "MiniMax-01: Scaling foundation models with lightning attention," 2025,
       arXiv:2501.08313, section 2.2.
    """

    num_attention_heads: Size
    num_key_value_heads: Size
    head_dim: Size
    kind: AttentionKind = AttentionKind.STANDARD
    v_head_dim: Size | None = None
    qk_rope_head_dim: SizeOrZero = 0
    q_lora_rank: SizeOrZero = 0
    kv_lora_rank: SizeOrZero = 0
    sliding_window: Size | None = None
    qkv_bias: bool = False
    output_bias: bool = False
    qk_norm: bool = False
    qk_norm_per_head: bool = False
    sinks: bool = False
    attn_output_gate: bool = False
    linear_num_key_heads: SizeOrZero = 0
    linear_num_value_heads: SizeOrZero = 0
    linear_key_head_dim: SizeOrZero = 0
    linear_value_head_dim: SizeOrZero = 0
    linear_conv_kernel_dim: SizeOrZero = 0
    linear_gate_rank: SizeOrZero = 0
    linear_channel_decay: bool = False
    linear_full_gate: bool = False
    index_n_heads: SizeOrZero = 0
    index_head_dim: SizeOrZero = 0
    index_topk: SizeOrZero = 0
    index_kpool: SizeOrZero = 0
    compress_ratio: SizeOrZero = 0
    o_groups: SizeOrZero = 0
    o_lora_rank: SizeOrZero = 0
    shares_cache: bool = False
    causal: bool = field(default=True, repr=False)

    def __post_init__(self) -> None:
        _refuse(_attention_faults(self))

    @property
    def has_state(self) -> bool:
        """Whether a state of fixed size stands for keys and values."""
        return self.kind in (*_SCANS, AttentionKind.CONVOLUTION)

    @property
    def split_heads(self) -> tuple[int, int]:
        """Heads that tensor parallelism divides: of queries, or of values of a state; of keys."""
        if self.kind is AttentionKind.MAMBA1:  # every rank has the whole keys of its channels
            return self.linear_num_value_heads, self.linear_num_value_heads
        if self.has_state and self.linear_num_value_heads:
            return self.linear_num_value_heads, self.linear_num_key_heads
        return self.num_attention_heads, self.num_key_value_heads

    @property
    def linear_keys(self) -> int:
        """Width of the keys, and of the queries, of linear attention."""
        return self.linear_num_key_heads * self.linear_key_head_dim

    @property
    def linear_values(self) -> int:
        """Width of the values, of the gate and of the output of linear attention."""
        return self.linear_num_value_heads * self.linear_value_head_dim

    @property
    def linear_mixed(self) -> int:
        """Width of queries, keys and values together, which the convolution mixes.

        Mamba-1 makes keys and queries of what is mixed.
        """
        if self.kind is AttentionKind.MAMBA1:
            return self.linear_values
        return 2 * self.linear_keys + self.linear_values

    @property
    def linear_projected(self) -> int:
        """Columns of the input projection: what is mixed, the gate, one or two per value head.

        Latents of decay and gate stand for the gate and one of the two. Mamba-1 and lightning
        attention have no number per head.
        """
        if self.kind in (AttentionKind.MAMBA1, AttentionKind.LIGHTNING):
            return self.linear_mixed + self.linear_values
        rank, heads = self.linear_gate_rank, self.linear_num_value_heads
        if rank or self.linear_channel_decay:
            decay = rank or heads * self.linear_key_head_dim
            gate = self.linear_values if self.linear_full_gate or not rank else rank
            return self.linear_mixed + gate + decay + heads
        per_head = 2 if self.kind is AttentionKind.LINEAR else 1
        return self.linear_mixed + self.linear_values + per_head * self.linear_num_value_heads


@checked
class FeedForwardSpec:
    """Dense MLP (``num_experts`` 0) or mixture of experts.

    Parameters
    ----------
    intermediate_size : width of the dense MLP
    gated : the activation is gated (three matrices instead of two)
    bias : the matrices have biases
    num_experts : routed experts; 0: dense
    num_experts_per_tok : routed experts that a token visits
    moe_intermediate_size : width of a routed expert
    moe_latent_size : width that tokens are projected to before their experts; 0: not projected
    shared_intermediate_size : width of all shared experts together
    shared_expert_gate : a gate multiplies the output of the shared experts
    router_bias : the router has a bias
    """

    intermediate_size: SizeOrZero = 0
    gated: bool = True
    bias: bool = False
    num_experts: SizeOrZero = 0
    num_experts_per_tok: SizeOrZero = 0
    moe_intermediate_size: SizeOrZero = 0
    moe_latent_size: SizeOrZero = 0
    shared_intermediate_size: SizeOrZero = 0
    shared_expert_gate: bool = False
    router_bias: bool = False

    def __post_init__(self) -> None:
        _refuse(_expert_faults(self) if self.num_experts else _dense_faults(self))

    @property
    def shared_width(self) -> int:
        """Width of the MLP that every token passes: the dense one, or the shared experts."""
        return self.shared_intermediate_size if self.num_experts else self.intermediate_size

    def expert_inputs(self, hidden_size: int) -> int:
        """Width of what an expert reads and writes.

        Parameters
        ----------
        hidden_size : width of the model
        """
        return self.moe_latent_size or hidden_size


@checked
class LayerGroup:
    """Equal layers of a model, in one run or spread over the depth.

    Hybrid models count attention and feed-forward as separate layers: such a layer lacks the other
    and has one norm.

    Parameters
    ----------
    num_hidden_layers : number of layers
    attention : attention or mixer; None: none
    state : mixer with a state in parallel to the attention, whose output is added (Falcon-H1)
    feed_forward : feed-forward; None: none
    placement : position of the layers in the depth
    norms_per_layer : norms of a layer
    norm_bias : norms have biases
    parallel_residual : attention and feed-forward read the same input
    residual_streams : residual streams; above 1 each block reads a mix of them and adds to each
        (hyper-connections)
    hidden_size_per_layer_input : numbers of the layer's own embedding that multiply its output
    residual_sources : mean number of earlier block sums that a block reads, weighted by scores
        (attention residuals)
    altup_num_inputs : streams of which a layer computes one and corrects the others (Gemma 3n)
    laurel_rank : rank of a low-rank product in parallel to the attention (Gemma 3n)
    """

    num_hidden_layers: Size
    attention: AttentionSpec | None = None
    state: AttentionSpec | None = None
    feed_forward: FeedForwardSpec | None = None
    placement: Placement = Placement.CONTIGUOUS
    norms_per_layer: Annotated[int, Interval(ge=1, le=8)] = 2
    norm_bias: bool = False
    parallel_residual: bool = False
    residual_streams: Annotated[int, Strict(), Interval(ge=1, le=64)] = 1
    hidden_size_per_layer_input: SizeOrZero = 0
    residual_sources: Annotated[int, Strict(), Interval(ge=0, le=MOST_LAYERS)] = 0
    altup_num_inputs: Annotated[int, Strict(), Interval(ge=1, le=64)] = 1
    laurel_rank: SizeOrZero = 0

    def __post_init__(self) -> None:
        _refuse(_layer_faults(self))

    @property
    def mixers(self) -> tuple[AttentionSpec, ...]:
        """Its attention, and what keeps a state beside it."""
        return tuple(each for each in (self.attention, self.state) if each)

    @property
    def num_experts(self) -> int:
        """Routed experts of a layer; 0 where it has none."""
        return self.feed_forward.num_experts if self.feed_forward else 0

    @property
    def num_blocks(self) -> int:
        """Attention and feed-forward, or one of them."""
        return (self.attention is not None) + (self.feed_forward is not None)


@checked
class TrainingDefaults:
    """Published training run of a model.

    Parameters
    ----------
    sequence_length : tokens of a sequence
    global_batch_tokens : tokens of an optimizer step
    total_tokens : tokens of the run
    precision : precision of the matrix products
    source : publication
    """

    sequence_length: Size
    global_batch_tokens: Annotated[float, Interval(gt=0, lt=1e12)] | None = None
    total_tokens: Annotated[float, Interval(gt=0, lt=1e18)] | None = None
    precision: Literal["bf16", "fp16", "fp8", "fp4"] = "bf16"
    source: Annotated[str, MinLen(1)]

    def __post_init__(self) -> None:
        _refuse(_training_faults(self))


@checked
class VisionTower:
    """Transformer over image patches, and the projector to the language model [1]_.

    Parameters
    ----------
    hidden_size : width of the tower
    layer_groups : layers of the tower
    patch_size : width and height of a patch [pixels]
    projector_parameters : parameters between tower and language model, with biases and norms
    source : publication
    temporal_patch_size : frames of a patch
    spatial_merge_size : patches per side that become one token of the language model
    patch_bias : the patch embedding has a bias
    num_position_embeddings : learned positions; 0: none
    image_size : width and height of an image or tile if its tokens are not specified [pixels]
    resizing : how an image is resized; None: unknown
    min_pixels : least pixels of a resized image
    max_pixels : most pixels of a resized image
    longest_edge : longest edge of a resized image [pixels]
    max_tiles : most tiles of an image
    published_parameters : parameters of the whole model, with the tower
    published_parameters_source : publication of this number

    References
    ----------
    .. [1] A. Dosovitskiy et al., "An image is worth 16x16 words," 2020, arXiv:2010.11929,
       section 3.1.
    """

    hidden_size: Size
    layer_groups: tuple[LayerGroup, ...]
    patch_size: Size
    projector_parameters: SizeOrZero
    source: Annotated[str, MinLen(1)]
    temporal_patch_size: Size = 1
    spatial_merge_size: Size = 1
    patch_bias: bool = False
    num_position_embeddings: SizeOrZero = 0
    image_size: Size = 768
    resizing: Resizing | None = None
    min_pixels: SizeOrZero = 0
    max_pixels: SizeOrZero = 0
    longest_edge: SizeOrZero = 0
    max_tiles: SizeOrZero = 0
    published_parameters: Annotated[float, Interval(gt=0, lt=1e18)] | None = None
    published_parameters_source: str = ""

    def __post_init__(self) -> None:
        _refuse(tower_faults(self))

    @property
    def patches_per_token(self) -> int:
        """Patches that one token of the language model is made of."""
        return self.spatial_merge_size**2

    @property
    def tokens_per_image(self) -> int:
        """Tokens of the language model that an image of the usual size has."""
        return (self.image_size // (self.patch_size * self.spatial_merge_size)) ** 2

    @property
    def patch_width(self) -> int:
        """Numbers of a patch."""
        return 3 * self.temporal_patch_size * self.patch_size**2


@checked
class AudioTower:
    """Transformer over audio frames, and the projector to the language model.

    Parameters
    ----------
    hidden_size : width of the tower
    layer_groups : layers of the tower
    stem_parameters : parameters of the convolutions that make frames of mel bands
    projector_parameters : parameters between tower and language model
    frames_per_second : frames that the layers see [1/s]
    frames_per_token : frames of one token of the language model
    window : part of the sound that is computed together [s]
    source : publication
    pads : sound is padded to whole windows
    """

    hidden_size: Size
    layer_groups: tuple[LayerGroup, ...]
    stem_parameters: Size
    projector_parameters: SizeOrZero
    frames_per_second: Size
    frames_per_token: Size
    window: Size
    source: Annotated[str, MinLen(1)]
    pads: bool = False
    patch_bias = False
    num_position_embeddings = 0

    @property
    def patch_width(self) -> int:
        """Numbers that a frame is made of, by the weights of what makes it."""
        return round(self.stem_parameters / self.hidden_size)

    @property
    def patches_per_token(self) -> int:
        """The same as ``frames_per_token``."""
        return self.frames_per_token


@checked
class ModelSpec:
    """A decoder-only language model.

    Parameters
    ----------
    name : name of the model
    hidden_size : width of the residual stream
    vocab_size : tokens of the vocabulary
    layer_groups : layers
    source : publication of the sizes
    tie_word_embeddings : embedding and output matrix are the same
    position_embedding : kind of position embedding
    max_position_embeddings : longest sequence [tokens]
    position_embedding_offset : additional rows of learned positions
    vocab_size_per_layer_input : rows of the per-layer embeddings
    embedding_norm : a norm follows the embedding
    final_norm_bias : the last norm has a bias
    logits_bias : the output matrix has a bias
    num_nextn_predict_layers : published modules of multi-token prediction, not among
        ``layer_groups``
    mtp_num_layers : modules of multi-token prediction among ``layer_groups``
        (`planner.specs.serving`)
    num_labels : outputs of a classifier or reward model in place of logits; 0: logits
    training : published training run
    quantization : type of the published weights; None: 16 bit. Training ignores it
    expert_quantization : type of the published weights of experts; None: ``quantization``
    checkpoints : published checkpoints in other formats
    published_parameters : published number of parameters
    published_parameters_source : publication of this number
    aliases : other names
    notes : remarks
    omitted_parts : parts of the published model that predictions leave out
    omitted_parameters : approximate parameters of the omitted parts
    vision_tower : vision tower; None: none, or omitted
    audio_tower : audio tower; None: none, or omitted
    """

    name: str
    hidden_size: Size
    vocab_size: Size
    layer_groups: tuple[LayerGroup, ...]
    source: Annotated[str, MinLen(1)]
    tie_word_embeddings: bool = False
    position_embedding: PositionEmbedding = PositionEmbedding.ROTARY
    max_position_embeddings: Size | None = None
    position_embedding_offset: SizeOrZero = 0
    vocab_size_per_layer_input: SizeOrZero = 0
    embedding_norm: bool = False
    final_norm_bias: bool = False
    logits_bias: bool = False
    num_nextn_predict_layers: Modules = 0
    mtp_num_layers: Modules = 0
    num_labels: SizeOrZero = 0
    training: TrainingDefaults | None = None
    quantization: QuantizationWord | None = None
    expert_quantization: QuantizationWord | None = None
    checkpoints: tuple[Checkpoint, ...] = ()
    published_parameters: Annotated[float, Interval(gt=0, lt=1e18)] | None = None
    published_parameters_source: str = ""
    aliases: tuple[str, ...] = ()
    notes: str = ""
    omitted_parts: tuple[str, ...] = field(default=(), repr=False)
    omitted_parameters: float | None = field(default=None, repr=False)
    vision_tower: VisionTower | None = field(default=None, repr=False)
    audio_tower: AudioTower | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        _refuse(_model_faults(self))

    @property
    def num_hidden_layers(self) -> int:
        """Layers of all groups."""
        return sum(group.num_hidden_layers for group in self.layer_groups)

    @property
    def residual_streams(self) -> int:
        """Streams of numbers that pass from layer to layer."""
        return max((group.residual_streams for group in self.layer_groups), default=1)

    @property
    def altup_num_inputs(self) -> int:
        """Streams of which a layer computes one."""
        return max((group.altup_num_inputs for group in self.layer_groups), default=1)

    @property
    def residual_sources(self) -> int:
        """Sums of blocks that what follows the last layer reads; 0 without attention residuals."""
        return max((group.residual_sources for group in self.layer_groups), default=0)

    @property
    def per_layer_inputs(self) -> int:
        """Numbers that each token looks up for all layers together, beside its embedding."""
        return sum(g.num_hidden_layers * g.hidden_size_per_layer_input for g in self.layer_groups)

    @property
    def stream_width(self) -> int:
        """Numbers of a token that pass from layer to layer."""
        return self.hidden_size * max(self.residual_streams, self.altup_num_inputs)

    @property
    def head_columns(self) -> int:
        """Numbers that a token has after the last layer: logits, or labels in their place."""
        return self.num_labels or self.vocab_size

    @property
    def has_linear_attention(self) -> bool:
        """Whether layers have a delta rule for attention."""
        kinds = (group.attention and group.attention.kind for group in self.layer_groups)
        return AttentionKind.LINEAR in kinds

    @property
    def ties_head(self) -> bool:
        """Whether the embedding is the matrix of the logits, too."""
        return self.tie_word_embeddings and not self.num_labels

    @property
    def most_positions(self) -> int | None:
        """Tokens that no sequence can exceed: learned positions; others are computed for any."""
        learned = self.position_embedding == PositionEmbedding.LEARNED
        return self.max_position_embeddings if learned else None

    @property
    def num_experts(self) -> int:
        """Routed experts of a layer that has most; 0 of a dense model."""
        return max(group.num_experts for group in self.layer_groups)

    @property
    def attentions(self) -> tuple[AttentionSpec, ...]:
        """The attention of each layer group that has one, and what stands beside it."""
        return tuple(each for group in self.layer_groups for each in group.mixers)

    @property
    def feed_forwards(self) -> tuple[FeedForwardSpec, ...]:
        """The feed-forward of each layer group that has one."""
        return tuple(group.feed_forward for group in self.layer_groups if group.feed_forward)


def _refuse(faults: Iterator[str]) -> None:
    """Raise all faults as one ``ValueError``, if there are any."""
    found = list(faults)
    if found:
        raise ValueError("; ".join(found))


def _attention_faults(attention: AttentionSpec) -> Iterator[str]:
    """Faults of one attention table."""
    heads, shared = attention.num_attention_heads, attention.num_key_value_heads
    if heads % shared:
        yield f"num_key_value_heads {shared} does not divide num_attention_heads {heads}"
    if attention.head_dim > WIDEST_HEAD:
        yield f"head_dim {attention.head_dim} is more than {WIDEST_HEAD}"
    if attention.qk_norm_per_head and not attention.qk_norm:
        yield "qk_norm_per_head needs qk_norm = true"
    for fields, kinds in _KINDS_OF_FIELDS.items():
        if attention.kind not in kinds:
            needed = " or ".join(f'"{kind}"' for kind in kinds)
            for name in _set(attention, fields):
                yield f"{name} needs kind = {needed}"
    if attention.kind == AttentionKind.LATENT:
        yield from _latent_faults(attention)
    elif attention.kind == AttentionKind.COMPRESSED:
        yield from _compressed_faults(attention)
    elif attention.kind == AttentionKind.STANDARD:
        yield from _indexer_faults(attention)
    elif attention.has_state:
        yield from _linear_faults(attention)


def _latent_faults(attention: AttentionSpec) -> Iterator[str]:
    if not attention.kv_lora_rank:
        yield 'kind = "latent" needs kv_lora_rank'
    if not attention.v_head_dim:
        yield 'kind = "latent" needs v_head_dim'
    if attention.qk_rope_head_dim >= attention.head_dim:
        yield (
            f"qk_rope_head_dim {attention.qk_rope_head_dim} must be less than "
            f"head_dim {attention.head_dim}, which includes it"
        )
    for name in _set(attention, (flag for flag in _STANDARD_FLAGS if flag not in _LATENT_FLAGS)):
        yield f'{name} does not go with kind = "latent"'
    yield from _indexer_faults(attention)


def _compressed_faults(attention: AttentionSpec) -> Iterator[str]:
    for name in ("q_lora_rank", "sliding_window", *COMPRESSED_FIELDS):
        if not getattr(attention, name):
            yield f'kind = "compressed" needs {name}'
    if attention.num_key_value_heads > 1:
        yield 'kind = "compressed" has num_key_value_heads = 1'
    if attention.o_groups and attention.num_attention_heads % attention.o_groups:
        yield f"o_groups {attention.o_groups} does not divide {attention.num_attention_heads} heads"
    for name in _set(attention, (flag for flag in _STANDARD_FLAGS if flag != "sinks")):
        yield f'{name} does not go with kind = "compressed"'
    if attention.index_topk and not attention.compress_ratio:
        yield "an indexer of compressed attention needs compress_ratio"
    yield from _indexer_faults(attention)


def _indexer_faults(attention: AttentionSpec) -> Iterator[str]:
    given = _set(attention, INDEX_FIELDS)
    if given in ([], ["index_topk"]):  # none, or what a layer before it chose
        return
    for name in INDEX_FIELDS:
        if name not in given:
            yield f"an indexer of sparse attention needs {name}"


def _linear_faults(attention: AttentionSpec) -> Iterator[str]:
    needed: tuple[str, ...] = (
        () if attention.kind is AttentionKind.CONVOLUTION else LINEAR_FIELDS[:-1]
    )
    needed += () if attention.kind is AttentionKind.LIGHTNING else LINEAR_FIELDS[-1:]
    needed += ("linear_gate_rank",) if attention.kind is AttentionKind.MAMBA1 else ()
    for name in needed:
        if not getattr(attention, name):
            yield f'kind = "{attention.kind}" needs {name}'
    keys, values = attention.linear_num_key_heads, attention.linear_num_value_heads
    if keys and values % keys:
        yield f"linear_num_key_heads {keys} does not divide linear_num_value_heads {values}"
    for name in ("linear_key_head_dim", "linear_value_head_dim"):
        if getattr(attention, name) > WIDEST_HEAD:
            yield f"{name} {getattr(attention, name)} is more than {WIDEST_HEAD}"
    for name in _set(attention, (*_STANDARD_FLAGS, "sliding_window")):
        yield f'{name} does not go with kind = "{attention.kind}"'


def _set(attention: AttentionSpec, names: Iterable[str]) -> list[str]:
    return [name for name in names if getattr(attention, name)]


def _layer_faults(layer: LayerGroup) -> Iterator[str]:
    """Faults of one layer group."""
    if not layer.num_blocks:
        yield "needs attention, feed_forward, or both"
    if layer.state and (
        not layer.state.has_state or not layer.attention or layer.attention.has_state
    ):
        yield "state is a mixer that keeps one, beside attention that keeps keys and values"
    if layer.num_blocks == 1 and layer.parallel_residual:
        yield "parallel_residual needs both attention and feed_forward"


def _expert_faults(feed_forward: FeedForwardSpec) -> Iterator[str]:
    experts, routed = feed_forward.num_experts, feed_forward.num_experts_per_tok
    if not 1 <= routed <= experts:
        yield f"num_experts_per_tok {routed} must be from 1 to num_experts {experts}"
    if experts > MOST["num_experts"]:
        yield f"num_experts {experts} is more than {MOST['num_experts']}"
    if not feed_forward.moe_intermediate_size:
        yield "num_experts needs moe_intermediate_size"
    if feed_forward.intermediate_size:
        yield (
            "intermediate_size is for layers without experts; an MLP beside the experts "
            "is shared_intermediate_size"
        )
    if feed_forward.shared_expert_gate and not feed_forward.shared_intermediate_size:
        yield "shared_expert_gate needs shared_intermediate_size"


def _dense_faults(feed_forward: FeedForwardSpec) -> Iterator[str]:
    if not feed_forward.intermediate_size:
        yield "needs intermediate_size, or num_experts for a mixture of experts"
    for name in (
        "num_experts_per_tok",
        "moe_intermediate_size",
        "moe_latent_size",
        "shared_intermediate_size",
        "shared_expert_gate",
        "router_bias",
    ):
        if getattr(feed_forward, name):
            yield f"{name} needs num_experts"


def _model_faults(model: ModelSpec) -> Iterator[str]:
    """Faults that show only over the whole model."""
    if not model.name.strip():
        yield "name is empty"
    if not model.layer_groups:
        yield "layer_groups is empty"
    elif not model.attentions:
        yield "no layer group has attention"
    if len(set(model.aliases)) < len(model.aliases) or "" in model.aliases:
        yield "aliases are empty or written twice"
    if model.num_hidden_layers > MOST_LAYERS:
        yield f"{model.num_hidden_layers} layers are more than {MOST_LAYERS}"
    for name in ("hidden_size", "vocab_size"):
        if getattr(model, name) > MOST[name]:
            yield f"{name} {getattr(model, name)} is more than {MOST[name]}"
    if model.per_layer_inputs and not model.vocab_size_per_layer_input:
        yield "hidden_size_per_layer_input needs vocab_size_per_layer_input"
    yield from _width_faults(model)
    yield from _position_faults(model)


def _width_faults(model: ModelSpec) -> Iterator[str]:
    limit = WIDEST_TO_HIDDEN * model.hidden_size
    for number, group in enumerate(model.layer_groups):
        widths: dict[str, int] = {}
        for mixer in group.mixers:
            widths |= _attention_widths(mixer)
        if group.feed_forward:
            widths |= {name: getattr(group.feed_forward, name) for name in _FEED_FORWARD_WIDTHS}
        for name, width in widths.items():
            if width > limit:
                yield (
                    f"layer_groups.{number}: {name} = {width} is more than "
                    f"{WIDEST_TO_HIDDEN} times hidden_size {model.hidden_size}"
                )


def _attention_widths(attention: AttentionSpec) -> dict[str, int]:
    return {
        "num_attention_heads x head_dim": attention.num_attention_heads * attention.head_dim,
        "q_lora_rank": attention.q_lora_rank,
        "kv_lora_rank": attention.kv_lora_rank,
        "linear_num_key_heads x linear_key_head_dim": attention.linear_keys,
        "linear_num_value_heads x linear_value_head_dim": attention.linear_values,
        "linear_conv_kernel_dim": attention.linear_conv_kernel_dim,
        "index_n_heads x index_head_dim": attention.index_n_heads * attention.index_head_dim,
    }


def _position_faults(model: ModelSpec) -> Iterator[str]:
    learned = model.position_embedding == PositionEmbedding.LEARNED
    positions = model.max_position_embeddings
    if learned and positions is None:
        yield 'position_embedding = "learned" needs max_position_embeddings'
    if model.position_embedding_offset and not learned:
        yield 'position_embedding_offset needs position_embedding = "learned"'
    if learned and positions and model.training and model.training.sequence_length > positions:
        yield (
            f"training.sequence_length {model.training.sequence_length} is more than the "
            f"{positions} learned positions"
        )


def _training_faults(training: TrainingDefaults) -> Iterator[str]:
    """Faults of one training table."""
    batch, total = training.global_batch_tokens, training.total_tokens
    if batch is not None and batch < training.sequence_length:
        yield (
            f"global_batch_tokens {batch:g} is less than one sequence of {training.sequence_length}"
        )
    if batch is not None and total is not None and total < batch:
        yield f"total_tokens {total:g} is less than global_batch_tokens {batch:g}"
