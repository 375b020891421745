"""Parameters of described layers against published configurations and matrices counted by hand."""

import pytest

from planner.layers.attention import attention_block
from planner.layers.feed_forward import feed_forward_block
from planner.layers.model import embedding, logits, parameters_by_part
from planner.layers.operators import ParameterPart
from planner.specs.attention import AttentionSpec
from planner.specs.model import FeedForwardSpec, LayerGroup, ModelSpec


def _attention(h: int, **spec: object) -> int:
    group = LayerGroup(num_hidden_layers=1, attention=AttentionSpec(**spec))
    return parameters_by_part(attention_block(h, group, rotary=True))[ParameterPart.ATTENTION]


def _feed_forward(h: int, **spec: object) -> dict[ParameterPart, int]:
    group = LayerGroup(num_hidden_layers=1, feed_forward=FeedForwardSpec(**spec))
    return parameters_by_part(feed_forward_block(h, group))


@pytest.mark.parametrize(
    ("arguments", "count"),
    [
        pytest.param({"num_key_value_heads": 64}, 4 * 8192**2, id="multi-head"),
        pytest.param(
            {"num_key_value_heads": 8}, 2 * 8192**2 + 2 * 8192 * 1024, id="arXiv:2307.09288-70B"
        ),
        pytest.param(
            {"num_key_value_heads": 8, "qkv_bias": True, "output_bias": True},
            2 * 8192**2 + 2 * 8192 * 1024 + (8192 + 2048) + 8192,
            id="biases",
        ),
        pytest.param(
            {"num_key_value_heads": 8, "qk_norm": True},
            2 * 8192**2 + 2 * 8192 * 1024 + 2 * 128,
            id="norms-shared-by-heads",
        ),
        pytest.param(
            {"num_key_value_heads": 8, "qk_norm": True, "qk_norm_per_head": True},
            2 * 8192**2 + 2 * 8192 * 1024 + 72 * 128,
            id="norms-of-each-head",
        ),
        pytest.param(
            {"num_key_value_heads": 8, "sinks": True},
            2 * 8192**2 + 2 * 8192 * 1024 + 64,
            id="sinks",
        ),
        pytest.param(
            {"num_key_value_heads": 8, "attn_output_gate": True},
            3 * 8192**2 + 2 * 8192 * 1024,
            id="arXiv:2505.06708-gate",
        ),
    ],
)
def test_attention(arguments: dict, count: int) -> None:
    assert _attention(8192, num_attention_heads=64, head_dim=128, **arguments) == count


_LATENT = {
    "kind": "latent",
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "head_dim": 192,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "kv_lora_rank": 512,
}


def test_latent_attention_arxiv_2412_19437_section_4_2() -> None:
    query = 7168 * 1536 + 1536 + 1536 * 128 * 192
    key_value = 7168 * (512 + 64) + 512 + 512 * 128 * (128 + 128)
    count = _attention(7168, **_LATENT, q_lora_rank=1536)
    assert count == query + key_value + 128 * 128 * 7168


def test_latent_attention_without_a_query_latent() -> None:
    full, through_latent = 2048 * 128 * 192, 2048 * 64 + 64 + 64 * 128 * 192
    without, with_one = (_attention(2048, **_LATENT, q_lora_rank=rank) for rank in (0, 64))
    assert without - with_one == full - through_latent


def test_indexer_of_deepseek_v3_2_arxiv_2512_02556() -> None:
    latent = {**_LATENT, "q_lora_rank": 1536}
    sizes = {"index_n_heads": 64, "index_head_dim": 128, "index_topk": 2048}
    added = _attention(7168, **latent, **sizes) - _attention(7168, **latent)
    assert added == 1536 * 64 * 128 + 7168 * 128 + (128 + 128) + 7168 * 64


def test_gated_delta_net_of_qwen3_next_tensor_by_tensor() -> None:
    count = _attention(
        2048,
        kind="linear",
        num_attention_heads=16,
        num_key_value_heads=2,
        head_dim=256,
        linear_num_key_heads=16,
        linear_num_value_heads=32,
        linear_key_head_dim=128,
        linear_value_head_dim=128,
        linear_conv_kernel_dim=4,
    )
    tensors = {
        "in_proj_qkvz": 2048 * (2048 + 2048 + 4096 + 4096),
        "in_proj_ba": 2048 * 2 * 32,
        "conv1d": (2048 + 2048 + 4096) * 4,
        "A_log": 32,
        "dt_bias": 32,
        "norm": 128,
        "out_proj": 4096 * 2048,
    }
    assert count == sum(tensors.values())


