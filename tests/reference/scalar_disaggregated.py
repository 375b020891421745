"""Prefill and decode workers under a fixed number of requests, in plain floats.

Part of the naive twin of serving.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from math import ceil, floor

import scalar_machine
import scalar_serving_memory
from scalar_phases import (
    decode_line,
    decode_steps,
    drafting,
    new_tokens,
    per_step,
    prompts_batch,
)
from scalar_serving import starting_together
from scalar_serving_kernels import Replica, ServingWorld
from scalar_serving_step import step


@dataclass(frozen=True, kw_only=True)
class Deployment:
    """Workers of both kinds; ``requests`` are always in flight. 0 prefill workers: enough."""

    prefill: Replica
    decode: Replica
    prefill_workers: float
    decode_workers: float
    requests: float
    inside_fabric: bool = False


def prompt_times(world: ServingWorld, c: Replica) -> tuple[float, float]:
    """A prompt when each attention rank has one; a rank's time for one of a full queue."""
    new, ranks, p = new_tokens(world), c.attention_data_parallel, c.pipeline_parallel
    rounds = max(ceil(new / c.max_num_batched_tokens), 1)
    lone = prompts_batch(world, ranks, new * ranks / rounds, 0)
    one, of_one = step(world, c, lone, False), drafting(world, c, lone)
    seqs = world.engine.scheduler.max_num_seqs * ranks
    full = max(min(floor(c.step_tokens / new), seqs), ranks / rounds)
    queue = prompts_batch(world, max(full, ranks), full * new, 0)
    many = step(world, c, queue, False).cycle(p) + drafting(world, c, queue)
    service = min((one.cycle(p) + of_one) * rounds, many * ranks / full)
    return (one.total + of_one) * rounds, service / p


def places_of(world: ServingWorld, c: Replica) -> float:
    """Sequences that a decode worker holds."""
    return min(c.concurrency, world.engine.scheduler.max_num_seqs * c.attention_data_parallel)


def transfer(world: ServingWorld, d: Deployment) -> float:
    """The GPUs of one end send their shares, those of the other end receive theirs."""
    times = []
    for c in (d.prefill, d.decode):
        held = scalar_serving_memory.cache(world, c, world.workload.input_tokens)
        share = held * (1 - c.kv_offload)
        times.append(scalar_machine.send(world.links, share, not d.inside_fabric))
    return max(times)


def serve(world: ServingWorld, d: Deployment) -> dict[str, float]:
    """Means over the requests; the rate by halves, the servers one more until they keep up."""
    alone, service = prompt_times(world, d.prefill)
    each = places_of(world, d.decode)
    fixed, slope = decode_line(world, d.decode, each)
    places = min(each * d.decode_workers, d.requests)
    steps, moved = decode_steps(world) + 1, transfer(world, d)
    ranks = d.prefill.attention_data_parallel
    together, outside = starting_together(world, d.requests), world.execution.request_overhead
    around = alone + moved + outside

    def answer(rate: float) -> float:
        alone_steps = steps * fixed / (1 - rate * steps * slope / d.decode_workers)
        return max(alone_steps, steps * (fixed + slope * min(1.0, places) / d.decode_workers))

    def in_flight(rate: float, servers: float) -> float:
        each = service / servers
        busy = rate * each * max(1 - 1 / d.requests, 0)
        waiting = each * busy / (1 - busy)
        ahead = max(d.requests - 1, 0) / 2 * each
        delayed = max(waiting, (1 - together) * waiting + together * ahead)
        return rate * (around + delayed + answer(rate))

    def carried(servers: float) -> float:
        full = steps * (fixed + slope * places / d.decode_workers)
        low, high = 0.0, min(servers / service, places / full)
        if in_flight(high, servers) <= d.requests:
            return high
        for _ in range(100):
            middle = (low + high) / 2
            above = in_flight(middle, servers) > d.requests
            low, high = (low, middle) if above else (middle, high)
        return low

    def keeps_up(servers: float) -> bool:
        needed = d.requests / (around + answer(carried(servers))) * service / 0.8
        return servers >= needed

    servers = d.prefill_workers * ranks
    if not servers:
        servers = next(n * ranks for n in count(1) if keeps_up(n * ranks))
    rate = carried(servers)
    last = answer(rate) / steps
    left = max(d.requests / rate - steps * last - moved - outside, alone)
    per_token = last / per_step(world)
    output = world.workload.output_tokens
    collected = (min(world.engine.scheduler.stream_interval, output) - 1) * per_token
    return {
        "time_to_first_token": left + moved + last + collected + outside,
        "time_per_output_token": per_token - collected / max(output - 1, 1),
        "request_rate": rate,
        "prefill_workers": servers / ranks,
        "load": rate * service / servers,
    }
