"""What replicas find of earlier prompts: in the room of their GPUs, of their hosts, on drives."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np

from planner.base.arrays import FloatArray, Numeric, add
from planner.base.records import record
from planner.configurations.table import ServingConfigurations
from planner.estimators.inference.memory import ServingMemory
from planner.estimators.inference.setting import Prefixes, ServingSetting
from planner.formulas.queueing import residual_mean


@record(kw_only=True)
class Load:
    """What replicas have to do: ``replicas`` of them answer a ``rate`` [1/s] of requests in all,
    each with so many ``running``."""

    replicas: Numeric
    rate: Numeric
    running: Numeric


ROUNDS = 5
"""Halvings in which what is found and what is answered agree."""

Judged = TypeVar("Judged")


def in_agreement(
    judged: Judged,
    again: Callable[[Prefixes], Judged],
    found: Callable[[Judged], Prefixes],
) -> Judged:
    """What is ``judged`` where each configuration finds what its caches keep at what it answers.

    The more is found the more requests are answered, and the sooner what they leave is dropped:
    between nothing and what is ``found`` without it is what both agree on. ``judged`` is without.
    """
    prefixes, low = found(judged), np.zeros(())
    high = prefixes.hit_rate
    for _ in range(ROUNDS):
        middle = (low + high) / 2
        judged = again(prefixes.scaled(middle))
        prefixes = found(judged)
        is_more = prefixes.hit_rate > middle
        low, high = np.where(is_more, middle, low), np.where(is_more, high, middle)
    return judged


def token_bytes(setting: ServingSetting, memory: ServingMemory) -> FloatArray:
    """Bytes of a token in the cache of one GPU, on average over the longest request."""
    work = setting.workload
    return np.asarray(memory.room.longest / (work.input_tokens + work.output_tokens))


def prefixes_at(
    setting: ServingSetting,
    configurations: ServingConfigurations,
    memory: ServingMemory,
    load: Load,
) -> Prefixes:
    """What every configuration finds at a load, at its own room.

    Each attention rank has a cache. Of a trace all of it counts, in which requests that run are
    those used last; of sessions, whose gaps begin when an answer ends, what those leave. Host and
    drives keep a copy of what the faster one has, as LMCache and HiCache do: what they have alone
    is read over their link before the prompt is computed.
    """
    reuse, work = setting.workload.reuse, setting.workload
    if reuse is None:
        raise ValueError("Nothing is said of what requests share.")
    machine, ranks = setting.machine, configurations.attention_data_parallel
    each = token_bytes(setting, memory)
    rooms = [np.maximum(memory.room.size - memory.room.shared, 0.0)]
    rooms += [np.maximum(rooms[0], work.host_cache), np.asarray(work.disk_cache)]
    rooms[2] = np.maximum(rooms[1], rooms[2])
    left = residual_mean(mean=work.output_tokens, variation=work.output_variation)
    context = work.input_tokens + left - work.shared_prefix_tokens
    running = np.minimum(load.running, memory.most_sequences) / ranks
    pinned = context * running if reuse.per_second else 0.0
    caches, tokens = load.replicas * ranks, [room / each - pinned for room in rooms]
    hits = [reuse.found(one, load.rate, caches) for one in tokens]
    on_host, on_disk = hits[1] - hits[0], hits[2] - hits[1]
    prompt = work.input_tokens * each
    fraction = setting.engine.execution.host_link_fraction
    loaded = [
        machine.host_copy_time(on_host * prompt, fraction) if work.host_cache else None,
        machine.drive_copy_time(on_disk * prompt) if work.disk_cache else None,
    ]
    return Prefixes(
        gpu_cache_hit_rate=hits[0],
        host_cache_hit_rate=on_host,
        disk_cache_hit_rate=on_disk,
        cache_residence=reuse.residence(tokens[0], load.rate, caches),
        cache_load_time=add([np.zeros(()), *(one for one in loaded if one is not None)]),
    )
