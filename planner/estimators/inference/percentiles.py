"""Percentiles of the latencies of a replica, in closed form.

`tests/reference/event_replica.py` simulates the same replica, request by request.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from planner.base.arrays import FloatArray
from planner.base.records import record
from planner.estimators.inference.batch_share import ServingInputs
from planner.estimators.inference.continuous_batching import (
    decode_steps,
    request_overhead,
    tokens_per_step,
)
from planner.estimators.inference.disaggregated import DisaggregatedRun
from planner.estimators.inference.serving_estimate import ServingEstimate
from planner.formulas.queueing import (
    averaged_share,
    first_token_variance,
    gamma_quantile,
    lognormal_quantile,
    queueing_delay_variance,
    running_variance,
    step_variances,
)
from planner.formulas.trace_queueing import weighted_quantile
from planner.question.names import REQUEST_LATENCY, TIME_PER_OUTPUT_TOKEN, TIME_TO_FIRST_TOKEN
from planner.specs.arrivals import CLASSES, POINT_WEIGHTS, POINTS


def time_to_first_token_percentile(estimate: ServingEstimate, share: float) -> FloatArray:
    """Return the ``share`` quantile of the time to first token [s].

    The sum of the part common to all requests and a gamma variable with the mean and variance of
    the rest. If a larger share waits for a place, their exponential wait is added; if a larger
    share starts together, their position in the wave.
    """
    served = estimate.served
    queue = served.queue
    # If lengths vary, a request's prompt is not part of the common minimum.
    vary = estimate.inputs.workload.input_variation > 0
    varied = estimate.served.phases.prefill if vary else np.zeros(())
    line = served.line
    mean = served.placed_first - served.burst - line.wait
    rest = np.minimum(_wait_time(estimate) + varied, _most_varied(estimate))
    spread = gamma_quantile(share=share, mean=rest, variance=_first_variance(estimate)) - rest
    arrivals = estimate.inputs.workload.arrivals
    if not arrivals.are_random:
        behind = arrivals.wait_within(queue.backlog, queue.filled, share) - queue.backlog
        spread = np.sign(spread + behind) * np.hypot(spread, behind)
        spread = np.maximum(spread, -rest - queue.backlog)
    bulk = mean + spread + line.wait_within(share)
    together = np.maximum(served.together, 1e-12)
    place = np.maximum(1 - (1 - share) / together, 0.0)
    middle = served.burst / together
    behind = mean + middle + served.spread * (2 * place - 1)
    bulk = np.where(place > 0, np.maximum(bulk, behind), bulk)
    places = _place_quantile(estimate, share)
    bulk = np.where(places > 0, np.maximum(bulk, mean + places), bulk)
    if served.traced is not None:
        traced = served.traced
        bulk, piled = traced.first_within(share), traced.piled_within(share)
        bulk = np.where(piled > 0, np.maximum(bulk, traced.placed_first + piled), bulk)
    return _with_backlog(estimate, share, bulk, served.placed_first)


def time_per_output_token_percentile(estimate: ServingEstimate, share: float) -> FloatArray:
    r"""Return the ``share`` quantile over answers of time per output token [s].

    The number of concurrent sequences and the prompts that arrive while a request is answered
    vary independently, each lognormal about its mean. Its own prompt stops no answer of its own.
    """
    served = estimate.served
    sequence_variance, prompt_variance = _token_variances(estimate)
    mean = served.time_per_output_token
    stalled = np.maximum(_share_of_others(estimate) * served.queue.load * mean, 1e-100)
    first = lognormal_quantile(share=share, mean=mean, variance=sequence_variance) - mean
    second = lognormal_quantile(share=share, mean=stalled, variance=prompt_variance) - stalled
    spread = np.sign(first + second) * np.hypot(first, second)
    quantile, tokens = mean + spread, tokens_per_step(estimate.inputs)
    if served.traced is not None:
        quantile = _stalled_percentile(estimate, share) / tokens
    shortest = served.phases.decode_step(1.0) / tokens
    return np.asarray(np.maximum(quantile, shortest))


def _stalled_percentile(estimate: ServingEstimate, share: float) -> FloatArray:
    """Return the ``share`` quantile of an answer's mean step under a trace, with prompts [s].

    The number of concurrent sequences varies in each class; prompts interrupt it as in the trace.
    """
    traced = estimate.served.traced
    assert traced is not None
    first = _quantile_of_classes(estimate, _step_percentile, share) - traced.step
    stalled = traced.stalled
    second = traced.stalled_within(share) - stalled
    return np.asarray(traced.step + stalled + np.sign(first + second) * np.hypot(first, second))


def _step_percentile(estimate: ServingEstimate, share: float) -> FloatArray:
    """Return the ``share`` quantile of an answer's mean step without prompts [s]."""
    served, (sequence_variance, _) = estimate.served, _token_variances(estimate)
    mean = served.phases.decode_step(served.decoding)
    variance = sequence_variance * tokens_per_step(estimate.inputs) ** 2
    quantile = lognormal_quantile(share=share, mean=mean, variance=variance)
    return np.minimum(quantile, served.phases.decode_step(served.queue.places))


