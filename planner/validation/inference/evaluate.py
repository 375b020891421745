"""Predictions for cases of inference: one vectorized pass per mode."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from planner.base.arrays import BoolArray, FloatArray, Numeric
from planner.base.enums import CacheType
from planner.base.records import record
from planner.base.units import GIB
from planner.confidence.intervals import INFERENCE_TABLES, default_fit_confidence
from planner.configurations.configuration_tables import ServingConfigurations
from planner.estimators.inference.batch_share import ServingInputs
from planner.estimators.inference.burst import emptying_answer, share_until_the_end
from planner.estimators.inference.closed_loop import (
    RequestMeans,
    served_at_concurrency,
    served_at_rate,
)
from planner.estimators.inference.continuous_batching import decode_line, wave_time
from planner.estimators.inference.disaggregated import (
    Pools,
    cache_transfer_time,
    disaggregated_run,
    prefill_times,
)
from planner.estimators.inference.queueing_delay import OfferedLoad
from planner.estimators.inference.serving_memory import ServingMemory, serving_memory
from planner.estimators.inference.static_batch import static_batch
from planner.formulas.draining import longest_answer_ratio
from planner.validation.inference.cases import MICRO_BATCHES, WAVES, InferenceCase, Mode, setting_of
from planner.validation.inference.deployments import configurations
from planner.validation.run_tables import MEMORY, RATES, Prediction
from planner.workloads.serving.replicas import with_filled_cache


@record(kw_only=True)
class Outcome:
    """A column per quantity, in the units of the tables; memory in bytes on a GPU.

    ``reserved`` is the part of ``memory`` outside the allocator; ``needed`` is the memory that a
    run needs to start, or to continue if it cannot wait for free memory.
    """

    quantities: Mapping[str, FloatArray]
    memory: FloatArray
    reserved: FloatArray
    needed: FloatArray


@record(kw_only=True)
class Columns:
    """Numbers of the runs of a group, one column each."""

    input_tokens: FloatArray
    output_tokens: FloatArray
    replicas: FloatArray
    decode_rate: BoolArray
    weight_scale: FloatArray

    @classmethod
    def of(cls, cases: Sequence[InferenceCase]) -> Columns:
        """Return lengths [tokens], replicas and weight scale of these cases as arrays."""
        return cls(
            input_tokens=np.array([case.traffic.input_tokens for case in cases]),
            output_tokens=np.array([case.traffic.output_tokens for case in cases]),
            replicas=np.array([case.replica.replicas for case in cases]),
            decode_rate=np.array([case.decode_rate for case in cases]),
            weight_scale=np.array([case.weight_scale for case in cases]),
        )


def rates(
    columns: Columns, *, request_rate: FloatArray, decode_rate: FloatArray
) -> dict[str, FloatArray]:
    """Return requests/s and tokens/s of all replicas, counted as in the published run.

    ``request_rate`` [1/s] and ``decode_rate`` [tokens/s] are those of one replica.
    """
    requests = request_rate * columns.replicas
    output = requests * np.maximum(columns.output_tokens, 1.0)
    decoded = decode_rate * columns.replicas
    return {
        "requests_per_s": requests,
        "output_tokens_per_s": np.where(columns.decode_rate, decoded, output),
        "total_tokens_per_s": requests * (columns.input_tokens + columns.output_tokens),
    }


def in_waves(
    number: FloatArray,
    size: FloatArray,
    full: FloatArray,
    smaller: Callable[[FloatArray], FloatArray],
) -> FloatArray:
    """Return the time of ``number`` requests that run in waves of ``size``, one after another [s].

    ``full`` is the time of a wave of ``size`` requests [s]; ``smaller`` returns the time of a last
    wave with fewer requests [s].
    """
    rest = np.mod(number, size)
    full_waves = np.floor(number / size) * full
    if not np.any(rest):
        return np.asarray(full_waves)
    return np.asarray(full_waves + np.where(rest > 0, smaller(np.maximum(rest, 1.0)), 0.0))


def whole_memory(memory: ServingMemory, scale: FloatArray) -> FloatArray:
    """The peak with weights larger than those of the format by ``scale``."""
    return np.asarray(memory.total + memory.weights * (scale - 1))


def needed_memory(memory: ServingMemory, columns: Columns, sequences: Numeric = 1.0) -> FloatArray:
    """Memory [bytes] of so many complete sequences on a GPU, with weights as large as the runs'."""
    needed = memory.needed_for(sequences) + memory.weights * (columns.weight_scale - 1)
    return np.broadcast_to(needed, columns.weight_scale.shape)


