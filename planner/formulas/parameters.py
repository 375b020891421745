"""How many parameters the parts of a transformer have.

Flags may be booleans or arrays of them; sizes may be integers or arrays. Counts stay
exact up to 2**53.
"""

from __future__ import annotations

import numpy as np

from planner.arrays import FloatArray, Numeric


def attention_parameters(
    *,
    hidden_size: Numeric,
    num_attention_heads: Numeric,
    num_key_value_heads: Numeric,
    head_dim: Numeric,
    qkv_bias: Numeric = 0,
    output_bias: Numeric = 0,
    qk_norm: Numeric = 0,
    qk_norm_per_head: Numeric = 0,
    sinks: Numeric = 0,
    attn_output_gate: Numeric = 0,
) -> Numeric:
    r"""Parameters of multi-head, grouped-query or multi-query attention.

    .. math:: 2 h d (a + g) + b_{qkv} d (a + 2 g) + b_o h

    Query and output projections have :math:`a` heads of width :math:`d`, keys and values
    :math:`g` [1]_. The norms of queries and keys have :math:`d` weights each, shared by
    the heads or (``qk_norm_per_head``) one set per head. Sinks are one number per head.
    A gate on the output is as wide as the queries, :math:`h a d` more [2]_.

    References
    ----------
    .. [1] J. Ainslie et al., "GQA: Training generalized multi-query transformer models
       from multi-head checkpoints," 2023, arXiv:2305.13245, section 2.2.
    .. [2] Z. Qiu et al., "Gated attention for large language models: Non-linearity,
       sparsity, and attention-sink-free," 2025, arXiv:2505.06708, section 2.2.
    """
    h, d = hidden_size, head_dim
    a, g = num_attention_heads, num_key_value_heads

    projections = 2 * h * d * (a + g)
    biases = qkv_bias * d * (a + 2 * g) + output_bias * h
    shared_norms = 2 * d * qk_norm * (1 - qk_norm_per_head)
    norms_per_head = d * (a + g) * qk_norm * qk_norm_per_head
    gate = attn_output_gate * h * a * d
    return projections + gate + biases + shared_norms + norms_per_head + sinks * a


def latent_attention_parameters(
    *,
    hidden_size: Numeric,
    num_attention_heads: Numeric,
    head_dim: Numeric,
    qk_rope_head_dim: Numeric,
    v_head_dim: Numeric,
    q_lora_rank: Numeric,
    kv_lora_rank: Numeric,
) -> FloatArray:
    r"""Parameters of multi-head latent attention, its two latent norms included.

    .. math:: h d_c' + d_c' + d_c' n_h d + h (d_c + d_h^R) + d_c
              + d_c n_h (d - d_h^R + d_v) + n_h d_v h

    ``head_dim`` :math:`d` includes the rotary part :math:`d_h^R`. Without a query latent
    (``q_lora_rank`` 0) the first three terms are :math:`h n_h d` [1]_.

    References
    ----------
    .. [1] DeepSeek-AI, "DeepSeek-V2: A strong, economical, and efficient
       mixture-of-experts language model," 2024, arXiv:2405.04434, equations 37-47.
    """
    h, n_h, d_v = np.asarray(hidden_size, np.float64), num_attention_heads, v_head_dim
    d, d_rope = head_dim, qk_rope_head_dim
    d_q, d_c = np.asarray(q_lora_rank, np.float64), np.asarray(kv_lora_rank, np.float64)

    through_latent = h * d_q + d_q + d_q * n_h * d
    query = np.where(d_q > 0, through_latent, h * n_h * d)
    key_value_down = h * (d_c + d_rope) + d_c
    key_value_up = d_c * n_h * (d - d_rope + d_v)
    output = n_h * d_v * h
    return query + key_value_down + key_value_up + output


def indexer_parameters(
    *,
    hidden_size: Numeric,
    q_lora_rank: Numeric,
    index_n_heads: Numeric,
    index_head_dim: Numeric,
) -> Numeric:
    r"""Parameters of the indexer that chooses the keys of sparse latent attention.

    .. math:: d_c' H^I d^I + h d^I + 2 d^I + h H^I

    Queries come from the query latent; one key head has a layer norm with a bias; each
    query head has a weight per token [1]_.

    References
    ----------
    .. [1] DeepSeek-AI, "DeepSeek-V3.2: Pushing the frontier of open large language
       models," 2025, arXiv:2512.02556, equation 1.
    """
    h, d_q = hidden_size, q_lora_rank
    heads, d = index_n_heads, index_head_dim

    queries = d_q * heads * d
    keys = h * d + 2 * d
    weights = h * heads
    return queries + keys + weights


def linear_attention_parameters(
    *,
    hidden_size: Numeric,
    linear_num_key_heads: Numeric,
    linear_num_value_heads: Numeric,
    linear_key_head_dim: Numeric,
    linear_value_head_dim: Numeric,
    linear_conv_kernel_dim: Numeric,
) -> Numeric:
    r"""Parameters of a gated delta net, the linear attention of Qwen3-Next.

    .. math:: h (2 K + 3 V) + 2 h a_v + w (2 K + V) + 2 a_v + d_v

    With :math:`K = a_k d_k` and :math:`V = a_v d_v`: queries, keys, values, output gate and
    output projection; two gates per value head; a depthwise convolution over :math:`w`
    tokens; decay and step bias per value head; one norm for all heads [1]_.

    References
    ----------
    .. [1] S. Yang et al., "Gated delta networks: Improving Mamba2 with delta rule," 2024,
       arXiv:2412.06464.
    """
    h, w = hidden_size, linear_conv_kernel_dim
    a_v, d_v = linear_num_value_heads, linear_value_head_dim
    K, V = linear_num_key_heads * linear_key_head_dim, a_v * d_v

    projections = h * (2 * K + 3 * V)
    gates = 2 * h * a_v
    convolution = w * (2 * K + V)
    per_head = 2 * a_v
    return projections + gates + convolution + per_head + d_v


