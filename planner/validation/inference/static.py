"""Runs of one batch that starts together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from planner.base.arrays import FloatArray
from planner.configurations.serving import ServingConfigurations
from planner.estimators.inference.memory import serving_memory
from planner.estimators.inference.static import static_batch
from planner.validation.inference.cases import MICRO_BATCHES, InferenceCase, setting_of
from planner.validation.inference.deployments import configurations
from planner.validation.inference.outcome import (
    Columns,
    Outcome,
    in_waves,
    needed_memory,
    rates,
    whole_memory,
)

# Copies of the inputs of a graph that ggml's scheduler keeps (GGML_SCHED_MAX_COPIES).
_IN_FLIGHT = 4.0


def static_runs(cases: Sequence[InferenceCase]) -> Outcome:
    """Times and rates of whole batches.

    A continuous engine without room for all requests runs them as room comes free, or, where
    it needs room for whole requests, in waves that end together; one without continuous batching
    needs room for all. Stages that work one at a time are timed as one GPU with the memory of all.
    """
    setting, columns = setting_of(cases), Columns.of(cases)
    batch = np.array([case.traffic.concurrency or 1.0 for case in cases]) / columns.replicas
    deployments = [case.replica for case in cases]
    c = configurations(deployments, list(batch))
    memory = serving_memory(setting, c)
    room, scheduler = memory.most_sequences, setting.engine.scheduler
    running = np.clip(room, 1.0, batch) if scheduler.continuous else batch

    def times(sequences: FloatArray) -> tuple[FloatArray, FloatArray]:
        of_batch = static_batch(setting, _timed(cases, replace(c, concurrency=sequences)))
        first = of_batch.time_to_first_token * _overlap(cases, c)
        return first, np.broadcast_to(of_batch.time_per_output_token, batch.shape)

    first, token = times(running)
    latency = _latency(columns, first, token)
    if scheduler.whole_requests:
        latency = in_waves(batch, running, latency, lambda rest: _latency(columns, *times(rest)))
    else:
        latency = latency * batch / running
    logits = _logits(cases, c)
    kept = 1.0 if scheduler.continuous else batch / c.attention_data_parallel
    return Outcome(
        quantities={
            "time_to_first_token_s": first,
            "time_per_output_token_s": token,
            "request_latency_s": latency,
            **rates(columns, request_rate=batch / latency, decode_rate=running / token),
        },
        memory=whole_memory(memory, columns.weight_scale) + logits,
        reserved=np.broadcast_to(memory.reserved, batch.shape),
        needed=needed_memory(memory, columns, kept) + (0.0 if scheduler.continuous else logits),
    )


def _latency(columns: Columns, first: FloatArray, token: FloatArray) -> FloatArray:
    """Prompt and answer, or the one of them that is there."""
    answer = np.maximum(columns.output_tokens - 1, 0.0) * token
    return np.where(columns.input_tokens > 0, first + answer, columns.output_tokens * token)


def _timed(cases: Sequence[InferenceCase], c: ServingConfigurations) -> ServingConfigurations:
    one_at_a_time = np.array([bool(case.stages) for case in cases])
    return replace(c, pipeline_parallel=np.where(one_at_a_time, 1.0, c.pipeline_parallel))


def _overlap(cases: Sequence[InferenceCase], c: ServingConfigurations) -> FloatArray:
    """What overlap of a prompt's micro-batches on the stages leaves of its time."""
    overlapped = np.array([case.stages == MICRO_BATCHES for case in cases])
    tokens = setting_of(cases).workload.input_tokens * c.concurrency
    parts = np.ceil(tokens / c.replica_step_tokens)
    p = c.pipeline_parallel
    # A stage waits for the last one when as many micro-batches as are kept are under way.
    steps = p + (parts - 1) * np.maximum(p / _IN_FLIGHT, 1.0)
    return np.where(overlapped, steps / (parts * p), 1.0)


def _logits(cases: Sequence[InferenceCase], c: ServingConfigurations) -> FloatArray:
    """Bytes of the logits of every position where they are computed; a mean over the stages."""
    per_logit = np.array([case.logit_bytes for case in cases])
    tokens = c.concurrency * setting_of(cases).workload.input_tokens
    return per_logit * tokens * cases[0].model.vocab_size / c.replica_gpus
