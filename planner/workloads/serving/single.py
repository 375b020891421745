"""Evaluation of one serving configuration at its load, or of a burst; its checkpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from planner.base.arrays import FloatArray, Numeric
from planner.base.enums import Quantization
from planner.configurations.configuration_tables import (
    OF_PREFILL,
    PoolConfigurations,
    ServingConfigurations,
)
from planner.errors import InfeasibleError, SearchSpaceError
from planner.estimators.inference.burst import Burst, pooled_burst
from planner.optimize.source import Column, Source
from planner.specs.catalogue import in_format, stored_types
from planner.specs.gpu import GpuSpec
from planner.specs.quantization import FORMATS, SIXTEEN_BIT_BYTES, Checkpoint, compute_precision
from planner.workloads.serving.prefill_decode_pools import PrefillDecodeSource
from planner.workloads.serving.prefill_decode_search import numbers_that_fill, one_each
from planner.workloads.serving.question import format_weight_formats
from planner.workloads.serving.replicas import LARGEST_BATCH, Replicas, ReplicaSource
from planner.workloads.serving.results import Deployments
from planner.workloads.workload import Evaluation, HardwareScenario

SHARES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}


def evaluate_serving_once(source: Source, num_requests: int | None = None) -> Evaluation:
    """Evaluate the one configuration of a source, at its load and with its burst.

    Of several concurrencies, the lowest that reaches the request rate.

    With ``num_requests``, a burst of requests that start together.

    Raises SearchSpaceError if the burst has no requests, or too many; or there are several
    configurations; InfeasibleError if no concurrency that fits reaches the rate.
    """
    if num_requests is not None and not 1 <= num_requests <= LARGEST_BATCH:
        raise SearchSpaceError(f"A burst has 1 to {LARGEST_BATCH:,} requests.")
    if isinstance(source, PrefillDecodeSource):
        return _serve_pools_once(source, num_requests)
    if not isinstance(source, ReplicaSource):
        raise TypeError(f"{source} does not serve.")
    configurations = source.mesh.flat()
    if num_requests is None:
        return Evaluation(
            candidates=_evaluate_at_load(source, _limit_to_clients(source, configurations))
        )
    # The concurrency of a number of requests is that of clients.
    is_bounded = configurations.size == 1 and source.inputs.workload.num_requests is None
    slots = _first(configurations.concurrency) if is_bounded else None
    served = _simulate_burst(
        _burst_replicas(source, configurations, num_requests, slots), num_requests
    )
    candidates = _evaluate_at_load(source, _limit_to_clients(source, configurations))
    return _with_burst(candidates, served)


def _limit_to_clients(
    source: ReplicaSource, configurations: ServingConfigurations
) -> ServingConfigurations:
    """The configurations with a concurrency of at most the requests per replica."""
    work = source.inputs.workload
    if work.num_requests is None or work.request_rate is not None:
        return configurations
    requests_per_replica = np.ceil(work.num_requests / configurations.data_parallel)
    return replace(
        configurations, concurrency=np.minimum(configurations.concurrency, requests_per_replica)
    )


def _burst_replicas(
    source: ReplicaSource, configurations: ServingConfigurations, number: int, slots: float | None
) -> Replicas:
    """Predict replicas that get ``number`` requests at once; ``slots``: most at once in each."""
    inputs, c = source.inputs, configurations.rows(np.zeros(1, np.intp))
    scheduler = inputs.engine.scheduler
    if slots is not None:
        max_num_seqs = min(
            scheduler.max_num_seqs, int(np.ceil(slots / _first(c.attention_data_parallel)))
        )
        scheduler = replace(scheduler, max_num_seqs=max_num_seqs)
    inputs = replace(
        inputs,
        engine=replace(inputs.engine, scheduler=scheduler),
        workload=replace(inputs.workload, num_requests=number, request_rate=None),
    )
    c = replace(c, concurrency=np.ceil(number / np.ravel(c.data_parallel)))
    return replace(source, inputs=inputs, request_rate=None, waits=True).judged(c)


def _simulate_burst(drained: Replicas, num_requests: int) -> Burst:
    """The times of a burst [s], from replicas that answer all of its requests."""
    replicas = _first(drained.num_gpus / drained.configurations.replica_gpus)
    at_once = drained.inputs.engine.scheduler.max_num_seqs * drained.held.attention_data_parallel
    makespan = drained.promises.makespan
    assert makespan is not None
    return Burst(
        num_requests=num_requests,
        per_replica=num_requests / replicas,
        in_a_wave=_first(np.minimum(drained.held.concurrency, at_once)),
        makespan=_first(makespan),
        first_within=lambda share: _first(drained.percentile("time_to_first_token", share)),
        answered_within=lambda share: _first(drained.percentile("request_latency", share)),
    )


def _first(values: FloatArray) -> float:
    return float(np.ravel(values)[0])


def _serve_pools_once(source: PrefillDecodeSource, num_requests: int | None) -> Evaluation:
    """Evaluate the one configuration of pools; a burst gets as many slots as fit."""
    configurations = _single_pools(source, num_requests)
    is_burst = source.inputs.workload.request_rate is None and num_requests is not None
    if is_burst and configurations.size > 1:
        evaluated = source.judged(configurations)
        slots = configurations.concurrency * configurations.replicas
        codes = np.broadcast_to(evaluated.rejected_by, configurations.shape)
        fitting = np.flatnonzero(
            (slots < (num_requests or 0) + configurations.replicas) & (codes == 0)
        )
        configurations = configurations.rows(fitting[-1:] if fitting.size else np.zeros(1, np.intp))
    candidates = _evaluate_at_load(source, configurations)
    if num_requests is None or np.ravel(candidates.rejected_by)[0]:
        return Evaluation(candidates=candidates)
    return _with_burst(candidates, pooled_burst(source.inputs, candidates.pools, num_requests))


def _with_burst(candidates: Deployments, served: Burst | None) -> Evaluation:
    """The evaluation with the columns of its burst; None: no burst."""
    if served is None:
        return Evaluation(candidates=candidates)
    columns: dict[str, Column] = {
        "burst_requests": [served.num_requests],
        "makespan_s": [served.makespan],
    }
    for name, share in SHARES.items():
        columns[f"burst_request_latency_{name}_s"] = [served.answered_within(share)]
    return Evaluation(candidates=candidates, more=columns, detail=served)


def _single_pools(source: PrefillDecodeSource, num_requests: int | None) -> PoolConfigurations:
    """The one configuration of pools; refuses several. Unset numbers of workers fill the GPUs."""
    prefill = one_each(source.space.prefill_mesh, "concurrency")
    decode = one_each(source.space.decode_mesh, "max_num_batched_tokens")
    prefill, decode = (table.rows(np.arange(table.size)) for table in (prefill, decode))
    layouts = np.unique(np.stack([getattr(decode, name) for name in OF_PREFILL]), axis=1).shape[1]
    if source.inputs.workload.request_rate is None and num_requests is None:
        layouts = decode.size
    gpus_per_worker = [int(table.replica_gpus[0]) for table in (prefill, decode)]
    numbers = _worker_numbers(source, gpus_per_worker[0], gpus_per_worker[1])
    if len(numbers) * prefill.size * layouts != 1:
        raise SearchSpaceError(_several_pools_text(source, numbers, gpus_per_worker))
    first, second = numbers[0]
    return PoolConfigurations.combine_workers(
        prefill, decode, np.array([first]), np.array([second])
    )


def _several_pools_text(
    source: PrefillDecodeSource, numbers: list[tuple[float, float]], gpus_per_worker: list[int]
) -> str:
    """Return what to state so that there is one configuration of prefill and decode workers."""
    of_prefill, of_decode = gpus_per_worker
    each = f"prefill workers of {of_prefill} and decode workers of {of_decode} GPUs"
    searched = "or use `planner search`, which tries them all."
    if numbers:
        return (
            f"Several configurations are possible, of {each}: give one value per parameter, "
            f"replicas and prefill_replicas too, {searched}"
        )
    requested = [
        f"{number or 'any number of'} x {gpus}"
        for number, gpus in zip(
            (source.space.prefill_replicas, source.space.replicas), gpus_per_worker, strict=True
        )
    ]
    counts = " or ".join(map(str, source.counts))
    return (
        f"No numbers of {each} ({' + '.join(requested)}) fill {counts} GPUs: give "
        f"--set tensor_parallel=N, or other --set prefill_replicas and replicas, {searched}"
    )


def _worker_numbers(
    source: PrefillDecodeSource, prefill: int, decode: int
) -> list[tuple[float, float]]:
    """Pairs of numbers: workers of ``prefill`` GPUs each, workers of ``decode`` GPUs each."""
    requested = source.space.prefill_replicas, source.space.replicas
    if None not in requested and not source.counts:
        return [(float(requested[0] or 0), float(requested[1] or 0))]
    return [
        pair
        for count in source.counts
        for pair in zip(*numbers_that_fill(source.space, count, prefill, decode), strict=True)
    ]


def _evaluate_at_load(source: ReplicaSource | PrefillDecodeSource, configurations: Any) -> Any:
    """Evaluate configurations at the request rate of the workload.

    Of several concurrencies, the lowest that reaches the rate; the capacity is the highest of all.

    Raises InfeasibleError if no concurrency that fits reaches the rate.
    """
    request_rate = source.inputs.workload.request_rate
    candidates = source.judged(configurations)
    if request_rate is None or configurations.size == 1:
        return candidates.at_load
    share: Numeric = 1.0
    if isinstance(source, ReplicaSource):
        share = source.rate_share(configurations)
    shape = configurations.shape
    rate = np.broadcast_to(request_rate / share, shape).ravel()
    codes = np.broadcast_to(candidates.rejected_by, shape)
    capacities = np.where(codes == 0, np.broadcast_to(candidates.capacity, shape), 0.0)
    reaching = np.flatnonzero(capacities >= rate)
    best = int(np.argmax(capacities))
    if reaching.size:
        # It has slots for more requests: waits depend on the utilization of the whole capacity.
        deployments = source.judged(configurations.rows(reaching[:1]))
        promises = replace(deployments.promises, capacity=capacities[[best]])
        return replace(deployments, promises=promises).at_rate(request_rate)
    if capacities[best] == 0:
        return source.judged(configurations.rows([0])).at_load
    if source.inputs.workload.num_requests is not None:
        return source.judged(configurations.rows([best])).at_load
    raise InfeasibleError(
        _overload_message(configurations.rows([best]), capacities[best], float(rate[best]))
    )


def _overload_message(c: ServingConfigurations, capacity: float, rate: float) -> str:
    """The error message for a ``rate`` [1/s] above the ``capacity`` of a configuration."""
    concurrency = f"{c.concurrency[0]:,.0f} requests in each"
    if isinstance(c, PoolConfigurations):
        pools = f"{c.prefill_replicas[0]:.0f} prefill and {c.replicas[0]:.0f} decode workers"
        configuration = f"{pools} and {concurrency}"
        remedy = f"{np.ceil(rate / capacity):.0f} times as many"
    else:
        number = float(np.ravel(c.data_parallel)[0])
        configuration = f"{number:.0f} replica{'' if number == 1 else 's'} and {concurrency}"
        remedy = f"{int(np.ceil(rate / capacity * number))} replicas"
    return (
        f"{rate:g} requests per second exceed the capacity of {capacity:.3g} with {configuration}: "
        f"the queue grows without bound. Give {remedy}, or search with "
        "`planner search --workload serve --request-rate`."
    )


_PUBLISHED_TYPES = ("quantization", "expert_quantization")


_SIXTEEN = FORMATS[Quantization.W16A16].compute


def on_gpus(scene: HardwareScenario) -> HardwareScenario:
    """The scenario with a published checkpoint that all GPUs multiply without unpacking.

    The publisher's checkpoint is replaced if the GPUs unpack its weights: 4-bit integers are
    served in NVFP4 on Blackwell. A checkpoint named by repository or by weight types stays.
    """
    question = scene.question
    model, name = question.model, str(question.request.model)
    is_named = "/" in name and not name.endswith(".toml")
    if (
        is_named
        or _has_weight_formats(scene)
        or not _is_unpacked(stored_types(model)[1], _all_gpus(scene))
    ):
        return scene
    checkpoint = next(
        (
            other
            for other in _further_checkpoints(scene)
            if _multiplies_format(other.quantization, _all_gpus(scene))
        ),
        None,
    )
    if checkpoint is None:
        return scene
    return replace(
        scene, question=replace(question, model=in_format(model, checkpoint.quantization))
    )


def weights_note(scene: HardwareScenario) -> Mapping[str, str]:
    """A note on the weight formats of a scenario, if several checkpoints are published."""
    model = scene.question.model
    suited = [
        checkpoint
        for checkpoint in _further_checkpoints(scene)
        if _multiplies_format(checkpoint.quantization, _all_gpus(scene))
    ]
    if not suited or _has_weight_formats(scene):
        return {}
    name = str(scene.question.request.model)
    published = scene.place.machine.catalogue.load_model(name)
    served = next(
        (checkpoint for checkpoint in suited if checkpoint.quantization in stored_types(model)),
        None,
    )
    if served is not None and stored_types(model) != stored_types(published):
        source_text = f"of {served.repository}, not {stored_types(published)[1]} as published"
        reason = "which is unpacked to 16 bit"
        return {
            "quantization": (
                f"{format_weight_formats(model)} {source_text}, {reason} ({served.source})"
            )
        }
    other_texts = [
        f"{checkpoint.quantization} as {checkpoint.repository}"
        for checkpoint in suited
        if checkpoint is not served
    ]
    others_text = f", published in {' and '.join(other_texts)} too" if other_texts else ""
    return {
        "quantization": (
            f"{format_weight_formats(model)}{others_text} (published weights of {model.name})"
        )
    }


def _has_weight_formats(scene: HardwareScenario) -> bool:
    """True if the user sets a number format of the weights."""
    return bool({*_PUBLISHED_TYPES} & set(scene.question.request.settings))


def _all_gpus(scene: HardwareScenario) -> list[GpuSpec]:
    return [place.machine.gpu for place in (scene.place, *scene.others.values())]


def _further_checkpoints(scene: HardwareScenario) -> list[Checkpoint]:
    """Published checkpoints, other than the default, that the engine serves on all GPUs."""
    engine, vendors = scene.profile, {gpu.vendor for gpu in _all_gpus(scene)}
    return [
        checkpoint
        for checkpoint in scene.question.model.checkpoints
        if checkpoint.repository
        and checkpoint.quantization in engine.quantizations
        and all(checkpoint.is_served(engine.name, vendor) for vendor in vendors)
    ]


def _is_unpacked(quantization: str, gpus: Sequence[GpuSpec]) -> bool:
    """True if weights of a format below 16 bits are unpacked to 16 bits on every GPU."""
    code = Quantization[quantization.upper()]
    return FORMATS[code].weight < SIXTEEN_BIT_BYTES and not any(
        _is_multiplied(code, gpu) for gpu in gpus
    )


def _multiplies_format(quantization: str, gpus: Sequence[GpuSpec]) -> bool:
    """True if every GPU multiplies a weight format without unpacking it."""
    return all(_is_multiplied(Quantization[quantization.upper()], gpu) for gpu in gpus)


def _is_multiplied(code: Quantization, gpu: GpuSpec) -> bool:
    return compute_precision(code, gpu.peak_flops) not in (None, *_SIXTEEN)
