"""Prefill and decode on workers of their own: their rates, the transfer, and their match."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from planner.arrays import CodeArray, FloatArray, Numeric
from planner.configurations.serving import ServingConfigurations
from planner.estimators.inference.estimate import serving_rejections
from planner.estimators.inference.memory import ServingMemory, sequence_bytes, serving_memory
from planner.estimators.inference.serving import (
    decode_batch,
    decode_steps,
    new_tokens,
    prompt_batch,
    tokens_per_step,
)
from planner.estimators.inference.setting import ServingSetting
from planner.estimators.inference.step import step_time
from planner.formulas.queueing import mean_wait

HIGHEST_PREFILL_LOAD = 0.9
_BEYOND_ANY_DOMAIN = 1e9


@dataclass(frozen=True, kw_only=True)
class PrefillWorkers:
    """Workers that compute prompts alone; arrays of the configurations' shape.

    ``prompt_time``: seconds of a lone prompt; ``service_time``: seconds of a worker's work
    per prompt when its steps are full; ``transfer_time``: seconds until the prompt's cache
    has left its GPUs.
    """

    setting: ServingSetting
    configurations: ServingConfigurations
    memory: ServingMemory
    prompt_time: FloatArray
    service_time: FloatArray
    transfer_time: FloatArray
    rejected_by: CodeArray

    @property
    def request_rate(self) -> FloatArray:
        """Prompts per second of one worker at the highest load that still bounds the queue."""
        return HIGHEST_PREFILL_LOAD / self.service_time


@dataclass(frozen=True, kw_only=True)
class DecodeWorkers:
    """Workers that hold ``concurrency`` requests and compute no prompts."""

    setting: ServingSetting
    configurations: ServingConfigurations
    memory: ServingMemory
    step_time: FloatArray
    time_per_output_token: FloatArray
    request_rate: FloatArray
    transfer_time: FloatArray
    rejected_by: CodeArray


def prefill_workers(
    setting: ServingSetting, configurations: ServingConfigurations, inside_fabric: bool
) -> PrefillWorkers:
    """Time and room of workers for prompts; ``setting`` is that of the whole deployment."""
    alone = replace(setting, workload=replace(setting.workload, output_tokens=1, draft_tokens=0))
    whole, limit = new_tokens(alone), configurations.max_num_batched_tokens
    rounds = np.maximum(whole / limit, 1.0)
    ranks = configurations.attention_data_parallel
    together = np.maximum(np.floor(limit / whole), 1.0) * ranks
    p = configurations.pipeline_parallel
    c = replace(configurations, concurrency=together * p)
    nothing = np.zeros(())
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        memory = serving_memory(alone, c)
        lone, batched = (
            step_time(alone, c, prompt_batch(alone, count, count * whole / rounds, nothing), False)
            for count in (np.ones(()), together)
        )
        return PrefillWorkers(
            setting=alone,
            configurations=c,
            memory=memory,
            prompt_time=lone.total * rounds,
            service_time=batched.cycle(p) * rounds / (together * p),
            transfer_time=cache_transfer_time(alone, c, inside_fabric),
            rejected_by=serving_rejections(alone, c, memory),
        )


def decode_workers(
    setting: ServingSetting, configurations: ServingConfigurations, inside_fabric: bool
) -> DecodeWorkers:
    """Time and room of workers whose steps hold decoding sequences alone."""
    drafted = 1 + setting.workload.draft_tokens
    ranks = configurations.attention_data_parallel
    tokens = configurations.concurrency * drafted / ranks
    c = replace(configurations, max_num_batched_tokens=tokens)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        memory = serving_memory(setting, c)
        batch = decode_batch(setting, c.concurrency / c.pipeline_parallel)
        lap = step_time(setting, c, batch, True).cycle(
            np.minimum(c.concurrency, c.pipeline_parallel)
        )
        step = lap * (1 + setting.workload.draft_cost)
        steps = decode_steps(setting)
        return DecodeWorkers(
            setting=setting,
            configurations=c,
            memory=memory,
            step_time=step,
            time_per_output_token=step / tokens_per_step(setting),
            request_rate=c.concurrency / (steps * step),
            transfer_time=cache_transfer_time(setting, c, inside_fabric),
            rejected_by=serving_rejections(setting, c, memory),
        )


def cache_transfer_time(
    setting: ServingSetting, configurations: ServingConfigurations, inside_fabric: bool
) -> FloatArray:
    """Seconds to move one prompt's cache from or to the GPUs of one worker.

    Each GPU moves its share over its own link: the fabric where all workers stand in one
    domain, else the network.
    """
    num_bytes = sequence_bytes(setting, configurations, setting.workload.input_tokens)
    distance = 1.0 if inside_fabric else _BEYOND_ANY_DOMAIN
    return setting.machine.send_time(num_bytes, np.asarray(distance))


@dataclass(frozen=True, kw_only=True)
class Matched:
    """Pools of prefill and decode workers that keep up with each other; per deployment."""

    request_rate: FloatArray
    load: FloatArray
    time_to_first_token: FloatArray


def matched(
    *,
    prefill: Numeric,
    decode: Numeric,
    service_time: Numeric,
    prompt_time: Numeric,
    transfer_time: Numeric,
    decode_rate: Numeric,
    decode_step: Numeric,
    overhead: float,
) -> Matched:
    """Rate and time to first token of ``prefill`` and ``decode`` workers.

    The slower pool sets the rate; prompts use at most ``HIGHEST_PREFILL_LOAD`` of their
    pool. A first token waits for the queue, the prompt, the transfer and the first step.
    """
    capacity = prefill * HIGHEST_PREFILL_LOAD / np.asarray(service_time)
    rate = np.minimum(capacity, decode * np.asarray(decode_rate))
    load = rate * service_time / prefill
    wait = mean_wait(utilization=load, service_time=service_time)
    first = overhead + wait + prompt_time + transfer_time + decode_step
    return Matched(request_rate=rate, load=load, time_to_first_token=np.asarray(first))