def _quantile_of_classes(
    estimate: ServingEstimate,
    percentile: Callable[[ServingEstimate, float], FloatArray],
    share: float,
) -> FloatArray:
    """Return the quantile over requests of all rate classes, from quantiles of each."""
    traced = estimate.served.traced
    assert traced is not None
    each = replace(estimate, served=traced.classes)
    values = np.stack([np.broadcast_to(percentile(each, point), traced.shape) for point in POINTS])
    weights = np.multiply.outer(POINT_WEIGHTS, CLASSES)
    values = values.reshape(weights.size, *traced.shape[1:])
    return weighted_quantile(values, weights.ravel(), share)


def request_latency_percentile(estimate: ServingEstimate, share: float) -> FloatArray:
    """Return the ``share`` quantile of the request latency (lognormal) [s].

    Its variance is that of the first token, of the time per token and of the answers' lengths.
    """
    served, w = estimate.served, estimate.inputs.workload
    later = np.maximum(w.output_tokens - 1, 0.0)
    if served.traced is not None:
        traced, steps = served.traced, served.traced.steps_of_classes
        latencies: list[FloatArray] = []
        for point in POINTS:
            # Requests with long waits arrive in minutes of long steps.
            token = served.token_of_all * weighted_quantile(steps, CLASSES, point) / traced.step
            answers = np.multiply.outer(traced.paths.lengths, later * token)
            latencies.append(time_to_first_token_percentile(estimate, point) + answers)
        each = np.stack(np.broadcast_arrays(*latencies))
        weights = np.multiply.outer(POINT_WEIGHTS, POINT_WEIGHTS).ravel()
        return weighted_quantile(each.reshape(weights.size, *each.shape[2:]), weights, share)
    answer = later * served.time_per_output_token
    relative = sum(_token_variances(estimate)) / np.square(served.time_per_output_token)
    lengths = 1 + w.output_variation**2
    answers = answer**2 * (lengths * (1 + relative / lengths) - 1)
    mean = served.placed_first + answer
    if w.num_requests is not None and w.request_rate is None:
        return _latency_after_queue(estimate, share, answer, answers)
    variance = _first_variance(estimate) + served.line.variance + answers
    bulk = lognormal_quantile(share=share, mean=mean, variance=variance)
    return _with_backlog(estimate, share, bulk + _place_quantile(estimate, share), mean)


def _latency_after_queue(
    estimate: ServingEstimate, share: float, answer: FloatArray, variance: FloatArray
) -> FloatArray:
    """Return the ``share`` quantile of latency of a finite number of requests [s].

    The waits of a queue are not described by their moments: answers of a mean and a variance are
    added to each of them.
    """
    firsts = [time_to_first_token_percentile(estimate, point) for point in POINTS]
    answers = [lognormal_quantile(share=point, mean=answer, variance=variance) for point in POINTS]
    each = [first + rest for first in firsts for rest in answers]
    weights = np.multiply.outer(POINT_WEIGHTS, POINT_WEIGHTS).ravel()
    return weighted_quantile(np.stack(np.broadcast_arrays(*each)), weights, share)


def percentile(estimate: ServingEstimate, quantity: str, share: float) -> FloatArray:
    """A percentile of one of the three times, by its name [s]."""
    return _BY_NAME[quantity](estimate, share)


_BY_NAME: Mapping[str, Callable[[ServingEstimate, float], FloatArray]] = {
    TIME_TO_FIRST_TOKEN: time_to_first_token_percentile,
    TIME_PER_OUTPUT_TOKEN: time_per_output_token_percentile,
    REQUEST_LATENCY: request_latency_percentile,
}


def _place_quantile(estimate: ServingEstimate, share: float) -> FloatArray:
    """Return the ``share`` quantile of the wait for a slot [s]."""
    served, queue = estimate.served, estimate.served.queue
    with np.errstate(divide="ignore", invalid="ignore"):
        over = np.log(queue.place_share / (1 - share))
        time = queue.place_time
        if served.offered is not None:
            time = served.place_wait / queue.place_share
        return np.where(over > 0, over * time, 0.0)


