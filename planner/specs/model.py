"""A transformer as groups of equal layers, in the words of Hugging Face's ``config.json``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from enum import StrEnum
from typing import Annotated, Literal

from planner.base.enums import AttentionKind, PositionEmbedding
from planner.specs.attention import AttentionSpec, Size, SizeOrZero, refuse
from planner.specs.quantization import Checkpoint, quantization_word
from planner.specs.validated import Interval, MinLen, PostValidator, Strict, validated

MOST_LAYERS = 10_000
WIDEST_TO_HIDDEN = 256
_FEED_FORWARD_WIDTHS = (
    "intermediate_size",
    "moe_intermediate_size",
    "moe_latent_size",
    "shared_intermediate_size",
)
MOST = {"hidden_size": 10**6, "vocab_size": 10**8, "num_experts": 10**5}


MOST_MODULES = 100
"""More modules of multi-token prediction than any model has make no sense."""
Modules = Annotated[int, Strict(), Interval(ge=0, le=MOST_MODULES)]
QuantizationWord = Annotated[str, PostValidator(quantization_word)]


class Placement(StrEnum):
    """Position of the layers of a group: in one run, or spread evenly over the depth."""

    CONTIGUOUS = "contiguous"
    INTERLEAVED = "interleaved"


@validated
class FeedForwardSpec:
    """Dense MLP (``num_experts`` 0) or mixture of experts.

    Parameters
    ----------
    intermediate_size : width of the dense MLP
    gated : the activation is gated (three matrices instead of two)
    bias : the matrices have biases
    num_experts : routed experts; 0: dense
    num_experts_per_tok : routed experts that a token visits
    n_group : groups of equally many experts, some of them for a token; 1: no groups
    topk_group : groups that a token's experts are chosen from
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
    n_group: Size = 1
    topk_group: Size = 1
    moe_intermediate_size: SizeOrZero = 0
    moe_latent_size: SizeOrZero = 0
    shared_intermediate_size: SizeOrZero = 0
    shared_expert_gate: bool = False
    router_bias: bool = False

    def __post_init__(self) -> None:
        refuse(_expert_errors(self) if self.num_experts else _dense_errors(self))

    @property
    def shared_width(self) -> int:
        """Width of the MLP that every token passes: the dense one, or the shared experts."""
        return self.shared_intermediate_size if self.num_experts else self.intermediate_size

    def expert_inputs(self, hidden_size: int) -> int:
        """Return the width of the input and output of an expert.

        Parameters
        ----------
        hidden_size : width of the model
        """
        return self.moe_latent_size or hidden_size


@validated
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
    altup_num_inputs : streams; a layer computes one and corrects the others (Gemma 3n)
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
        refuse(_layer_errors(self))

    @property
    def mixers(self) -> tuple[AttentionSpec, ...]:
        """The attention and the parallel mixer of a layer, without those that it lacks."""
        return tuple(each for each in (self.attention, self.state) if each)

    @property
    def num_experts(self) -> int:
        """Routed experts of a layer; 0 where it has none."""
        return self.feed_forward.num_experts if self.feed_forward else 0

    @property
    def num_blocks(self) -> int:
        """Blocks of a layer: attention, feed-forward, or both."""
        return (self.attention is not None) + (self.feed_forward is not None)


@validated
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
        refuse(_training_errors(self))


class Resizing(StrEnum):
    """Resizing of an image before it is cut into patches.

    ``fixed``: to the size of the tower. ``pixels``: sides are rounded to whole tokens and scaled
    together to a range of pixels [1]_. ``edge``: scaled down to a longest edge, with sides rounded
    up to whole tokens; each row ends with an extra token [2]_. ``canvas``: tiles of the tower's
    size on the canvas that scales it up least, or else down least [3]_; ``ratio``: on the grid of
    the nearest ratio of sides [4]_. Several tiles have an additional small copy of the image.

    References
    ----------
    .. [1] github.com/huggingface/transformers,
       ``src/transformers/models/qwen2_vl/image_processing_qwen2_vl.py``, ``smart_resize``;
       GLM-4.1V counts the pixels of two frames per image.
    .. [2] The same, ``pixtral/image_processing_pixtral.py``, ``pixtral/processing_pixtral.py``.
    .. [3] The same, ``llama4/image_processing_llama4_fast.py``, ``get_best_fit``.
    .. [4] github.com/vllm-project/vllm, ``vllm/model_executor/models/internvl.py``,
       ``calculate_num_blocks``.
    """

    FIXED = "fixed"
    PIXELS = "pixels"
    EDGE = "edge"
    CANVAS = "canvas"
    RATIO = "ratio"


_RESIZING_LIMITS: Mapping[Resizing, str] = {
    Resizing.PIXELS: "max_pixels",
    Resizing.EDGE: "longest_edge",
    Resizing.CANVAS: "max_tiles",
    Resizing.RATIO: "max_tiles",
}
"""Required fields of each method."""


@validated
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
        refuse(_tower_errors(self))

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


def _tower_errors(tower: VisionTower) -> Iterator[str]:
    """Yield the errors of one vision tower."""
    if not tower.layer_groups:
        yield "layer_groups is empty"
    for index, group in enumerate(tower.layer_groups):
        attention = group.attention
        if attention is None or group.feed_forward is None or group.num_experts:
            yield f"layer_groups[{index}] of a vision tower has attention and a dense MLP"
        elif attention.kind is not AttentionKind.STANDARD or attention.causal:
            yield f"layer_groups[{index}]: attention of a vision tower is standard, causal = false"
    name = _RESIZING_LIMITS.get(tower.resizing) if tower.resizing else None
    if name and not getattr(tower, name):
        yield f'resizing = "{tower.resizing}" needs {name}'
    if tower.tokens_per_image < 1:
        yield f"image_size {tower.image_size} is smaller than the patches of one token"


