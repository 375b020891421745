"""Pools of prefill and decode workers under a fixed number of requests, in closed form."""

from __future__ import annotations

import numpy as np

from planner.base.arrays import FloatArray
from planner.base.records import record
from planner.estimators.inference.loop import together_share
from planner.estimators.inference.serving import (
    decode_steps,
    outside_engine,
    request_overhead,
    tokens_per_step,
)
from planner.estimators.inference.setting import ServingSetting
from planner.formulas.queueing import crowded_step, pools_rate, pools_requests


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

    Prompts queue at the prefill workers (`pools_rate`), move their cache over the network, wait
    for a place among the sequences of a decode worker, and decode without prompts in between. A
    share of the requests starts together with all others, as at a replica, and queues for longer.
    """
    # The first token, too, comes to the client from a decode worker.
    steps, outside = decode_steps(setting) + 1, outside_engine(setting)
    alone, moved, service = pools.prompt_time, pools.transfer_time, pools.service_time
    rate, number, step = pools_rate(
        requests=requests,
        around=alone + moved + outside,
        service_time=service,
        servers=pools.prefill_workers,
        steps=steps,
        fixed=pools.fixed,
        slope=pools.slope / pools.decode_workers,
        places=pools.places,
        together=together_share(setting, requests),
    )
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
    """Requests in the whole deployment that are answered as fast as they come at a rate [1/s].

    What `disaggregated_run` settles with the rate known, of known numbers of workers. Infinite
    where the rate is more than a pool can take.
    """
    steps = decode_steps(setting) + 1
    step = _step_at_rate(pools, rate * steps)
    requests = pools_requests(
        rate=rate,
        around=pools.prompt_time + pools.transfer_time + outside_engine(setting),
        service_time=pools.service_time / np.maximum(pools.prefill_workers, 1.0),
        decoding=steps * step,
    )
    return np.where(rate * steps * step <= pools.places, requests, np.inf)


def token_time_at_rate(setting: ServingSetting, pools: Pools, rate: FloatArray) -> FloatArray:
    """Seconds per output token at a rate [1/s] that the workers carry."""
    step = _step_at_rate(pools, rate * (decode_steps(setting) + 1))
    return _token_times(setting, pools, step)[0]


def _step_at_rate(pools: Pools, steps: FloatArray) -> FloatArray:
    """Seconds of a decode step where so many steps of sequences are asked for in a second."""
    return crowded_step(fixed=pools.fixed, slope=pools.slope / pools.decode_workers, steps=steps)


def _token_times(
    setting: ServingSetting, pools: Pools, step: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Seconds per output token as a client sees them, and those that the first ones wait until
    they are sent together."""
    per_token = step / tokens_per_step(setting)
    output = setting.workload.output_tokens
    collected = (np.minimum(pools.stream_interval, output) - 1) * per_token
    return per_token - collected / np.maximum(output - 1, 1.0), collected