# Concurrencies to try if none is specified: half powers of two.
_GRID: FloatArray = 2.0 ** np.arange(0.0, 13.5, 0.5)


def online_runs(cases: Sequence[InferenceCase]) -> Outcome:
    """Predict runs of one group whose requests come from clients or at a rate: request means.

    Without request rate and concurrency, all requests start together.
    """
    if cases[0].traffic.is_closed:
        clients = np.array([case.traffic.clients or np.nan for case in cases])
        return _outcome(cases, clients / Columns.of(cases).replicas)
    concurrency, offered = _at_rates(cases)
    outcome = _outcome(cases, concurrency, offered)
    carried = outcome.quantities["requests_per_s"] / Columns.of(cases).replicas
    longest = longest_answer_ratio(setting_of(cases).workload.output_variation)
    last = outcome.quantities["time_to_first_token_s"] + offered.answer * longest
    last = last + np.maximum(offered.last_wait - offered.mean_wait, 0.0)
    return _scaled(outcome, offered.until_the_end(carried, last) / carried)


def max_throughput_runs(cases: Sequence[InferenceCase]) -> Outcome:
    """Predict runs whose requests all start together, in waves of the fastest size.

    Memory, scheduler and a stated concurrency limit the size. If the number of requests is stated,
    the last wave is smaller.
    """
    number = np.array([case.traffic.num_requests or np.inf for case in cases])
    replicas = Columns.of(cases).replicas
    each = np.maximum(number / replicas, 1.0)
    sizes = np.minimum(_GRID, np.minimum(_largest_wave(cases), each)[:, None])
    seconds = _wave_times(cases, sizes)
    fastest = np.arange(len(cases)), np.argmax(sizes / seconds, axis=1)
    size = sizes[fastest]
    served = np.where(np.isfinite(each), each, size)

    def wave(requests: FloatArray) -> FloatArray:
        return _wave_times(cases, requests[:, None])[:, 0]

    outcome = _outcome(cases, size)
    reached = served / in_waves(served, size, seconds[fastest], wave) * replicas
    return _scaled(outcome, reached / outcome.quantities["requests_per_s"])


def _largest_wave(cases: Sequence[InferenceCase]) -> FloatArray:
    """Return how many full-length sequences fit a replica at once, per case; at least 1."""
    concurrency = np.array([case.traffic.concurrency or np.inf for case in cases])
    number = np.array([case.traffic.num_requests or np.inf for case in cases])
    largest = np.minimum(concurrency, number) / Columns.of(cases).replicas
    sizes = np.minimum(largest[:, None], _GRID)
    fitting = _room(cases, sizes)
    # Steps with more sequences need more memory: the largest number that fits.
    last = np.where(fitting >= sizes, np.arange(_GRID.size), 0).max(axis=1)
    above = _GRID[np.minimum(last + 1, _GRID.size - 1)]
    largest = np.minimum(largest, np.minimum(fitting[np.arange(len(cases)), last], above))
    largest = np.minimum(largest, _room(cases, largest[:, None])[:, 0])
    return np.asarray(np.maximum(largest, 1.0))


def _room(cases: Sequence[InferenceCase], sizes: FloatArray) -> FloatArray:
    """Number of full-length sequences that fit a replica, by its concurrency."""
    inputs, c = _at(cases, sizes)
    return _places(cases, serving_memory(inputs, c).most_whole_sequences)


def _wave_times(cases: Sequence[InferenceCase], sizes: FloatArray) -> FloatArray:
    """Seconds of a wave of every size: shape ``(cases, sizes)``."""
    inputs, c = _at(cases, sizes)
    return np.broadcast_to(wave_time(inputs, c), sizes.shape)


def _scaled(outcome: Outcome, factor: FloatArray) -> Outcome:
    """Return the outcome with its rates (not its times) multiplied by a factor."""
    quantities = {
        name: values * factor if name in RATES else values
        for name, values in outcome.quantities.items()
    }
    return replace(outcome, quantities=quantities)


