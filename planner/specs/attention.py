"""The attention of a layer, or the mixer with a state in its place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import field
from typing import Annotated

from planner.base.enums import AttentionKind
from planner.specs.validated import Interval, Strict, validated

WIDEST_HEAD = 8192
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
SCANS = (*_FILTERED, AttentionKind.LIGHTNING)
_KINDS_OF_FIELDS = {
    ("v_head_dim", "kv_lora_rank"): (AttentionKind.LATENT,),
    ("qk_rope_head_dim",): (AttentionKind.LATENT, AttentionKind.COMPRESSED),
    ("q_lora_rank",): (AttentionKind.LATENT, AttentionKind.COMPRESSED, AttentionKind.STANDARD),
    INDEX_FIELDS: (AttentionKind.LATENT, AttentionKind.COMPRESSED, AttentionKind.STANDARD),
    ("index_kpool",): (AttentionKind.LATENT,),
    (*COMPRESSED_FIELDS, "compress_ratio"): (AttentionKind.COMPRESSED,),
    LINEAR_FIELDS[:-1]: SCANS,
    LINEAR_FIELDS[-1:]: (*_FILTERED, AttentionKind.CONVOLUTION),
    ("linear_gate_rank",): (AttentionKind.LINEAR, AttentionKind.MAMBA1),
    ("linear_channel_decay", "linear_full_gate"): (AttentionKind.LINEAR,),
}
Size = Annotated[int, Strict(), Interval(ge=1, le=10**9)]
SizeOrZero = Annotated[int, Strict(), Interval(ge=0, le=10**9)]


@validated
class AttentionSpec:
    """Attention of a layer, or the mixer with a state in its place.

    The ``kind`` determines the fields in use. ``standard``: multi-head, grouped-query or
    multi-query attention; with ``index_topk`` over chosen blocks of keys. ``latent`` (MLA): the
    ``*_lora_rank`` and ``qk_*`` fields; with ``index_topk`` DeepSeek's sparse attention, whose
    indexer (``index_*``) chooses the keys of each query; a layer with ``index_topk`` only attends
    to the keys that the layer before it chose. ``compressed`` (DeepSeek-V4): one head whose keys
    are also values, a ``sliding_window`` and, with a ``compress_ratio``, compressed entries.

    ``linear`` (gated delta net): the ``linear_*`` fields; ``num_attention_heads``,
    ``num_key_value_heads`` and ``head_dim`` repeat those of the model's full attention, as in
    ``config.json``. ``mamba2``: the linear attention that it is dual to [1]_. ``mamba1``: a head of
    one number per channel and one key head of the size of the state [2]_. ``lightning``: decays
    that are no parameters, and no convolution [3]_. ``convolution``: ``linear_conv_kernel_dim``
    only.

    Parameters
    ----------
    num_attention_heads : query heads
    num_key_value_heads : key-value heads
    head_dim : width of a head; of latent attention qk_nope_head_dim + qk_rope_head_dim
    kind : kind of attention or state-space mixer
    v_head_dim : width of a value head; None: ``head_dim``
    qk_rope_head_dim : rotary part of the width of a head (MLA)
    q_lora_rank : rank of the compressed queries (MLA, MFA); 0: not compressed
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
        refuse(_attention_errors(self))

    @property
    def has_state(self) -> bool:
        """Whether a state of fixed size replaces keys and values."""
        return self.kind in (*SCANS, AttentionKind.CONVOLUTION)

    @property
    def split_heads(self) -> tuple[int, int]:
        """Heads that tensor parallelism divides: (queries or state values, keys)."""
        if self.kind is AttentionKind.MAMBA1:  # every rank has the full keys of its channels
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
        """Total width of queries, keys and values that the convolution mixes.

        Mamba-1 computes keys and queries from the mixed values.
        """
        if self.kind is AttentionKind.MAMBA1:
            return self.linear_values
        return 2 * self.linear_keys + self.linear_values

    @property
    def linear_projected(self) -> int:
        """Columns of the linear-attention input projection.

        Latents of decay and gate replace the gate and one of the two. Mamba-1 and lightning
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


def refuse(errors: Iterator[str]) -> None:
    """Raise one ``ValueError`` if there are errors.

    Parameters
    ----------
    errors : text of each error
    """
    texts = list(errors)
    if texts:
        raise ValueError("; ".join(texts))


def _attention_errors(attention: AttentionSpec) -> Iterator[str]:
    """Yield the errors of one attention table."""
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
        yield from _latent_errors(attention)
    elif attention.kind == AttentionKind.COMPRESSED:
        yield from _compressed_errors(attention)
    elif attention.kind == AttentionKind.STANDARD:
        yield from _indexer_errors(attention)
    elif attention.has_state:
        yield from _linear_errors(attention)


def _latent_errors(attention: AttentionSpec) -> Iterator[str]:
    """Yield the errors of multi-head latent attention (MLA)."""
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
    yield from _indexer_errors(attention)


def _compressed_errors(attention: AttentionSpec) -> Iterator[str]:
    """Yield the errors of attention over compressed keys."""
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
    yield from _indexer_errors(attention)


def _indexer_errors(attention: AttentionSpec) -> Iterator[str]:
    """Yield an error for each missing field of a sparse-attention indexer."""
    set_fields = _set(attention, INDEX_FIELDS)
    if set_fields in ([], ["index_topk"]):  # none, or the keys of an earlier layer
        return
    for name in INDEX_FIELDS:
        if name not in set_fields:
            yield f"an indexer of sparse attention needs {name}"


def _linear_errors(attention: AttentionSpec) -> Iterator[str]:
    """Yield the errors of linear attention, state-space and convolution layers."""
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
