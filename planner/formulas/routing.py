"""How tokens spread over experts, and requests over adapters."""

from __future__ import annotations

from math import comb

import numpy as np

from planner.base.arrays import FloatArray, Numeric

_EXPOSED_SPREAD = 0.5


def experts_touched(
    *, num_experts: Numeric, num_experts_per_tok: Numeric, tokens: Numeric, dispersion: Numeric
) -> FloatArray:
    r"""Return the mean number of experts that at least one of T tokens is routed to.

    .. math:: E \left(1 - (1 + \delta k T / E)^{-1/\delta}\right)

    Popularity spreads over the experts like a gamma variable whose variance is
    ``dispersion`` :math:`\delta` times its squared mean; without it, tokens choose evenly and
    the share left out is :math:`(1 - k/E)^T`. Never fewer than the k of one token.

    Derived here: visits of an expert are negative binomial, those of chosen evenly binomial.
    """
    e, k = np.asarray(num_experts, dtype=np.float64), num_experts_per_tok
    d = np.asarray(dispersion, dtype=np.float64)
    even = -np.expm1(tokens * np.log1p(-np.minimum(k / e, 1 - 1e-12)))
    safe = np.maximum(d, 1e-12)
    spread = -np.expm1(-np.log1p(safe * k * np.asarray(tokens) / e) / safe)
    touched = e * np.where(d > 0, np.minimum(spread, even), even)
    return np.maximum(touched, k * np.minimum(tokens, 1.0))


def domains_reached(
    *,
    num_experts: int,
    num_experts_per_tok: int,
    num_domains: Numeric,
    n_group: int = 1,
    topk_group: int = 1,
) -> FloatArray:
    r"""Return over how many of N domains the k experts of a token stand on average.

    .. math:: N \left(1 - \sum_j \frac{\binom{g}{j} \binom{G - g}{M - j}}{\binom{G}{M}}
        \prod_{i < k} \frac{A - j r - i}{A - i}\right)

    The k different experts are among the A = M E / G of the M groups (``topk_group``) out of G
    (``n_group``) with the highest scores [1]_. A domain holds r experts of each of g groups; it
    is missed if none of those of its j chosen groups is drawn. Where groups and domains do not
    align, experts are drawn from all.

    Derived here: groups and experts are drawn without replacement.

    References
    ----------
    .. [1] DeepSeek-AI, "DeepSeek-V3 technical report," 2024, arXiv:2412.19437, section 2.1.2.
    """
    n = np.asarray(num_domains, dtype=np.float64)
    aligned = (n % n_group == 0) | (n_group % n == 0)
    if n_group > 1 and not aligned.all():
        size = {"num_experts": num_experts, "num_experts_per_tok": num_experts_per_tok}
        limit = {"n_group": n_group, "topk_group": topk_group}
        limited = domains_reached(**size, **limit, num_domains=np.where(aligned, n, 1.0))
        return np.where(aligned, limited, domains_reached(**size, num_domains=n))
    held = np.maximum(n_group / n, 1.0)
    among, inside = topk_group * num_experts / n_group, num_experts / (n * held)
    missed = np.zeros(n.shape)
    for chosen in range(topk_group + 1):
        chances = [
            comb(g, chosen) * comb(n_group - g, topk_group - chosen) / comb(n_group, topk_group)
            for g in range(n_group + 1)
        ]
        chance = np.asarray(chances)[held.astype(np.intp)]
        for i in range(num_experts_per_tok):
            chance = chance * np.maximum(among - chosen * inside - i, 0.0) / (among - i)
        missed = missed + chance
    return np.asarray(np.minimum(n * (1 - missed), num_experts_per_tok))


def zipf_shares(*, number: int, exponent: float) -> FloatArray:
    r"""Return each LoRA adapter's share of the requests by Zipf's law, most popular first [1]_.

    .. math:: p_k = \frac{k^{-s}}{\sum_{i \le N} i^{-s}}

    References
    ----------
    .. [1] L. Breslau et al., "Web caching and Zipf-like distributions: evidence and implications,"
       INFOCOM 1999.
    """
    weights = np.arange(1, number + 1, dtype=np.float64) ** -exponent
    return np.asarray(weights / weights.sum())


