"""Bytes of weights, gradients and optimizer states on one GPU."""

from __future__ import annotations

import numpy as np

from planner.base.arrays import CodeArray, FloatArray, Numeric
from planner.base.enums import ZeroStage

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


def sharded_bytes(
    *,
    parameters: Numeric,
    bytes_per_parameter: Numeric,
    group_size: Numeric,
    zero_stage: Numeric | CodeArray,
    sharded_from: ZeroStage,
) -> FloatArray:
    r"""Bytes per GPU of a state that ZeRO shards over n ranks from some stage on [1]_.

    .. math:: N b / n

    Optimizer states are sharded from stage 1, gradients from 2, weights from 3; before, n is 1.

    References
    ----------
    .. [1] S. Rajbhandari et al., "ZeRO: memory optimizations toward training trillion
       parameter models," 2020, arXiv:1910.02054, section 5.
    """
    n = np.where(np.asarray(zero_stage) >= int(sharded_from), group_size, 1.0)
    return np.asarray(parameters * bytes_per_parameter / n)
