"""Runs of requests over time: at a concurrency, at a rate, or as many as there is room for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from planner.base.arrays import BoolArray, FloatArray
from planner.base.enums import CacheType
from planner.configurations.serving import ServingConfigurations
from planner.estimators.inference.burst import (
    emptying_answer,
    mean_first_token,
    share_until_the_end,
)
from planner.estimators.inference.loop import Served, served_at_concurrency, served_at_rate
from planner.estimators.inference.memory import ServingMemory, serving_memory
from planner.estimators.inference.offered import Offered
from planner.estimators.inference.serving import wave_time
from planner.estimators.inference.setting import ServingSetting
from planner.formulas.queueing import longest_answer
from planner.validation.inference.cases import WAVES, InferenceCase, setting_of
from planner.validation.inference.deployments import configurations
from planner.validation.inference.outcome import (
    Columns,
    Outcome,
    in_waves,
    needed_memory,
    rates,
    whole_memory,
)
from planner.validation.prediction import RATES

# Concurrencies that are tried where none is given: half powers of two.
_GRID: FloatArray = 2.0 ** np.arange(0.0, 13.5, 0.5)


def online_runs(cases: Sequence[InferenceCase]) -> Outcome:
    """Means over the requests, at the concurrency or the offered rate of each run."""
    given = np.array([case.traffic.concurrency or np.nan for case in cases])
    concurrency = given / Columns.of(cases).replicas
    missing = np.isnan(concurrency)
    if not missing.any():
        return _outcome(cases, concurrency)
    found, offered = _at_rates(cases)
    # Nothing piles up where clients wait for their answers.
    offered = replace(offered, number=np.where(missing, offered.number, 0.0))
    outcome = _outcome(cases, np.where(missing, found, concurrency), offered)
    outcome = _ending(cases, outcome, offered, missing)
    at_once = np.array([_comes_at_once(case) for case in cases])
    if not at_once.any():
        return outcome
    means = outcome.quantities
    first = np.where(at_once, _burst_wait(cases), means["time_to_first_token_s"])
    latency = means["request_latency_s"] + first - means["time_to_first_token_s"]
    values = {"time_to_first_token_s": first, "request_latency_s": latency}
    return replace(outcome, quantities={**means, **values})


def _comes_at_once(case: InferenceCase) -> bool:
    """Whether the requests of a benchmark are offered without a pause between them."""
    traffic = case.traffic
    return (
        traffic.concurrency is None and traffic.request_rate is None and bool(traffic.num_requests)
    )


def _burst_wait(cases: Sequence[InferenceCase]) -> FloatArray:
    """Mean seconds to the first token of requests that come at once."""
    number = np.array([case.traffic.num_requests or 1.0 for case in cases])
    number = np.maximum(number / Columns.of(cases).replicas, 1.0)
    size = np.minimum(_largest_wave(cases), number)
    setting, c = _at(cases, size[:, None])
    return mean_first_token(setting, c, number[:, None])[:, 0]


def _ending(
    cases: Sequence[InferenceCase], outcome: Outcome, offered: Offered, at_rate: BoolArray
) -> Outcome:
    """Rates as a benchmark reports them that offers requests at a rate."""
    carried = outcome.quantities["requests_per_s"] / Columns.of(cases).replicas
    longest = longest_answer(setting_of(cases).workload.output_variation)
    last = outcome.quantities["time_to_first_token_s"] + offered.answer * longest
    last = last + np.maximum(offered.last_wait - offered.mean_wait, 0.0)
    seen = offered.until_the_end(carried, last)
    return _scaled(outcome, np.where(at_rate, seen / carried, 1.0))


def max_throughput_runs(cases: Sequence[InferenceCase]) -> Outcome:
    """Requests that are all there from the start, in waves of the size that is fastest.

    Memory, the scheduler and a given concurrency bound the size. Of a given number of requests
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
    """Sequences at full length that a replica has room for at once, at least one."""
    given = np.array([case.traffic.concurrency or np.inf for case in cases])
    most = given / Columns.of(cases).replicas
    # The more it holds, the more its steps take of the memory.
    for _ in range(2):
        setting, c = _at(cases, np.minimum(most, _GRID[-1])[:, None])
        room = serving_memory(setting, c).most_whole_sequences
        most = np.minimum(most, _places(cases, room)[:, 0])
    return np.maximum(most, 1.0)


def _wave_times(cases: Sequence[InferenceCase], sizes: FloatArray) -> FloatArray:
    """Seconds of a wave of every size: shape ``(cases, sizes)``."""
    setting, c = _at(cases, sizes)
    return np.broadcast_to(wave_time(setting, c), sizes.shape)


def _scaled(outcome: Outcome, factor: FloatArray) -> Outcome:
    """The outcome with its rates times a factor."""
    quantities = {
        name: values * factor if name in RATES else values
        for name, values in outcome.quantities.items()
    }
    return replace(outcome, quantities=quantities)