def _at_rates(cases: Sequence[InferenceCase]) -> tuple[FloatArray, OfferedLoad]:
    """Return the concurrency at which a replica keeps up with its arrivals, and the load.

    If the replica cannot keep up, the largest concurrency that fits.
    """
    inputs, c = _at(cases, _GRID[None, :])
    memory = serving_memory(inputs, c)
    served = served_at_concurrency(inputs, c, memory)
    replicas = Columns.of(cases).replicas
    rate = np.array([case.traffic.request_rate or np.inf for case in cases]) / replicas
    number = np.array([case.traffic.num_requests or np.inf for case in cases]) / replicas
    slots = np.minimum(_places(cases, memory.most_sequences), number[:, None])
    rising = np.maximum.accumulate(np.where(slots >= _GRID, served.request_rate, 0.0), axis=1)
    fast = rising >= rate[:, None]
    # The first concurrency that is fast enough, or the last that fits.
    last = np.argmax(rising, axis=1)
    first = np.where(fast.any(axis=1), np.argmax(fast, axis=1), last)
    below = np.maximum(first - 1, 0)
    lines = np.arange(len(cases))
    step = np.maximum(rising[lines, first] - rising[lines, below], 1e-300)
    part = np.clip((rate - rising[lines, below]) / step, 0.0, 1.0)
    concurrency: FloatArray = _GRID[below] * (_GRID[first] / _GRID[below]) ** part
    answer = emptying_answer(_at(cases, _GRID[None, :])[0], served)
    offered = OfferedLoad(
        rate=rate,
        number=number,
        capacity=rising[lines, last],
        places=slots[lines, last],
        prompt=np.broadcast_to(served.phases.queued, rising.shape)[lines, last],
        answer=np.broadcast_to(answer, rising.shape)[lines, last],
    )
    unknown = offered.is_endless & np.isfinite(rate)
    return concurrency, replace(offered, number=np.where(unknown, WAVES * offered.places, number))


def _places(cases: Sequence[InferenceCase], room: FloatArray) -> FloatArray:
    """Sequences that memory and scheduler let a replica hold, at every concurrency."""
    seqs = cases[0].engine.scheduler.max_num_seqs
    ranks = np.array([case.replica.attention_data_parallel for case in cases])
    return np.asarray(np.minimum(room, (seqs * ranks)[:, None]))


def _at(
    cases: Sequence[InferenceCase], concurrency: FloatArray
) -> tuple[ServingInputs, ServingConfigurations]:
    """Return the inputs and the configurations of each case (row) at each concurrency (column)."""
    inputs = setting_of(cases, endless=True, columns=True)
    flat = configurations([case.replica for case in cases], [1.0] * len(cases))
    columns = {n: np.broadcast_to(value, flat.shape)[:, None] for n, value in vars(flat).items()}
    return inputs, ServingConfigurations(**{**columns, "concurrency": concurrency})


def _outcome(
    cases: Sequence[InferenceCase], concurrency: FloatArray, offered: OfferedLoad | None = None
) -> Outcome:
    """Predict rates, latencies [s] and memory [bytes] at a concurrency per replica."""
    inputs, columns = setting_of(cases), Columns.of(cases)
    c = fitting_cache(
        inputs, configurations([case.replica for case in cases], list(concurrency)), cases
    )
    memory = serving_memory(inputs, c)
    if offered is None:
        memory = serving_memory(inputs, with_filled_cache(inputs, c, memory))
        served = served_at_concurrency(inputs, c, memory)
    else:
        served = served_at_rate(inputs, c, memory, offered, concurrency)
    token = np.broadcast_to(served.time_per_output_token, concurrency.shape)
    slots = _places(cases, memory.most_sequences[..., None])[:, 0]
    first = served.time_to_first_token
    latency = first + np.maximum(columns.output_tokens - 1, 0.0) * token
    reported = _until_the_end(cases, inputs, c, served, np.minimum(concurrency, slots))
    shape = concurrency.shape
    quantities = {
        "time_to_first_token_s": first,
        "time_per_output_token_s": token,
        "request_latency_s": latency,
        **rates(
            columns,
            request_rate=served.request_rate * reported,
            decode_rate=served.decoding / token,
        ),
    }
    return Outcome(
        quantities={name: np.broadcast_to(value, shape) for name, value in quantities.items()},
        memory=np.broadcast_to(whole_memory(memory, columns.weight_scale), shape),
        reserved=np.broadcast_to(memory.reserved, shape),
        needed=needed_memory(memory, columns),
    )


