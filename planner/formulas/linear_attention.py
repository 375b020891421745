"""Work of linear attention and of Mamba-2, which is linear attention with decay.

Training and prompts use the chunked form: products inside chunks of the sequence, and a state
handed from chunk to chunk [1]_ [2]_. With ``delta_rule`` it is the gated delta net,
marked by a delta in what follows. T are tokens, S the numbers of a state.

References
----------
.. [1] T. Dao and A. Gu, "Transformers are SSMs," 2024, arXiv:2405.21060, section 6.
.. [2] S. Yang et al., "Gated delta networks: Improving Mamba2 with delta rule," 2024,
   arXiv:2412.06464, section 3.3.
"""

from __future__ import annotations

import numpy as np

from planner.base.arrays import FloatArray, Numeric

MAMBA2_CHUNK = 128
DELTA_CHUNK = 64
_BYTES_PER_STATE = {False: 12.0, True: 4.0}
"""Kernels of Mamba-2 write and read each chunk's state in fp32, then in bf16; delta's in bf16."""


def recurrence_flops(*, tokens: Numeric, state: Numeric, delta_rule: bool) -> FloatArray:
    r"""Update and read of a state of ``state`` numbers for every token; delta reads it twice.

    .. math:: 4 T S, \quad \delta : 6 T S
    """
    return np.asarray((6.0 if delta_rule else 4.0) * tokens * state)


def chunked_scan_flops(
    *,
    tokens: Numeric,
    key_width: Numeric,
    value_width: Numeric,
    expanded_key_width: Numeric,
    state: Numeric,
    delta_rule: bool,
) -> FloatArray:
    r"""Forward FLOPs of the chunked form: scores and values inside a chunk, then the state.

    .. math::

        T \left(2 C (k + v) + 4 S\right), \quad
        \delta : T \left(2 C (3 k_x + 2 v) + 6 S\right)

    Mamba-2 scores each group of keys once, in chunks C of 128 tokens. The delta rule, in chunks
    of 64, scores keys with queries and with keys for every value head (``expanded_key_width``),
    and solves for what the chunk writes.
    """
    k, v = key_width, value_width
    inside = 2.0 * MAMBA2_CHUNK * (k + v)
    if delta_rule:
        inside = 2.0 * DELTA_CHUNK * (3.0 * expanded_key_width + 2.0 * v)
    return np.asarray(
        tokens * inside + recurrence_flops(tokens=tokens, state=state, delta_rule=delta_rule)
    )


def chunked_scan_bytes(
    *,
    tokens: Numeric,
    mixed_width: Numeric,
    value_width: Numeric,
    state: Numeric,
    delta_rule: bool,
) -> FloatArray:
    r"""Forward bytes: 16-bit inputs read for the states and the outputs, and chunk states.

    .. math:: T \left(4 m + 2 v + c S / C\right)

    Mamba-2 keeps its states in c = 12 bytes, the delta rule in 4.
    """
    chunk = DELTA_CHUNK if delta_rule else MAMBA2_CHUNK
    states = _BYTES_PER_STATE[delta_rule] * np.asarray(state) / chunk
    return np.asarray(tokens * (4.0 * np.asarray(mixed_width) + 2.0 * value_width + states))