def _with_backlog(
    estimate: ServingEstimate, share: float, steady: FloatArray, placed: FloatArray
) -> FloatArray:
    """Return ``steady`` [s], at overload at least the wait for a slot plus ``placed`` [s]."""
    offered = estimate.served.offered
    if offered is None:
        return np.asarray(steady)
    return np.where(
        offered.is_beyond, np.maximum(placed + offered.wait_within(share), steady), steady
    )


def _most_varied(estimate: ServingEstimate) -> FloatArray:
    """Seconds to the first token that vary by request, without bursts and lines."""
    served, overhead = estimate.served, request_overhead(estimate.inputs)
    mean = served.placed_first - served.burst - served.line.wait
    return np.maximum(mean - served.queue.backlog - overhead, 0.0)


def _wait_time(estimate: ServingEstimate) -> FloatArray:
    """Seconds of the queue of prompts, as far as clients and places let it grow."""
    queue = estimate.served.queue
    return np.clip(queue.wait - queue.backlog, 0.0, _most_varied(estimate))


def _first_variance(estimate: ServingEstimate) -> FloatArray:
    """Return the variance of the time to first token, without the wait for a slot [s^2]."""
    queue, prompt = estimate.served.queue, estimate.served.phases.added
    return first_token_variance(
        load=queue.load,
        step_at_arrival=queue.met,
        step_variance_at_arrival=queue.met_variance,
        wait=_wait_time(estimate),
        prompt=prompt,
        variation=estimate.inputs.workload.input_variation,
    )


def _share_of_others(estimate: ServingEstimate) -> FloatArray:
    """Return the share of prompts that come from other clients."""
    served = estimate.served
    if estimate.inputs.workload.request_rate is not None:
        return np.ones(())
    return np.asarray(np.maximum(served.in_flight - 1, 0.0) / np.maximum(served.in_flight, 1.0))


def _token_variances(estimate: ServingEstimate) -> tuple[FloatArray, FloatArray]:
    """Return variances of time per output token: by other sequences, and by prompts [s^2]."""
    served, queue = estimate.served, estimate.served.queue
    tokens = tokens_per_step(estimate.inputs)
    sequences, prompts = step_variances(
        fixed=served.phases.fixed,
        slope=served.phases.slope,
        step=served.phases.decode_step(served.decoding),
        load=queue.load,
        running=queue.running,
        prompts=_share_of_others(estimate) * queue.prompts,
        steps=np.maximum(decode_steps(estimate.inputs), 1.0),
        variation=estimate.inputs.workload.output_variation,
    )
    return sequences / tokens**2, prompts / tokens**2


@record(kw_only=True)
class PoolSpread:
    """A deployment of workers with what spreads in it.

    A decode step over B sequences takes ``fixed + slope B`` seconds.
    """

    inputs: ServingInputs
    run: DisaggregatedRun
    fixed: FloatArray
    slope: FloatArray

    def percentile(self, quantity: str, share: float) -> FloatArray:
        """Return the ``share`` quantile of one of the three latencies of separate pools [s]."""
        run, w = self.run, self.inputs.workload
        first, token = run.time_to_first_token, run.time_per_output_token
        if quantity == "time_to_first_token":
            varied = run.wait + run.prompt * (w.input_variation > 0)
            rest = gamma_quantile(share=share, mean=varied, variance=self._first)
            return np.asarray(first - varied + rest)
        if quantity == "time_per_output_token":
            return lognormal_quantile(share=share, mean=token, variance=self._token)
        answer = np.maximum(w.output_tokens - 1, 0.0) * token
        lengths = np.square(w.output_variation) + self._token / np.square(token)
        variance = self._first + answer**2 * lengths
        return lognormal_quantile(share=share, mean=first + answer, variance=variance)

    @property
    def _first(self) -> FloatArray:
        """Return variances of the wait for a prefill worker and of the prompt's time [s^2]."""
        run = self.run
        waits = queueing_delay_variance(mean_wait=run.wait, load=np.clip(run.load, 1e-6, 1.0))
        prompt = (run.prompt * self.inputs.workload.input_variation) ** 2
        return np.asarray(waits + prompt)

    @property
    def _token(self) -> FloatArray:
        """Return the variance of the time per token by the number of decoding sequences [s^2]."""
        zero = np.zeros(())
        if self.inputs.workload.request_rate is None:
            return zero
        drafted = tokens_per_step(self.inputs)
        step = self.run.time_per_output_token * drafted
        slope = np.maximum(self.slope, 1e-12)
        running = np.maximum((step - self.fixed) / slope, 0.0)
        variance, _ = running_variance(
            running=running, load=zero, fixed=self.fixed, slope=self.slope
        )
        averaged = averaged_share(fixed=self.fixed, step=step)
        return np.asarray(self.slope**2 * variance * averaged / drafted**2)
