"""Sentences on a plan under a load: whether it serves it, the probability, and the replay."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from planner.base.arrays import FloatArray, IndexArray, first
from planner.base.csv_cells import Row, number_of_row
from planner.base.formatting import (
    format_count,
    format_duration,
    format_percent,
    format_probability,
    format_significant,
)
from planner.base.records import record
from planner.errors import InfeasibleError, SearchSpaceError
from planner.optimize.problem import joint_probability, limit_probability, with_rate_limit
from planner.optimize.source import Candidates, at_load
from planner.question.names import REQUEST_LATENCY, TIME_PER_OUTPUT_TOKEN, TIME_TO_FIRST_TOKEN
from planner.question.request import Request
from planner.question.terms import terms_about
from planner.show.output_blocks import Block, make_lines, text_table
from planner.show.presenters.format_results import label, number_of
from planner.show.reports import ReplayResult
from planner.workloads.make_plan import Plan

if TYPE_CHECKING:
    from planner.estimators.inference.batch_share import ServingInputs
    from planner.estimators.inference.replica_simulation import PrefixCache
    from planner.specs.engine import EngineMemory

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
    from planner.estimators.inference.continuous_batching import new_tokens, request_overhead
    from planner.estimators.inference.prefix_hits import token_bytes
    from planner.estimators.inference.replica_simulation import (
        PrefixCache,
        Requests,
        StepCosts,
        replay,
    )
    from planner.workloads.serving.hit_rates import is_drawn
    from planner.workloads.serving.replicas import Replicas
    from planner.workloads.serving.traffic import replica_of, trace_of

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


_MIN_SHOWN_PREEMPTION = 0.01
_SHOWN_DIFFERENCE = 0.2


def start_pairs(row: Row, memory: EngineMemory | None = None) -> dict[str, str]:
    """Return weights and KV cache per GPU as the engine logs them; empty without a cache.

    ``memory`` is that of the engine. One without an option for its share of the memory, such as
    llama.cpp, allocates the cache of its context alone: what is left says nothing of its log.
    """
    if memory is not None and memory.memory_share is None:
        return {}
    max_requests, tokens = number_of(row, "max_concurrency"), number_of(row, "kv_cache_tokens")
    if not math.isfinite(max_requests) or not max_requests:
        return {}
    weights = number_of(row, "memory_weights_gib") + number_of(row, "memory_adapters_gib")
    pairs = {
        "weights": f"{weights:.2f} GiB",
        "KV cache": (
            f"{number_of(row, 'kv_cache_size_gib'):.2f} GiB, {format_count(tokens)} tokens"
        ),
        "maximum concurrency": (
            f"{max_requests:,.2f}x for {format_count(tokens / max_requests)} tokens per request"
        ),
    }
    if memory is not None and memory.shortens_longest and max_requests < 1:
        longest = f"{format_count(tokens)} tokens, as the cache holds no more"
        pairs["longest request"] = longest
    return pairs


def load_line(plan: Plan, candidates: Candidates) -> str:
    """Return whether the first row serves the requested rate, its capacity and its queue.

    The probability is that of reaching the rate and keeping all limits. Without a rate the
    sentence has the requests that wait; it is empty if none do.
    """
    if plan.workload.name == "train":
        return ""
    rate = plan.request.request_rate
    row = candidates.row
    capacity = row.get("capacity_requests_per_s")
    if rate is None or capacity is None:
        waiting = _waiting_line(row) if candidates.waits and not row.get("rejected_by") else ""
        lines = _preempted_line(row), _end_line(plan, candidates, row), _reuse_line(row)
        return _sentences(waiting, _front_end_line(candidates), *lines)
    if candidates.exceeds_capacity:
        beyond, end = _beyond_line(plan, row, rate), _end_line(plan, candidates, row)
        return _sentences(beyond, _front_end_line(candidates), _room_line(candidates, row), end)
    constraints = with_rate_limit(plan.problem.constraints, rate)
    probability = float(
        joint_probability(
            {limit.name: limit_probability(candidates, limit) for limit in constraints}
        )
    )
    likelihood = (
        f" ({format_probability(probability)} likely)" if math.isfinite(probability) else ""
    )
    in_flight = format_significant(number_of_row(row, "requests_in_flight"))
    capacity_text = format_significant(number_of_row(row, "capacity_requests_per_s"))
    limits_text = " within the limits" if plan.problem.constraints else ""
    carries = (
        f"Serves {rate:g} requests/s{limits_text}{likelihood}; capacity {capacity_text} "
        f"requests/s. Times and costs are at {rate:g} requests/s, {in_flight} requests in flight "
        "in each replica."
    )
    lines = _room_line(candidates, row), _preempted_line(row), _end_line(plan, candidates, row)
    return _sentences(carries, *lines, _reuse_line(row))


def _reuse_line(row: Row) -> str:
    """Return a sentence on prefix-cache hit rates and residence; "" without such a cache."""
    hit_rates = {
        cache_name: number_of(row, f"{name}_cache_hit_rate")
        for cache_name, name in (
            ("the GPUs'", "gpu"),
            ("the hosts'", "host"),
            ("the drives'", "disk"),
        )
        if row.get(f"{name}_cache_hit_rate")
    }
    if row.get("cache_residence_s") is None:
        return ""
    texts = " and ".join(
        f"{format_percent(share)} in {cache_name}" for cache_name, share in hit_rates.items()
    )
    residence = format_duration(number_of(row, "cache_residence_s"))
    text = f"Of the prompts {texts or 'nothing'} cache is found; GPUs keep them for {residence}."
    if number_of(row, "cache_load_time_s"):
        text += f" Loading takes {format_duration(number_of(row, 'cache_load_time_s'))} a request."
    return text


def refuse_overload(plan: Plan, candidates: Candidates) -> None:
    """Raise InfeasibleError if more requests arrive per second than the GPUs can answer.

    A load with a fixed number of requests is never refused: its queue ends.
    """
    rate = plan.request.request_rate
    if rate is None or plan.request.num_requests is not None or not candidates.exceeds_capacity:
        return
    raise InfeasibleError(_beyond_line(plan, candidates.row, rate))


def _beyond_line(plan: Plan, row: Row, rate: float) -> str:
    """Return a sentence on requests that arrive faster than the GPUs can answer."""
    capacity_text = format_significant(number_of(row, "capacity_requests_per_s"))
    number = plan.request.num_requests
    if number is None:
        return (
            f"Overloaded: capacity {capacity_text} requests/s, load {rate:g}. The queue and TTFT "
            "grow without bound; give --num-requests for a load of a fixed number of requests."
        )
    last = format_duration(number_of(row, "last_time_to_first_token_s"))
    count = format_count(number)
    if number <= number_of(row, "concurrency") * number_of(row, "replicas"):
        return (
            f"All {count} requests run at once, though they arrive faster than the GPUs answer for "
            f"long (capacity {capacity_text} requests/s, load {rate:g}): TTFT of the last is "
            f"{last}."
        )
    return (
        f"Overloaded: capacity {capacity_text} requests/s, load {rate:g}; the queue grows, "
        f"TTFT of the last of {count} requests is {last}."
    )


def _end_line(plan: Plan, candidates: Candidates, row: Row) -> str:
    """Return when the last of a number of requests is answered; "" for an open number."""
    number = plan.request.num_requests
    if number is None or not math.isfinite(number_of(row, "makespan_s")):
        return ""
    seconds = number_of(row, "makespan_s")
    tokens = format_significant(number * candidates.output_tokens / seconds)
    return (
        f"All {format_count(number)} are answered after {format_duration(seconds)}: "
        f"{format_significant(number / seconds)} requests/s, {tokens} output tokens/s."
    )


def _room_line(candidates: Candidates, row: Row) -> str:
    """Return how many of the concurrent requests fit the KV cache; "" if all do."""
    if not candidates.waits:
        return ""
    capacity, concurrency = number_of(row, "most_sequences"), number_of(row, "concurrency")
    return (
        f"The cache holds {format_count(capacity)} of "
        f"{format_count(concurrency)} requests in each replica."
    )


def _preempted_line(row: Row) -> str:
    """Return the share of running requests that are preempted; "" if it is negligible."""
    share = number_of(row, "preempted_share")
    if not share >= _MIN_SHOWN_PREEMPTION or number_of(row, "most_sequences") < 1:
        return ""
    again = share * number_of(row, "utilization")
    return (
        f"Up to {format_percent(share)} of the running requests are preempted as lengths vary: "
        f"computing them again takes {format_percent(again)} of the time, which is not counted."
    )


def _front_end_line(candidates: Candidates) -> str:
    """Return how much longer steps take because of API servers; "" if these keep up."""
    from planner.workloads.serving.replicas import Replicas

    loaded = at_load(candidates)
    if not isinstance(loaded, Replicas):
        return ""
    served = loaded.estimate.served
    wait, step = first(served.phases.front_end_wait), served.phases.decode_step(served.decoding)
    if not wait > 0:
        return ""
    share = format_percent(wait / max(first(step) - wait, wait / 100))
    return (
        f"The API servers limit the rate: a step takes {share} longer. More of them "
        "(--api-servers) or fewer messages (--stream-interval) help."
    )


def _sentences(*lines: str) -> str:
    return " ".join(filter(None, lines))


def _waiting_line(row: Row) -> str:
    """Return a sentence on requests that queue in each replica; "" if all are admitted."""
    concurrency, capacity = number_of(row, "concurrency"), number_of(row, "most_sequences")
    if not capacity < concurrency:
        return ""
    return (
        f"The cache holds {format_count(capacity)} of "
        f"{format_count(concurrency)} requests in each replica, the others queue: "
        f"TTFT {format_duration(number_of(row, 'time_to_first_token_s'))}."
    )


def replay_result(plan: Plan, candidates: Candidates) -> ReplayResult:
    """Return mean and percentiles [s] of each latency from a replayed trace and as predicted."""

    replay = replay_trace(candidates, plan.request)
    heads: dict[float | None, str] = {
        None: "mean",
        **{share: f"p{100 * share:.0f}" for share in SHARES},
    }
    latencies = [
        {"latency": name, "source": source, **{heads[share]: times[share] for share in heads}}
        for name in LATENCIES
        for source, times in (
            ("replayed", replay.replayed[name]),
            ("predicted", replay.predicted[name]),
        )
    ]
    notes = []
    if replay.hit_rates is not None:
        predicted, seen = (format_percent(share) for share in replay.hit_rates)
        notes.append(f"Prompts found in the caches: {seen} replayed, {predicted} predicted.")
    if differing := replay.differs(_SHOWN_DIFFERENCE):
        names = ", ".join(label(f"{name}_s") for name in differing)
        reason = "depends on the order of these requests; other hours differ."
        if replay.is_pipeline:
            reason = "takes a pipeline as if its prompts passed one stage."
        notes.append(
            f"Prediction and replay differ by more than {_SHOWN_DIFFERENCE:.0%} in mean "
            f"{names}: the replay {reason}"
        )
    return ReplayResult(requests=replay.requests, latencies=tuple(latencies), notes=tuple(notes))


def replay_blocks(replay: ReplayResult) -> Iterator[Block]:
    """Yield a table of the latencies of a replayed trace, and its notes."""
    heads = [*dict.fromkeys(name for row in replay.latencies for name in row)][2:]
    rows, previous = [], ""
    for row in replay.latencies:
        name = label(f"{row['latency']}_s")
        times = [format_duration(number_of(row, head)) for head in heads]
        rows.append(("" if name == previous else name, str(row["source"]), *times))
        previous = name
    yield make_lines(f"Replay of {format_count(replay.requests)} requests:")
    yield text_table(("", "", *heads), rows, text_columns=(0, 1))
    yield from (make_lines(note) for note in replay.notes)
