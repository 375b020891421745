"""Bytes of the key-value cache: g heads of keys and values, e bytes an element."""

from __future__ import annotations

import numpy as np

from planner.base.arrays import FloatArray, Numeric


def cache_bytes_per_token(
    *, key_value_heads: Numeric, qk_head_dim: Numeric, v_head_dim: Numeric, element_bytes: Numeric
) -> FloatArray:
    r"""Keys and values of one token in one layer.

    .. math:: g (d_{qk} + d_v) e

    Keys and values of all heads are kept [1]_.

    References
    ----------
    .. [1] W. Kwon et al., "Efficient memory management for large language model serving with
       PagedAttention," 2023, arXiv:2309.06180, section 3.
    """
    return np.asarray(key_value_heads * (qk_head_dim + v_head_dim) * np.asarray(element_bytes))


def latent_cache_bytes_per_token(
    *, kv_lora_rank: Numeric, qk_rope_head_dim: Numeric, element_bytes: Numeric
) -> FloatArray:
    r"""The latent and the rotary key of one token in one layer, the same for all heads [1]_.

    .. math:: (d_c + d_h^R) e

    References
    ----------
    .. [1] DeepSeek-AI, "DeepSeek-V2," 2024, arXiv:2405.04434, section 2.1.
    """
    return np.asarray((kv_lora_rank + qk_rope_head_dim) * np.asarray(element_bytes))


def typical_cache_bytes(*, mean: Numeric, longest: Numeric, sequences: Numeric) -> FloatArray:
    r"""Bytes per sequence that n of them hold when many are long.

    .. math:: m + \frac{l - m}{\sqrt{n}}

    Of few all may be long at once; of many some are always short, and what they hold together
    deviates from its mean as the square root of n. Derived here.
    """
    n = np.maximum(sequences, 1.0)
    return np.asarray(mean + (np.asarray(longest) - mean) / np.sqrt(n))


def paged_tokens(*, tokens: Numeric, block_size: Numeric) -> FloatArray:
    r"""Tokens whose room a paged cache takes: the last block is half empty on average [1]_.

    .. math:: T + \frac{b - 1}{2}

    References
    ----------
    .. [1] W. Kwon et al., "Efficient memory management for large language model serving with
       PagedAttention," 2023, arXiv:2309.06180.
    """
    return np.asarray(tokens + (np.asarray(block_size, dtype=np.float64) - 1) / 2)
