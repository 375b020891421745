"""A given deployment of prefill and decode workers under a fixed number of requests."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.arrays import FloatArray
from planner.configurations.serving import ServingConfigurations
from planner.estimators.inference.memory import sequence_bytes
from planner.estimators.inference.serving import (
    decode_batch,
    decode_steps,
    new_tokens,
    prompt_batch,
    request_overhead,
    tokens_per_step,
)
from planner.estimators.inference.setting import ServingSetting
from planner.estimators.inference.step import step_time

_ROUNDS = 60
_BUSIEST = 0.8


@dataclass(frozen=True, kw_only=True)
class Pools:
    """Workers that prefill and workers that decode, of one configuration each.

    A number of ``prefill_workers`` of 0 is not known: as many as keep up with the decoding.
    """

    prefill: ServingConfigurations
    decode: ServingConfigurations
    prefill_workers: FloatArray
    decode_workers: FloatArray


@dataclass(frozen=True, kw_only=True)
class DisaggregatedRun:
    """Means over the requests of the whole deployment; times in seconds."""

    time_to_first_token: FloatArray
    time_per_output_token: FloatArray
    request_rate: FloatArray
    prefill_workers: FloatArray


def disaggregated_run(
    setting: ServingSetting, pools: Pools, requests: FloatArray
) -> DisaggregatedRun:
    """What clients that always hold ``requests`` in flight see.

    Prompts queue at the prefill workers (approximate mean value analysis of a closed
    network [1]_), move their cache over the network, and decode without prompts in between.

    References
    ----------
    .. [1] P. Schweitzer, "Approximate analysis of multiclass closed networks of queues,"
       1979; A. Seidmann et al., 1987, for several servers.
    """
    steps = decode_steps(setting)
    alone, service = _prefill_times(setting, pools.prefill)
    fixed, slope = _decode_step(setting, pools, requests)
    ranks = pools.prefill.attention_data_parallel
    servers = pools.prefill_workers * ranks
    moved = _transfer_time(setting, pools)
    rate = requests / (alone + moved + steps * fixed)
    enough = np.ceil(rate * service / _BUSIEST / ranks) * ranks
    decoding, queue = requests, np.zeros_like(requests)
    for _ in range(_ROUNDS):
        step = fixed + slope * decoding / pools.decode_workers
        keeps_up = requests / (alone + moved + steps * step)
        enough = np.maximum(np.ceil(keeps_up * service / _BUSIEST / ranks) * ranks, ranks)
        number = np.where(pools.prefill_workers > 0, servers, enough)
        waiting = service / number * queue * (requests - 1) / requests
        held = waiting + alone
        rate = np.minimum(requests / (held + moved + steps * step), number / service)
        queue = 0.5 * (queue + rate * (waiting + service / number))
        decoding = 0.5 * (decoding + np.clip(rate * steps * step, 1.0, requests))
    step = fixed + slope * decoding / pools.decode_workers
    left = requests / rate - steps * step - moved
    burst = setting.workload.burst_share * np.maximum(requests - 1, 0.0) / 2 * service / number
    per_token = step / tokens_per_step(setting)
    interval = setting.engine.scheduler.stream_interval
    collected = min(interval, setting.workload.output_tokens) - 1
    return DisaggregatedRun(
        time_to_first_token=np.maximum(left, alone)
        + moved
        + step
        + burst
        + collected * per_token
        + request_overhead(setting),
        time_per_output_token=per_token,
        request_rate=rate,
        prefill_workers=number / ranks,
    )


def _prefill_times(
    setting: ServingSetting, c: ServingConfigurations
) -> tuple[FloatArray, FloatArray]:
    """Seconds of a prompt when every rank has one, and of a rank's time it takes in a queue.

    A queue fills the steps with as many prompts as their tokens allow.
    """
    new, ranks = new_tokens(setting), c.attention_data_parallel
    rounds = np.maximum(np.ceil(new * ranks / c.replica_step_tokens), 1.0)
    p = c.pipeline_parallel
    batch = prompt_batch(setting, ranks / rounds, new * ranks / rounds, np.zeros(()))
    alone = step_time(setting, c, batch, decoding=False)
    full = np.maximum(np.floor(c.replica_step_tokens / new), ranks / rounds)
    queued = step_time(
        setting, c, prompt_batch(setting, full, full * new, np.zeros(())), decoding=False
    ).cycle(p)
    service = np.minimum(alone.cycle(p) * rounds, queued * ranks / full)
    return alone.total * rounds, service / p


def _decode_step(
    setting: ServingSetting, pools: Pools, requests: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """A step over B sequences of a worker lasts fixed + slope B seconds."""
    c, p = pools.decode, pools.decode.pipeline_parallel
    whole = np.maximum(requests / pools.decode_workers, 1.0)
    half = np.maximum(whole / 2, 0.5)
    times = [
        step_time(setting, c, decode_batch(setting, n / p), decoding=True).cycle(np.minimum(n, p))
        * (1 + setting.workload.draft_cost)
        for n in (whole, half)
    ]
    slope = (times[0] - times[1]) / (whole - half)
    return times[0] - slope * whole, slope


def _transfer_time(setting: ServingSetting, pools: Pools) -> FloatArray:
    """Seconds to move the cache of a prompt, every GPU of a prefill worker sending its share."""
    held = sequence_bytes(setting, pools.prefill, setting.workload.input_tokens)
    return held / setting.machine.cluster.scale_out.bandwidth
