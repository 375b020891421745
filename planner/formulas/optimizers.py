"""What an optimizer keeps for each parameter, and the work of an update."""

from __future__ import annotations

import numpy as np

from planner.base.arrays import FloatArray, Numeric

NEWTON_SCHULZ_STEPS = 5


def newton_schulz_flops(
    *, rows: Numeric, columns: Numeric, steps: int = NEWTON_SCHULZ_STEPS
) -> FloatArray:
    r"""Operations of Muon's Newton-Schulz iteration on one matrix [1]_.

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
    r"""Bytes per number where blocks of B numbers share a scale in 32 bits [1]_.

    .. math:: e + 4 / B

    References
    ----------
    .. [1] T. Dettmers et al., "8-bit optimizers via block-wise quantization," 2021,
       arXiv:2110.02861, section 2.1.
    """
    return element_bytes + 4 / block
