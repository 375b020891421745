"""Parameter formulas against published configurations and matrices counted by hand."""

import numpy as np
import pytest

from planner.formulas.parameters import (
    attention_parameters,
    embedding_parameters,
    expert_parameters,
    feed_forward_parameters,
    indexer_parameters,
    latent_attention_parameters,
    linear_attention_parameters,
    logits_parameters,
    mamba2_parameters,
    norm_parameters,
    router_parameters,
)


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
    shape = {"hidden_size": 8192, "num_attention_heads": 64, "head_dim": 128}
    assert attention_parameters(**shape, **arguments) == count


def test_latent_attention_arxiv_2412_19437_section_4_2() -> None:
    count = latent_attention_parameters(
        hidden_size=7168,
        num_attention_heads=128,
        head_dim=192,
        qk_rope_head_dim=64,
        v_head_dim=128,
        q_lora_rank=1536,
        kv_lora_rank=512,
    )
    query = 7168 * 1536 + 1536 + 1536 * 128 * 192
    key_value = 7168 * (512 + 64) + 512 + 512 * 128 * (128 + 128)
    assert count == query + key_value + 128 * 128 * 7168


def test_indexer_of_deepseek_v3_2_arxiv_2512_02556() -> None:
    count = indexer_parameters(
        hidden_size=7168, q_lora_rank=1536, index_n_heads=64, index_head_dim=128
    )
    assert count == 1536 * 64 * 128 + 7168 * 128 + (128 + 128) + 7168 * 64
    none = indexer_parameters(hidden_size=7168, q_lora_rank=1536, index_n_heads=0, index_head_dim=0)
    assert none == 0


def test_gated_delta_net_of_qwen3_next_tensor_by_tensor() -> None:
    count = linear_attention_parameters(
        hidden_size=2048,
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
    count = mamba2_parameters(
        hidden_size=2688,
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


def test_latent_attention_without_a_query_latent() -> None:
    ranks = np.array([0, 64])
    with_and_without = latent_attention_parameters(
        hidden_size=2048,
        num_attention_heads=16,
        head_dim=192,
        qk_rope_head_dim=64,
        v_head_dim=128,
        q_lora_rank=ranks,
        kv_lora_rank=512,
    )
    full, through_latent = 2048 * 16 * 192, 2048 * 64 + 64 + 64 * 16 * 192
    assert with_and_without[0] - with_and_without[1] == full - through_latent


def test_megatron_layer_is_12_h_squared_plus_13_h_arxiv_2104_04473_equation_2() -> None:
    h = np.array([2304, 12288, 25600])
    layer = (
        attention_parameters(
            hidden_size=h,
            num_attention_heads=1,
            num_key_value_heads=1,
            head_dim=h,
            qkv_bias=True,
            output_bias=True,
        )
        + feed_forward_parameters(hidden_size=h, intermediate_size=4 * h, gated=False, bias=True)
        + norm_parameters(hidden_size=h, num_norms=2, norm_bias=True)
    )
    np.testing.assert_array_equal(layer, 12 * h**2 + 13 * h)


def test_gated_mlp_has_three_matrices_arxiv_2002_05202() -> None:
    gated = np.array([True, False])
    count = feed_forward_parameters(hidden_size=8, intermediate_size=32, gated=gated, bias=True)
    np.testing.assert_array_equal(count, [3 * 256 + 64 + 8, 2 * 256 + 32 + 8])


def test_experts_and_router_arxiv_2401_04088() -> None:
    experts = expert_parameters(hidden_size=4096, num_experts=8, moe_intermediate_size=14336)
    assert experts == 8 * 3 * 4096 * 14336
    assert router_parameters(hidden_size=4096, num_experts=8) == 8 * 4096
    biased = router_parameters(
        hidden_size=64, num_experts=8, router_bias=True, shared_expert_gate=True
    )
    assert biased == 8 * 64 + 8 + 64


def test_embedding_and_logits_arxiv_2104_04473_equation_2() -> None:
    embedding = embedding_parameters(hidden_size=2304, vocab_size=51200, num_positions=2048)
    assert embedding == (51200 + 2048) * 2304
    tied = np.array([True, False])
    logits = logits_parameters(
        hidden_size=16, vocab_size=100, tie_word_embeddings=tied, logits_bias=True
    )
    np.testing.assert_array_equal(logits, [100, 1700])


def test_counts_of_arrays_are_counts_of_their_entries() -> None:
    heads = np.array([8, 64, 128])
    together = attention_parameters(
        hidden_size=64 * heads, num_attention_heads=heads, num_key_value_heads=8, head_dim=64
    )
    apart = [
        attention_parameters(
            hidden_size=64 * number, num_attention_heads=number, num_key_value_heads=8, head_dim=64
        )
        for number in heads.tolist()
    ]
    np.testing.assert_array_equal(together, apart)
