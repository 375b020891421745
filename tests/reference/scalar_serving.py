"""Requests at a replica in plain floats: batches, queues of prompts, spreads.

Part of the naive twin of serving.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import ceil, erfc, exp, floor, hypot, log, log2, sqrt

import scalar_serving_memory
import scalar_waits
from scalar_phases import (
    Costs,
    costs,
    decode_steps,
    decoding_batch,
    drafting,
    new_tokens,
    per_step,
    prompt_room,
    prompts_batch,
    request_intake,
)
from scalar_serving_kernels import Replica, ServingWorld
from scalar_serving_step import Step, StepBatch, step
from scalar_waits import Demand, Line, Met

from planner.specs.arrivals import POINT_WEIGHTS, POINTS


@dataclass(frozen=True, kw_only=True)
class Answers:
    """Means over the requests of a replica."""

    costs: Costs
    decoding: float
    utilization: float
    wait: float
    first: float
    burst: float
    together: float
    spread: float
    line: Line
    per_token: float
    rate: float
    demand: Demand
    met: Met


def starting_together(world: ServingWorld, clients: float, in_step: float = 1.0) -> float:
    """The mean over the waves of the share of the clients that are still together."""
    w, scheduler = world.workload, world.engine.scheduler
    if w.request_rate is not None:
        return 0.0
    if w.equal_lengths and not scheduler.chunked_prefill:
        return 1.0
    often = 0.0 if w.equal_lengths else scheduler.clustering
    if w.num_requests is None:
        return often
    waves = max(w.num_requests / clients, 1.0)
    still = 0.9 * in_step if w.equal_lengths else 0.0
    share = (1 - still**waves) / (1 - still) / waves
    return share + (1 - share) * often


def at_least_one(mean: float) -> float:
    """Mean of a Poisson variable of those that are not zero."""
    return mean / (1 - exp(-mean)) if mean > 1e-9 else 1.0


def enclosed(excess: Callable[[float], float], low: float, high: float) -> float:
    """Where a rising function crosses zero, halved until it is met."""
    if excess(high) <= 0:
        return high
    for _ in range(200):
        middle = (low + high) / 2
        if excess(middle) > 0:
            high = middle
        else:
            low = middle
    return high


def answers(world: ServingWorld, c: Replica) -> Answers:
    """A replica that always holds its requests, as far as memory and scheduler let it."""
    scheduler, w = world.engine.scheduler, world.workload
    places = min(
        scalar_serving_memory.memory(world, c).most_sequences,
        scheduler.max_num_seqs * c.attention_data_parallel,
    )
    places = max(places, 1.0)
    number = float("inf")
    if w.num_requests is not None and w.request_rate is None:
        replicas = c.num_gpus / (c.stage_gpus * c.pipeline_parallel)
        number = max(w.num_requests / replicas, 1.0)
    clients = min(c.concurrency, number)
    running = min(clients, places)
    found, steps = costs(world, c, running), decode_steps(world)
    demand = Demand(
        fixed=found.fixed,
        slope=found.slope,
        prompt=found.added,
        per_step=prompt_room(world, c, running) / new_tokens(world),
        steps=steps,
        places=places,
        stages=c.pipeline_parallel,
        clients=clients,
        is_open=w.request_rate is not None,
        mixes=scheduler.chunked_prefill,
        variation=w.input_variation,
        answers=w.output_variation,
    )
    together = starting_together(
        world,
        running * c.num_gpus / (c.stage_gpus * c.pipeline_parallel),
        min(demand.per_step, 1.0),
    )

    outside = 0.0 if demand.is_open else world.execution.request_overhead
    own = 1.0 if demand.is_open else max(running - 1, 0.0) / running

    def prompt_at(rate: float) -> float:
        """Of one with those that came in the step before, of decoding or of prompts."""
        if scheduler.chunked_prefill:
            return found.prefill
        size = found.gathered
        between = scheduler.poll_interval + scheduler.batch_wait
        longest, decoded = outside, between * running / max(steps, 1.0)
        if demand.is_open:
            longest, decoded = float("inf"), rate * found.decode(running)
        for _ in range(2):
            came = rate * min(found.single + found.another * (size - 1), longest)
            calm = exp(-came)
            size = calm * at_least_one(decoded) + (1 - calm) * at_least_one(came)
            size = min(max(size, found.gathered), found.most)
        return found.prompt(size)

    def step_at(rate: float) -> float:
        """Of an answer: the others that decode, and the prompts that stop it."""
        noise = scalar_waits.noise(min(rate * found.added, 0.98)) if demand.is_open else 1.0
        fellows = together * max(running - 1, 0.0)
        base = found.fixed + found.slope * (noise + fellows)
        behind = fellows * found.queued / 2 / max(steps, 1.0)
        filled = demand.per_step * found.prefill
        if scheduler.chunked_prefill and 2 * behind > filled:
            behind = filled * (1 - filled / (4 * behind))
        met_rate = own * rate * (1 - together)
        crowd = met_rate * steps * found.slope
        each = (base + behind) / max(1 - crowd - met_rate * prompt_at(met_rate), 1e-6)
        return min(each, full_step(rate)) if scheduler.chunked_prefill else each

    def full_step(rate: float) -> float:
        """Of an answer, with as many prompts as fill it."""
        noise = scalar_waits.noise(min(rate * found.added, 0.98)) if demand.is_open else 1.0
        base = found.fixed + found.slope * (noise + together * max(running - 1, 0.0))
        crowd = own * rate * (1 - together) * steps * found.slope
        return (base + demand.per_step * found.prefill) / max(1 - crowd, 1e-6)

    def flow(rate: float) -> tuple[float, Met, float, float]:
        answer = steps * step_at(rate)
        decoding = rate * answer
        met, each = scalar_waits.meets(demand, rate, decoding), found.decode(decoding)
        waited = scheduler.batch_wait * each
        others = rate * waited
        looks = (scheduler.poll_interval - 1) * each / 2
        looks += waited * (1 + others / 2) / (1 + others)
        rest = (ceil(found.parts - 1e-9) - found.parts) * met.decode_step
        last = (running + found.together) / 2 * found.queued
        burst = together * max(last - found.prefill, 0.0)
        first = found.prompt_time + rest + met.wait * (1 - together) + looks + burst
        return answer + met.stall, met, first, burst

    def held(rate: float) -> float:
        return min(clients - rate * outside, running)

    def too_many(rate: float) -> float:
        answer, _, first, _ = flow(rate)
        return rate * (first + answer) - held(rate)

    alone = found.prompt_time + steps * found.decode(1.0) + outside
    others_come = 1.0 if demand.is_open else min(max(running - 1, 0.0), 1.0)
    taken = others_come * (found.prompt(found.most) + steps * found.slope)
    if scheduler.chunked_prefill:
        taken += others_come * found.fixed / min(demand.per_step, running)
    fastest = min(running / alone, 1 / taken if taken else float("inf"))
    rate = enclosed(too_many, 0.0, fastest * (1 - 1e-6))
    answer, met, first, burst = flow(rate)
    # What is held and neither waits nor answers at this rate, but for the last wave.
    left = max(held(rate) / rate - first - answer, 0.0) * (1 - 1 / max(number / running, 1.0))
    longer = 0.0
    if scheduler.chunked_prefill and not demand.is_open:
        longer = min(left, max(steps * full_step(rate) - answer, 0.0) * others_come)
    slower = (answer + longer) / answer if answer else 1.0
    first, answer = first + left - longer, answer + longer
    late = steps * found.decode(running) * (1 - w.output_variation**2) / 2
    line = Line(
        number=number,
        clients=max(clients - rate * outside, running),
        places=running,
        rate=rate,
        delay=max(running * found.queued + late, 0.0),
    )
    missed = 1 - erfc(sqrt(log(1 + w.output_variation**2)) / 2)
    thinned = found.slope * max(rate * answer - 1, 0) * missed / max(number / running, 1.0)
    stalled = met.stall * (1 + w.output_variation**2) / max(steps, 1.0)
    return Answers(
        costs=found,
        decoding=rate * answer,
        utilization=min(rate * prompt_at(rate), 1.0),
        wait=first - burst - found.prompt_time + line.mean + met.place_wait,
        first=first
        + line.mean
        + found.passed_on
        + world.execution.request_overhead
        + clients * request_intake(world, c) * min(clients / number, 1.0),
        burst=burst,
        together=together,
        spread=min(
            max(running - found.together, 0.0) / 2 * found.queued, burst / max(together, 1e-12)
        ),
        line=line,
        per_token=((step_at(rate) + stalled) * slower - thinned) / per_step(world),
        rate=rate,
        demand=demand,
        met=met,
    )


def most_varied(world: ServingWorld, served: Answers) -> float:
    """What is left of the first token beside what all requests take."""
    mean = served.first - served.burst - served.line.mean
    return max(mean - world.execution.request_overhead, 0.0)


def first_token_within(world: ServingWorld, served: Answers, share: float) -> float:
    """What all wait alike, a gamma variable of the rest, and the wait for a place."""
    varied = served.costs.prefill if served.demand.variation > 0 else 0.0
    mean = served.first - served.burst - served.line.mean
    most = most_varied(world, served)
    waited = min(served.met.wait, most)
    rest = min(waited + varied, most)
    variance = scalar_waits.first_variance(served.demand, served.met, waited)
    bulk = mean - rest + scalar_waits.gamma_within(share, rest, variance)
    bulk += served.line.within(share)
    if served.together > 1 - share:
        before = 1 - (1 - share) / served.together
        middle = served.burst / served.together
        bulk = max(bulk, mean + middle + served.spread * (2 * before - 1))
    places = scalar_waits.place_within(served.met, share)
    return max(bulk, mean + places) if places > 0 else bulk


def _token_variances(world: ServingWorld, served: Answers) -> tuple[float, float]:
    answers = world.workload.output_variation
    drafted = per_step(world)
    return scalar_waits.token_variances(
        served.demand, served.met, served.decoding, answers, drafted
    )


def per_token_within(world: ServingWorld, served: Answers, share: float) -> float:
    """Two spreads as independent, no faster than a step over one sequence."""
    beside, prompts = _token_variances(world, served)
    mean = served.per_token
    stopped = scalar_waits.of_others(served.demand) * served.met.load
    stalled = max(stopped * mean, 1e-100)
    first = scalar_waits.lognormal_within(share, mean, beside) - mean
    second = scalar_waits.lognormal_within(share, stalled, prompts) - stalled
    sign = (first + second > 0) - (first + second < 0)
    least = served.costs.decode(1.0) / per_step(world)
    return max(mean + sign * hypot(first, second), least)


def latency_within(world: ServingWorld, served: Answers, share: float) -> float:
    """Lognormal, by the first token, the time per token and the lengths of answers."""
    answer = max(world.workload.output_tokens - 1, 0) * served.per_token
    spread = sum(_token_variances(world, served)) / served.per_token**2
    lengths = world.workload.output_variation**2
    if world.workload.num_requests is not None and world.workload.request_rate is None:
        return _after_a_line(world, served, share)
    waited = min(served.met.wait, most_varied(world, served))
    variance = scalar_waits.first_variance(served.demand, served.met, waited)
    variance += answer**2 * (lengths + spread) + served.line.variance
    bulk = scalar_waits.lognormal_within(share, served.first + answer, variance)
    return bulk + scalar_waits.place_within(served.met, share)


def _after_a_line(world: ServingWorld, served: Answers, share: float) -> float:
    """Every first token with every answer, each weighing as often as it is."""
    answer = max(world.workload.output_tokens - 1, 0) * served.per_token
    spread = sum(_token_variances(world, served)) / served.per_token**2
    variance = answer**2 * (world.workload.output_variation**2 + spread)
    points = list(zip(POINTS, POINT_WEIGHTS, strict=True))
    firsts = [(first_token_within(world, served, one), weight) for one, weight in points]
    answers = [
        (scalar_waits.lognormal_within(one, answer, variance), weight) for one, weight in points
    ]
    each = sorted((a + b, v * w) for a, v in firsts for b, w in answers)
    total, until, before = sum(weight for _, weight in each), 0.0, (0.0, each[0][0])
    for value, weight in each:
        middle = (until + weight / 2) / total
        if middle >= share:
            part = (share - before[0]) / (middle - before[0])
            return before[1] + part * (value - before[1])
        until, before = until + weight, (middle, value)
    return each[-1][0]


def _micro_batch(world: ServingWorld, c: Replica, tokens: float) -> float:
    """A stage's share, or what halving leaves below the tokens that pass together."""
    p, batch, most = c.pipeline_parallel, c.concurrency, world.engine.scheduler.pipeline_tokens
    if most == 0:
        return max(batch / p, 1.0)
    if p == 1:
        return batch
    share = batch / p if batch % p == 0 else batch
    pieces, wanted = 1, 2 ** ceil(log2(max(share * tokens / most, 1.0)))
    while pieces < wanted and floor(share) % (2 * pieces) == 0:
        pieces *= 2
    return share / pieces


