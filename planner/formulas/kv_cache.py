"""Bytes of the key-value cache: g heads of keys and values, e bytes an element."""

from __future__ import annotations

import numpy as np

from planner.base.arrays import FloatArray, Numeric


def cache_bytes_per_token(
    *, key_value_heads: Numeric, qk_head_dim: Numeric, v_head_dim: Numeric, element_bytes: Numeric
) -> FloatArray:
    r"""Keys and values of one token in one layer.

    .. math:: g (d_{qk} + d_v) e
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


def paged_tokens(*, tokens: Numeric, block_size: Numeric) -> FloatArray:
    r"""Tokens whose room a paged cache takes: the last block is half empty on average [1]_.

    .. math:: T + \frac{b - 1}{2}

    References
    ----------
    .. [1] W. Kwon et al., "Efficient memory management for large language model serving with
       PagedAttention," 2023, arXiv:2309.06180.
    """
    return np.asarray(tokens + (np.asarray(block_size, dtype=np.float64) - 1) / 2)