def test_mamba2_of_nemotron_3_nano_tensor_by_tensor() -> None:
    count = _attention(
        2688,
        kind="mamba2",
        num_attention_heads=32,
        num_key_value_heads=2,
        head_dim=128,
        linear_num_key_heads=8,
        linear_num_value_heads=64,
        linear_key_head_dim=128,
        linear_value_head_dim=64,
        linear_conv_kernel_dim=4,
    )
    tensors = {
        "in_proj": 2688 * 10304,
        "conv1d": (4096 + 2 * 1024) * 4,
        "conv1d_bias": 4096 + 2 * 1024,
        "A_log": 64,
        "D": 64,
        "dt_bias": 64,
        "norm": 4096,
        "out_proj": 4096 * 2688,
    }
    assert count == sum(tensors.values())


@pytest.mark.parametrize("h", [2304, 12288, 25600])
def test_megatron_layer_is_12_h_squared_plus_13_h_arxiv_2104_04473_equation_2(h: int) -> None:
    group = LayerGroup(
        num_hidden_layers=1,
        attention=AttentionSpec(
            num_attention_heads=h // 128,
            num_key_value_heads=h // 128,
            head_dim=128,
            qkv_bias=True,
            output_bias=True,
        ),
        feed_forward=FeedForwardSpec(intermediate_size=4 * h, gated=False, bias=True),
        norm_bias=True,
    )
    layer = (*attention_block(h, group, rotary=False), *feed_forward_block(h, group))
    assert sum(parameters_by_part(layer).values()) == 12 * h**2 + 13 * h


def test_gated_mlp_has_three_matrices_arxiv_2002_05202() -> None:
    gated, plain = (
        _feed_forward(8, intermediate_size=32, gated=gated, bias=True)[ParameterPart.FEED_FORWARD]
        for gated in (True, False)
    )
    assert (gated, plain) == (3 * 256 + 64 + 8, 2 * 256 + 32 + 8)


def test_experts_and_router_arxiv_2401_04088() -> None:
    routed = {"num_experts": 8, "num_experts_per_tok": 2}
    held = _feed_forward(4096, moe_intermediate_size=14336, **routed)
    assert held[ParameterPart.EXPERTS] == 8 * 3 * 4096 * 14336
    assert held[ParameterPart.ROUTER] == 8 * 4096
    assert held[ParameterPart.FEED_FORWARD] == 0


def test_router_with_bias_gate_and_latent_experts() -> None:
    held = _feed_forward(
        64,
        num_experts=8,
        num_experts_per_tok=2,
        moe_intermediate_size=32,
        moe_latent_size=16,
        shared_intermediate_size=48,
        router_bias=True,
        shared_expert_gate=True,
        gated=False,
        bias=True,
    )
    assert held[ParameterPart.ROUTER] == 8 * 64 + 8 + 64 + 2 * 64 * 16
    assert held[ParameterPart.EXPERTS] == 8 * (2 * 16 * 32 + 32 + 16)
    assert held[ParameterPart.FEED_FORWARD] == 2 * 64 * 48 + 48 + 64


@pytest.mark.parametrize(
    ("norms", "parallel", "blocks"),
    [(1, False, 2), (2, False, 2), (4, False, 2), (1, True, 2), (2, True, 2), (1, False, 1)],
)
def test_every_norm_of_a_layer_is_held_once(norms: int, parallel: bool, blocks: int) -> None:
    attention = AttentionSpec(num_attention_heads=4, num_key_value_heads=4, head_dim=16)
    group = LayerGroup(
        num_hidden_layers=1,
        attention=attention if blocks == 2 else None,
        feed_forward=FeedForwardSpec(intermediate_size=256),
        norms_per_layer=norms,
        norm_bias=True,
        parallel_residual=parallel,
    )
    layer = (*attention_block(64, group, rotary=True), *feed_forward_block(64, group))
    assert parameters_by_part(layer)[ParameterPart.NORMS] == norms * 2 * 64


def test_embedding_and_logits_arxiv_2104_04473_equation_2() -> None:
    attention = AttentionSpec(num_attention_heads=4, num_key_value_heads=4, head_dim=16)
    layer = LayerGroup(num_hidden_layers=1, attention=attention)
    shape = {"name": "m", "source": "made up", "layer_groups": (layer,), "logits_bias": True}
    learned = ModelSpec(
        **shape,
        hidden_size=2304,
        vocab_size=51200,
        position_embedding="learned",
        max_position_embeddings=2048,
    )
    assert parameters_by_part(embedding(learned))[ParameterPart.EMBEDDING] == (51200 + 2048) * 2304
    counts = [
        parameters_by_part(
            logits(ModelSpec(**shape, hidden_size=16, vocab_size=100, tie_word_embeddings=tied))
        )[ParameterPart.LOGITS]
        for tied in (True, False)
    ]
    assert counts == [100, 1700]