def lru_characteristic_draws(*, shares: FloatArray, slots: int) -> float:
    r"""Return the characteristic time of an LRU cache of LoRA adapters, in requests.

    .. math:: \sum_i 1 - e^{-p_i t} = C

    Infinite where there is a slot for each. Of a cache that drops what was used last the longest
    time ago it is the characteristic time [1]_: the i-th is found in :math:`1 - e^{-p_i t}` of its
    draws.

    References
    ----------
    .. [1] H. Che, Y. Tung, Z. Wang, "Hierarchical web caching systems: modeling, design and
       experimental results," IEEE JSAC 20(7), 2002.
    """
    if slots >= shares.size:
        return np.inf
    low, high = 0.0, 1.0
    while -np.expm1(-shares * high).sum() < slots:
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        is_less = -np.expm1(-shares * middle).sum() < slots
        low, high = (middle, high) if is_less else (low, middle)
    return high


def expected_maximum(number: Numeric) -> FloatArray:
    r"""Return the mean of the largest of n standard normal variables (Blom [1]_).

    .. math:: \Phi^{-1}\left(\frac{n - 3/8}{n + 1/4}\right), \quad
        \Phi^{-1}(p) \approx 4.91 (p^{0.14} - (1 - p)^{0.14})

    References
    ----------
    .. [1] G. Blom, "Statistical Estimates and Transformed Beta-Variables," 1958; the quantile
       is J. Tukey's lambda distribution: both within 2 % up to 1,000.
    """
    n = np.asarray(number, dtype=np.float64)
    p = (n - 0.375) / (n + 0.25)
    return np.asarray(4.91 * (p**0.14 - (1 - p) ** 0.14))


def expert_imbalance_factor(
    *, pairs: Numeric, ranks: Numeric, num_experts: Numeric, dispersion: Numeric
) -> FloatArray:
    r"""Return the MoE load of the fullest of n ranks over the mean, for m token-expert pairs.

    .. math:: 1 + z_n \sqrt{n \left(\frac{1}{m} + \frac{\delta}{E}\right)}

    z is the ``expected_maximum`` of n nearly normal loads of mean m/n. They spread at random and
    with the popularity of a rank's E/n experts, of ``dispersion`` :math:`\delta` as in
    `experts_touched`, with no balanced placement of experts. A rank never holds more than all.

    Derived here.
    """
    n = np.asarray(ranks, dtype=np.float64)
    spread = np.sqrt(n * (1 / np.maximum(pairs, 1.0) + np.asarray(dispersion) / num_experts))
    return np.asarray(np.minimum(1 + expected_maximum(n) * spread, n))


def fullest_rank_expert_share(
    *, share: Numeric, ranks: Numeric, local_experts: Numeric
) -> FloatArray:
    r"""Return the share of its l experts that the busiest of n ranks reads.

    .. math:: s + u z_n \sqrt{s (1 - s) / l}

    Each of its experts has tokens or none. Of that spread a step waits for u = 1/2: chosen from
    0, 1/2 and 1 on the serving runs that no parameter was fitted to.

    Derived here.
    """
    s = np.asarray(share, dtype=np.float64)
    spread = expected_maximum(ranks) * np.sqrt(s * (1 - s) / np.asarray(local_experts))
    return np.asarray(np.minimum(s + _EXPOSED_SPREAD * spread, 1.0))


def accepted_tokens(*, draft_tokens: Numeric, acceptance_rate: Numeric) -> FloatArray:
    r"""Return mean tokens per verification step of speculative decoding [1]_.

    .. math:: \frac{1 - a^{k + 1}}{1 - a}

    References
    ----------
    .. [1] Y. Leviathan et al., "Fast inference from transformers via speculative decoding,"
       2022, arXiv:2211.17192, equation 1.
    """
    a, k = np.asarray(acceptance_rate, dtype=np.float64), draft_tokens
    return np.asarray((1 - a ** (k + 1)) / (1 - a))
