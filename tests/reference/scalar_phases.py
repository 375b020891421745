"""What the steps of a replica cost in plain floats: decoding, prompts, drafts.

Part of the naive twin of serving.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import scalar_serving_memory
from scalar_serving_kernels import Replica, ServingWorld
from scalar_serving_step import StepBatch, step


@dataclass(frozen=True, kw_only=True)
class Costs:
    """Seconds of decode steps, ``fixed + slope B``, and of prompts."""

    fixed: float
    slope: float
    prompt_time: float
    single: float
    another: float
    gathered: float
    most: float
    queued: float
    together: float
    added: float
    parts: float
    passed_on: float = 0.0

    def prompt(self, size: float) -> float:
        return (self.single + self.another * (size - 1)) / size

    @property
    def prefill(self) -> float:
        return self.prompt(self.gathered)

    def decode(self, sequences: float) -> float:
        return self.fixed + self.slope * sequences

    def wave(self, size: float, steps: float) -> float:
        """The first prompt, the others of a queue, the answers."""
        return self.prompt_time + (size - 1) * self.queued + steps * self.decode(size)


def per_step(world: ServingWorld) -> float:
    """1 + a + a^2 + ... + a^k tokens of a step that verifies k drafts."""
    w = world.workload
    return sum(w.acceptance_rate**draft for draft in range(w.draft_tokens + 1))


def decode_steps(world: ServingWorld) -> float:
    """The first token comes with the prompt."""
    return max(world.workload.output_tokens - 1, 0) / per_step(world)


def new_tokens(world: ServingWorld) -> float:
    w = world.workload
    found = max(w.input_tokens * w.prefix_cache_hit_rate, w.shared_prefix_tokens)
    return max(w.input_tokens - found, 1.0)


def decoding_batch(world: ServingWorld, sequences: float) -> StepBatch:
    """Half of the answer is written on average."""
    w = world.workload
    half_way = w.input_tokens + w.output_tokens / 2 * (1 + w.output_variation**2)
    return StepBatch(decoding=sequences, context=half_way, per_sequence=1 + w.draft_tokens)


def prompts_batch(world: ServingWorld, prompts: float, tokens: float, beside: float) -> StepBatch:
    """Of a prompt in parts, half of the other parts are cached on average."""
    decode, whole = decoding_batch(world, beside), new_tokens(world)
    part = min(tokens / prompts, whole)
    cached = world.workload.input_tokens - whole + (whole - part) / 2
    return StepBatch(
        decoding=beside,
        context=decode.context,
        per_sequence=decode.per_sequence,
        new_tokens=tokens,
        prompts=prompts,
        keys=cached + (part + 1) / 2,
        cached=cached,
    )


def drafting(world: ServingWorld, c: Replica, batch: StepBatch) -> float:
    """Of the model that drafts: its tokens one after the other, or its prompts."""
    found = scalar_serving_memory.drafter(world, c)
    if found is None:
        return 0.0
    if batch.prompts:
        return step(*found, replace(batch, decoding=0), False).total
    total = 0.0
    for _ in range(world.workload.draft_tokens):
        total += step(*found, replace(batch, per_sequence=1), True).total
    return total


def decode_line(world: ServingWorld, c: Replica, sequences: float) -> tuple[float, float]:
    """The line through a step over so many sequences and one over half of them."""
    whole = max(sequences, 1.0)
    half = max(whole / 2, 0.5)
    p, times = c.pipeline_parallel, []
    largest = p * c.attention_data_parallel * (world.execution.captured_batch or float("inf"))
    if whole > largest:
        half = max(half, (whole + largest) / 2)
    for number in (whole, half):
        one = step(world, c, decoding_batch(world, number / p), True)
        verified = one.cycle(min(number, p)) * (1 + world.workload.draft_cost)
        times.append(verified + drafting(world, c, decoding_batch(world, number)))
    slope = min((times[0] - times[1]) / (whole - half), 0.99 * times[0] / whole)
    return times[0] - slope * whole, slope


def prompt_room(world: ServingWorld, c: Replica, sequences: float) -> float:
    """Of a full step answers have at most their share of all tokens."""
    steps, new = decode_steps(world), new_tokens(world)
    return max(c.step_tokens - min(sequences, c.step_tokens * steps / (steps + new)), 1.0)


def costs(world: ServingWorld, c: Replica, sequences: float) -> Costs:
    """Of a replica with so many requests."""
    p, ranks = c.pipeline_parallel, c.attention_data_parallel
    new, scheduler = new_tokens(world), world.engine.scheduler
    whole = max(sequences, 1.0)
    fixed, slope = decode_line(world, c, whole)
    room = prompt_room(world, c, whole)
    is_open = world.workload.request_rate is not None
    there = max(whole, 2.0) if is_open else whole
    most = max(min(max(c.step_tokens / new, ranks), there), 1.0)
    one, filled = min(new, room / ranks), min(most * new, room)
    beside, circulating, decode = 0.0, float(p), 0.0
    if scheduler.chunked_prefill:
        beside, circulating = whole / p, min(whole, p)
        whole_step = fixed + slope * whole - drafting(world, c, decoding_batch(world, whole))
        decode = whole_step / (1 + world.workload.draft_cost)
    lone = step(world, c, prompts_batch(world, 1, one, beside), False)
    busy = max(filled / new, min(ranks, there))
    queue = step(world, c, prompts_batch(world, busy, filled, beside), False)
    parts = max(new / one, 1.0)
    of_lone = drafting(world, c, prompts_batch(world, 1, one, beside))
    of_queue = drafting(world, c, prompts_batch(world, busy, filled, beside))
    single = (max(lone.cycle(circulating) - decode, 0.0) + of_lone) * parts
    full = max(queue.cycle(circulating) - decode, 0.0) + of_queue
    full *= max(most * new / room, 1.0)
    between = scheduler.poll_interval + scheduler.batch_wait
    come = between * whole / max(decode_steps(world), 1.0)
    prompts = min(max(come * parts if ranks > 1 else come, 1.0), most)
    added = full / most
    if most > 1 and ranks == 1:
        added = max((full - single) / max(most - 1, 1e-9), full / most / 2)
    found = Costs(
        fixed=fixed,
        slope=slope,
        prompt_time=(lone.total + of_lone) * parts,
        single=single / p,
        another=(full - single) / max(most - 1, 1.0) / p,
        gathered=prompts,
        most=most,
        queued=(single if there > whole else full / most) / p,
        together=1.0 if there > whole else most,
        added=added / p,
        parts=parts,
    )
    return with_front_end(world, c, found, whole)


def request_intake(world: ServingWorld, c: Replica) -> float:
    """What the processes before the engine take for a request, before its prompt is tokenized."""
    processes = world.engine.front_end
    if processes is None:
        return 0.0
    number = processes.processes or (c.attention_data_parallel if processes.per_rank else 1)
    template = processes.template_time if world.model.chat_template else 0.0
    return float(processes.request_time + template) / number


def with_front_end(world: ServingWorld, c: Replica, found: Costs, sequences: float) -> Costs:
    """A step waits until the processes before the engine have passed on what it brings."""
    processes, work = world.engine.front_end, world.workload
    if processes is None:
        return found
    number = processes.processes or (c.attention_data_parallel if processes.per_rank else 1)
    token = processes.token_time + processes.message_time / world.engine.scheduler.stream_interval
    request = number * request_intake(world, c) + token
    request += work.input_tokens * processes.prompt_token_time
    if work.num_requests is not None and work.request_rate is None:
        replicas = c.num_gpus / (c.stage_gpus * c.pipeline_parallel)
        request *= 1 - min(c.concurrency / max(work.num_requests / replicas, 1.0), 1)
    steps = max(decode_steps(world), 1.0)

    def longer(running: float) -> float:
        engine = found.decode(running) + running / steps * found.prefill
        return max(running * (token + request / steps) / number - engine, 0.0)

    step = found.decode(sequences) + longer(sequences)
    slope = found.slope + 2 * (longer(sequences) - longer(sequences / 2)) / sequences
    slope = min(slope, 0.99 * step / sequences)
    passed_on = sequences * token / number / 2
    return replace(found, fixed=step - slope * sequences, slope=slope, passed_on=passed_on)
