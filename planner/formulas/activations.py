"""Bytes that one layer keeps for its backward pass, module by module.

The sum over a GPT layer without fused attention is ``sbh (34 + 5as/h)`` at
tensor_parallel 1 [1]_.

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
    """Inputs of the norms (2 bytes) and masks of the residual dropouts (1 byte).

    ``split`` is tensor_parallel under sequence parallelism, else 1.
    """
    masks = np.where(dropout, 1.0, 0.0) * num_residuals
    return np.asarray(tokens * hidden_size * (2.0 * num_norms + masks) / split)


def linear_input_bytes(
    *, tokens: Numeric, width: Numeric, split: Numeric, element_bytes: Numeric
) -> FloatArray:
    """The input that a linear layer needs for the gradient of its weights."""
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
    """Queries, keys, values (2 bytes) and one float32 log-sum-exp per query and head."""
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
    """Queries, keys, values and, unless the core is recomputed, the score matrices.

    Scores keep the softmax (2 bytes) and, with dropout, its mask (1) and output (2).
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
    """Inputs of the activation function (``activation_bytes`` each) and of the down projection."""
    activation_inputs = np.asarray(activation_bytes) * (2 if gated else 1)
    return np.asarray(tokens * intermediate_size * (activation_inputs + element_bytes) / split)
