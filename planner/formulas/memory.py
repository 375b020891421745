"""Bytes on one GPU: model states, LoRA adapters, activations, KV cache (GQA and MLA)."""

from __future__ import annotations

import numpy as np

from planner.base.arrays import BoolArray, CodeArray, FloatArray, Numeric
from planner.base.enums import ZeroStage
from planner.formulas.prefix_cache import normal_upper_tail

_BLOCK = 64
_DOUBLE_BLOCK = 256

# 4 bits, an 8-bit scale per block, an fp32 scale per block of scales: 4.127 bits.
_EIGHT = 8
NF4_BYTES = 4 / 8 + 1 / _BLOCK + 4 / (_BLOCK * _DOUBLE_BLOCK)
"""Bytes per parameter of NF4 with double quantization (arXiv:2305.14314, section 3)."""
NF4_SINGLE_BYTES = 4 / 8 + 4 / _BLOCK
"""Bytes per parameter of NF4 with an fp32 scale per block: 4.5 bits (ibid.)."""


def lora_parameters(*, depth: Numeric, columns: Numeric, lora_rank: Numeric) -> FloatArray:
    r"""Count LoRA parameters of a ``depth`` x ``columns`` matrix: two low-rank matrices [1]_.

    .. math:: r (k + n)

    References
    ----------
    .. [1] E. Hu et al., "LoRA," 2021, arXiv:2106.09685, section 4.1.
    """
    r, k, n = lora_rank, depth, columns
    return np.asarray(r * (k + n))


def lora_serving_bytes(
    *, rows: Numeric, inputs: Numeric, outputs: Numeric, lora_rank: Numeric, adapters: Numeric
) -> FloatArray:
    r"""Return bytes moved by LoRA products of m rows with ``adapters`` distinct adapters [1]_.

    .. math:: 2 a r (k + n) + m (2 k + 4 n)

    The first matrices read what enters, once for each matrix of the product; the second ones add to
    what is there, which is read and written. The r numbers between them stay in the cache of the
    GPU. At r FLOPs for some 1.5 bytes it is bound by memory up to ranks of some hundreds.

    References
    ----------
    .. [1] L. Chen et al., "Punica: Multi-tenant LoRA serving," 2023, arXiv:2310.18547, section 4.
    """
    k, n, m, a = np.asarray(inputs), outputs, rows, adapters
    return np.asarray(2.0 * a * lora_rank * (k + n) + m * (2.0 * k + 4.0 * n))


def nf4_bytes(*, double_quantization: bool) -> float:
    r"""Return bytes per parameter of NF4, with or without double quantization.

    .. math:: \frac{4 + 8 / 64 + 32 / (64 \cdot 256)}{8} \text{ or } \frac{4 + 32 / 64}{8}

    The constants are those of double quantization [1]_.

    References
    ----------
    .. [1] T. Dettmers et al., "QLoRA," 2023, arXiv:2305.14314, section 3.
    """
    return NF4_BYTES if double_quantization else NF4_SINGLE_BYTES


def quantized_bytes(*, bits: int, double_quantization: bool) -> float:
    r"""Return bytes per parameter of frozen weights quantized to 4 (`nf4_bytes`) or 8 bits.

    .. math:: b \text{ or } 1

    b is `nf4_bytes`. Scales of 8-bit weights are one number per row [1]_.

    References
    ----------
    .. [1] T. Dettmers et al., "LLM.int8(): 8-bit matrix multiplication for transformers at scale,"
       2022, arXiv:2208.07339, section 2.1.
    """
    return 1.0 if bits == _EIGHT else nf4_bytes(double_quantization=double_quantization)


def dequantize_bytes(*, parameters: Numeric, passes: Numeric, width: float) -> FloatArray:
    r"""Return bytes moved to dequantize weights to 16 bits, ``passes`` times.

    .. math:: N p (b + 2)

    b is ``width``, bytes per parameter as `quantized_bytes` has them. Derived here.
    """
    return np.asarray(parameters * (width + 2.0) * passes)


def saved_tensor_bytes(*, tokens: Numeric, bytes_per_token: Numeric) -> FloatArray:
    r"""Return bytes of activations saved for the backward pass.

    .. math:: T w

    Derived here: bytes per token of an operator (`planner.layers`), times tokens.
    """
    return np.asarray(tokens * np.asarray(bytes_per_token))


def dropout_mask_bytes(*, dropout: bool | BoolArray) -> FloatArray:
    r"""Return bytes of the dropout mask per element; 0 without dropout.

    .. math:: 1 \text{ or } 0

    A mask takes one byte per number (Korthikanti et al., section 4.1).
    """
    return np.where(dropout, 1.0, 0.0)


def attention_score_bytes(
    *, num_keys: Numeric, dropout: bool | BoolArray, element_bytes: Numeric = 2.0
) -> FloatArray:
    r"""Return bytes per query and head of the scores that unfused attention saves.

    .. math:: c\, s

    The softmax (e bytes) and, with dropout, its mask (1) and output (e) of each of s keys: c is 2
    or 5 in 16 bits (Korthikanti et al., section 4.1).
    """
    e = element_bytes
    return np.asarray(np.where(dropout, 2 * np.asarray(e) + 1, e) * num_keys)


