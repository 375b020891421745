"""One layer of each kind, operator by operator, its sizes worked out by hand."""

from __future__ import annotations

import pytest

from planner.base.enums import (
    AdapterTargets,
)
from planner.layers.model import Layer, describe
from planner.layers.operators import (
    ColumnPart,
    Element,
    Elementwise,
    LayerOperator,
    MatrixProduct,
    RankSpread,
    columns,
)
from planner.specs.attention import AttentionSpec
from planner.specs.model import FeedForwardSpec, LayerGroup

H = 64


def _layer(attention: dict | None, feed_forward: dict | None, **group: object) -> Layer:
    return describe(
        H,
        LayerGroup(
            num_hidden_layers=1,
            attention=AttentionSpec(**attention) if attention else None,
            feed_forward=FeedForwardSpec(**feed_forward) if feed_forward else None,
            **group,
        ),
    )


def _told(op: LayerOperator) -> tuple:
    """Name and sizes: rows and columns of a matrix, numbers and tensors of a kernel."""
    if isinstance(op, MatrixProduct):
        return op.name, op.depth, op.columns.total, op.split.value
    if isinstance(op, Elementwise):
        return op.name, op.columns.total, op.forward, op.backward
    return (op.name,)


def _kept(layer: Layer, spread: RankSpread) -> dict[str, int]:
    """Numbers per token that are kept so, by what they are."""
    found: dict[str, int] = {}
    for op in layer.operators:
        for each in op.keeps:
            if each.spread is spread:
                found[each.element.value] = found.get(each.element, 0) + each.columns.total
    return found


GQA = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16}
DENSE = {"intermediate_size": 256}


def test_dense_layer_with_grouped_queries() -> None:
    layer = _layer(GQA, DENSE)
    assert [_told(op) for op in layer.operators] == [
        ("attention_norm", 64, 2, 3),
        ("qkv", 64, 64 + 2 * 32, "columns"),
        ("rope", 64 + 32, 2, 2),
        ("attention_core",),
        ("attention_output", 64, 64, "rows"),
        ("attention_residual", 64, 3, 3),
        ("attention_tensor_parallel",),
        ("feed_forward_norm", 64, 2, 3),
        ("gate_up", 64, 2 * 256, "columns"),
        ("activation", 256, 3, 5),
        ("down", 256, 64, "rows"),
        ("feed_forward_tensor_parallel",),
        ("feed_forward_residual", 64, 3, 3),
    ]
    assert _kept(layer, RankSpread.TOKENS) == {
        "residual": 2 * 64,
        "fp32": 2 * 64,  # of eager kernels alone, as the 16-bit ones of the activation below
        "attention_input": 64,
        "feed_forward_input": 64,
        "dropout_mask": 2 * 64,
    }
    # Queries, keys, values and the output's input; one statistic or row of scores per head.
    assert _kept(layer, RankSpread.TENSOR) == {
        "sixteen_bit": 64 + 2 * 32 + 64 + 256,
        "statistic": 4,
        "score": 4,
        "activation_input": 2 * 256,
        "down_input": 256,
    }


def test_every_rank_has_a_key_head_and_a_value_head() -> None:
    qkv = next(_layer(GQA, None).of(MatrixProduct))
    assert [qkv.columns.on_rank(t) for t in (1, 2, 4)] == [128, 64, 16 + 32]


def test_latent_attention_with_an_indexer() -> None:
    attention = {
        "kind": "latent",
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "head_dim": 24,
        "qk_rope_head_dim": 8,
        "v_head_dim": 16,
        "q_lora_rank": 32,
        "kv_lora_rank": 12,
        "index_n_heads": 2,
        "index_head_dim": 8,
        "index_topk": 128,
    }
    layer = _layer(attention, None)
    assert [_told(op) for op in layer.operators] == [
        ("attention_norm", 64, 2, 3),
        ("q_down", 64, 32, "none"),
        ("q_up", 32, 4 * 24, "columns"),
        ("kv_down", 64, 12 + 8, "none"),
        ("kv_up", 12, 4 * (16 + 16), "columns"),
        ("rope", 4 * 8, 2, 2),
        ("index_q", 32, 2 * 8, "none"),
        ("index_scores",),
        ("attention_core",),
        ("attention_output", 64, 64, "rows"),
        ("attention_residual", 64, 3, 3),
        ("attention_tensor_parallel",),
    ]
    core = layer.core
    assert core is not None
    assert (core.latent_width, core.latent_rank, core.rope_dim) == (20, 12, 8)
    assert (core.most_keys, core.index_dim) == (128, 8)
    cheap = {"layernorm", "mla_up_proj"}
    names = [op.name for op in layer.operators if cheap & {*op.repeated_by}]
    assert names == ["attention_norm", "q_up", "kv_up"]
    assert _kept(layer, RankSpread.TOKENS)["sixteen_bit"] == 32 + 20
    assert _kept(layer, RankSpread.TENSOR)["sixteen_bit"] == 4 * (24 + 24 + 16) + 64


