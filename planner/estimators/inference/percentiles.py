"""How the requests of a replica spread around their means."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np

from planner.arrays import FloatArray
from planner.estimators.inference.estimate import ServingEstimate
from planner.estimators.inference.serving import tokens_per_step


def time_per_output_token_percentile(estimate: ServingEstimate, share: float) -> FloatArray:
    r"""The mean time per output token that a ``share`` of the requests does not exceed [s].

    .. math:: t + z\,\frac{w \sqrt{K}}{n}

    While a request makes its n tokens, as many prompts of w seconds come between as there
    are other requests, K on average. Their number is taken as Poisson, its sum as normal.
    """
    served = estimate.served
    tokens = max(estimate.setting.workload.output_tokens, 1)
    prompts = np.maximum(served.decoding - 1, 0.0)
    spread = served.phases.prefill * np.sqrt(prompts) / tokens
    return np.asarray(
        np.maximum(
            served.time_per_output_token + NormalDist().inv_cdf(share) * spread,
            served.phases.decode_step(1.0) / tokens_per_step(estimate.setting),
        )
    )


def request_latency_percentile(estimate: ServingEstimate, share: float) -> FloatArray:
    """The request latency that a ``share`` does not exceed: both spreads as independent [s]."""
    tokens = max(estimate.setting.workload.output_tokens - 1, 0)
    first = estimate.time_to_first_token(share) - estimate.served.time_to_first_token
    later = tokens * (
        time_per_output_token_percentile(estimate, share) - estimate.served.time_per_output_token
    )
    return np.asarray(estimate.request_latency + np.sign(first + later) * np.hypot(first, later))
