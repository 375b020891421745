"""A static batch: all prompts at once, then all answers in step."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from planner.base.arrays import FloatArray, Numeric
from planner.base.enums import CacheType
from planner.base.records import record
from planner.configurations.configuration_tables import ServingConfigurations
from planner.estimators.inference.batch_share import Batch, ServingInputs
from planner.estimators.inference.continuous_batching import (
    decode_batch,
    new_tokens,
    prompt_batch,
    tokens_per_step,
)
from planner.estimators.inference.engine_step import InferenceStep, step_time
from planner.estimators.inference.speculative_decoding import drafted_prompt_time, drafting_time
from planner.estimators.towers import encoder_time


@record(kw_only=True)
class StaticBatch:
    """Seconds of a batch of ``concurrency`` requests that starts and ends together.

    ``prefill_step`` and ``decode_step`` hold the operators of one step each.
    """

    prefill_step: InferenceStep
    decode_step: InferenceStep
    time_to_first_token: FloatArray
    time_per_output_token: FloatArray
    request_latency: FloatArray
    batch: FloatArray


def static_batch(inputs: ServingInputs, configurations: ServingConfigurations) -> StaticBatch:
    """Predict prefill and decode of a static batch, decode at its mean length.

    There is no server overhead. A pipeline splits the batch into micro-batches. Without a KV cache
    every token recomputes the full sequence.
    """
    c, w = configurations, inputs.workload
    micro = _micro_batch(inputs, c, new_tokens(inputs))
    parts = c.concurrency / micro
    tokens = micro * new_tokens(inputs)
    # Fewer prompts than attention ranks leave ranks idle.
    held_tokens = np.maximum(tokens, c.attention_data_parallel * new_tokens(inputs))
    rounds = np.maximum(np.ceil(held_tokens / np.maximum(c.replica_step_tokens, 1.0)), 1.0)
    size = tokens / rounds
    prompts = np.maximum(micro / rounds, np.minimum(micro, c.attention_data_parallel))
    prefill = _step(inputs, c, prompt_batch(inputs, prompts, size, np.zeros(())), False)
    first = prefill.total + (parts * rounds - 1) * prefill.slowest_stage
    batch = prompt_batch(inputs, prompts, size, np.zeros(()))
    first = first + parts * rounds * drafted_prompt_time(inputs, c, batch)
    first = first + c.concurrency * encoder_time(inputs, c) / c.attention_data_parallel
    decoding = _micro_batch(inputs, c, np.ones(()))
    decode = _step(inputs, c, decode_batch(inputs, decoding), True)
    step = decode.cycle(c.concurrency / decoding) * (1 + w.draft_cost)
    step = step + drafting_time(inputs, c, decode_batch(inputs, c.concurrency))
    has_no_cache = c.kv_cache == CacheType.NONE
    longer = (w.input_tokens + w.output_tokens / 2) / w.input_tokens
    per_token = np.where(has_no_cache, prefill.total * rounds * longer, step) / tokens_per_step(
        inputs
    )
    return StaticBatch(
        prefill_step=prefill,
        decode_step=decode,
        time_to_first_token=first,
        time_per_output_token=per_token,
        request_latency=first + np.maximum(w.output_tokens - 1, 0) * per_token,
        batch=c.concurrency,
    )


def _step(
    inputs: ServingInputs, configurations: ServingConfigurations, batch: Batch, decoding: bool
) -> InferenceStep:
    """Return seconds of a micro-batch step; without overlap, of all pipeline stages in sequence."""
    step = step_time(inputs, configurations, batch, decoding)
    if inputs.engine.scheduler.pipeline_overlap:
        return step
    return replace(step, slowest_stage=step.total)


def _micro_batch(
    inputs: ServingInputs, configurations: ServingConfigurations, tokens: Numeric
) -> FloatArray:
    """Return sequences per pipeline micro-batch, each with ``tokens`` new tokens."""
    p, batch = configurations.pipeline_parallel, configurations.concurrency
    max_tokens = inputs.engine.scheduler.pipeline_tokens
    if max_tokens == 0:
        return np.maximum(batch / p, 1.0)
    share = np.where(batch % p == 0, batch / p, batch)
    at_least_one = np.maximum(np.floor(share), 1.0).astype(np.int64)
    largest_power = (at_least_one & -at_least_one).astype(float)
    num_micro_batches = 2.0 ** np.ceil(np.log2(np.maximum(share * tokens / max_tokens, 1.0)))
    return np.where(p > 1, share / np.minimum(num_micro_batches, largest_power), batch)
