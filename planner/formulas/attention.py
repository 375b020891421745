"""Work of the attention core: scores, softmax, weighted values; and lengths that it depends on.

Lengths of a training set are lognormal with mean m and standard deviation d, and cut off at L
tokens.
"""

from __future__ import annotations

import math

import numpy as np

from planner.base.arrays import BoolArray, FloatArray, Numeric


def mean_keys_per_query(
    *, sequence_length: Numeric, sliding_window: Numeric, causal: bool | BoolArray
) -> FloatArray:
    r"""Return mean keys per query with causal mask and sliding window; all if not causal.

    .. math:: w - \frac{w (w - 1)}{2 s}

    A query sees min(position, w) keys. A window of s or more leaves (s + 1)/2.
    Without the mask windows are blocks, and a query sees all w keys of its own.

    Derived here: the mean of min(position, w) over s positions.
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
    r"""Return forward FLOPs of QK^T and PV.

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
    r"""Return forward bytes of fused attention: reads q, k, v and writes the output once.

    .. math:: e n (a + g) (d_{qk} + d_v)

    a heads of queries, g of keys and values.

    Derived here: FlashAttention keeps the scores on the chip [1]_.

    References
    ----------
    .. [1] T. Dao et al., "FlashAttention," 2022, arXiv:2205.14135, section 3.1.
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
    r"""Return the factor on attention time if few 128-row tiles leave multiprocessors idle.

    .. math:: 1 + \frac{X_0}{X}, \quad X = b a \left\lceil \frac{s}{128} \right\rceil

    X0 is ``wave_fill`` times the number of multiprocessors.

    Derived here, for the blocks of 128 rows of FlashAttention-2 [1]_.

    References
    ----------
    .. [1] T. Dao, "FlashAttention-2," 2023, arXiv:2307.08691, section 3.3.
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
    r"""Return bytes moved by ``passes`` reads or writes of the s x s score matrix.

    .. math:: e p b a s^2

    Derived here.
    """
    return np.asarray(element_bytes * passes * sequences * num_heads * np.square(sequence_length))


MAMBA2_CHUNK = 128
DELTA_CHUNK = 64
_BYTES_PER_STATE = {False: 12.0, True: 4.0}
"""Kernels of Mamba-2 write and read each chunk's state in fp32, then in bf16; delta's in bf16."""


def recurrence_flops(*, tokens: Numeric, state: Numeric, delta_rule: bool) -> FloatArray:
    r"""Return FLOPs to update and read ``state`` elements per token (delta rule reads twice).

    .. math:: 4 T S, \quad \delta : 6 T S

    Derived here: an outer product is added to the state, a vector multiplied with it, at two
    operations a number; delta multiplies another one first.
    """
    return np.asarray((6.0 if delta_rule else 4.0) * tokens * state)


def selective_scan_flops(*, tokens: Numeric, state: Numeric) -> FloatArray:
    r"""Return forward FLOPs of Mamba-1's scan, as equivalent vector operations.

    .. math:: 24 T S

    For each number of the state a decay is made, applied and added to, and the result read: four
    fused operations of 2 FLOPs [1]_, and an exponential in the time of eight of them (16 in a
    clock of a multiprocessor, where it has 128 of the others [2]_). Derived here.

    References
    ----------
    .. [1] A. Gu and T. Dao, "Mamba: Linear-time sequence modeling with selective state spaces,"
       2023, arXiv:2312.00752, equation 2 and section 3.3.
    .. [2] NVIDIA, CUDA C++ Programming Guide, throughput of native arithmetic instructions.
    """
    return np.asarray(24.0 * np.asarray(tokens) * state)


def selective_scan_bytes(*, tokens: Numeric, width: Numeric, key_width: Numeric) -> FloatArray:
    r"""Return forward bytes (16-bit) that Mamba-1's scan reads and writes.

    .. math:: T \left(8 w + 4 k\right)

    The state stays in registers [1]_.

    References
    ----------
    .. [1] A. Gu and T. Dao, "Mamba: Linear-time sequence modeling with selective state spaces,"
       2023, arXiv:2312.00752, section 3.3.2.
    """
    return np.asarray(tokens * (8.0 * np.asarray(width) + 4.0 * np.asarray(key_width)))


