"""What weights and cache in host memory add to a step."""

from __future__ import annotations

import numpy as np

from planner.base.arrays import BoolArray, FloatArray, Numeric, add
from planner.base.enums import CacheType
from planner.estimators.inference.attention_core import cached_bytes, visible
from planner.estimators.inference.setting import Rank
from planner.estimators.inference.weights import weight_bytes
from planner.layers.model import layer_of
from planner.layers.operators import AttentionCore


def offload_wait(rank: Rank, busy: FloatArray) -> FloatArray:
    """Seconds of a step in which the GPU waits for its host, beside ``busy`` ones of its own.

    Weights, and the cache where the GPU attends to it, are copied over the host link while the
    GPU computes. Where the host attends to the cache, the GPU waits for that.
    """
    c, machine = rank.configurations, rank.setting.machine
    if not np.any(c.weight_offload > 0) and not np.any(c.kv_offload > 0):
        return np.zeros(())
    execution = rank.setting.engine.execution
    weights = c.weight_offload * weight_bytes(rank.setting, c).total * c.pipeline_parallel
    by_host = _host_attends(rank)
    cache = np.where(by_host, 0.0, _offloaded_cache(rank))
    hidden = execution.hidden_copies * busy
    copied = machine.host_copy_time(weights + cache, execution.host_link_fraction)
    wait = np.maximum(copied - hidden, 0.0)
    if not np.any(by_host):
        return wait
    read = np.where(by_host, _offloaded_cache(rank, for_each_head=True), 0.0)
    return wait + machine.host_memory_time(read, execution.host_attention_fraction)


def _host_attends(rank: Rank) -> BoolArray:
    """Where the host computes decode attention."""
    computes = rank.setting.engine.execution.host_attention_fraction > 0
    is_plain = rank.configurations.kv_cache == CacheType.BF16
    return np.asarray(computes and is_plain)


def _offloaded_cache(rank: Rank, for_each_head: bool = False) -> FloatArray:
    """Bytes of the offloaded cache that a decode step moves, of all layers.

    ``for_each_head``: where query heads share keys and values, each writes and reads a copy.
    """
    sequences = rank.configurations.kv_offload * rank.decoding
    return add(
        group.num_hidden_layers
        * _cache_of(rank, layer_of(rank.setting.model, group).core, for_each_head)
        * sequences
        for group in rank.setting.model.layer_groups
    )


def _cache_of(rank: Rank, core: AttentionCore | None, for_each_head: bool) -> Numeric:
    if core is None:
        return 0.0
    held = cached_bytes(rank, core) * visible(rank, rank.batch.context, core)
    heads = core.heads / core.key_value_heads
    is_shared = not core.latent_width and heads > 1
    return held * (1 + 2 * heads) if for_each_head and is_shared else held
