"""Requests that all arrive at once, and benchmarks that end, in closed form."""

from __future__ import annotations

import numpy as np

from planner.base.arrays import FloatArray
from planner.base.records import record
from planner.estimators.inference.disaggregated import Pools
from planner.estimators.inference.estimate import ServingEstimate
from planner.estimators.inference.loop import Served
from planner.estimators.inference.serving import (
    decode_steps,
    new_tokens,
)
from planner.estimators.inference.setting import ServingSetting
from planner.formulas.draining import emptying_steps, whole_waves_share


@record(kw_only=True)
class Burst:
    """What becomes of ``num_requests`` that a deployment's replicas share evenly.

    ``makespan``: seconds until the last is answered; ``wave``: seconds in which the requests
    that are in a replica at once are computed; ``in_a_wave``: how many these are.
    """

    num_requests: int
    per_replica: float
    in_a_wave: float
    wave: float
    makespan: float
    first_tokens: FloatArray
    latencies: FloatArray

    def time_to_first_token(self, share: float) -> float:
        """Seconds within which a ``share`` of the requests has its first token."""
        return float(np.quantile(self.first_tokens, share))

    def request_latency(self, share: float) -> float:
        """Seconds within which a ``share`` of the requests is answered."""
        return float(np.quantile(self.latencies, share))


def burst(estimate: ServingEstimate, num_requests: int) -> Burst:
    """The burst on the one configuration of ``estimate``.

    Requests are equally long, so a replica works them off in waves of as many as it holds.
    A wave of B takes ``B w + n t(B)`` seconds: w for each prompt, n steps over B sequences.
    The i-th of a wave gets its first token after i prompts; the later prompts of the wave
    stretch its own steps, at most one step each.
    """
    costs, setting, c = estimate.served.phases, estimate.setting, estimate.configurations
    each = num_requests / _only(c.data_parallel)
    at_once = setting.engine.scheduler.max_num_seqs * _only(c.attention_data_parallel)
    room = min(_only(c.concurrency), _only(estimate.memory.most_whole_sequences), at_once)
    batch = max(min(each, room), 1.0)
    steps = decode_steps(setting)
    prompt, lone = _only(costs.queued), _only(costs.prompt_time)
    per_step = _only(c.replica_step_tokens) / new_tokens(setting)

    seconds = _only(costs.wave(batch, steps))
    order = np.arange(max(int(np.ceil(each)), 1), dtype=np.float64)
    full = np.floor(order / batch)
    place = order - full * batch
    size = np.minimum(batch, each - full * batch)
    start = full * seconds
    first = start + lone + place * prompt
    # Prompts still to come while this request decodes: at most those of its own steps.
    behind = np.minimum(np.maximum(size - 1 - place, 0.0), steps * per_step)
    step = np.ravel(costs.decode_step(np.maximum(size, 1.0)))
    latencies = first + behind * prompt + steps * step
    return Burst(
        num_requests=num_requests,
        per_replica=each,
        in_a_wave=batch,
        wave=seconds,
        makespan=float(latencies.max()),
        first_tokens=first,
        latencies=latencies,
    )


def pooled_burst(setting: ServingSetting, pools: Pools, num_requests: int) -> Burst:
    r"""The burst on prefill and decode workers of known numbers.

    P workers compute the prompts, s seconds for each, so that the i-th is ready after
    :math:`w + \lfloor i / P \rfloor s` and its cache has moved. It decodes when one of the k
    places is free, which is once every k requests: in n steps of :math:`a + b B / D`, with so
    many B beside it as the prompts feed, and there are places.
    """
    workers, places = _only(pools.prefill_workers), max(np.floor(_only(pools.places)), 1.0)
    fixed, slope = _only(pools.fixed), _only(pools.slope) / _only(pools.decode_workers)
    steps = float(decode_steps(setting)) + 1
    fed = workers / _only(pools.service_time) * steps
    beside = fed * fixed / (1 - fed * slope) if fed * slope < 1 else np.inf
    at_once = max(min(beside, places, num_requests), 1.0)
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
        wave=steps * step,
        makespan=float(latencies.max()),
        first_tokens=start + step,
        latencies=latencies,
    )


def share_until_the_end(
    setting: ServingSetting, served: Served, running: FloatArray, each: FloatArray
) -> FloatArray:
    """The rate that a benchmark reports, over that of clients who never end.

    It divides ``each`` of its requests, waves of those ``running`` in a replica, by the time
    until the last answer.
    """
    work, costs = setting.workload, served.phases
    waves = np.maximum(each / running, 1.0)
    if work.equal_lengths:
        steps, rest = decode_steps(setting), (waves - np.floor(waves)) * running
        last = np.where(rest > 0, costs.wave(np.maximum(rest, 1.0), steps), 0.0)
        return whole_waves_share(waves=waves, full=costs.wave(running, steps), last=last)
    rest = emptying_steps(waves=waves, running=running, variation=work.output_variation)
    seconds = each / served.request_rate
    # What a sequence adds to a step is in the rate: at the end more steps are left of fewer.
    return np.asarray(seconds / (seconds + rest * decode_steps(setting) * costs.fixed))


def emptying_answer(setting: ServingSetting, served: Served) -> FloatArray:
    """Seconds of an answer at the end of a run: no prompts stop it, and half of those that were in
    flight are beside it on average."""
    half = np.maximum(np.asarray(served.decoding) / 2, 1.0)
    return np.asarray(decode_steps(setting) * served.phases.decode_step(half))


def _only(array: FloatArray) -> float:
    return float(np.ravel(array)[0])
