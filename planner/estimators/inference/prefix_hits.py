"""Prefix-cache hits of replicas: in the memory of GPUs and hosts, and on drives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import numpy as np

from planner.base.arrays import FloatArray, Numeric, add
from planner.base.records import record
from planner.configurations.configuration_tables import ServingConfigurations
from planner.estimators.inference.batch_share import PrefixHits, ServingInputs
from planner.estimators.inference.continuous_batching import new_tokens, prompt_batch
from planner.estimators.inference.engine_step import step_time
from planner.estimators.inference.serving_memory import ServingMemory
from planner.formulas.queueing import mean_residual
from planner.specs.serving_workload import HitRateCurve


@record(kw_only=True)
class ReplicaLoad:
    """Load of ``replicas``: a ``rate`` [1/s] of requests in all, each replica with so many
    ``running``."""

    replicas: Numeric
    rate: Numeric
    running: Numeric


ROUNDS = 5
"""Halvings in which what is found and what is answered agree."""

Judged = TypeVar("Judged")


def solve_prefix_hits(
    judged: Judged,
    evaluate_with: Callable[[PrefixHits], Judged],
    hits_of: Callable[[Judged], PrefixHits],
) -> Judged:
    """Find the state in which prefix-cache hits and request rate agree, per configuration.

    More hits raise the request rate, which shortens the residence of tokens in the cache. The
    solution lies between no hits and the hits at the rate without hits. ``judged``: without hits.
    """
    prefixes, low = hits_of(judged), np.zeros(())
    high = prefixes.hit_rate
    for _ in range(ROUNDS):
        middle = (low + high) / 2
        judged = evaluate_with(prefixes.scaled(middle))
        prefixes = hits_of(judged)
        is_more = prefixes.hit_rate > middle
        low, high = np.where(is_more, middle, low), np.where(is_more, high, middle)
    return judged


def token_bytes(inputs: ServingInputs, memory: ServingMemory) -> FloatArray:
    """KV cache bytes per token on one GPU, averaged over the longest request."""
    work = inputs.workload
    return np.asarray(memory.room.longest / (work.input_tokens + work.output_tokens))


@record(kw_only=True)
class PrefixCaches:
    """Prefix caches of every configuration: their number, and ``token_bytes`` per token.

    ``pinned``: tokens in one of them that are no choice, those of requests that run.
    """

    reuse: HitRateCurve
    token_bytes: FloatArray
    pinned: Numeric
    number: Numeric
    rate: Numeric

    def hit_rate(self, size: Numeric) -> FloatArray:
        """Share of the prompt tokens with a hit in caches of so many bytes."""
        return self.reuse.hit_rate(self._tokens(size), self.rate, self.number)

    def residence(self, size: Numeric) -> FloatArray:
        """Seconds for which caches of so many bytes store unused tokens."""
        return self.reuse.residence(self._tokens(size), self.rate, self.number)

    def _tokens(self, size: Numeric) -> FloatArray:
        return np.asarray(size / self.token_bytes - self.pinned)


def caches_at(
    inputs: ServingInputs,
    configurations: ServingConfigurations,
    memory: ServingMemory,
    load: ReplicaLoad,
) -> PrefixCaches:
    """Return the prefix caches of every configuration at a load, one per attention rank.

    With a trace the full cache counts, since running requests are the latest used. With sessions,
    whose gaps begin at the end of an answer, running requests take memory of the cache. Raises
    ValueError if the workload does not specify what requests share.
    """
    work, ranks = inputs.workload, configurations.attention_data_parallel
    if work.reuse is None:
        raise ValueError("The workload has no shared prompts.")
    left = mean_residual(mean=work.output_tokens, variation=work.output_variation)
    context = work.input_tokens + left - work.shared_prefix_tokens
    running = np.minimum(load.running, memory.most_sequences) / ranks
    return PrefixCaches(
        reuse=work.reuse,
        token_bytes=token_bytes(inputs, memory),
        pinned=context * running if work.reuse.per_second else 0.0,
        number=load.replicas * ranks,
        rate=load.rate,
    )


def cache_sizes(inputs: ServingInputs, memory: ServingMemory) -> tuple[FloatArray, ...]:
    """Return bytes of a prefix cache: on the GPU, with host memory, and with drives.

    Host and drives keep a copy of what the faster one has, as LMCache and HiCache do.
    """
    work, gpu_cache = inputs.workload, np.maximum(memory.room.size - memory.room.shared, 0.0)
    host = np.maximum(gpu_cache, work.host_cache)
    return gpu_cache, host, np.maximum(host, work.disk_cache)


def prefixes_at(
    inputs: ServingInputs,
    configurations: ServingConfigurations,
    memory: ServingMemory,
    load: ReplicaLoad,
) -> PrefixHits:
    """Return the prefix-cache hits of every configuration at a load.

    What host and drives alone have is read over their link before the prompt is computed, and is
    computed again where that is faster.
    """
    work, machine = inputs.workload, inputs.machine
    caches, sizes = caches_at(inputs, configurations, memory, load), cache_sizes(inputs, memory)
    hits = [caches.hit_rate(size) for size in sizes]
    of_tier = {"host": hits[1] - hits[0], "disk": hits[2] - hits[1]}
    a_token, loading = dict[str, FloatArray](), [np.zeros(())]
    if work.host_cache:
        fraction = inputs.engine.execution.host_link_fraction
        a_token["host"] = machine.host_copy_time(caches.token_bytes, fraction)
    if work.disk_cache:
        a_token["disk"] = machine.drive_copy_time(caches.token_bytes)
    for tier, seconds in a_token.items():
        of_tier[tier] = np.where(
            seconds <= _prompt_token_time(inputs, configurations), of_tier[tier], 0.0
        )
        loading.append(of_tier[tier] * work.input_tokens * seconds)
    return PrefixHits(
        gpu_cache_hit_rate=hits[0],
        host_cache_hit_rate=of_tier["host"],
        disk_cache_hit_rate=of_tier["disk"],
        cache_residence=caches.residence(sizes[0]),
        cache_load_time=add(loading),
    )


def _prompt_token_time(inputs: ServingInputs, configurations: ServingConfigurations) -> FloatArray:
    """Return seconds per prompt token in steps full of new tokens."""
    uncached, ranks = replace(inputs, prefixes=None), configurations.attention_data_parallel
    tokens = np.minimum(new_tokens(uncached) * ranks, configurations.replica_step_tokens)
    batch = prompt_batch(uncached, np.asarray(ranks, np.float64), tokens, np.zeros(()))
    step = step_time(uncached, configurations, batch, decoding=False)
    return np.asarray(step.total * ranks / tokens)