@validated
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
        """Input values per frame, from the number of weights of the stem."""
        return round(self.stem_parameters / self.hidden_size)

    @property
    def patches_per_token(self) -> int:
        """``frames_per_token``, by the name that `VisionTower` has for it."""
        return self.frames_per_token


@validated
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
    chat_template : servers write a chat as a prompt by a Jinja template; gpt-oss has a library
    num_nextn_predict_layers : published modules of multi-token prediction, not among
        ``layer_groups``
    mtp_num_layers : modules of multi-token prediction among ``layer_groups``
        (`planner.specs.serving_workload`)
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
    chat_template: bool = True
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
        refuse(_model_errors(self))

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
        """Number of AltUp streams; a layer computes one and corrects the others."""
        return max((group.altup_num_inputs for group in self.layer_groups), default=1)

    @property
    def residual_sources(self) -> int:
        """Sums of blocks read after the last layer; 0 without attention residuals."""
        return max((group.residual_sources for group in self.layer_groups), default=0)

    @property
    def per_layer_inputs(self) -> int:
        """Values that each token looks up for all layers, in addition to its embedding."""
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
        """The attentions and parallel states of all layer groups."""
        return tuple(each for group in self.layer_groups for each in group.mixers)

    @property
    def compresses_attention(self) -> bool:
        """Whether an attention keeps one entry for several tokens."""
        return any(each.compress_ratio for each in self.attentions)

    @property
    def has_state(self) -> bool:
        """Whether layers have a recurrent state, as of Mamba-2 or linear attention."""
        return any(mixer.has_state for mixer in self.attentions)

    @property
    def feed_forwards(self) -> tuple[FeedForwardSpec, ...]:
        """The feed-forward of each layer group that has one."""
        return tuple(group.feed_forward for group in self.layer_groups if group.feed_forward)


def _layer_errors(layer: LayerGroup) -> Iterator[str]:
    """Yield the errors of one layer group."""
    if not layer.num_blocks:
        yield "needs attention, feed_forward, or both"
    if layer.state and (
        not layer.state.has_state or not layer.attention or layer.attention.has_state
    ):
        yield "state must be a mixer with a state, in parallel to an attention with keys and values"
    if layer.num_blocks == 1 and layer.parallel_residual:
        yield "parallel_residual needs both attention and feed_forward"


def _expert_errors(feed_forward: FeedForwardSpec) -> Iterator[str]:
    """Yield the errors of a mixture-of-experts feed-forward block."""
    experts, routed = feed_forward.num_experts, feed_forward.num_experts_per_tok
    if not 1 <= routed <= experts:
        yield f"num_experts_per_tok {routed} must be from 1 to num_experts {experts}"
    if experts > MOST["num_experts"]:
        yield f"num_experts {experts} is more than {MOST['num_experts']}"
    groups, chosen = feed_forward.n_group, feed_forward.topk_group
    if experts % groups:
        yield f"n_group {groups} must divide num_experts {experts}"
    if chosen > groups:
        yield f"topk_group {chosen} must be from 1 to n_group {groups}"
    elif routed * groups > chosen * experts:
        yield f"topk_group {chosen} has fewer experts than num_experts_per_tok {routed}"
    if not feed_forward.moe_intermediate_size:
        yield "num_experts needs moe_intermediate_size"
    if feed_forward.intermediate_size:
        yield (
            "intermediate_size is for layers without experts; use shared_intermediate_size for "
            "an MLP in parallel to the experts"
        )
    if feed_forward.shared_expert_gate and not feed_forward.shared_intermediate_size:
        yield "shared_expert_gate needs shared_intermediate_size"


def _dense_errors(feed_forward: FeedForwardSpec) -> Iterator[str]:
    """Yield the errors of a feed-forward block without experts."""
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
    if feed_forward.n_group > 1 or feed_forward.topk_group > 1:
        yield "n_group and topk_group need num_experts"


def _model_errors(model: ModelSpec) -> Iterator[str]:
    """Yield the errors of the combination of layer groups."""
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
    yield from _width_errors(model)
    yield from _position_errors(model)


def _width_errors(model: ModelSpec) -> Iterator[str]:
    """Yield an error for each width that is implausibly large relative to hidden_size."""
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
    """Return the width of each projection of an attention block by name, in elements."""
    return {
        "num_attention_heads x head_dim": attention.num_attention_heads * attention.head_dim,
        "q_lora_rank": attention.q_lora_rank,
        "kv_lora_rank": attention.kv_lora_rank,
        "linear_num_key_heads x linear_key_head_dim": attention.linear_keys,
        "linear_num_value_heads x linear_value_head_dim": attention.linear_values,
        "linear_conv_kernel_dim": attention.linear_conv_kernel_dim,
        "index_n_heads x index_head_dim": attention.index_n_heads * attention.index_head_dim,
    }


def _position_errors(model: ModelSpec) -> Iterator[str]:
    """Yield the errors of position-embedding fields, such as too few learned positions."""
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


def _training_errors(training: TrainingDefaults) -> Iterator[str]:
    """Yield the errors of the training table of a model."""
    batch, total = training.global_batch_tokens, training.total_tokens
    if batch is not None and batch < training.sequence_length:
        yield (
            f"global_batch_tokens {batch:g} is less than one sequence of {training.sequence_length}"
        )
    if batch is not None and total is not None and total < batch:
        yield f"total_tokens {total:g} is less than global_batch_tokens {batch:g}"
