"""Time of one step of an engine: a batch of prompts, of decoding sequences, or of both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from operator import attrgetter

import numpy as np

from planner.base.arrays import FloatArray, Numeric, add
from planner.base.enums import CacheType, Quantization
from planner.base.records import record
from planner.configurations.serving import ServingConfigurations
from planner.estimators.inference.adapters import adapter_launches
from planner.estimators.inference.attention_core import cached_bytes, visible
from planner.estimators.inference.layer_operators import end_operators, layer_operators
from planner.estimators.inference.operators import LayerContext, StepOperator
from planner.estimators.inference.setting import Batch, Rank, ServingSetting
from planner.estimators.inference.weights import weight_bytes
from planner.estimators.ledger import Work, attributed
from planner.layers.model import layer_of
from planner.layers.operators import AttentionCore
from planner.specs.model import LayerGroup


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
    computes = rank.setting.engine.execution.host_attention_fraction > 0
    by_host = np.asarray(computes and rank.configurations.kv_cache == CacheType.BF16)
    cache = np.where(by_host, 0.0, _offloaded_cache(rank))
    hidden = execution.hidden_copies * busy
    copied = machine.host_copy_time(weights + cache, execution.host_link_fraction)
    wait = np.maximum(copied - hidden, 0.0)
    if not np.any(by_host):
        return wait
    read = np.where(by_host, _offloaded_cache(rank, for_each_head=True), 0.0)
    return wait + machine.host_memory_time(read, execution.host_attention_fraction)


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


@record(kw_only=True)
class InferenceStep:
    """Seconds of a step through all pipeline stages, part by part; the parts add up.

    ``layers`` holds the operators of one layer of each group with the number of layers,
    ``ends`` those outside them. ``launch_wait``: the GPU waits for the host to launch.
    ``transfer_wait``: it waits for offloaded weights and cache, or for the host that attends to
    it. ``slowest_stage``: seconds of the pipeline stage that the others wait for, with the copies
    of its own weights and cache, which every step needs again. ``works``: what is behind the parts
    that belong to no operator, where that is recorded.
    """

    layers: tuple[tuple[int, tuple[StepOperator, ...]], ...]
    ends: tuple[StepOperator, ...]
    kernels: FloatArray
    pipeline: FloatArray
    launch_wait: FloatArray
    transfer_wait: FloatArray
    overhead: FloatArray
    slowest_stage: FloatArray
    works: Mapping[str, tuple[Work, ...]] = field(default_factory=dict)

    @property
    def total(self) -> FloatArray:
        """Seconds of the step."""
        return add(
            (self.kernels, self.pipeline, self.launch_wait, self.transfer_wait, self.overhead)
        )

    def cycle(self, micro_batches: Numeric) -> FloatArray:
        """Seconds between two steps of a micro-batch when so many share the pipeline.

        Each returns to the first stage when it has passed all, and when all have passed the
        slowest.
        """
        return np.maximum(self.total, micro_batches * self.slowest_stage)


def step_time(
    setting: ServingSetting, configurations: ServingConfigurations, batch: Batch, decoding: bool
) -> InferenceStep:
    """Seconds of one step on ``batch``; ``decoding``: it holds no prompts, so graphs run it."""
    c = configurations
    rank = Rank(setting=setting, configurations=c, batch=batch)
    layer = LayerContext(rank=rank, kernels=setting.kernels)
    ledger = setting.machine.ledger
    layers = tuple(
        (
            group.num_hidden_layers,
            tuple(attributed(ledger, layer_operators(layer, group), attrgetter("time"))),
        )
        for group in setting.model.layer_groups
    )
    ends = tuple(attributed(ledger, end_operators(layer), attrgetter("time")))
    per_layer = [(count, add(o.time for o in operators)) for count, operators in layers]
    kernels = add((*(count * time for count, time in per_layer), *(o.time for o in ends)))
    wait = add(
        count * np.maximum(_launch_time(rank, group, decoding) - time, 0.0)
        for group, (count, time) in zip(setting.model.layer_groups, per_layer, strict=True)
    )
    overhead = _overhead(rank)
    p, layer_count = c.pipeline_parallel, setting.model.num_hidden_layers
    send = np.where(
        p > 1, setting.machine.send_time(2.0 * rank.tokens * rank.hidden_size, c.stage_gpus), 0.0
    )
    setting.machine.close("pipeline")
    busy = kernels + wait
    waited = offload_wait(rank, busy)
    setting.machine.close("transfer_wait")
    ends_time = add(o.time for o in ends)
    # The stages that have a layer more than others do not hold the logits as well.
    mean_layer = (busy - ends_time) / layer_count
    slowest = np.maximum(
        np.ceil(layer_count / p) * mean_layer, np.floor(layer_count / p) * mean_layer + ends_time
    )
    return InferenceStep(
        layers=layers,
        ends=ends,
        kernels=kernels,
        pipeline=np.asarray((p - 1) * send),
        launch_wait=wait,
        transfer_wait=waited,
        overhead=overhead,
        slowest_stage=slowest + send + overhead + waited / p,
        works=setting.machine.recorded_parts(),
    )


def _overhead(rank: Rank) -> FloatArray:
    """Seconds of a step in which the host plans and samples and the GPU waits."""
    execution, batch = rank.setting.engine.execution, rank.batch
    # Ranks that share the requests have hosts that work side by side.
    usual = execution.step_overhead + execution.sequence_overhead * rank.sampled
    verifying = execution.draft_overhead + execution.draft_sequence_overhead * rank.decoding
    verifies = (batch.tokens_per_sequence > 1) & (batch.decoding > 0)
    return np.asarray(usual + np.where(verifies, verifying, 0.0))


def _launch_time(rank: Rank, group: LayerGroup, decoding: bool) -> Numeric:
    """Seconds in which the host launches a layer."""
    execution = rank.setting.engine.execution
    each, routing, captured_routing = _quantized_launches(rank, group), 0.0, 0.0
    mixing = _mixing(rank, group)
    if group.num_experts > 1:
        each = each + execution.expert_loop_time * group.num_experts
        routing = execution.expert_launch_time
        captured_routing = execution.decode_expert_launch_time
    blocks = group.num_blocks / 2
    beside = each + adapter_launches(rank.setting, layer_of(rank.setting.model, group))
    launched = beside + blocks * execution.prefill_launch_time + routing + mixing
    if not decoding:
        return launched
    longest = execution.captured_context or np.inf
    shown = beside if execution.decode_launch_time > 0 else each
    captured = shown + blocks * execution.decode_launch_time + captured_routing
    return np.where(rank.batch.context > longest, launched, captured)


def _mixing(rank: Rank, group: LayerGroup) -> float:
    """What attention other than over keys and values adds to the launch of a layer."""
    execution, layer = rank.setting.engine.execution, layer_of(rank.setting.model, group)
    if layer.scan is not None:
        return execution.recurrent_launch_time
    is_latent = layer.core is not None and layer.core.latent_width > 0
    return execution.latent_launch_time if is_latent else 0.0


def _quantized_launches(rank: Rank, group: LayerGroup) -> Numeric:
    """What the host adds for the quantized matrices of a layer."""
    c, time = rank.configurations, rank.setting.engine.execution.quantized_launch_time
    if time == 0:
        return 0.0
    of_attention, of_feed_forward = layer_of(rank.setting.model, group).num_matrices
    experts = c.expert_quantization if group.num_experts > 1 else c.quantization
    in_attention = np.where(c.quantization == Quantization.W16A16, 0, of_attention)
    return time * (in_attention + np.where(experts == Quantization.W16A16, 0, of_feed_forward))