def chunked_scan_flops(
    *,
    tokens: Numeric,
    key_width: Numeric,
    value_width: Numeric,
    expanded_key_width: Numeric,
    state: Numeric,
    delta_rule: bool,
) -> FloatArray:
    r"""Return forward FLOPs of chunked linear attention: in chunks, then for the states.

    .. math::

        T \left(2 C (k + v) + 4 S\right), \quad
        \delta : T \left(2 C (3 k_x + 2 v) + 6 S\right)

    Mamba-2 scores each group of keys once, in chunks C of 128 tokens. The delta rule, in chunks
    of 64, scores keys with queries and with keys for every value head (``expanded_key_width``),
    and solves for what the chunk writes.

    Derived here of the products of Dao and Gu, section 6, and Yang et al., section 3.3.
    """
    k, v = key_width, value_width
    inside = 2.0 * MAMBA2_CHUNK * (k + v)
    if delta_rule:
        inside = 2.0 * DELTA_CHUNK * (3.0 * expanded_key_width + 2.0 * v)
    return np.asarray(
        tokens * inside + recurrence_flops(tokens=tokens, state=state, delta_rule=delta_rule)
    )


def chunked_scan_bytes(
    *, tokens: Numeric, mixed_width: Numeric, value_width: Numeric, state: Numeric, delta_rule: bool
) -> FloatArray:
    r"""Return forward bytes of chunked linear attention: 16-bit inputs, outputs and states.

    .. math:: T \left(4 m + 2 v + c S / C\right)

    Mamba-2 keeps its states in c = 12 bytes, the delta rule in 4.

    Derived here of what the kernels of both read and write.
    """
    chunk = DELTA_CHUNK if delta_rule else MAMBA2_CHUNK
    states = _BYTES_PER_STATE[delta_rule] * np.asarray(state) / chunk
    return np.asarray(tokens * (4.0 * np.asarray(mixed_width) + 2.0 * value_width + states))


_POINTS = 2049


def longest_sample(
    *, samples: Numeric, mean: float, deviation: float, longest: float
) -> FloatArray:
    r"""Return expected tokens of the longest of n samples, lengths capped at ``longest``.

    .. math:: \int_0^L 1 - F(x)^n\, dx

    F is the distribution of the lengths before they are cut off [1]_.

    References
    ----------
    .. [1] H. A. David and H. N. Nagaraja, "Order Statistics," 2003, section 3.1: the mean of a
       maximum that is not negative.
    """
    x, below = _distribution(mean, deviation, longest)
    n = np.asarray(samples, dtype=np.float64)
    return np.asarray(np.trapezoid(1.0 - below ** n[..., None], x, axis=-1))


def mean_square_length(*, mean: float, deviation: float, longest: float) -> float:
    r"""Return the mean squared length [tokens^2] of samples capped at ``longest``.

    .. math:: \int_0^L 2 x (1 - F(x))\, dx

    Derived here, by parts.
    """
    x, below = _distribution(mean, deviation, longest)
    return float(np.trapezoid(2.0 * x * (1.0 - below), x))


def _distribution(mean: float, deviation: float, longest: float) -> tuple[FloatArray, FloatArray]:
    """Return lengths up to ``longest`` and the share of shorter samples for each."""
    x = np.linspace(0.0, longest, _POINTS)
    if deviation <= 0:
        return x, np.where(x >= mean, 1.0, 0.0)
    variance = math.log1p((deviation / mean) ** 2)
    centre, width = math.log(mean) - variance / 2, math.sqrt(2 * variance)
    logs = (np.log(np.maximum(x, 1e-12)) - centre) / width
    return x, 0.5 * (1.0 + np.array([math.erf(value) for value in logs]))
