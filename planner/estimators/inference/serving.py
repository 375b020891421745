"""Continuous batching in closed form: what a replica reaches at a concurrency or a rate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from planner.arrays import FloatArray, Numeric
from planner.configurations.serving import ServingConfigurations
from planner.estimators.inference.drafts import drafted_prompt_time, drafting_time
from planner.estimators.inference.memory import ServingMemory
from planner.estimators.inference.setting import Batch, ServingSetting
from planner.estimators.inference.step import step_time
from planner.estimators.inference.waits import Queue, Work, queue_of, steady_share
from planner.formulas.routing import accepted_tokens

_ROUNDS = 12


@dataclass(frozen=True, kw_only=True)
class Phases:
    """What the engine's steps cost.

    A decode step over B sequences lasts ``fixed + slope B`` seconds. A request's prompt takes
    ``prompt_time`` once it is looked at, beside B sequences where the engine mixes them, and
    adds ``prefill`` seconds to the engine's work, ``queued`` where a queue fills the steps
    with ``together`` of them, ``added`` to a step that has one already. ``parts``: steps that a
    prompt takes where it fills them.
    """

    fixed: FloatArray
    slope: FloatArray
    prompt_time: FloatArray
    prefill: FloatArray
    queued: FloatArray
    together: FloatArray
    added: FloatArray
    parts: FloatArray

    def decode_step(self, sequences: Numeric) -> FloatArray:
        """Seconds of a step over so many sequences."""
        return np.asarray(self.fixed + self.slope * sequences)

    def wave(self, size: Numeric, steps: Numeric) -> FloatArray:
        """Seconds of requests that are there at once, their prompts one after the other."""
        return self.prompt_time + (size - 1) * self.queued + steps * self.decode_step(size)


@dataclass(frozen=True, kw_only=True)
class Served:
    """Means over the requests of one replica; times in seconds.

    ``decoding``: sequences in a step; ``utilization``: share of the engine's time in which
    prompts are computed; ``wait``: seconds a prompt queues; ``placed_first``: from its place
    among the sequences to the first token; ``queue``: what it meets.
    """

    phases: Phases
    in_flight: FloatArray
    decoding: FloatArray
    utilization: FloatArray
    wait: FloatArray
    placed_first: FloatArray
    time_per_output_token: FloatArray
    request_rate: FloatArray
    queue: Queue

    @property
    def time_to_first_token(self) -> FloatArray:
        """Seconds from arrival to the first token."""
        return self.placed_first + self.queue.place_wait

    def request_latency(self, output_tokens: Numeric) -> FloatArray:
        """Seconds from arrival to the last token."""
        return self.time_to_first_token + (output_tokens - 1) * self.time_per_output_token


def tokens_per_step(setting: ServingSetting) -> float:
    """Mean tokens a decode step adds to a sequence."""
    w = setting.workload
    return float(accepted_tokens(draft_tokens=w.draft_tokens, acceptance_rate=w.acceptance_rate))


def decode_steps(setting: ServingSetting) -> FloatArray:
    """Steps that decode an answer; at least one."""
    return np.asarray(np.maximum(setting.workload.output_tokens / tokens_per_step(setting), 1.0))


def new_tokens(setting: ServingSetting) -> FloatArray:
    """Prompt tokens that are not found in the prefix cache; at least one."""
    w = setting.workload
    return np.asarray(np.maximum(w.input_tokens * (1 - w.prefix_cache_hit_rate), 1.0))


def decode_batch(setting: ServingSetting, sequences: FloatArray) -> Batch:
    """Sequences half-way through their answers; a long one is met the more often."""
    w = setting.workload
    context = np.asarray(w.input_tokens + w.output_tokens * (1 + w.output_variation**2) / 2)
    return Batch.of_decode(sequences, context, 1.0 + w.draft_tokens)


def prompt_batch(
    setting: ServingSetting, prompts: FloatArray, tokens: FloatArray, decoding: FloatArray
) -> Batch:
    """``tokens`` new tokens of ``prompts`` prompts beside ``decoding`` sequences.

    A prompt that takes several steps sees half of itself as cache on average.
    """
    w = setting.workload
    decode = decode_batch(setting, decoding)
    whole = new_tokens(setting)
    cached = w.input_tokens - whole
    mine = np.minimum(tokens / prompts, whole)
    before = cached + (whole - mine) / 2
    return Batch(
        decoding=decode.decoding,
        context=decode.context,
        tokens_per_sequence=decode.tokens_per_sequence,
        prefill_tokens=tokens,
        prompts=prompts,
        prefill_keys=before + (mine + 1) / 2,
        prefill_cached=before,
    )


def phases(
    setting: ServingSetting, configurations: ServingConfigurations, sequences: FloatArray
) -> Phases:
    """The costs of the steps when about ``sequences`` requests are in the replica."""
    c = configurations
    p = c.pipeline_parallel
    whole = np.maximum(sequences, 1.0)
    half = np.maximum(whole / 2, 0.5)
    draft = 1.0 + setting.workload.draft_cost
    times = [
        step_time(setting, c, decode_batch(setting, batch / p), decoding=True).cycle(
            np.minimum(batch, p)
        )
        * draft
        for batch in (whole, half)
    ]
    verified = times[0] / draft
    times = [
        time + drafting_time(setting, c, decode_batch(setting, batch))
        for time, batch in zip(times, (whole, half), strict=True)
    ]
    slope = (times[0] - times[1]) / (whole - half)
    new = new_tokens(setting)
    room = np.maximum(c.replica_step_tokens - whole, 1.0)
    # At random times a second one may come, however few are there on average.
    there = whole if setting.workload.request_rate is None else np.maximum(whole, 2.0)
    most = np.maximum(np.minimum(c.replica_step_tokens / new, there), 1.0)
    # A prompt is computed by one attention rank, a queue of them by all.
    ranks = c.attention_data_parallel
    one, filled = np.minimum(new, room / ranks), np.minimum(most * new, room)
    parts = np.maximum(new / one, 1.0)
    busy = np.maximum(filled / new, np.minimum(ranks, there))
    if setting.engine.scheduler.chunked_prefill:
        beside, micro_batches, decode = whole / p, np.minimum(whole, p), verified
    else:
        beside, micro_batches, decode = np.zeros(()), p, np.zeros(())
    batches = [
        prompt_batch(setting, prompts, tokens, beside)
        for prompts, tokens in ((np.ones(()), one), (busy, filled))
    ]
    prompt, queue = (step_time(setting, c, batch, decoding=False) for batch in batches)
    drafted = [drafted_prompt_time(setting, c, batch) for batch in batches]
    single, full = (
        np.maximum(step.cycle(micro_batches) - decode, 0.0) + more
        for step, more in zip((prompt, queue), drafted, strict=True)
    )
    single = single * parts
    full = full * np.maximum(most * new / room, 1.0)
    alone = there > whole
    prompts = np.clip(_gathered(setting, whole), 1.0, most)
    together = single + (full - single) * (prompts - 1) / np.maximum(most - 1, 1.0)
    # Ranks compute prompts side by side: one more beside a lone one takes nothing.
    more = np.maximum((full - single) / np.maximum(most - 1, 1e-9), full / most / 2)
    return Phases(
        fixed=times[0] - slope * whole,
        slope=slope,
        prompt_time=(prompt.total + drafted[0]) * parts,
        prefill=together / prompts / p,
        queued=np.where(alone, single, full / most) / p,
        together=np.where(alone, 1.0, most),
        added=np.where((most > 1) & (ranks == 1), more, full / most) / p,
        parts=parts,
    )


def wave_time(setting: ServingSetting, configurations: ServingConfigurations) -> FloatArray:
    """Seconds from the first prompt to the last answer of ``concurrency`` requests at once.

    Their prompts fill the engine's steps one after the other, and so do those of the next
    wave, as equally long answers end one after the other.
    """
    size = configurations.concurrency
    return phases(setting, configurations, size).wave(size, decode_steps(setting))


def _gathered(setting: ServingSetting, sequences: FloatArray) -> FloatArray:
    """Prompts that come between two steps which may take them, as many as answers end."""
    scheduler = setting.engine.scheduler
    between = float(scheduler.poll_interval + scheduler.batch_wait)
    return np.asarray(between * sequences / decode_steps(setting))


def served_at_concurrency(
    setting: ServingSetting,
    configurations: ServingConfigurations,
    memory: ServingMemory,
) -> Served:
    """A replica that always holds its ``concurrency`` requests, as far as memory has room.

    Requests beyond the room, or beyond the engine's ``max_num_seqs``, wait for a place.
    """
    c, scheduler = configurations, setting.engine.scheduler
    room = np.minimum(memory.most_sequences, scheduler.max_num_seqs * c.attention_data_parallel)
    places = np.maximum(room, 1.0)
    running = np.minimum(c.concurrency, places)
    costs = phases(setting, c, running)
    steps = decode_steps(setting)
    work = Work(
        fixed=costs.fixed,
        slope=costs.slope,
        prompt=costs.added,
        per_step=np.maximum(c.replica_step_tokens - running, 1.0) / new_tokens(setting),
        steps=steps,
        places=places,
    )
    together = together_share(setting)

    def too_many(decoding: FloatArray) -> FloatArray:
        rate, queue, prompt = _flow(setting, c, costs, work, decoding)
        left = running - rate * (prompt + queue.stall)
        return np.asarray(decoding - np.clip(left, 0.5, running))

    decoding = _balanced(too_many, running)
    rate, queue, prompt = _flow(setting, c, costs, work, decoding)
    queued = np.maximum(c.concurrency - running, 0.0) / rate
    last = (running + costs.together) / 2 * costs.queued
    burst = together * np.maximum(last - costs.prefill, 0.0)
    # Prompts that come together stall each other, not the answers: half of them come first.
    stall = decoding * costs.prefill / steps * (1 - together / 2)
    stall = stall + queue.stall * (1 + setting.workload.output_variation**2) / steps
    per_token = (costs.decode_step(decoding) + stall) / tokens_per_step(setting)
    return Served(
        phases=costs,
        in_flight=c.concurrency,
        decoding=decoding,
        utilization=np.minimum(rate * costs.prefill, 1.0),
        wait=prompt - costs.prompt_time + queued + queue.place_wait,
        placed_first=prompt + queued + burst + request_overhead(setting),
        time_per_output_token=per_token,
        request_rate=rate,
        queue=queue,
    )


def _balanced(too_many: Callable[[FloatArray], FloatArray], running: FloatArray) -> FloatArray:
    """The sequences that decode, of ``running``, where those that prompts leave are as many.

    More of them send more requests, whose prompts wait longer and leave fewer: there is one such
    number. Repeating what each number leaves would jump from too many to too few where prompts
    take most of the time, so that the root is enclosed (false position, M. Dowell and P. Jarratt,
    "A modified regula falsi method," BIT 11, 1971).
    """
    low, high = np.full_like(running, 0.5), running
    below, above = too_many(low), too_many(high)
    decoding, was_above = high, np.zeros_like(running)
    for _ in range(_ROUNDS):
        width = above - below
        falling = np.where(width > 0, above / np.where(width > 0, width, 1.0), 0.0)
        decoding = high - falling * (high - low)
        excess = too_many(decoding)
        is_above = excess > 0
        twice = np.where(is_above, was_above > 0, was_above < 0)
        low, high = np.where(is_above, low, decoding), np.where(is_above, decoding, high)
        below, above = (
            np.where(is_above, np.where(twice, below / 2, below), excess),
            np.where(is_above, excess, np.where(twice, above / 2, above)),
        )
        was_above = np.where(is_above, 1.0, -1.0)
    return decoding


def _flow(
    setting: ServingSetting,
    configurations: ServingConfigurations,
    costs: Phases,
    work: Work,
    decoding: FloatArray,
) -> tuple[FloatArray, Queue, FloatArray]:
    """Requests per second, what they meet, and seconds until a prompt with a place is through."""
    steady = decoding
    if setting.workload.request_rate is not None:
        first = decoding / (work.steps * costs.decode_step(decoding) + decoding * costs.prefill)
        steady = decoding * steady_share(work, first)
    step = costs.decode_step(steady)
    rate = steady / (work.steps * step + steady * costs.prefill)
    queue = queue_of(setting, configurations, work, rate, decoding)
    rounded = (np.ceil(costs.parts - 1e-9) - costs.parts) * queue.decode_step
    between = _scheduled_after(setting, rate, step)
    wait = queue.wait * (1 - together_share(setting))
    return rate, queue, costs.prompt_time + rounded + wait + between


def _scheduled_after(setting: ServingSetting, rate: FloatArray, step: FloatArray) -> FloatArray:
    """Seconds of steps that pass without a look, and until a batch that it waits for is full.

    The first of a batch waits the whole time, those that come meanwhile half of it.
    """
    scheduler = setting.engine.scheduler
    whole = scheduler.batch_wait * step
    others = rate * whole
    looks = (scheduler.poll_interval - 1) * step / 2
    return looks + whole * (1 + others / 2) / (1 + others)


def together_share(setting: ServingSetting) -> float:
    """Share of the requests that start together with all others.

    Answers that end together bring the next requests together in closed loops alone.
    """
    share, scheduler = setting.workload.burst_share, setting.engine.scheduler
    if setting.workload.request_rate is not None:
        return share
    if setting.workload.equal_lengths and not scheduler.chunked_prefill:
        return 1.0
    often = scheduler.clustering
    if setting.workload.equal_lengths:
        often = max(often, scheduler.equal_clustering)
    return share + (1 - share) * often


def request_overhead(setting: ServingSetting) -> float:
    """Seconds of a request outside the engine: tokenization, transport."""
    return setting.engine.execution.request_overhead
