"""Time of one step of an engine: a batch of prompts, of decoding sequences, or of both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from itertools import chain

import numpy as np

from planner.base.arrays import FloatArray, Numeric, add
from planner.base.enums import CacheType, Quantization
from planner.base.records import record
from planner.configurations.configuration_tables import ServingConfigurations
from planner.estimators.adapters import serving_adapter_launches
from planner.estimators.attention_core import cached_bytes, visible_tokens
from planner.estimators.inference.batch_share import Batch, BatchShare, ServingInputs
from planner.estimators.inference.weights import stage_layers, weight_bytes
from planner.estimators.kernel_work import KernelWork
from planner.estimators.layer_operators import layer_operators
from planner.estimators.operators import Operator, attribute_work
from planner.formulas.routing import experts_touched
from planner.layers.model import Layer, embedding_of, layer_of, logits_of
from planner.layers.operators import AttentionCore
from planner.specs.model import LayerGroup


def offload_wait(share: BatchShare, busy: FloatArray) -> FloatArray:
    """Return seconds per step in which the GPU waits for host copies, beyond ``busy`` time.

    Weights, and the cache where the GPU attends to it, are copied over the host link while the
    GPU computes. Where the host multiplies by its weights or attends to the cache, the GPU waits.
    """
    c, machine = share.configurations, share.machine
    if not np.any(c.weight_offload > 0) and not np.any(c.kv_offload > 0):
        return np.zeros(())
    execution = share.execution
    weights = c.weight_offload * weight_bytes(share.inputs, c).total * c.pipeline_parallel
    multiplied = np.zeros(())
    if execution.host_product_fraction > 0:
        decodes = share.batch.decoding > 0
        multiplied = np.where(decodes, _multiplied_on_host(share), 0.0)
        weights = np.where(decodes, 0.0, weights)
    computes = execution.host_attention_fraction > 0
    by_host = np.asarray(computes and c.kv_cache == CacheType.BF16)
    cache = np.where(by_host, 0.0, _offloaded_cache(share))
    hidden = execution.hidden_copies * busy
    copied = machine.host_copy_time(weights + cache, execution.host_link_fraction)
    wait = np.maximum(copied - hidden, 0.0)
    if np.any(multiplied):
        wait = wait + machine.host_memory_time(multiplied, execution.host_product_fraction)
    if not np.any(by_host):
        return wait
    read = np.where(by_host, _offloaded_cache(share, for_each_head=True), 0.0)
    return wait + machine.host_memory_time(read, execution.host_attention_fraction)


def _multiplied_on_host(share: BatchShare) -> FloatArray:
    """Return bytes that each host reads in a decode step to multiply by offloaded weights.

    Experts are offloaded first, and the chosen ones are read; stages compute one after the other.
    """
    weights, c = weight_bytes(share.inputs, share.configurations), share.configurations
    offloaded = c.weight_offload * weights.total
    experts = np.minimum(offloaded, weights.experts)
    routed = (layer_of(share.inputs.model, g).experts for g in share.inputs.model.layer_groups)
    kinds = ((each.num_experts, each.per_token) for each in routed if each)
    number, chosen = next(kinds, (1, 1))
    touched = experts_touched(
        num_experts=number, num_experts_per_tok=chosen, tokens=share.tokens, dispersion=0.0
    )
    return np.asarray(offloaded - experts + experts * touched / number)


def _offloaded_cache(share: BatchShare, for_each_head: bool = False) -> FloatArray:
    """Return bytes of the offloaded KV cache of all layers that a decode step moves.

    ``for_each_head``: where query heads share keys and values, each writes and reads a copy.
    """
    sequences = share.configurations.kv_offload * share.decoding
    return add(
        group.num_hidden_layers
        * _cache_of(share, layer_of(share.inputs.model, group).core, for_each_head)
        * sequences
        for group in share.inputs.model.layer_groups
    )


def _cache_of(share: BatchShare, core: AttentionCore | None, for_each_head: bool) -> Numeric:
    """Return KV-cache bytes per sequence that a decode step moves in one layer on one rank."""
    if core is None:
        return 0.0
    num_bytes = cached_bytes(share, core) * visible_tokens(share, share.batch.context, core)
    heads = core.heads / core.key_value_heads
    is_shared = not core.latent_width and heads > 1
    return num_bytes * (1 + 2 * heads) if for_each_head and is_shared else num_bytes


PARTS_WITHOUT_OPERATOR = (
    "pipeline", "launch_wait", "transfer_wait", "overhead", "untuned", "front_end_wait",
)  # fmt: skip
"""Times of an `InferenceStep` that belong to no operator."""


@record(kw_only=True)
class InferenceStep:
    """Seconds of a step through all pipeline stages, part by part; the parts add up.

    ``layers`` holds the operators of one layer of each group with the number of layers,
    ``ends`` those outside them. ``launch_wait``: the GPU waits for the host to launch.
    ``transfer_wait``: it waits for offloaded weights and cache, or for the host that attends to
    it. ``slowest_stage``: seconds of the pipeline stage that the others wait for, with the copies
    of its own weights and cache, which every step needs again. ``untuned``: what the step takes
    beyond that of a tuned set-up. ``front_end_wait``: the engine is faster than the processes that
    serve its clients, over all steps of a load. ``works``: recorded work of the parts that belong
    to no operator.
    """

    layers: tuple[tuple[int, tuple[Operator, ...]], ...]
    ends: tuple[Operator, ...]
    kernels: FloatArray
    pipeline: FloatArray
    launch_wait: FloatArray
    transfer_wait: FloatArray
    overhead: FloatArray
    untuned: FloatArray
    slowest_stage: FloatArray
    front_end_wait: FloatArray = field(default_factory=lambda: np.zeros(()))
    works: Mapping[str, tuple[KernelWork, ...]] = field(default_factory=dict)

    @property
    def total(self) -> FloatArray:
        """Seconds of the step."""
        return add(getattr(self, part) for part in ("kernels", *PARTS_WITHOUT_OPERATOR))

    def cycle(self, micro_batches: Numeric) -> FloatArray:
        """Return seconds between two steps of a micro-batch if several share the pipeline.

        Each returns to the first stage when it has passed all, and when all have passed the
        slowest.
        """
        return np.maximum(self.total, micro_batches * self.slowest_stage)


def step_time(
    inputs: ServingInputs, configurations: ServingConfigurations, batch: Batch, decoding: bool
) -> InferenceStep:
    """Predict seconds of one step on ``batch``; ``decoding``: without prompts, as a CUDA graph."""
    c = configurations
    share = BatchShare(inputs=inputs, configurations=c, batch=batch)
    model, ledger = inputs.model, inputs.machine.ledger

    def operators_of(*layers: Layer) -> tuple[Operator, ...]:
        """Return the operators of consecutive layers or ends, with their work if recorded."""
        operators = chain.from_iterable(layer_operators(share, layer) for layer in layers)
        return tuple(attribute_work(ledger, operators))

    layers = tuple(
        (group.num_hidden_layers, operators_of(layer_of(model, group)))
        for group in model.layer_groups
    )
    ends = operators_of(embedding_of(model), logits_of(model))
    per_layer = [(count, add(o.forward for o in operators)) for count, operators in layers]
    kernels = add((*(count * time for count, time in per_layer), *(o.forward for o in ends)))
    wait = add(
        count * np.maximum(launch_time(share, group, decoding) - time, 0.0)
        for group, (count, time) in zip(inputs.model.layer_groups, per_layer, strict=True)
    )
    overhead = host_overhead(share)
    p, layer_count = c.pipeline_parallel, inputs.model.num_hidden_layers
    sent = 2.0 * share.tokens * inputs.model.stream_width
    send = np.where(p > 1, inputs.machine.send_time(sent, c.stage_gpus), 0.0)
    inputs.machine.close("pipeline")
    busy = kernels + wait
    waited = offload_wait(share, busy)
    inputs.machine.close("transfer_wait")
    ends_time = add(o.forward for o in ends)
    # The stages that have a layer more than others do not hold the logits as well.
    mean_layer = (busy - ends_time) / layer_count
    slowest = np.maximum(
        stage_layers(inputs, c) * mean_layer, np.floor(layer_count / p) * mean_layer + ends_time
    )
    pipeline = np.asarray((p - 1) * send)
    beyond = inputs.slowdown - 1.0
    tuned = add((busy, pipeline, waited, overhead)) if beyond else np.zeros(())
    return InferenceStep(
        layers=layers,
        ends=ends,
        kernels=kernels,
        pipeline=pipeline,
        launch_wait=wait,
        transfer_wait=waited,
        overhead=overhead,
        untuned=beyond * tuned,
        slowest_stage=inputs.slowdown * (slowest + send + overhead + waited / p),
        works=inputs.machine.recorded_parts(),
    )


def host_overhead(share: BatchShare) -> FloatArray:
    """Return seconds per step in which the host schedules and samples while the GPU waits."""
    execution, batch = share.execution, share.batch
    # Ranks that share the requests have hosts that work side by side.
    default = execution.step_overhead + execution.sequence_overhead * share.sampled
    verifying = execution.draft_overhead + execution.draft_sequence_overhead * share.decoding
    verifies = (batch.tokens_per_sequence > 1) & (batch.decoding > 0)
    return np.asarray(default + np.where(verifies, verifying, 0.0))


def launch_time(share: BatchShare, group: LayerGroup, decoding: bool) -> Numeric:
    """Return host seconds per layer to launch the kernels of a step."""
    execution = share.execution
    each, captured_routing = _quantized_launch_time(share, group), 0.0
    routing: Numeric = 0.0
    layer, mixing = layer_of(share.inputs.model, group), 0.0
    if layer.scan:
        mixing = execution.recurrent_launch_time
    elif layer.core and layer.core.latent_width > 0:
        mixing = execution.latent_launch_time
    if group.num_experts > 1:
        each = each + execution.expert_loop_time * group.num_experts
        routing = execution.expert_launch_time + _host_expert_time(share)
        captured_routing = execution.decode_expert_launch_time
    blocks = group.num_blocks / 2
    host_time = each + serving_adapter_launches(share.inputs, layer)
    launched = host_time + blocks * execution.prefill_launch_time + routing + mixing
    is_eager = share.inputs.max_loras > 0 and not execution.captured_adapters
    if not decoding or is_eager:
        return launched
    longest = execution.captured_context or np.inf
    shown = host_time if execution.decode_launch_time > 0 else each
    captured = shown + blocks * execution.decode_launch_time + captured_routing
    is_launched = (share.batch.context > longest) | (
        share.decoding > (execution.captured_batch or np.inf)
    )
    return np.where(is_launched, launched, captured)


def _host_expert_time(share: BatchShare) -> Numeric:
    """Return host seconds per layer of experts whose kernels the host launches one by one."""
    engine = share.inputs.engine
    words = engine.host_experts_by_architecture.get(share.machine.gpu.architecture, ())
    codes = [code for code in Quantization if code.word in words]
    if not codes:
        return 0.0
    is_launched = np.isin(share.configurations.expert_quantization, codes)
    return np.where(is_launched, engine.execution.host_expert_time, 0.0)


def _quantized_launch_time(share: BatchShare, group: LayerGroup) -> Numeric:
    """Return host seconds per layer that quantized matrices add to launches."""
    c, time = share.configurations, share.execution.quantized_launch_time
    if time == 0:
        return 0.0
    of_attention, of_feed_forward = layer_of(share.inputs.model, group).num_matrices
    experts = c.expert_quantization if group.num_experts > 1 else c.quantization
    in_attention = np.where(c.quantization == Quantization.W16A16, 0, of_attention)
    return time * (in_attention + np.where(experts == Quantization.W16A16, 0, of_feed_forward))
