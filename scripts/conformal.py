"""Conformal prediction: factors that hold a new run, from the residuals of others."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from planner.arrays import FloatArray


def conformal_factors(
    residuals: Sequence[float],
    coverage: float,
    weights: Sequence[float] | None = None,
    new_weight: float = 1.0,
) -> tuple[float, float]:
    """Factors that hold a new ``measured / predicted`` with at least this probability.

    ``residuals`` are logarithms of measured over predicted. With equal weights they are of
    exchangeable runs, and each end stands at the rank ``ceil((n + 1) q)`` of split conformal
    prediction [1]_, half of what may be missed beyond it. Runs of one source are not: with
    ``weights`` that make each source count alike, ``new_weight`` is that of a new source [2]_.
    Where there are too few, an end is infinite, or zero.

    References
    ----------
    .. [1] A. Angelopoulos and S. Bates, "A gentle introduction to conformal prediction,"
       2021, arXiv:2107.07511, section 1.
    .. [2] R. Dunn, L. Wasserman and A. Ramdas, "Distribution-free prediction sets for
       two-layer hierarchical models," 2022, arXiv:1809.07441.
    """
    values = np.asarray(residuals, dtype=np.float64)
    shares = np.ones_like(values) if weights is None else np.asarray(weights, dtype=np.float64)
    level = (1 + coverage) / 2
    low = _quantile(-values, shares, new_weight, level)
    return math.exp(-low), math.exp(_quantile(values, shares, new_weight, level))


def _quantile(values: FloatArray, weights: FloatArray, new_weight: float, level: float) -> float:
    """The weighted quantile with one value more at infinity."""
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weights[order])
    needed = level * (np.sum(weights) + new_weight)
    index = int(np.searchsorted(reached, needed * (1 - 1e-12)))
    return float(values[order][index]) if index < len(values) else math.inf