def _at_rates(cases: Sequence[InferenceCase]) -> tuple[FloatArray, Offered]:
    """The concurrency at which a replica finishes requests as fast as they come, and these.

    Where it cannot keep up, the largest that it has room for.
    """
    memory, served = _mesh(cases)
    replicas = Columns.of(cases).replicas
    rate = np.array([case.traffic.request_rate or np.inf for case in cases]) / replicas
    number = np.array([case.traffic.num_requests or np.inf for case in cases]) / replicas
    most = np.minimum(_places(cases, memory.most_sequences), number[:, None])
    rising = np.maximum.accumulate(np.where(most >= _GRID, served.request_rate, 0.0), axis=1)
    fast = rising >= rate[:, None]
    # The first concurrency that is fast enough, or the last that there is room for.
    last = np.argmax(rising, axis=1)
    first = np.where(fast.any(axis=1), np.argmax(fast, axis=1), last)
    below = np.maximum(first - 1, 0)
    lines = np.arange(len(cases))
    step = np.maximum(rising[lines, first] - rising[lines, below], 1e-300)
    part = np.clip((rate - rising[lines, below]) / step, 0.0, 1.0)
    found: FloatArray = _GRID[below] * (_GRID[first] / _GRID[below]) ** part
    answer = emptying_answer(_at(cases, _GRID[None, :])[0], served)
    offered = Offered(
        rate=rate,
        number=number,
        capacity=rising[lines, last],
        places=most[lines, last],
        prompt=np.broadcast_to(served.phases.queued, rising.shape)[lines, last],
        answer=np.broadcast_to(answer, rising.shape)[lines, last],
    )
    unknown = offered.is_endless & np.isfinite(rate)
    return found, replace(offered, number=np.where(unknown, WAVES * offered.places, number))


def _places(cases: Sequence[InferenceCase], room: FloatArray) -> FloatArray:
    """Sequences that memory and scheduler let a replica hold, at every concurrency."""
    seqs = cases[0].engine.scheduler.max_num_seqs
    ranks = np.array([case.replica.attention_data_parallel for case in cases])
    return np.asarray(np.minimum(room, (seqs * ranks)[:, None]))


def _mesh(cases: Sequence[InferenceCase]) -> tuple[ServingMemory, Served]:
    """Every replica at every concurrency of the grid."""
    setting, c = _at(cases, _GRID[None, :])
    memory = serving_memory(setting, c)
    return memory, served_at_concurrency(setting, c, memory)


def _at(
    cases: Sequence[InferenceCase], concurrency: FloatArray
) -> tuple[ServingSetting, ServingConfigurations]:
    """Every replica at concurrencies, one row each, and the setting without bursts."""
    setting = setting_of(cases, endless=True, columns=True)
    flat = configurations([case.replica for case in cases], [1.0] * len(cases))
    columns = {n: np.broadcast_to(value, flat.shape)[:, None] for n, value in vars(flat).items()}
    return setting, ServingConfigurations(**{**columns, "concurrency": concurrency})


def _outcome(
    cases: Sequence[InferenceCase], concurrency: FloatArray, offered: Offered | None = None
) -> Outcome:
    """Predictions at a concurrency per replica, which may be that of requests at a rate."""
    setting, columns = setting_of(cases), Columns.of(cases)
    c = fitting_cache(
        setting, configurations([case.replica for case in cases], list(concurrency)), cases
    )
    memory = serving_memory(setting, c)
    if offered is None:
        served = served_at_concurrency(setting, c, memory)
    else:
        served = served_at_rate(setting, c, memory, offered, concurrency)
    token = np.broadcast_to(served.time_per_output_token, concurrency.shape)
    places = _places(cases, memory.most_sequences[..., None])[:, 0]
    first = served.time_to_first_token
    latency = first + np.maximum(columns.output_tokens - 1, 0.0) * token
    reported = _until_the_end(cases, setting, served, np.minimum(concurrency, places))
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
    cases: Sequence[InferenceCase], setting: ServingSetting, served: Served, running: FloatArray
) -> FloatArray:
    """The share of the rate that is reported, where clients send a known number of requests."""
    if setting.workload.request_rate is not None:
        return np.ones(len(cases))
    number = np.array([case.traffic.num_requests or np.inf for case in cases])
    known = np.isfinite(number) & (running > 0)
    each = np.where(known, number, running) / Columns.of(cases).replicas
    share = share_until_the_end(setting, served, np.maximum(running, 1e-3), each)
    return np.where(known, share, 1.0)


def fitting_cache(
    setting: ServingSetting, c: ServingConfigurations, cases: Sequence[InferenceCase]
) -> ServingConfigurations:
    """The configurations with an fp8 cache where a run may have one and needs it."""
    lacking = serving_memory(setting, c).most_sequences < c.concurrency
    narrow = lacking & np.array([case.replica.narrow_cache for case in cases])
    return replace(c, kv_cache=np.where(narrow, np.int8(CacheType.FP8), c.kv_cache))
