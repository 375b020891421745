"""What is predicted for cases of inference: one vectorized pass per mode."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from planner.base.arrays import FloatArray
from planner.base.units import GIB
from planner.confidence.fits import default_fit_confidence
from planner.confidence.intervals import INFERENCE_TABLES
from planner.configurations.serving import ServingConfigurations
from planner.estimators.inference.disaggregated import (
    Pools,
    cache_transfer_time,
    disaggregated_run,
    prefill_times,
)
from planner.estimators.inference.memory import serving_memory
from planner.estimators.inference.serving import decode_line
from planner.estimators.inference.static import static_batch
from planner.validation.inference.cases import MICRO_BATCHES, InferenceCase, Mode, setting_of
from planner.validation.inference.deployments import Deployment, configurations
from planner.validation.inference.online import fitting_cache, max_throughput_runs, online_runs
from planner.validation.inference.outcome import (
    Columns,
    Outcome,
    in_waves,
    needed_memory,
    rates,
    whole_memory,
)
from planner.validation.prediction import MEMORY, Prediction


def disaggregated_runs(cases: Sequence[InferenceCase]) -> Outcome:
    """Means over the requests; the memory is that of a decoding worker.

    Where a source does not count its workers, one decodes and as many prefill as keep up.
    """
    setting, columns = setting_of(cases), Columns.of(cases)
    requests = np.array([case.traffic.concurrency or 1.0 for case in cases])
    decoders = np.array([float(case.decode_workers) for case in cases])
    prefill = [_prefill(case) for case in cases]
    c = configurations([case.replica for case in cases], list(requests / decoders))
    c = fitting_cache(setting, c, cases)
    memory = serving_memory(setting, c)
    pool = configurations(prefill, [1.0] * len(cases))
    most_prompts = np.array([float(one.max_num_seqs) for one in prefill])
    prompt, service = prefill_times(setting, pool, most_prompts)
    seqs = np.array([float(case.replica.max_num_seqs) for case in cases])
    places = decoders * seqs * c.attention_data_parallel
    fixed, slope = decode_line(setting, c, np.minimum(places, requests) / decoders)
    moved = np.maximum(
        *(cache_transfer_time(setting, workers, inside_fabric=False) for workers in (pool, c))
    )
    pools = Pools(
        prompt_time=prompt,
        service_time=service,
        transfer_time=moved,
        prefill_workers=np.array(
            [float(case.prefill.workers) if case.prefill else 0.0 for case in cases]
        ),
        decode_workers=decoders,
        fixed=fixed,
        slope=slope,
        places=places,
        stream_interval=np.array([float(case.replica.stream_interval) for case in cases]),
    )
    served = disaggregated_run(setting, pools, requests)
    first, token = served.time_to_first_token, served.time_per_output_token
    answer = np.maximum(columns.output_tokens - 1, 0.0) * token
    decoding = served.request_rate * answer
    quantities = {
        "time_to_first_token_s": first,
        "time_per_output_token_s": token,
        "request_latency_s": first + answer,
        **rates(columns, request_rate=served.request_rate, decode_rate=decoding / token),
    }
    return Outcome(
        quantities={name: _whole(value, requests) for name, value in quantities.items()},
        memory=_whole(whole_memory(memory, columns.weight_scale), requests),
        reserved=_whole(memory.reserved, requests),
        needed=needed_memory(memory, columns),
    )


def _whole(values: FloatArray, like: FloatArray) -> FloatArray:
    return np.broadcast_to(values, like.shape)


def _prefill(case: InferenceCase) -> Deployment:
    return case.prefill.deployment if case.prefill is not None else case.replica


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


Pass = Callable[[Sequence[InferenceCase]], Outcome]
_PASSES: Mapping[Mode, Pass] = {
    Mode.STATIC: static_runs,
    Mode.MAX_THROUGHPUT: max_throughput_runs,
    Mode.ONLINE: online_runs,
    Mode.DISAGGREGATED: disaggregated_runs,
}


def predict_inference_group(cases: Sequence[InferenceCase]) -> list[Prediction]:
    """Predictions for cases of one group, in their order."""
    with np.errstate(all="ignore"):
        outcome = _PASSES[cases[0].mode](cases)
    usable = setting_of(cases).usable_memory
    return [_prediction(case, outcome, index, usable) for index, case in enumerate(cases)]


def _prediction(case: InferenceCase, outcome: Outcome, index: int, usable: float) -> Prediction:
    values = {name: float(column[index]) for name, column in outcome.quantities.items()}
    memory = float(outcome.memory[index])
    good = all(np.isfinite(value) and value > 0 for value in (*values.values(), memory))
    if not good:
        reason = "the numbers of the row are beyond what can be computed"
        return Prediction(case=case, reason=reason)
    reported = memory - (float(outcome.reserved[index]) if case.tensors_only else 0.0)
    needed = float(outcome.needed[index])
    chance = float(case.memory_errors.chance(predicted=needed, usable=usable))
    return Prediction(
        case=case,
        values=values | {MEMORY: reported / GIB},
        device_memory=memory,
        needed_memory=needed,
        capacity=usable,
        fit_probability=chance,
        fits=chance >= default_fit_confidence(INFERENCE_TABLES),
    )