def test_linear_attention_with_a_decay_per_channel() -> None:
    """Queries, keys and values 3 x 32, latents of decay and gate 2 x 8, one step per head."""
    kda = {
        "num_attention_heads": 4, "num_key_value_heads": 4, "head_dim": 16, "kind": "linear",
        "linear_num_key_heads": 2, "linear_num_value_heads": 2, "linear_key_head_dim": 16,
        "linear_value_head_dim": 16, "linear_conv_kernel_dim": 4, "linear_gate_rank": 8,
    }  # fmt: skip
    layer = _layer(kda, None)
    told = [_told(op) for op in layer.operators]
    assert told[1:4] == [
        ("linear_qkvz", 64, 3 * 32 + 2 * 8 + 2, "columns"),
        ("decay_up", 8, 32, "columns"),
        ("gate_up", 8, 32, "columns"),
    ]
    assert layer.scan is not None
    assert layer.scan.weights == 2 + 32  # a decay per head, a bias per channel


def test_gated_short_convolution() -> None:
    attention = GQA | {"kind": "convolution", "linear_conv_kernel_dim": 3}
    layer = _layer(attention, None, norms_per_layer=1)
    told = [_told(op) for op in layer.operators]
    assert told[1:4] == [
        ("convolution_in", 64, 3 * 64, "columns"),
        ("convolution", 64, 4, 8),
        ("attention_output", 64, 64, "rows"),
    ]
    assert sum(op.parameters for op in layer.operators) == 64 + 3 * 64 * 64 + 3 * 64 + 64 * 64


def test_a_layer_without_keys_and_with_an_input_of_its_own() -> None:
    layer = _layer(GQA | {"shares_cache": True}, DENSE, hidden_size_per_layer_input=8)
    told = [_told(op) for op in layer.operators]
    assert told[1:3] == [("qkv", 64, 64, "columns"), ("rope", 64, 2, 2)]
    assert told[-4:] == [
        ("per_layer_gate", 64, 8, "none"),
        ("per_layer_activation", 8, 3, 5),
        ("per_layer_output", 8, 64, "none"),
        ("per_layer_norm", 64, 2, 3),
    ]
    assert layer.core is not None
    assert layer.core.shares_cache


STATE = {
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 16,
    "linear_conv_kernel_dim": 4,
}


@pytest.mark.parametrize(
    ("kind", "gates", "filters"), [("linear", 2 * 4, 4), ("mamba2", 4, 5)], ids=["delta", "mamba2"]
)
def test_layers_with_a_state(kind: str, gates: int, filters: int) -> None:
    layer = _layer({**STATE, "kind": kind}, None)
    mixed, values = 2 * 16 + 64, 64
    assert [_told(op) for op in layer.operators] == [
        ("attention_norm", 64, 2, 3),
        ("linear_qkvz", 64, mixed + values + gates, "columns"),
        ("convolution", mixed, 2, 4),
        ("linear_scan",),
        ("gated_norm", values, 3, 5),
        ("attention_output", values, 64, "rows"),
        ("attention_context_parallel",),
        ("attention_residual", 64, 3, 3),
        ("attention_tensor_parallel",),
    ]
    scan = layer.scan
    assert scan is not None
    assert (scan.state, scan.mixed, scan.expanded_keys) == (64 * 8, mixed, 4 * 8)
    convolution = next(op for op in layer.operators if op.name == "convolution")
    assert convolution.weights == filters * mixed
    kept = (mixed + values + gates) + mixed + values + values
    assert _kept(layer, RankSpread.TENSOR) == {"sixteen_bit": kept}
    assert layer.core is None


