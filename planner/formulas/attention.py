"""Work of the attention core: scores, softmax, weighted values."""

from __future__ import annotations

import numpy as np

from planner.base.arrays import BoolArray, FloatArray, Numeric


def mean_keys_per_query(
    *, sequence_length: Numeric, sliding_window: Numeric, causal: bool | BoolArray
) -> FloatArray:
    r"""Keys that an average query attends to under a causal mask and a window; all without a mask.

    .. math:: w - \frac{w (w - 1)}{2 s}

    A query sees min(position, w) keys. A window of s or more leaves (s + 1)/2.
    Without the mask windows are blocks, and a query sees all w keys of its own.
    """
    s = np.asarray(sequence_length, dtype=np.float64)
    w = np.minimum(sliding_window, s)
    windowed = w - w * (w - 1) / (2 * s)
    return np.where(causal, windowed, w)


def attention_core_flops(
    *,
    num_queries: Numeric,
    keys_per_query: Numeric,
    num_heads: Numeric,
    qk_head_dim: Numeric,
    v_head_dim: Numeric,
) -> FloatArray:
    r"""Forward FLOPs of QK^T and PV.

    .. math:: 2 n k a (d_{qk} + d_v)

    The backward pass of a fused kernel recomputes the scores and does 2.5 times this [1]_.

    References
    ----------
    .. [1] T. Dao, "FlashAttention-2," 2023, arXiv:2307.08691, section 4.1.
    """
    n, k, a = num_queries, keys_per_query, num_heads
    return np.asarray(2.0 * n * k * a * (qk_head_dim + v_head_dim))


def attention_core_bytes(
    *,
    num_queries: Numeric,
    num_heads: Numeric,
    num_key_value_heads: Numeric,
    qk_head_dim: Numeric,
    v_head_dim: Numeric,
    element_bytes: Numeric = 2,
) -> FloatArray:
    r"""Forward bytes of a fused kernel: it reads q, k, v and writes the output, once.

    .. math:: e n (a + g) (d_{qk} + d_v)

    a heads of queries, g of keys and values.
    """
    per_query = num_heads * (qk_head_dim + v_head_dim)
    per_key = num_key_value_heads * (qk_head_dim + v_head_dim)
    return np.asarray(element_bytes * num_queries * (per_query + per_key))


def wave_fill_factor(
    *,
    sequences: Numeric,
    num_heads: Numeric,
    sequence_length: Numeric,
    num_multiprocessors: Numeric,
    wave_fill: Numeric,
) -> FloatArray:
    r"""How work grows when few 128-row tiles X share the multiprocessors.

    .. math:: 1 + \frac{X_0}{X}, \quad X = b a \left\lceil \frac{s}{128} \right\rceil

    X0 is ``wave_fill`` times the number of multiprocessors.
    """
    tiles = sequences * num_heads * np.ceil(np.asarray(sequence_length) / 128)
    return np.asarray(1 + wave_fill * num_multiprocessors / np.maximum(tiles, 1))


def unfused_softmax_bytes(
    *,
    sequences: Numeric,
    num_heads: Numeric,
    sequence_length: Numeric,
    passes: Numeric,
    element_bytes: Numeric = 2.0,
) -> FloatArray:
    r"""Bytes that unfused scores move: ``passes`` reads or writes of an s x s matrix.

    .. math:: e p b a s^2
    """
    return np.asarray(element_bytes * passes * sequences * num_heads * np.square(sequence_length))
