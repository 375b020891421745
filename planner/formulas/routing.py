"""How tokens spread over experts."""

from __future__ import annotations

import numpy as np

from planner.arrays import FloatArray, Numeric


def experts_touched(
    *, num_experts: Numeric, num_experts_per_tok: Numeric, tokens: Numeric
) -> FloatArray:
    """Experts that at least one of T tokens visits: ``E (1 - (1 - k/E)^T)``."""
    e, k = np.asarray(num_experts, dtype=np.float64), num_experts_per_tok
    return np.asarray(e * -np.expm1(tokens * np.log1p(-np.minimum(k / e, 1 - 1e-12))))


def fullest_rank_factor(*, pairs: Numeric, ranks: Numeric, skew: Numeric = 1.0) -> FloatArray:
    r"""Load of the fullest of n ranks over the mean, when m token-expert pairs fall at random.

    .. math:: s \left(1 + \sqrt{2 \ln(n)\, n / m}\right)

    The maximum of n nearly normal loads of mean m/n; ``skew`` s is what popularity adds to
    chance. A rank never holds more than all.
    """
    n = np.asarray(ranks, dtype=np.float64)
    m = np.maximum(pairs, 1.0)
    chance = 1 + np.sqrt(2 * np.log(n) * n / m)
    return np.minimum(np.where(n > 1, skew * chance, 1.0), n)


def accepted_tokens(*, draft_tokens: Numeric, acceptance_rate: Numeric) -> FloatArray:
    r"""Mean tokens that one verification step yields: ``(1 - a^(k+1)) / (1 - a)`` [1]_.

    References
    ----------
    .. [1] Y. Leviathan et al., "Fast inference from transformers via speculative decoding,"
       2022, arXiv:2211.17192, equation 1.
    """
    a, k = np.asarray(acceptance_rate, dtype=np.float64), draft_tokens
    return np.asarray((1 - a ** (k + 1)) / (1 - a))