def mamba2_parameters(
    *,
    hidden_size: Numeric,
    linear_num_key_heads: Numeric,
    linear_num_value_heads: Numeric,
    linear_key_head_dim: Numeric,
    linear_value_head_dim: Numeric,
    linear_conv_kernel_dim: Numeric,
) -> Numeric:
    r"""Parameters of a Mamba-2 layer without its norm before it.

    .. math:: h (2 K + 3 V + a_v) + (w + 1) (2 K + V) + 3 a_v + V

    With :math:`K = a_k d_k` and :math:`V = a_v d_v`: projections of B, C, inputs, gate and
    step, and output projection; a depthwise convolution over :math:`w` tokens with a bias;
    decay, step bias and skip per head; the gated norm [1]_.

    References
    ----------
    .. [1] T. Dao and A. Gu, "Transformers are SSMs," 2024, arXiv:2405.21060, section 7.
    """
    h, w, a_v = hidden_size, linear_conv_kernel_dim, linear_num_value_heads
    K, V = linear_num_key_heads * linear_key_head_dim, a_v * linear_value_head_dim

    projections = h * (2 * K + 3 * V + a_v)
    convolution = (w + 1) * (2 * K + V)
    per_head = 3 * a_v
    return projections + convolution + per_head + V


def feed_forward_parameters(
    *,
    hidden_size: Numeric,
    intermediate_size: Numeric,
    gated: Numeric = 1,
    bias: Numeric = 0,
) -> Numeric:
    r"""Parameters of one MLP.

    .. math:: (2 + g) h f + b ((1 + g) f + h)

    A gated MLP (:math:`g = 1`) has a third matrix [1]_.

    References
    ----------
    .. [1] N. Shazeer, "GLU variants improve transformer," 2020, arXiv:2002.05202,
       equation 6.
    """
    h, f, g = hidden_size, intermediate_size, gated

    matrices = (2 + g) * h * f
    biases = bias * ((1 + g) * f + h)
    return matrices + biases


def expert_parameters(
    *,
    hidden_size: Numeric,
    num_experts: Numeric,
    moe_intermediate_size: Numeric,
    gated: Numeric = 1,
    bias: Numeric = 0,
) -> Numeric:
    r"""Parameters of ``num_experts`` routed experts, each an MLP of its own.

    .. math:: E \left((2 + g) h f_e + b ((1 + g) f_e + h)\right)

    With ``num_experts`` the experts one token visits, the active ones [1]_.

    References
    ----------
    .. [1] A. Q. Jiang et al., "Mixtral of experts," 2024, arXiv:2401.04088, section 2.1.
    """
    one_expert = feed_forward_parameters(
        hidden_size=hidden_size,
        intermediate_size=moe_intermediate_size,
        gated=gated,
        bias=bias,
    )
    return num_experts * one_expert


def router_parameters(
    *,
    hidden_size: Numeric,
    num_experts: Numeric,
    router_bias: Numeric = 0,
    shared_expert_gate: Numeric = 0,
) -> Numeric:
    r"""Parameters of the router, with the gate of the shared expert where there is one.

    .. math:: h E + b E + s h

    The bias may steer the load only, as in DeepSeek-V3 [1]_.

    References
    ----------
    .. [1] DeepSeek-AI, "DeepSeek-V3 technical report," 2024, arXiv:2412.19437,
       equations 13-16.
    """
    h, experts = hidden_size, num_experts

    return h * experts + router_bias * experts + shared_expert_gate * h


def norm_parameters(
    *, hidden_size: Numeric, num_norms: Numeric = 1, norm_bias: Numeric = 0
) -> Numeric:
    r"""Parameters of ``num_norms`` norms: a weight per channel, and a bias in layer norms.

    .. math:: n h (1 + b)

    RMS norms have no bias [1]_.

    References
    ----------
    .. [1] B. Zhang and R. Sennrich, "Root mean square layer normalization," 2019,
       arXiv:1910.07467, equation 4.
    """
    return num_norms * hidden_size * (1 + norm_bias)


def embedding_parameters(
    *, hidden_size: Numeric, vocab_size: Numeric, num_positions: Numeric = 0
) -> Numeric:
    r"""Parameters of the token embedding and of learned positions.

    .. math:: (V + s) h

    The vocabulary and position terms of the parameter count of [1]_.

    References
    ----------
    .. [1] D. Narayanan et al., "Efficient large-scale language model training on GPU
       clusters using Megatron-LM," 2021, arXiv:2104.04473, equation 2.
    """
    return (vocab_size + num_positions) * hidden_size


def logits_parameters(
    *,
    hidden_size: Numeric,
    vocab_size: Numeric,
    tie_word_embeddings: Numeric,
    logits_bias: Numeric = 0,
) -> Numeric:
    r"""Parameters of the output projection; tied weights count in the embedding.

    .. math:: (1 - t) V h + b V

    Tying is [1]_.

    References
    ----------
    .. [1] O. Press and L. Wolf, "Using the output embedding to improve language models,"
       2017, arXiv:1608.05859.
    """
    matrix = (1 - tie_word_embeddings) * vocab_size * hidden_size
    return matrix + logits_bias * vocab_size
