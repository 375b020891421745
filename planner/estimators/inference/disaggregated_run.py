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
    ``prefill_seqs``, ``decode_seqs``: most sequences in a step of one of their attention ranks.
    ``stream_interval``: tokens that the decode workers collect before they send them.
    """

    prefill: ServingConfigurations
    decode: ServingConfigurations
    prefill_workers: FloatArray
    decode_workers: FloatArray
    prefill_seqs: FloatArray
    decode_seqs: FloatArray
    stream_interval: FloatArray

    @property
    def places(self) -> FloatArray:
        """Sequences that all workers together decode at most."""
        return self.decode_workers * self.decode_seqs * self.decode.attention_data_parallel


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
    network [1]_), move their cache over the network, wait for a place among the sequences
    of a decode worker, and decode without prompts in between.

    References
    ----------
    .. [1] P. Schweitzer, "Approximate analysis of multiclass closed networks of queues,"
       1979; A. Seidmann et al., 1987, for several servers.
    """
    steps = decode_steps(setting)
    alone, service = _prefill_times(setting, pools)
    places = np.minimum(pools.places, requests)
    fixed, slope = _decode_step(setting, pools, places)
    ranks = pools.prefill.attention_data_parallel
    servers = pools.prefill_workers * ranks
    moved = _transfer_time(setting, pools)
    rate = requests / (alone + moved + steps * fixed)
    enough = np.ceil(rate * service / _BUSIEST / ranks) * ranks
    decoding, queue = places, np.zeros_like(requests)
    for _ in range(_ROUNDS):
        step = fixed + slope * decoding / pools.decode_workers
        keeps_up = requests / (alone + moved + steps * step)
        enough = np.maximum(np.ceil(keeps_up * service / _BUSIEST / ranks) * ranks, ranks)
        number = np.where(pools.prefill_workers > 0, servers, enough)
        waiting = service / number * queue * (requests - 1) / requests
        held = waiting + alone
        rate = np.minimum(requests / (held + moved + steps * step), number / service)
        rate = np.minimum(rate, places / (steps * step))
        queue = 0.5 * (queue + rate * (waiting + service / number))
        decoding = 0.5 * (decoding + np.clip(rate * steps * step, 1.0, places))
    step = fixed + slope * decoding / pools.decode_workers
    left = requests / rate - steps * step - moved
    burst = setting.workload.burst_share * np.maximum(requests - 1, 0.0) / 2 * service / number
    per_token = step / tokens_per_step(setting)
    collected = np.minimum(pools.stream_interval, setting.workload.output_tokens) - 1
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


def _prefill_times(setting: ServingSetting, pools: Pools) -> tuple[FloatArray, FloatArray]:
    """Seconds of a prompt when every rank has one, and of a rank's time it takes in a queue.

    A queue fills the steps with as many prompts as their tokens and sequences allow.
    """
    c = pools.prefill
    new, ranks = new_tokens(setting), c.attention_data_parallel
    rounds = np.maximum(np.ceil(new * ranks / c.replica_step_tokens), 1.0)
    p = c.pipeline_parallel
    batch = prompt_batch(setting, ranks, new * ranks / rounds, np.zeros(()))
    alone = step_time(setting, c, batch, decoding=False)
    most = np.minimum(np.floor(c.replica_step_tokens / new), pools.prefill_seqs * ranks)
    full = np.maximum(most, ranks / rounds)
    busy = np.maximum(full, ranks)
    queued = step_time(
        setting, c, prompt_batch(setting, busy, full * new, np.zeros(())), decoding=False
    ).cycle(p)
    service = np.minimum(alone.cycle(p) * rounds, queued * ranks / full)
    return alone.total * rounds, service / p


def _decode_step(
    setting: ServingSetting, pools: Pools, sequences: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """A step over B sequences of a worker, at most its share of them, lasts fixed + slope B."""
    c, p = pools.decode, pools.decode.pipeline_parallel
    whole = np.maximum(sequences / pools.decode_workers, 1.0)
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
