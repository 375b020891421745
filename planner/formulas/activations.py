"""Bytes that one layer keeps for its backward pass.

The sum over a GPT layer without fused attention is ``sbh (34 + 5as/h)`` at
tensor_parallel 1 [1]_.

References
----------
.. [1] V. Korthikanti et al., "Reducing activation recomputation in large transformer
   models," 2022, arXiv:2205.05198, section 4.1.
"""

from __future__ import annotations

import numpy as np

from planner.base.arrays import BoolArray, FloatArray, Numeric


def kept_bytes(*, tokens: Numeric, bytes_per_token: Numeric) -> FloatArray:
    r"""Bytes that a GPU keeps of so many tokens.

    .. math:: T w
    """
    return np.asarray(tokens * np.asarray(bytes_per_token))


def dropout_mask_bytes(*, dropout: bool | BoolArray) -> FloatArray:
    r"""Bytes per number that a dropout passes: one of its mask, none without dropout.

    .. math:: 1 \text{ or } 0
    """
    return np.where(dropout, 1.0, 0.0)


def score_bytes(
    *, num_keys: Numeric, dropout: bool | BoolArray, element_bytes: Numeric = 2.0
) -> FloatArray:
    r"""Bytes that unfused attention keeps per query and head.

    .. math:: c\, s

    The softmax (e bytes) and, with dropout, its mask (1) and output (e) of each of s keys: c is 2
    or 5 in 16 bits (Korthikanti et al., section 4.1).
    """
    e = element_bytes
    return np.asarray(np.where(dropout, 2 * np.asarray(e) + 1, e) * num_keys)
