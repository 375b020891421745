"""A plan against the very requests of a trace: what its replicas would show, event by event."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from planner.base.arrays import FloatArray, first
from planner.base.records import record
from planner.errors import SearchSpaceError
from planner.estimators.inference.replay import Requests, StepCosts, replay
from planner.estimators.inference.serving import new_tokens, request_overhead
from planner.optimize.source import Candidates, at_load
from planner.question.request import Request
from planner.question.terms import terms_about
from planner.workloads.replicas import Replicas
from planner.workloads.traffic import trace_of

SHARES = (0.5, 0.9, 0.99)
LATENCIES = terms_about("latency", "serve")


@record(kw_only=True)
class Replayed:
    """The mean and the percentiles of each latency [s], by ``mean`` or share.

    ``predicted`` in closed form, ``seen`` in the replay of ``requests``.
    """

    requests: int
    predicted: Mapping[str, Mapping[float | None, float]]
    seen: Mapping[str, Mapping[float | None, float]]

    def differs(self, most: float) -> list[str]:
        """The latencies whose mean the two tell apart by more than this share."""
        return [
            name
            for name in LATENCIES
            if abs(np.log(self.seen[name][None] / self.predicted[name][None])) > np.log1p(most)
        ]


def replayed(candidates: Candidates, request: Request) -> Replayed:
    """The trace of a question on the first of some candidates; its times stretched to the rate.

    Requests go to the replicas in turn.

    Raises
    ------
    SearchSpaceError
        The plan has pools of prefill and decode workers, which are not replayed.
    """
    found = at_load(candidates)
    if not isinstance(found, Replicas) or request.trace is None:
        raise SearchSpaceError(
            "--replay takes a plan whose replicas do prefill and decode: add --mode aggregated."
        )
    trace, setting = trace_of(Path(request.trace), request.prompts), found.setting
    estimate, c = found.estimate, found.held
    number = max(round(first(found.num_gpus / c.replica_gpus)), 1)
    stretch = (trace.request_rate or 0.0) / (request.request_rate or 1.0)
    scheduler = setting.engine.scheduler
    ranks = first(c.attention_data_parallel)
    places = min(first(estimate.memory.most_sequences), scheduler.max_num_seqs * ranks)
    new = float(new_tokens(setting))
    costs = StepCosts.of(estimate.served.phases, new, scheduler.chunked_prefill)
    times = trace.times * stretch
    prompts = trace.input_tokens * new / setting.workload.input_tokens
    outside = request_overhead(setting)
    seen: dict[str, list[FloatArray]] = {name: [] for name in LATENCIES}
    for replica in range(number):
        own = slice(replica, None, number)
        if not times[own].size:
            continue
        requests = Requests(
            arrivals=times[own], prompts=prompts[own], answers=trace.output_tokens[own]
        )
        one = replay(
            requests, costs, places=int(places), step_tokens=int(first(c.replica_step_tokens))
        )
        each = (one.first + outside, one.per_token[~np.isnan(one.per_token)], one.latency + outside)
        for name, values in zip(LATENCIES, each, strict=True):
            seen[name].append(values)
    return Replayed(
        requests=trace.times.size,
        predicted={
            name: {None: first(found.value(name))}
            | {share: first(found.percentile(name, share)) for share in SHARES}
            for name in LATENCIES
        },
        seen={
            name: {None: float(values.mean())}
            | {share: float(np.quantile(values, share)) for share in SHARES}
            for name, values in ((name, np.concatenate(parts)) for name, parts in seen.items())
        },
    )