def kv_cache_bytes_per_token(
    *, key_value_heads: Numeric, qk_head_dim: Numeric, v_head_dim: Numeric, element_bytes: Numeric
) -> FloatArray:
    r"""Return KV-cache bytes per token and layer (MHA, GQA, MQA).

    .. math:: g (d_{qk} + d_v) e

    Keys and values of all heads are kept [1]_.

    References
    ----------
    .. [1] W. Kwon et al., "Efficient memory management for large language model serving with
       PagedAttention," 2023, arXiv:2309.06180, section 3.
    """
    return np.asarray(key_value_heads * (qk_head_dim + v_head_dim) * np.asarray(element_bytes))


def mla_kv_cache_bytes_per_token(
    *, kv_lora_rank: Numeric, qk_rope_head_dim: Numeric, element_bytes: Numeric
) -> FloatArray:
    r"""Return MLA cache bytes per token and layer: latent plus rotary key [1]_.

    .. math:: (d_c + d_h^R) e

    References
    ----------
    .. [1] DeepSeek-AI, "DeepSeek-V2," 2024, arXiv:2405.04434, section 2.1.
    """
    return np.asarray((kv_lora_rank + qk_rope_head_dim) * np.asarray(element_bytes))


def typical_kv_cache_bytes(*, mean: Numeric, longest: Numeric, sequences: Numeric) -> FloatArray:
    r"""Return KV-cache bytes per sequence of n sequences, if many are long.

    .. math:: m + \frac{l - m}{\sqrt{n}}

    Of few all may be long at once; of many some are always short, and what they hold together
    deviates from its mean as the square root of n. Derived here.
    """
    n = np.maximum(sequences, 1.0)
    return np.asarray(mean + (np.asarray(longest) - mean) / np.sqrt(n))


def kv_cache_overflow_share(
    *, mean: Numeric, variation: Numeric, sequences: Numeric, capacity: Numeric
) -> FloatArray:
    r"""Return the share of running sequences beyond the KV-cache capacity.

    .. math:: \frac{E[(S - R)^+]}{E[S]}, \quad S \sim N(n m, n c^2 m^2)

    Derived here: n sequences of a ``mean`` m of tokens with a coefficient of ``variation`` c take
    as much as a normal variable. Its expected excess over the ``capacity`` R is the loss of an
    order.
    """
    number = np.maximum(sequences, 1e-12)
    spread = np.maximum(np.asarray(variation) / np.sqrt(number), 1e-12)
    place = (np.maximum(capacity, 0.0) / (number * mean) - 1) / spread
    density = np.exp(-np.square(np.minimum(place, 30.0)) / 2) / np.sqrt(2 * np.pi)
    return np.asarray(np.clip(spread * (density - place * normal_upper_tail(place)), 0.0, 1.0))


def paged_kv_cache_tokens(*, tokens: Numeric, block_size: Numeric) -> FloatArray:
    r"""Return tokens that a paged KV cache allocates, with a half-empty last block [1]_.

    .. math:: T + \frac{b - 1}{2}

    References
    ----------
    .. [1] W. Kwon et al., "Efficient memory management for large language model serving with
       PagedAttention," 2023, arXiv:2309.06180.
    """
    return np.asarray(tokens + (np.asarray(block_size, dtype=np.float64) - 1) / 2)


NEWTON_SCHULZ_STEPS = 5


def newton_schulz_flops(
    *, rows: Numeric, columns: Numeric, steps: int = NEWTON_SCHULZ_STEPS
) -> FloatArray:
    r"""Return FLOPs of Muon's Newton-Schulz iteration on one matrix [1]_.

    .. math:: k \left(4 m^2 n + 2 m^3\right)

    m is the smaller and n the larger side: ``A = X X^T``, ``B = b A + c A A``,
    ``X = a X + B X`` in each of k steps.

    References
    ----------
    .. [1] K. Jordan et al., "Muon: an optimizer for hidden layers in neural networks," 2024.
    """
    m = np.minimum(rows, columns).astype(np.float64)
    n = np.maximum(rows, columns).astype(np.float64)
    return np.asarray(steps * (4 * m**2 * n + 2 * m**3))


def block_scaled_bytes(*, element_bytes: float, block: int) -> float:
    r"""Return bytes per element if blocks of B elements share a 32-bit scale [1]_.

    .. math:: e + 4 / B

    References
    ----------
    .. [1] T. Dettmers et al., "8-bit optimizers via block-wise quantization," 2021,
       arXiv:2110.02861, section 2.1.
    """
    return element_bytes + 4 / block


def sharded_bytes(
    *,
    parameters: Numeric,
    bytes_per_parameter: Numeric,
    group_size: Numeric,
    zero_stage: Numeric | CodeArray,
    sharded_from: ZeroStage,
) -> FloatArray:
    r"""Return bytes per GPU of a state that ZeRO shards over n ranks from a stage on [1]_.

    .. math:: N b / n

    Optimizer states are sharded from stage 1, gradients from 2, weights from 3; before, n is 1.

    References
    ----------
    .. [1] S. Rajbhandari et al., "ZeRO: memory optimizations toward training trillion
       parameter models," 2020, arXiv:1910.02054, section 5.
    """
    n = np.where(np.asarray(zero_stage) >= int(sharded_from), group_size, 1.0)
    return np.asarray(parameters * bytes_per_parameter / n)