def test_mamba_1_makes_keys_and_time_steps_of_what_is_mixed() -> None:
    """128 channels with a state of 16, time steps of rank 4: arXiv:2312.00752, section 3."""
    channels = {"linear_num_key_heads": 1, "linear_num_value_heads": 128, "linear_key_head_dim": 16}
    attention = STATE | channels | {"linear_value_head_dim": 1, "linear_gate_rank": 4}
    layer = _layer({**attention, "kind": "mamba1"}, None)
    assert [_told(op) for op in layer.operators][1:-3] == [
        ("linear_qkvz", 64, 2 * 128, "columns"),
        ("convolution", 128, 2, 4),
        ("scan_inputs", 128, 4 + 2 * 16, "rows"),
        ("time_steps", 4, 128, "columns"),
        ("linear_scan",),
        ("attention_output", 128, 64, "rows"),
    ]
    assert layer.scan
    assert (layer.scan.state, layer.scan.mixed, layer.scan.weights) == (2048, 128, 128 * 17)
    # Its input and gate, both of them mixed, time steps, the output; of each token its latent.
    assert _kept(layer, RankSpread.TENSOR) == {"sixteen_bit": 2 * 128 + 128 + 128 + 128}
    assert _kept(layer, RankSpread.TOKENS)["sixteen_bit"] == 4 + 2 * 16


def test_lightning_attention_has_neither_convolution_nor_weights_of_its_scan() -> None:
    attention = STATE | {"kind": "lightning", "linear_conv_kernel_dim": 0}
    layer = _layer(attention, None)
    told = [_told(op) for op in layer.operators]
    assert told[1:4] == [
        ("linear_qkvz", 64, 2 * 16 + 2 * 64, "columns"),
        ("linear_scan",),
        ("gated_norm", 64, 3, 5),
    ]
    assert layer.scan
    assert layer.scan.weights == 0


def test_a_state_beside_attention_reads_its_input_and_joins_its_sum() -> None:
    state = AttentionSpec(**STATE, kind="mamba2")
    both, alone = _layer(GQA, DENSE, state=state), _layer(GQA, DENSE)
    apart = _layer({**STATE, "kind": "mamba2"}, None)
    own = [op.name for op in both.operators if op.name not in {one.name for one in alone.operators}]
    assert own == [
        "linear_qkvz", "convolution", "linear_scan", "gated_norm", "state_output",
        "state_context_parallel",
    ]  # fmt: skip
    assert both.core
    assert both.scan
    assert _kept(both, RankSpread.TOKENS) == _kept(alone, RankSpread.TOKENS)
    kept = [_kept(layer, RankSpread.TENSOR)["sixteen_bit"] for layer in (both, alone, apart)]
    assert kept[0] == kept[1] + kept[2]


def test_sums_of_blocks_before_a_block_are_scored_and_added() -> None:
    layer = _layer(GQA, DENSE, residual_sources=5)
    mixes = [op for op in layer.operators if op.module == "residual_streams"]
    assert [_told(op) for op in mixes] == [
        ("attention_sources", 64, 6, 12),
        ("feed_forward_sources", 64, 6, 12),
    ]
    assert [op.weights for op in mixes] == [2 * 64, 2 * 64]  # a norm and a vector each


def test_a_layer_of_gemma_3n_predicts_and_corrects_its_streams() -> None:
    """Gemma3nTextAltUp: a router of 4 columns and its norm, 16 and 4 coefficients, a scale."""
    layer = _layer(GQA, DENSE, altup_num_inputs=4, laurel_rank=8)
    mixes = [op for op in layer.operators if op.module == "residual_streams"]
    assert {op.name: op.parameters for op in mixes} == {
        "altup_router": 64 * 4 + 64, "altup_prediction": 4 * 16, "altup_predicted": 0,
        "laurel_down": 64 * 8, "laurel_up": 8 * 64,
        "altup_router_of_result": 0, "altup_correction": 4 * 4 + 64, "altup_corrected": 0,
    }  # fmt: skip
    assert layer.operators[-1].name == "altup_corrected"


