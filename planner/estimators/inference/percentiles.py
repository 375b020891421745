"""How the requests of a replica spread around their means, in closed form.

`tests/reference/event_replica.py` simulates the same replica, request by request.
"""

from __future__ import annotations

import numpy as np

from planner.base.arrays import FloatArray
from planner.estimators.inference.estimate import ServingEstimate
from planner.estimators.inference.serving import decode_steps, tokens_per_step
from planner.formulas.queueing import (
    averaged_share,
    gamma_quantile,
    lognormal_quantile,
)


def time_to_first_token_percentile(estimate: ServingEstimate, share: float) -> FloatArray:
    """The time to first token that a ``share`` of the requests does not exceed [s].

    What is the same for all requests and a gamma variable of the mean and variance of the
    rest; where more requests than are left wait for a place, their exponential wait after it, and
    where more start together, their place in the wave.
    """
    served = estimate.served
    queue = served.queue
    varied = _varied(estimate)
    mean = served.placed_first - served.burst
    rest = np.maximum(queue.wait + varied, 0.0)
    bulk = mean - rest + gamma_quantile(share=share, mean=rest, variance=_first_variance(estimate))
    together = np.maximum(served.together, 1e-12)
    place = np.maximum(1 - (1 - share) / together, 0.0)
    behind = mean + 2 * served.burst / together * place
    bulk = np.where(place > 0, np.maximum(bulk, behind), bulk)
    places = _place_quantile(estimate, share)
    bulk = np.where(places > 0, np.maximum(bulk, mean + places), bulk)
    return _or_piled_up(estimate, share, bulk, served.placed_first)


def time_per_output_token_percentile(estimate: ServingEstimate, share: float) -> FloatArray:
    r"""The mean time per output token that a ``share`` of the requests does not exceed [s].

    The number of sequences beside a request and the prompts that come while it is answered
    spread independently, each lognormal about its mean.
    """
    served = estimate.served
    beside, prompts = _token_variances(estimate)
    mean = served.time_per_output_token
    stalled = np.maximum(served.queue.load * mean, 1e-100)
    first = lognormal_quantile(share=share, mean=mean, variance=beside) - mean
    second = lognormal_quantile(share=share, mean=stalled, variance=prompts) - stalled
    spread = np.sign(first + second) * np.hypot(first, second)
    least = served.phases.decode_step(1.0) / tokens_per_step(estimate.setting)
    return np.asarray(np.maximum(mean + spread, least))


def request_latency_percentile(estimate: ServingEstimate, share: float) -> FloatArray:
    """The request latency that a ``share`` of the requests does not exceed, as lognormal [s].

    Its variance is that of the first token, of the time per token and of the answers' lengths.
    """
    served, w = estimate.served, estimate.setting.workload
    answer = np.maximum(w.output_tokens - 1, 0.0) * served.time_per_output_token
    relative = sum(_token_variances(estimate)) / np.square(served.time_per_output_token)
    lengths = 1 + w.output_variation**2
    variance = _first_variance(estimate) + answer**2 * (lengths * (1 + relative / lengths) - 1)
    mean = served.placed_first + answer
    bulk = lognormal_quantile(share=share, mean=mean, variance=variance)
    return _or_piled_up(estimate, share, bulk + _place_quantile(estimate, share), mean)


def percentile(estimate: ServingEstimate, quantity: str, share: float) -> FloatArray:
    """One of the three times by its name [s]."""
    return _BY_NAME[quantity](estimate, share)


_BY_NAME = {
    "time_to_first_token": time_to_first_token_percentile,
    "time_per_output_token": time_per_output_token_percentile,
    "request_latency": request_latency_percentile,
}


def _place_quantile(estimate: ServingEstimate, share: float) -> FloatArray:
    """What a ``share`` of the requests does not wait longer for a place [s]."""
    served, queue = estimate.served, estimate.served.queue
    with np.errstate(divide="ignore", invalid="ignore"):
        over = np.log(queue.place_share / (1 - share))
        time = queue.place_time
        if served.offered is not None and np.any(np.isfinite(served.offered.number)):
            time = served.place_wait / queue.place_share
        return np.where(over > 0, over * time, 0.0)


def _or_piled_up(
    estimate: ServingEstimate, share: float, steady: FloatArray, placed: FloatArray
) -> FloatArray:
    """A ``steady`` time; where requests come faster than they are answered, the time of one that
    has its ``placed`` place behind those before it."""
    offered = estimate.served.offered
    if offered is None:
        return np.asarray(steady)
    return np.where(offered.is_beyond, placed + offered.wait_within(share), steady)


def _varied(estimate: ServingEstimate) -> FloatArray:
    """Seconds of a request's own prompt where lengths vary: it is no part of what all have."""
    vary = estimate.setting.workload.input_variation > 0
    return estimate.served.phases.prefill if vary else np.zeros(())


def _first_variance(estimate: ServingEstimate) -> FloatArray:
    r"""Variance of the time to first token but for places [s^2].

    A request comes at any time of the step that it meets, T' long, and has the prompts of the
    others of that step beside its own:

    .. math:: \left(\tfrac{1}{2} + \rho\right)^2 Var[T'] + \frac{E[T'^2]}{12} +
        \rho s (1 + c^2) E[T'] + s^2 c^2
    """
    served, w = estimate.served, estimate.setting.workload
    queue, prompt = served.queue, served.phases.added
    second = prompt * (1 + w.input_variation**2)
    step = queue.met_variance + queue.met**2
    met = (0.5 + queue.load) ** 2 * queue.met_variance + step / 12
    met = met + queue.load * queue.met * second
    # A queue of prompts that one step does not take spreads like its exponential wait, and
    # of requests that find nothing running only a share waits.
    longer = queue.wait / np.maximum((0.5 + queue.load) * queue.met, 1e-300)
    met = met * longer * np.maximum(longer, 1.0)
    return np.asarray(met + (prompt * w.input_variation) ** 2)


def _token_variances(estimate: ServingEstimate) -> tuple[FloatArray, FloatArray]:
    r"""Variance of the time per output token by the sequences beside, and by prompts [s^2].

    The first is averaged over an answer (`averaged_share`); a Poisson number of prompts stops
    it, and while they do others come:

    .. math:: \left(\frac{b}{1 - \rho}\right)^2 Var[B] \cdot g,
        \quad \frac{\lambda E[T] s^2 (1 + c^2)}{n (1 - \rho)^2} (1 + c_n^2)
    """
    served, w = estimate.served, estimate.setting.workload
    queue, costs = served.queue, served.phases
    tokens = tokens_per_step(estimate.setting)
    steps = np.maximum(decode_steps(estimate.setting), 1.0)
    own = costs.decode_step(served.decoding)
    averaged = averaged_share(fixed=costs.fixed, step=own)
    beside = (costs.slope / (1 - queue.load)) ** 2 * queue.running * averaged
    prompts = queue.prompts / steps * (1 + w.output_variation**2)
    return beside / tokens**2, prompts / tokens**2
