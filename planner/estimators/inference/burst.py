"""Requests that all arrive at once, and benchmarks that end, in closed form."""

from __future__ import annotations

import numpy as np

from planner.base.arrays import FloatArray
from planner.base.records import record
from planner.configurations.serving import ServingConfigurations
from planner.estimators.inference.estimate import ServingEstimate
from planner.estimators.inference.served import Served
from planner.estimators.inference.serving import (
    decode_steps,
    new_tokens,
    phases,
    request_overhead,
    tokens_per_step,
)
from planner.estimators.inference.setting import ServingSetting


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


def mean_first_token(
    setting: ServingSetting, configurations: ServingConfigurations, number: FloatArray
) -> FloatArray:
    """Mean seconds until the first token of a replica's share of a burst, in waves.

    Waves of its ``concurrency`` requests, the last of those that are left. As those of `burst`,
    with half of the own prompt and what a request takes outside of the engine.
    """
    size = configurations.concurrency
    costs = phases(setting, configurations, size)
    wave = costs.wave(size, decode_steps(setting))
    waves = np.floor(number / size)
    rest = number - waves * size
    # Of full waves and of the last one: when they start, and the prompts before one's own.
    starts = waves * (size * (waves - 1) / 2 + rest) * wave / number
    before = (waves * size**2 + rest**2) / 2 / number * costs.queued
    return np.asarray(starts + before + costs.prompt_time + request_overhead(setting))


def share_until_the_end(
    setting: ServingSetting, served: Served, running: FloatArray, each: FloatArray
) -> FloatArray:
    r"""The rate that a benchmark reports, over that of clients who never end.

    .. math:: \frac{W}{W + (m t' - \bar r) (1 - 1 / B)}

    It divides ``each`` of its requests, W waves of those B ``running`` in a replica, by the time
    until the last answer. At the end places are empty: an answer that has just begun is the
    longest, m means long, at the pace t' of emptying steps, and all have r means left. Lengths
    are taken as even between two bounds; equal ones end in whole waves and a smaller one.
    Derived here.
    """
    work, costs = setting.workload, served.phases
    waves = np.maximum(each / running, 1.0)
    if work.equal_lengths:
        steps, whole = decode_steps(setting), np.floor(waves)
        rest = (waves - whole) * running
        last = np.where(rest > 0, costs.wave(np.maximum(rest, 1.0), steps), 0.0)
        full = costs.wave(running, steps)
        return np.asarray(waves * full / (whole * full + last))
    step = served.time_per_output_token * tokens_per_step(setting)
    pace = costs.decode_step(np.maximum(running / 3, 1.0)) / step
    longest = 1 + np.sqrt(3) * work.output_variation
    left = (1 + work.output_variation**2) / 2
    others = np.maximum(1 - 1 / np.maximum(running, 1.0), 0.0)
    return np.asarray(waves / (waves + np.maximum(longest * pace - left, 0.0) * others))


def _only(array: FloatArray) -> float:
    return float(np.ravel(array)[0])
