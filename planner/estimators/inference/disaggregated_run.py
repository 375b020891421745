"""Pools of prefill and decode workers under a fixed number of requests, in closed form."""

from __future__ import annotations

import numpy as np

from planner.base.arrays import FloatArray, Numeric
from planner.base.records import record
from planner.estimators.inference.loop import together_share
from planner.estimators.inference.serving import (
    decode_steps,
    outside_engine,
    request_overhead,
    tokens_per_step,
)
from planner.estimators.inference.setting import ServingSetting

_ROUNDS = 60
_RATE_ROUNDS = 30
_BUSIEST = 0.8


@record(kw_only=True)
class Pools:
    """Workers that prefill and workers that decode; arrays that broadcast, times in seconds.

    ``prompt_time``: of a prompt when every attention rank has one; ``service_time``: what it
    takes of a worker's time in a queue; ``transfer_time``: until its cache has moved. A number
    of ``prefill_workers`` of 0 is not known: as many as keep up with the decoding. A decode step
    over B sequences of a worker lasts ``fixed + slope B``; all of them have ``places``.
    ``stream_interval``: tokens that the decode workers collect before they send them.
    """

    prompt_time: FloatArray
    service_time: FloatArray
    transfer_time: FloatArray
    prefill_workers: FloatArray
    decode_workers: FloatArray
    fixed: FloatArray
    slope: FloatArray
    places: FloatArray
    stream_interval: FloatArray


@record(kw_only=True)
class DisaggregatedRun:
    """Means over the requests of the whole deployment; times in seconds.

    ``load``: share of the time in which the prefill workers compute prompts; ``prompt``: time of
    one; ``wait``: for a worker, and for a place among the sequences of another.
    """

    time_to_first_token: FloatArray
    time_per_output_token: FloatArray
    request_rate: FloatArray
    prefill_workers: FloatArray
    load: FloatArray
    prompt: FloatArray
    wait: FloatArray


def disaggregated_run(
    setting: ServingSetting, pools: Pools, requests: FloatArray
) -> DisaggregatedRun:
    """What clients that always hold ``requests`` in flight see.

    Prompts queue at the prefill workers (approximate mean value analysis of a closed
    network [1]_), move their cache over the network, wait for a place among the sequences
    of a decode worker, and decode without prompts in between. A share of the requests starts
    together with all others, as at a replica, and queues for longer.

    References
    ----------
    .. [1] P. Schweitzer, "Approximate analysis of multiclass closed networks of queues,"
       1979; A. Seidmann et al., 1987, for several servers.
    """
    # The first token, too, comes to the client from a decode worker.
    steps, outside = decode_steps(setting) + 1, outside_engine(setting)
    alone, moved, service = pools.prompt_time, pools.transfer_time, pools.service_time
    rate, number, step = _settled(setting, pools, requests, steps)
    left = np.maximum(requests / rate - steps * step - moved - outside, alone)
    per_token, collected = _token_times(setting, pools, step)
    return DisaggregatedRun(
        time_to_first_token=left + moved + step + collected + request_overhead(setting),
        time_per_output_token=per_token,
        request_rate=rate,
        prefill_workers=number,
        load=rate * service / number,
        prompt=alone,
        wait=left - alone,
    )


def requests_at_rate(setting: ServingSetting, pools: Pools, rate: FloatArray) -> FloatArray:
    r"""Requests in the whole deployment that are answered as fast as they come at a rate [1/s].

    What `disaggregated_run` settles with the rate known, of known numbers of workers: with
    :math:`\rho = \lambda s` and N requests the wait is
    :math:`s k \rho / (1 - k \rho)`, :math:`k = 1 - 1 / N`, and a decode step is
    :math:`a / (1 - \lambda n b)`. Infinite where the rate is more than a pool can take.
    """
    steps = decode_steps(setting) + 1
    service = pools.service_time / np.maximum(pools.prefill_workers, 1.0)
    step = _step_at_rate(pools, rate * steps)
    with np.errstate(divide="ignore", invalid="ignore"):
        around = pools.prompt_time + pools.transfer_time + outside_engine(setting)
        load = rate * service
        requests = np.maximum(rate * (around + steps * step), 1e-9)
        for _ in range(_RATE_ROUNDS):
            others = np.maximum(1 - 1 / np.maximum(requests, 1e-9), 0.0) * load
            wait = np.where(others < 1, service * others / (1 - others), np.inf)
            requests = rate * (around + wait + steps * step)
        carried = (load < 1) & (rate * steps * step <= pools.places)
    return np.where(carried, requests, np.inf)


