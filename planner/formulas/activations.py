"""Bytes that one layer keeps for its backward pass, module by module.

The sum over a GPT layer without fused attention is ``sbh (34 + 5as/h)`` at
tensor_parallel 1 [1]_. Below, T are tokens, t the GPUs that split them or their heads, e the bytes
of an element; q, k and v are widths of queries, keys and values.

References
----------
.. [1] V. Korthikanti et al., "Reducing activation recomputation in large transformer
   models," 2022, arXiv:2205.05198, section 4.1.
"""

from __future__ import annotations

import numpy as np

from planner.arrays import BoolArray, FloatArray, Numeric


def norm_and_residual_bytes(
    *,
    tokens: Numeric,
    hidden_size: Numeric,
    num_norms: Numeric,
    split: Numeric,
    dropout: bool | BoolArray,
    num_residuals: Numeric = 2,
) -> FloatArray:
    r"""Inputs of the norms (2 bytes) and masks of the residual dropouts (1 byte).

    .. math:: T h (2 n + r) / t

    T ``tokens``; r ``num_residuals``, 0 without dropout; t ``split``: tensor_parallel under
    sequence parallelism, else 1.
    """
    masks = np.where(dropout, 1.0, 0.0) * num_residuals
    return np.asarray(tokens * hidden_size * (2.0 * num_norms + masks) / split)


def linear_input_bytes(
    *, tokens: Numeric, width: Numeric, split: Numeric, element_bytes: Numeric
) -> FloatArray:
    r"""The input that a linear layer needs for the gradient of its weights.

    .. math:: T w e / t
    """
    return np.asarray(tokens * width * element_bytes / split)


def fused_attention_bytes(
    *,
    tokens: Numeric,
    query_width: Numeric,
    key_width: Numeric,
    value_width: Numeric,
    num_heads: Numeric,
    tensor_parallel: Numeric,
) -> FloatArray:
    r"""Queries, keys, values (2 bytes) and one float32 log-sum-exp per query and head.

    .. math:: T \left(2 (q + k + v) + 4 a\right) / t
    """
    widths = query_width + key_width + value_width
    return np.asarray(tokens * (2.0 * widths + 4.0 * num_heads) / tensor_parallel)


def unfused_attention_bytes(
    *,
    tokens: Numeric,
    query_width: Numeric,
    key_width: Numeric,
    value_width: Numeric,
    num_heads: Numeric,
    sequence_length: Numeric,
    tensor_parallel: Numeric,
    dropout: bool | BoolArray,
    core_recomputed: bool | BoolArray,
) -> FloatArray:
    r"""Queries, keys, values and, unless the core is recomputed, the score matrices.

    .. math:: T \left(2 (q + k + v) + c\, a s\right) / t

    Scores keep the softmax (2 bytes) and, with dropout, its mask (1) and output (2): c is 2 or 5,
    and 0 where the core is recomputed.
    """
    widths = 2.0 * (query_width + key_width + value_width)
    per_score = np.where(dropout, 5.0, 2.0)
    scores = np.where(core_recomputed, 0.0, num_heads * sequence_length * per_score)
    return np.asarray(tokens * (widths + scores) / tensor_parallel)


def feed_forward_bytes(
    *,
    tokens: Numeric,
    intermediate_size: Numeric,
    gated: bool,
    split: Numeric,
    element_bytes: Numeric,
    activation_bytes: Numeric = 2.0,
) -> FloatArray:
    r"""Inputs of the activation function (``activation_bytes`` each) and of the down projection.

    .. math:: T f (g\, e_a + e) / t

    A gated MLP has g = 2 inputs of it, else 1.
    """
    activation_inputs = np.asarray(activation_bytes) * (2 if gated else 1)
    return np.asarray(tokens * intermediate_size * (activation_inputs + element_bytes) / split)