def _static_step(world: ServingWorld, c: Replica, batch: StepBatch, decoding: bool) -> Step:
    one = step(world, c, batch, decoding)
    if world.engine.scheduler.pipeline_overlap:
        return one
    return replace(one, slowest_stage=one.total)


def static(world: ServingWorld, c: Replica) -> tuple[float, float, float]:
    """First token, time per token and latency of a batch that starts and ends together."""
    w, new, ranks = world.workload, new_tokens(world), c.attention_data_parallel
    micro = _micro_batch(world, c, new)
    rounds = max(ceil(max(micro, ranks) * new / max(c.step_tokens, 1.0)), 1)
    prompts = max(micro / rounds, min(micro, ranks))
    prefill = _static_step(world, c, prompts_batch(world, prompts, micro * new / rounds, 0), False)
    first = prefill.total
    for _ in range(1, round(c.concurrency / micro * rounds)):
        first += prefill.slowest_stage
    part = _micro_batch(world, c, 1)
    decode = _static_step(world, c, decoding_batch(world, part), True)
    each = decode.cycle(c.concurrency / part) * (1 + w.draft_cost)
    each = (each + drafting(world, c, decoding_batch(world, c.concurrency))) / per_step(world)
    prompt = prompts_batch(world, prompts, micro * new / rounds, 0)
    first += drafting(world, c, prompt) * round(c.concurrency / micro * rounds)
    return first, each, first + max(w.output_tokens - 1, 0) * each