def token_time_at_rate(setting: ServingSetting, pools: Pools, rate: FloatArray) -> FloatArray:
    """Seconds per output token at a rate [1/s] that the workers carry."""
    step = _step_at_rate(pools, rate * (decode_steps(setting) + 1))
    return _token_times(setting, pools, step)[0]


def _step_at_rate(pools: Pools, steps: FloatArray) -> FloatArray:
    """Seconds of a decode step where so many steps of sequences are asked for in a second.

    At least one sequence is in it.
    """
    slope = pools.slope / pools.decode_workers
    with np.errstate(divide="ignore"):
        step = pools.fixed / np.maximum(1 - steps * slope, 0.0)
    return np.maximum(step, pools.fixed + slope)


def _token_times(
    setting: ServingSetting, pools: Pools, step: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Seconds per output token as a client sees them, and those that the first ones wait until
    they are sent together."""
    per_token = step / tokens_per_step(setting)
    output = setting.workload.output_tokens
    collected = (np.minimum(pools.stream_interval, output) - 1) * per_token
    return per_token - collected / np.maximum(output - 1, 1.0), collected


def _settled(
    setting: ServingSetting, pools: Pools, requests: FloatArray, steps: Numeric
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Rate, prefill workers and decode step where queues and decoding stay as they are."""
    service, number = pools.service_time, pools.prefill_workers
    is_known = bool(np.all(number > 0))
    served = service / np.where(number > 0, number, 1.0)
    around, requests, served, places, fixed, slope = _alike(
        pools.prompt_time + pools.transfer_time + outside_engine(setting),
        requests,
        served,
        np.minimum(pools.places, requests),
        pools.fixed,
        pools.slope / pools.decode_workers,
    )
    together = together_share(setting, requests)
    half_of_others = together * np.maximum(requests - 1, 0.0) / 2
    most, others = 1 / served, served * (requests - 1) / requests
    decoding, queue = places.copy(), np.zeros_like(places)
    # Written into the same arrays in every round, which is most of the work of a search.
    rate, decode, waiting, by_places = (np.empty_like(places) for _ in range(4))
    whole, more = steps * fixed, steps * slope
    ahead = half_of_others * served
    for _ in range(_ROUNDS):
        np.add(whole, np.multiply(more, decoding, out=decode), out=decode)
        if not is_known:
            keeps_up = requests / (around + decode)
            enough = np.maximum(np.ceil(keeps_up * service / _BUSIEST), 1.0)
            number = np.where(pools.prefill_workers > 0, pools.prefill_workers, enough)
            served = service / number
            most, others = 1 / served, served * (requests - 1) / requests
            ahead = half_of_others * served
        np.multiply(others, queue, out=waiting)
        # Those that start together wait for half of the others, if a queue is not longer.
        np.add(np.multiply(waiting, 1 - together, out=rate), ahead, out=rate)
        np.maximum(rate, waiting, out=rate)
        np.add(np.add(rate, around, out=rate), decode, out=rate)
        np.minimum(np.divide(requests, rate, out=rate), most, out=rate)
        np.minimum(rate, np.divide(places, decode, out=by_places), out=rate)
        np.add(waiting, served, out=waiting)
        np.add(queue, np.multiply(waiting, rate, out=waiting), out=queue)
        np.multiply(queue, 0.5, out=queue)
        np.maximum(np.multiply(decode, rate, out=decode), 1.0, out=decode)
        np.add(decoding, np.minimum(decode, places, out=decode), out=decoding)
        np.multiply(decoding, 0.5, out=decoding)
    return rate, number, fixed + slope * decoding


def _alike(*arrays: FloatArray) -> list[FloatArray]:
    """Copies of the arrays, all of the shape that they broadcast to, laid out alike."""
    return [np.array(one, order="C") for one in np.broadcast_arrays(*arrays)]