def _until_the_end(
    cases: Sequence[InferenceCase],
    inputs: ServingInputs,
    c: ServingConfigurations,
    served: RequestMeans,
    running: FloatArray,
) -> FloatArray:
    """Return the factor on the rate if a run ends after a fixed number of requests; else 1."""
    if inputs.workload.request_rate is not None:
        return np.ones(len(cases))
    number = np.array([case.traffic.num_requests or np.inf for case in cases])
    is_counted = np.isfinite(number) & (running > 0)
    each = np.where(is_counted, number, running) / Columns.of(cases).replicas
    share = share_until_the_end(inputs, c, served, np.maximum(running, 1e-3), each)
    return np.where(is_counted, share, 1.0)


def fitting_cache(
    inputs: ServingInputs, c: ServingConfigurations, cases: Sequence[InferenceCase]
) -> ServingConfigurations:
    """Return the configurations with an fp8 KV cache if the run allows that and lacks room."""
    lacking = serving_memory(inputs, c).most_sequences < c.concurrency
    narrow = lacking & np.array([case.replica.narrow_cache for case in cases])
    return replace(c, kv_cache=np.where(narrow, np.int8(CacheType.FP8), c.kv_cache))


def disaggregated_runs(cases: Sequence[InferenceCase]) -> Outcome:
    """Predict runs with separate prefill and decode workers; memory is of a decode worker.

    If a run does not state its workers, one decodes and enough prefill workers keep up.
    """
    inputs, columns = setting_of(cases), Columns.of(cases)
    requests = np.array([case.traffic.concurrency or 1.0 for case in cases])
    decoders = np.array([float(case.decode_workers) for case in cases])
    prefill = [
        (case.prefill.deployment if case.prefill is not None else case.replica) for case in cases
    ]
    c = configurations([case.replica for case in cases], list(requests / decoders))
    c = fitting_cache(inputs, c, cases)
    memory = serving_memory(inputs, c)
    pool = configurations(prefill, [1.0] * len(cases))
    most_prompts = np.array([float(workers.max_num_seqs) for workers in prefill])
    prompt, service = prefill_times(inputs, pool, most_prompts)
    seqs = np.array([float(case.replica.max_num_seqs) for case in cases])
    slots = decoders * seqs * c.attention_data_parallel
    fixed, slope = decode_line(inputs, c, np.minimum(slots, requests) / decoders)
    moved = np.maximum(
        *(cache_transfer_time(inputs, workers, inside_fabric=False) for workers in (pool, c))
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
        places=slots,
        stream_interval=np.array([float(case.replica.stream_interval) for case in cases]),
    )
    served = disaggregated_run(inputs, pools, requests)
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
        quantities={name: _broadcast_like(value, requests) for name, value in quantities.items()},
        memory=_broadcast_like(whole_memory(memory, columns.weight_scale), requests),
        reserved=_broadcast_like(memory.reserved, requests),
        needed=needed_memory(memory, columns),
    )


def _broadcast_like(values: FloatArray, like: FloatArray) -> FloatArray:
    return np.broadcast_to(values, like.shape)


# Copies of the inputs of a graph in ggml's scheduler (GGML_SCHED_MAX_COPIES).
_IN_FLIGHT = 4.0


