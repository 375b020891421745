"""A transformer as groups of equal layers, in the words of Hugging Face's ``config.json``."""

from __future__ import annotations

from dataclasses import field
from enum import StrEnum
from typing import Annotated, Literal

from annotated_types import Interval, MinLen

from planner.base.enums import AttentionKind, PositionEmbedding
from planner.specs import model_checks
from planner.specs.checked import checked
from planner.specs.checkpoint import Checkpoint
from planner.specs.validators import After, Strict

Size = Annotated[int, Strict(), Interval(ge=1, le=10**9)]
SizeOrZero = Annotated[int, Strict(), Interval(ge=0, le=10**9)]
MOST_MODULES = 100
"""More modules of multi-token prediction than any model has make no sense."""
Modules = Annotated[int, Strict(), Interval(ge=0, le=MOST_MODULES)]
QuantizationWord = Annotated[str, After(model_checks.quantization_word)]


class Placement(StrEnum):
    """Where the layers of a group stand: in one run, or spread evenly over the depth."""

    CONTIGUOUS = "contiguous"
    INTERLEAVED = "interleaved"


@checked
class AttentionSpec:
    """Multi-head, grouped-query or multi-query attention, latent or linear attention, Mamba-2.

    Latent attention (``kind = "latent"``) uses the ``*_lora_rank`` and ``qk_*`` fields;
    ``head_dim`` is then qk_nope_head_dim + qk_rope_head_dim. With ``index_topk`` it is
    DeepSeek's sparse attention: an indexer (``index_*``) chooses the keys of each query.
    Linear attention (``kind = "linear"``), the gated delta net, uses the ``linear_*`` fields
    alone; ``num_attention_heads``, ``num_key_value_heads`` and ``head_dim`` repeat those of
    the model's full attention, as ``config.json`` does. Mamba-2 (``kind = "mamba2"``) is read
    as the linear attention it is dual to [1]_: its groups of B and C are key heads, the state
    size their dimension, its heads value heads. With ``qk_norm_per_head`` every head has norm
    weights of its own instead of one ``head_dim`` for all. A query that is not ``causal`` sees the
    keys after it, too.

    References
    ----------
    .. [1] T. Dao and A. Gu, "Transformers are SSMs," 2024, arXiv:2405.21060, section 5.
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
    index_n_heads: SizeOrZero = 0
    index_head_dim: SizeOrZero = 0
    index_topk: SizeOrZero = 0
    causal: bool = field(default=True, repr=False)

    def __post_init__(self) -> None:
        model_checks.refuse(model_checks.attention_faults(self))

    @property
    def has_state(self) -> bool:
        """Whether a state of fixed size stands for keys and values."""
        return self.kind in (AttentionKind.LINEAR, AttentionKind.MAMBA2)

    @property
    def split_heads(self) -> tuple[int, int]:
        """Heads that tensor parallelism divides: of queries, or of values of a state; of keys."""
        if self.has_state:
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
        """Width of queries, keys and values together, which the convolution mixes."""
        return 2 * self.linear_keys + self.linear_values

    @property
    def linear_projected(self) -> int:
        """Columns of the input projection: what is mixed, the gate, one or two per value head."""
        per_head = 2 if self.kind is AttentionKind.LINEAR else 1
        return self.linear_mixed + self.linear_values + per_head * self.linear_num_value_heads

    @property
    def linear_state(self) -> int:
        """Numbers in the state of one sequence."""
        return self.linear_values * self.linear_key_head_dim


@checked
class FeedForwardSpec:
    """A dense MLP (``num_experts`` 0) or a mixture of experts.

    ``intermediate_size`` is the width of the dense MLP; experts have
    ``moe_intermediate_size``; all shared experts together ``shared_intermediate_size``. With
    ``moe_latent_size`` tokens are projected to that width before their experts, and back.
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
        model_checks.refuse(model_checks.feed_forward_faults(self))

    @property
    def shared_width(self) -> int:
        """Width of the MLP that every token passes: the dense one, or the shared experts."""
        return self.shared_intermediate_size if self.num_experts else self.intermediate_size

    def expert_inputs(self, hidden_size: int) -> int:
        """Width of what an expert reads and writes."""
        return self.moe_latent_size or hidden_size


@checked
class LayerGroup:
    """``num_hidden_layers`` equal layers, in one run or spread over the depth.

    Hybrid models count attention and feed-forward as layers of their own: such a layer
    lacks the other, and has one norm.
    """

    num_hidden_layers: Size
    attention: AttentionSpec | None = None
    feed_forward: FeedForwardSpec | None = None
    placement: Placement = Placement.CONTIGUOUS
    norms_per_layer: Annotated[int, Interval(ge=1, le=8)] = 2
    norm_bias: bool = False
    parallel_residual: bool = False

    def __post_init__(self) -> None:
        model_checks.refuse(model_checks.layer_faults(self))

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
    """The published training set-up of a model; ``precision`` is that of its matrix products."""

    sequence_length: Size
    global_batch_tokens: Annotated[float, Interval(gt=0, lt=1e12)] | None = None
    total_tokens: Annotated[float, Interval(gt=0, lt=1e18)] | None = None
    precision: Literal["bf16", "fp16", "fp8", "fp4"] = "bf16"
    source: Annotated[str, MinLen(1)]

    def __post_init__(self) -> None:
        model_checks.refuse(model_checks.training_faults(self))


@checked
class VisionTower:
    """What makes tokens of images: a transformer over patches, and a projector.

    A patch is ``patch_size`` pixels wide and high, of three colours in ``temporal_patch_size``
    frames; ``spatial_merge_size`` squared of them become one token of the language model, which
    meets the ``projector_parameters``: all matrices, biases and norms between the two.
    ``image_size``: width and height of an image, or of a tile of one, where nobody says how many
    tokens it has. ``published_parameters`` are those of the whole model.

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
    published_parameters: Annotated[float, Interval(gt=0, lt=1e18)] | None = None
    published_parameters_source: str = ""

    def __post_init__(self) -> None:
        model_checks.refuse(model_checks.tower_faults(self))

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
class ModelSpec:
    """A decoder-only language model.

    ``omitted_parts``, ``omitted_parameters``: what else the published model has, such as a vision
    tower, and about how large it is; predictions leave it out and say so, but for the
    ``vision_tower`` that is described.

    ``quantization``, ``expert_quantization``: types of the published weights where they are
    not 16 bit; serving starts from them, training ignores them. ``checkpoints``: what published
    ones in a format have of their own. ``num_nextn_predict_layers``:
    modules of multi-token prediction that the publisher trained after ``layer_groups``;
    ``mtp_num_layers``: those whose layers are among them, see `planner.specs.multi_token`.
    ``num_labels``: numbers that a classifier, such as a reward model, has in place of the logits.
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

    def __post_init__(self) -> None:
        model_checks.refuse(model_checks.model_faults(self))

    @property
    def num_hidden_layers(self) -> int:
        """Layers of all groups."""
        return sum(group.num_hidden_layers for group in self.layer_groups)

    @property
    def head_columns(self) -> int:
        """Numbers that a token has after the last layer: logits, or labels in their place."""
        return self.num_labels or self.vocab_size

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
        """The attention of each layer group that has one."""
        return tuple(group.attention for group in self.layer_groups if group.attention)

    @property
    def feed_forwards(self) -> tuple[FeedForwardSpec, ...]:
        """The feed-forward of each layer group that has one."""
        return tuple(group.feed_forward for group in self.layer_groups if group.feed_forward)
