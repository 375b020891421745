"""Runs with prefill and decode on workers of their own."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from planner.base.arrays import FloatArray
from planner.estimators.inference.disaggregated import (
    cache_transfer_time,
    prefill_times,
)
from planner.estimators.inference.disaggregated_run import Pools, disaggregated_run
from planner.estimators.inference.memory import serving_memory
from planner.estimators.inference.serving import decode_line
from planner.validation.inference.cases import InferenceCase, setting_of
from planner.validation.inference.deployments import Deployment, configurations
from planner.validation.inference.online import fitting_cache
from planner.validation.inference.outcome import (
    Columns,
    Outcome,
    needed_memory,
    rates,
    whole_memory,
)


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
        prefill_workers=np.array([_prefill_workers(case) for case in cases]),
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


def _prefill_workers(case: InferenceCase) -> float:
    return float(case.prefill.workers) if case.prefill is not None else 0.0