def static_runs(cases: Sequence[InferenceCase]) -> Outcome:
    """Predict the times [s] and rates of batches whose requests start together.

    Without room for all requests, a continuous engine starts them as memory becomes free, or in
    waves if it reserves memory for full requests. An engine without continuous batching needs room
    for all. Stages that work one at a time are timed as one GPU with the memory of all stages.
    """
    inputs, columns = setting_of(cases), Columns.of(cases)
    batch = np.array([case.traffic.concurrency or 1.0 for case in cases]) / columns.replicas
    deployments = [case.replica for case in cases]
    c = configurations(deployments, list(batch))
    memory = serving_memory(inputs, c)
    fitting, scheduler = memory.most_sequences, inputs.engine.scheduler
    running = np.clip(fitting, 1.0, batch) if scheduler.continuous else batch

    def times(sequences: FloatArray) -> tuple[FloatArray, FloatArray]:
        of_batch = static_batch(inputs, _timed(cases, replace(c, concurrency=sequences)))
        first = of_batch.time_to_first_token * _overlap(cases, c)
        return first, np.broadcast_to(of_batch.time_per_output_token, batch.shape)

    first, token = times(running)
    latency = _latency(columns, first, token)
    if scheduler.whole_requests:
        latency = in_waves(batch, running, latency, lambda rest: _latency(columns, *times(rest)))
    else:
        latency = latency * batch / running
    # Of every position where they are computed; a mean over the stages.
    per_logit = np.array([case.logit_bytes for case in cases])
    tokens = c.concurrency * setting_of(cases).workload.input_tokens
    logits = per_logit * tokens * cases[0].model.vocab_size / c.replica_gpus
    static_sequences = 1.0 if scheduler.continuous else batch / c.attention_data_parallel
    return Outcome(
        quantities={
            "time_to_first_token_s": first,
            "time_per_output_token_s": token,
            "request_latency_s": latency,
            **rates(columns, request_rate=batch / latency, decode_rate=running / token),
        },
        memory=whole_memory(memory, columns.weight_scale) + logits,
        reserved=np.broadcast_to(memory.reserved, batch.shape),
        needed=needed_memory(memory, columns, static_sequences)
        + (0.0 if scheduler.continuous else logits),
    )


def _latency(columns: Columns, first: FloatArray, token: FloatArray) -> FloatArray:
    """Latency [s] of prompt and answer, or of the only one of them."""
    answer = np.maximum(columns.output_tokens - 1, 0.0) * token
    return np.where(columns.input_tokens > 0, first + answer, columns.output_tokens * token)


def _timed(cases: Sequence[InferenceCase], c: ServingConfigurations) -> ServingConfigurations:
    one_at_a_time = np.array([bool(case.stages) for case in cases])
    return replace(c, pipeline_parallel=np.where(one_at_a_time, 1.0, c.pipeline_parallel))


def _overlap(cases: Sequence[InferenceCase], c: ServingConfigurations) -> FloatArray:
    """Return prefill time with overlapped micro-batches on the stages over time without."""
    overlapped = np.array([case.stages == MICRO_BATCHES for case in cases])
    tokens = setting_of(cases).workload.input_tokens * c.concurrency
    parts = np.ceil(tokens / c.replica_step_tokens)
    p = c.pipeline_parallel
    # A stage waits for the last one if all copies of its inputs are in use.
    steps = p + (parts - 1) * np.maximum(p / _IN_FLIGHT, 1.0)
    return np.where(overlapped, steps / (parts * p), 1.0)


Pass = Callable[[Sequence[InferenceCase]], Outcome]
_PASSES: Mapping[Mode, Pass] = {
    Mode.STATIC: static_runs,
    Mode.MAX_THROUGHPUT: max_throughput_runs,
    Mode.ONLINE: online_runs,
    Mode.DISAGGREGATED: disaggregated_runs,
}


def predict_inference_group(cases: Sequence[InferenceCase]) -> list[Prediction]:
    """Return the prediction of each case of one group, in order."""
    with np.errstate(all="ignore"):
        outcome = _PASSES[cases[0].mode](cases)
    usable = setting_of(cases).usable_memory
    return [_prediction(case, outcome, index, usable) for index, case in enumerate(cases)]


def _prediction(case: InferenceCase, outcome: Outcome, index: int, usable: float) -> Prediction:
    """Return the prediction of case ``index``: quantities, memory [bytes], probability to fit."""
    values = {name: float(column[index]) for name, column in outcome.quantities.items()}
    memory = float(outcome.memory[index])
    good = all(np.isfinite(value) and value > 0 for value in (*values.values(), memory))
    if not good:
        reason = "the numbers of the row are too large to be computed"
        return Prediction(case=case, reason=reason)
    reported = memory - (float(outcome.reserved[index]) if case.tensors_only else 0.0)
    needed = float(outcome.needed[index])
    chance = float(case.memory_errors.fit_probability(predicted=needed, usable=usable))
    return Prediction(
        case=case,
        values=values | {MEMORY: reported / GIB},
        device_memory=memory,
        needed_memory=needed,
        capacity=usable,
        fit_probability=chance,
        fits=chance >= default_fit_confidence(INFERENCE_TABLES),
    )
