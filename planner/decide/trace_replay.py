"""Replay the requests of a trace on the replicas of a plan, event by event."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from planner.base.arrays import FloatArray, IndexArray, first
from planner.base.records import record
from planner.errors import SearchSpaceError
from planner.estimators.inference.batch_share import ServingInputs
from planner.estimators.inference.continuous_batching import new_tokens, request_overhead
from planner.estimators.inference.prefix_hits import token_bytes
from planner.estimators.inference.replica_simulation import PrefixCache, Requests, StepCosts, replay
from planner.optimize.source import Candidates, at_load
from planner.question.names import REQUEST_LATENCY, TIME_PER_OUTPUT_TOKEN, TIME_TO_FIRST_TOKEN
from planner.question.request import Request
from planner.question.terms import terms_about
from planner.workloads.serving.hit_rates import is_drawn
from planner.workloads.serving.measured_arrivals import replica_of
from planner.workloads.serving.replicas import Replicas
from planner.workloads.serving.traffic import trace_of

SHARES = (0.5, 0.9, 0.99)
LATENCIES = terms_about("latency", "serve")


@record(kw_only=True)
class ReplayLatencies:
    """The mean and the percentiles of each latency [s], by ``mean`` or share.

    ``predicted`` in closed form, ``replayed`` in the replay of ``requests``. ``hit_rates``: the
    share of prompts found in the caches, predicted and replayed; None if the trace has no blocks.
    ``is_pipeline``: replicas have several stages, which the replay treats as one.
    """

    requests: int
    hit_rates: tuple[float, float] | None
    is_pipeline: bool
    predicted: Mapping[str, Mapping[float | None, float]]
    replayed: Mapping[str, Mapping[float | None, float]]

    def differs(self, max_difference: float) -> list[str]:
        """Return latencies whose predicted and replayed means differ by over ``max_difference``."""
        return [
            name
            for name in LATENCIES
            if abs(np.log(self.replayed[name][None] / self.predicted[name][None]))
            > np.log1p(max_difference)
        ]


def replay_trace(candidates: Candidates, request: Request) -> ReplayLatencies:
    """Replay the trace of a request on the first candidate, with times stretched to its rate.

    The router sends requests to replicas in turn, at random, or to the replica that computed most
    of their prompt last.

    Raises SearchSpaceError if the plan has pools of prefill and decode workers, which are not
    replayed.
    """
    loaded = at_load(candidates)
    if not isinstance(loaded, Replicas) or request.trace is None:
        raise SearchSpaceError(
            "--replay takes a plan whose replicas do prefill and decode: add --mode aggregated."
        )
    trace, inputs = trace_of(Path(request.trace), request.prompt_range), loaded.inputs
    estimate, c = loaded.estimate, loaded.held
    number = max(round(first(loaded.num_gpus / c.replica_gpus)), 1)
    stretch = (trace.request_rate or 0.0) / (request.request_rate or 1.0)
    scheduler = inputs.engine.scheduler
    ranks = first(c.attention_data_parallel)
    places = min(first(estimate.memory.most_sequences), scheduler.max_num_seqs * ranks)
    new, work = first(new_tokens(inputs)), inputs.workload
    costs = StepCosts.of(estimate.served.phases, new, scheduler.chunked_prefill)
    times = trace.times * stretch
    prompts = trace.input_tokens * new / work.input_tokens
    blocks: Sequence[Sequence[int]] = ()
    owners = replica_of(times.size, number, is_drawn(request.router), seed=1)
    if work.reuse is not None:
        prompts, blocks = trace.input_tokens, trace.blocks_of_each
        if not work.reuse.scatter:
            owners = _prefix_aware_replicas(blocks, number)
    room = first(estimate.memory.room.size / token_bytes(inputs, estimate.memory)) * ranks
    caches = list[PrefixCache]()
    outside = request_overhead(inputs)
    replayed: dict[str, list[FloatArray]] = {name: [] for name in LATENCIES}
    for replica in range(number):
        of_replica = np.flatnonzero(owners == replica)
        if not of_replica.size:
            continue
        requests = Requests(
            arrivals=times[of_replica],
            prompts=prompts[of_replica],
            answers=trace.output_tokens[of_replica],
            blocks=[blocks[place] for place in of_replica.tolist()] if blocks else (),
        )
        if blocks:
            caches.append(PrefixCache(int(room / trace.block_tokens), trace.block_tokens))
        result = replay(
            requests,
            costs,
            places=int(places),
            step_tokens=int(first(c.replica_step_tokens)),
            cache=caches[-1] if blocks else None,
        )
        latencies = {
            TIME_TO_FIRST_TOKEN: result.first + outside,
            TIME_PER_OUTPUT_TOKEN: result.per_token[~np.isnan(result.per_token)],
            REQUEST_LATENCY: result.latency + outside,
        }
        for name, values in latencies.items():
            replayed[name].append(values)
    return ReplayLatencies(
        requests=trace.times.size,
        hit_rates=_hit_rates(inputs, caches),
        is_pipeline=first(c.pipeline_parallel) > 1,
        predicted={
            name: {None: first(loaded.value(name))}
            | {share: first(loaded.percentile(name, share)) for share in SHARES}
            for name in LATENCIES
        },
        replayed={
            name: {None: float(values.mean())}
            | {share: float(np.quantile(values, share)) for share in SHARES}
            for name, values in ((name, np.concatenate(parts)) for name, parts in replayed.items())
        },
    )


def _prefix_aware_replicas(blocks: Sequence[Sequence[int]], number: int) -> IndexArray:
    """Return the replica of each request: with most of its prompt cached, or the next in turn."""
    replica_of_block, owners = dict[int, int](), list[int]()
    for place, prompt in enumerate(blocks):
        half = prompt[len(prompt) // 2 :]
        replica = next(
            (replica_of_block[block] for block in reversed(half) if block in replica_of_block),
            place % number,
        )
        replica_of_block.update(dict.fromkeys(prompt, replica))
        owners.append(replica)
    return np.asarray(owners)


def _hit_rates(inputs: ServingInputs, caches: Sequence[PrefixCache]) -> tuple[float, float] | None:
    """Return the assumed and the replayed hit rate of the prefix cache; None: no cache."""
    if inputs.prefixes is None or not caches:
        return None
    replayed_hit_rate = sum(cache.hit_tokens for cache in caches) / sum(
        cache.prompt_tokens for cache in caches
    )
    return first(inputs.prefixes.gpu_cache_hit_rate), replayed_hit_rate
