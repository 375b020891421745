"""How tokens spread over experts."""

from __future__ import annotations

import numpy as np

from planner.arrays import FloatArray, Numeric


def experts_touched(
    *, num_experts: Numeric, num_experts_per_tok: Numeric, tokens: Numeric, dispersion: Numeric
) -> FloatArray:
    r"""Experts that at least one of T tokens visits.

    .. math:: E \left(1 - (1 + \delta k T / E)^{-1/\delta}\right)

    Popularity spreads over the experts like a gamma variable whose variance is
    ``dispersion`` :math:`\delta` times its squared mean; without it, tokens choose evenly and
    the share left out is :math:`(1 - k/E)^T`. Never fewer than the k of one token.
    """
    e, k = np.asarray(num_experts, dtype=np.float64), num_experts_per_tok
    d = np.asarray(dispersion, dtype=np.float64)
    even = -np.expm1(tokens * np.log1p(-np.minimum(k / e, 1 - 1e-12)))
    safe = np.maximum(d, 1e-12)
    spread = -np.expm1(-np.log1p(safe * k * np.asarray(tokens) / e) / safe)
    touched = e * np.where(d > 0, np.minimum(spread, even), even)
    return np.maximum(touched, k * np.minimum(tokens, 1.0))


def fullest_rank_factor(*, pairs: Numeric, ranks: Numeric) -> FloatArray:
    r"""Load of the fullest of n ranks over the mean, for m token-expert pairs.

    .. math:: 1 + \sqrt{2 \ln(n)\, n / m}

    The expected maximum of n nearly normal loads of mean and variance m/n, with experts
    placed so that their popularity evens out. A rank never holds more than all.
    """
    n = np.asarray(ranks, dtype=np.float64)
    m = np.maximum(pairs, 1.0)
    spread = np.sqrt(2 * np.log(n) * n / m)
    return np.minimum(np.where(n > 1, 1 + spread, 1.0), n)


def accepted_tokens(*, draft_tokens: Numeric, acceptance_rate: Numeric) -> FloatArray:
    r"""Mean tokens that one verification step yields [1]_.

    .. math:: \frac{1 - a^{k + 1}}{1 - a}

    References
    ----------
    .. [1] Y. Leviathan et al., "Fast inference from transformers via speculative decoding,"
       2022, arXiv:2211.17192, equation 1.
    """
    a, k = np.asarray(acceptance_rate, dtype=np.float64), draft_tokens
    return np.asarray((1 - a ** (k + 1)) / (1 - a))
