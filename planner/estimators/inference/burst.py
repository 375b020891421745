"""The end of a benchmark, and a burst of requests on two pools, in closed form."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from planner.base.arrays import FloatArray
from planner.base.records import record
from planner.configurations.configuration_tables import ServingConfigurations
from planner.estimators.inference.batch_share import ServingInputs
from planner.estimators.inference.closed_loop import RequestMeans
from planner.estimators.inference.continuous_batching import (
    captured_sequences,
    decode_line,
    decode_steps,
)
from planner.estimators.inference.disaggregated import Pools
from planner.formulas.draining import drain_steps, wave_quantization_ratio

# Of gamma lengths of variation 1, the mean share that is left from the mean length to the longest
# of some hundreds.
_LEFT_AT_THE_END = 1 / 16


@record(kw_only=True)
class Burst:
    """A burst of ``num_requests`` that the replicas of a deployment share evenly.

    ``makespan``: seconds until the last is answered; ``in_a_wave``: requests that a replica
    computes at once; ``first_within``, ``answered_within``: seconds within which a share of the
    requests has its first token, and its last.
    """

    num_requests: int
    per_replica: float
    in_a_wave: float
    makespan: float
    first_within: Callable[[float], float]
    answered_within: Callable[[float], float]


def pooled_burst(inputs: ServingInputs, pools: Pools, num_requests: int) -> Burst:
    r"""Return the latencies of a burst of requests on fixed numbers of prefill and decode workers.

    Prompts queue for one pool and answers for the other, so that it does not drain as a replica.
    P workers compute the prompts, s seconds for each, so that the i-th is ready after
    :math:`w + \lfloor i / P \rfloor s` and its cache has moved. It decodes when one of the k
    places is free, which is once every k requests: in n steps of :math:`a + b B / D`, with B
    sequences, as many as the prompts feed and at most as many as there are places.
    """
    workers, places = _only(pools.prefill_workers), max(np.floor(_only(pools.places)), 1.0)
    fixed, slope = _only(pools.fixed), _only(pools.slope) / _only(pools.decode_workers)
    steps = float(decode_steps(inputs)) + 1
    fed = workers / _only(pools.service_time) * steps
    fed_sequences = fed * fixed / (1 - fed * slope) if fed * slope < 1 else np.inf
    at_once = max(min(fed_sequences, places, num_requests), 1.0)
    step = fixed + slope * max(at_once, _only(pools.decode_workers))

    order = np.arange(num_requests, dtype=np.float64)

    def ready(number: FloatArray) -> FloatArray:
        before = np.floor(number / workers) * _only(pools.service_time)
        return before + _only(pools.prompt_time) + _only(pools.transfer_time)

    turn = np.floor(order / places)
    start = np.maximum(ready(order), ready(order - turn * places) + turn * steps * step)
    latencies = start + steps * step
    return Burst(
        num_requests=num_requests,
        per_replica=num_requests / _only(pools.decode_workers),
        in_a_wave=min(places, num_requests) / _only(pools.decode_workers),
        makespan=float(latencies.max()),
        first_within=lambda share: float(np.quantile(start + step, share)),
        answered_within=lambda share: float(np.quantile(latencies, share)),
    )


def share_until_the_end(
    inputs: ServingInputs,
    configurations: ServingConfigurations,
    served: RequestMeans,
    running: FloatArray,
    each: FloatArray,
) -> FloatArray:
    """Return a benchmark's reported rate over the rate of clients that never stop.

    It divides ``each`` of its requests, waves of those ``running`` in a replica, by the time
    until the last answer.
    """
    work, costs = inputs.workload, served.phases
    waves = np.maximum(each / running, 1.0)
    seconds = each / served.request_rate
    if work.equal_lengths:
        steps, rest = decode_steps(inputs), (waves - np.floor(waves)) * running
        last = np.where(rest > 0, costs.wave(np.maximum(rest, 1.0), steps), 0.0)
        ratio = wave_quantization_ratio(waves=waves, full=costs.wave(running, steps), last=last)
        return np.asarray(seconds / (seconds / ratio + served.intake_time))
    rest = drain_steps(waves=waves, running=running, variation=work.output_variation)
    # The rate includes the time per sequence; the end has more steps of fewer sequences, which
    # take less than the line through steps of many, the last of them as CUDA graphs.
    captured = captured_sequences(inputs, configurations)
    sequences = np.clip(running * _LEFT_AT_THE_END, 1.0, captured)
    few = np.minimum(decode_line(inputs, configurations, sequences)[0], costs.fixed)
    # Of exponential lengths the last n take H(n) mean ones, near ln n + 0.58; the first one of all
    # is not in the rest.
    most, last = (np.log(number) + np.euler_gamma for number in (running, captured))
    few = costs.fixed + np.minimum(last / np.maximum(most - 1, 1.0), 1.0) * (few - costs.fixed)
    rest = rest * decode_steps(inputs) * few
    return np.asarray(seconds / (seconds + rest + served.intake_time))


def emptying_answer(inputs: ServingInputs, served: RequestMeans) -> FloatArray:
    """Return seconds of an answer at the end of a run, while the replica empties.

    No prompts interrupt it, and on average half of the requests in flight decode with it.
    """
    half = np.maximum(np.asarray(served.decoding) / 2, 1.0)
    return np.asarray(decode_steps(inputs) * served.phases.decode_step(half))


def _only(array: FloatArray) -> float:
    return float(np.ravel(array)[0])