def test_experts_with_a_shared_expert_and_a_latent() -> None:
    feed_forward = {
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 96,
        "moe_latent_size": 32,
        "shared_intermediate_size": 128,
        "shared_expert_gate": True,
        "bias": True,
    }
    layer = _layer(None, feed_forward)
    assert [_told(op) for op in layer.operators] == [
        ("feed_forward_norm", 64, 2, 3),
        ("router", 64, 8, "none"),
        ("shared_expert_gate",),
        ("latent_down", 64, 32, "none"),
        ("latent_up", 32, 64, "none"),
        ("permute",),
        ("experts",),
        ("expert_bias",),
        ("experts_all_to_all",),
        ("gate_up", 64, 2 * 128, "columns"),
        ("activation", 128, 3, 5),
        ("down", 128, 64, "rows"),
        ("feed_forward_tensor_parallel",),
        ("feed_forward_residual", 64, 3, 3),
    ]
    experts = layer.experts
    assert experts is not None
    assert (experts.depth, experts.width, experts.matrices) == (32, 96, 3)
    assert experts.parameters == 8 * (3 * 32 * 96 + 2 * 96 + 32)
    assert experts.met * 4 == experts.parameters
    assert _kept(layer, RankSpread.EXPERTS) == {
        "feed_forward_input": 2 * 32,
        "down_input": 2 * 96,
        "expert_output": 2 * 32,
        "activation_input": 2 * 2 * 96,
    }
    # The block's input is kept once, by what reads it first.
    assert _kept(layer, RankSpread.TOKENS)["feed_forward_input"] == 64
    of_block = [op.name for op in layer.operators if not op.in_feed_forward]
    assert of_block == ["feed_forward_residual"]


def test_parallel_residual_has_one_norm() -> None:
    layer = _layer(GQA, {**DENSE, "gated": False}, norms_per_layer=1, parallel_residual=True)
    names = [op.name for op in layer.operators]
    assert "feed_forward_norm" not in names
    assert names[7:10] == ["up", "activation", "down"]
    kept = _kept(layer, RankSpread.TOKENS)
    assert (kept["residual"], kept["feed_forward_input"]) == (64, 64)


def test_a_norm_without_weights_of_its_own_keeps_nothing() -> None:
    layer = _layer(GQA, DENSE, norms_per_layer=1)
    assert [bool(op.keeps) for op in layer.operators if op.module == "norm"] == [True, False]


def test_what_is_kept_adds_up_by_kind() -> None:
    layer = _layer(GQA, DENSE)
    summed = {
        (each.element, each.spread): each.columns.total
        for each in layer.saved_tensors
        if "mlp" in each.remade_by and not each.eager
    }
    assert summed == {
        (Element.FEED_FORWARD_INPUT, RankSpread.TOKENS): 64,
        (Element.ACTIVATION_INPUT, RankSpread.TENSOR): 512,
        (Element.DOWN_INPUT, RankSpread.TENSOR): 256,
    }


def test_parts_that_adapters_choose() -> None:
    parts = [
        (part.name, part.adapter)
        for product in _layer(GQA, DENSE).of(MatrixProduct)
        for part in product.columns.parts
    ]
    query_value, attention, every = AdapterTargets
    assert parts == [
        ("q", query_value),
        ("k", attention),
        ("v", query_value),
        ("output", attention),
        ("gate", every),
        ("up", every),
        ("down", every),
    ]


def test_matrices_of_a_checkpoint_that_may_be_quantized() -> None:
    assert _layer(GQA, DENSE).num_matrices == (4, 3)
    routed = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 96}
    # The router stays in 16 bit.
    assert _layer(None, routed).num_matrices == (0, 8 * 3)
    latent = {**routed, "moe_latent_size": 32, "shared_intermediate_size": 64}
    assert _layer(None, latent).num_matrices == (0, (8 + 1) * 3 + 2)


def test_a_description_is_made_once() -> None:
    assert _layer(GQA, DENSE) is _layer(GQA, DENSE)


def test_columns_of_a_rank_are_a_share_of_all_where_nothing_is_copied() -> None:
    split = columns(ColumnPart(name="a", count=8, width=16), ColumnPart(name="b", count=64))
    assert (split.total, split.on_rank(4)) == (192, 48)
