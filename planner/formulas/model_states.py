"""Bytes of weights, gradients and optimizer states on one GPU."""

from __future__ import annotations

import numpy as np

from planner.base.arrays import CodeArray, FloatArray, Numeric
from planner.base.enums import ZeroStage


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
