"""Seconds of the steps of continuous batching: with answers, with prompts, and with both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field, replace
from functools import cached_property
from typing import Any

import numpy as np

from planner.base.arrays import FloatArray, Numeric
from planner.base.records import record
from planner.configurations.configuration_tables import ServingConfigurations
from planner.estimators.inference.batch_share import Batch, ServingInputs
from planner.estimators.inference.engine_step import step_time
from planner.estimators.inference.speculative_decoding import drafted_prompt_time, drafting_time
from planner.estimators.towers import encoder_time
from planner.formulas.queueing import mean_residual
from planner.formulas.routing import accepted_tokens


def cached_tokens(inputs: ServingInputs) -> FloatArray:
    """Prompt tokens of a request that are found in the prefix cache."""
    return np.asarray(inputs.workload.input_tokens - new_tokens(inputs))


def prefix_share(inputs: ServingInputs, configurations: ServingConfigurations) -> FloatArray:
    """Return the share of prompt time spent on attention to cached tokens.

    A step full of prompts would be faster by this share without cached tokens. New tokens attend to
    the cached ones, whose keys and values are read; cached tokens cost nothing else.
    """
    c, new_per_prompt, cached = configurations, new_tokens(inputs), cached_tokens(inputs)
    if not np.any(cached > 0):
        return np.zeros(())
    prompts = np.clip(
        np.floor(c.replica_step_tokens / new_per_prompt), 1.0, np.maximum(c.concurrency, 1.0)
    )
    tokens = np.minimum(prompts * new_per_prompt, c.replica_step_tokens)
    with_cache = prompt_batch(inputs, prompts, tokens, np.zeros(()))
    without_cache = replace(
        with_cache,
        prefill_keys=with_cache.prefill_keys - cached,
        prefill_cached=with_cache.prefill_cached - cached,
    )
    times = [
        step_time(inputs, c, batch, decoding=False).total for batch in (with_cache, without_cache)
    ]
    return np.asarray(np.clip(1.0 - times[1] / times[0], 0.0, 1.0))


@record(kw_only=True)
class Phases:
    """Seconds of the engine's steps.

    A decode step over B sequences lasts ``fixed + slope B`` seconds. A request's prompt takes
    ``prompt_time`` once it is scheduled, with B sequences where the engine mixes them. It adds
    ``single`` seconds to the engine's work and ``another`` with each more in its step, which
    holds ``gathered`` between two of decoding and ``most`` at most; ``queued`` where a queue fills
    the steps with ``together`` of them, ``added`` to a step that has one already. ``parts``: steps
    that a prompt takes where it fills them. ``front_end_wait``: what a decode step takes longer
    because the processes that serve the clients are slower than the engine; ``passed_on``: mean
    seconds until they pass on a token of a step, one after the other.
    """

    fixed: FloatArray
    slope: FloatArray
    prompt_time: FloatArray
    single: FloatArray
    another: FloatArray
    gathered: FloatArray
    most: FloatArray
    queued: FloatArray
    together: FloatArray
    added: FloatArray
    parts: FloatArray
    front_end_wait: FloatArray = field(default_factory=lambda: np.zeros(()))
    passed_on: FloatArray = field(default_factory=lambda: np.zeros(()))

    def prompt(self, size: Numeric) -> FloatArray:
        """Seconds that a prompt adds in a step with so many prompts."""
        return np.asarray((self.single + self.another * (size - 1)) / size)

    @cached_property
    def prefill(self) -> FloatArray:
        """Seconds per prompt if prompts arrive while one step decodes."""
        return self.prompt(self.gathered)

    def decode_step(self, sequences: Numeric) -> FloatArray:
        """Seconds of a decode step over so many sequences."""
        return np.asarray(self.fixed + self.slope * sequences)

    def wave(self, size: Numeric, steps: Numeric) -> FloatArray:
        """Seconds of simultaneous requests, with their prompts one after the other."""
        return self.prompt_time + (size - 1) * self.queued + steps * self.decode_step(size)


def tokens_per_step(inputs: ServingInputs) -> float:
    """Mean tokens a decode step adds to a sequence."""
    w = inputs.workload
    drafted = w.drafted_in_a_row
    return float(accepted_tokens(draft_tokens=drafted, acceptance_rate=w.acceptance_rate))


def decode_steps(inputs: ServingInputs) -> FloatArray:
    """Steps that decode an answer: its first token comes with the prompt."""
    left = np.maximum(inputs.workload.output_tokens - 1.0, 0.0)
    return np.asarray(left / tokens_per_step(inputs))


def new_tokens(inputs: ServingInputs) -> FloatArray:
    """Return prompt tokens without a prefix-cache hit, at least one."""
    w, prefixes = inputs.workload, inputs.prefixes
    share = w.prefix_cache_hit_rate if prefixes is None else prefixes.hit_rate
    cached = np.maximum(w.input_tokens * share, w.shared_prefix_tokens)
    return np.asarray(np.maximum(w.input_tokens - cached, 1.0))


def decode_batch(inputs: ServingInputs, sequences: FloatArray) -> Batch:
    """Sequences half-way through their answers."""
    w = inputs.workload
    half_way = mean_residual(mean=w.output_tokens, variation=w.output_variation)
    return Batch.of_decode(sequences, np.asarray(w.input_tokens + half_way), 1.0 + w.draft_tokens)


def prompt_batch(
    inputs: ServingInputs, prompts: FloatArray, tokens: FloatArray, decoding: FloatArray
) -> Batch:
    """Return a batch of ``tokens`` new tokens of ``prompts`` and ``decoding`` sequences.

    A prompt that takes several steps sees half of itself as cache on average.
    """
    w = inputs.workload
    decode = decode_batch(inputs, decoding)
    new_per_prompt = new_tokens(inputs)
    cached = w.input_tokens - new_per_prompt
    tokens_per_prompt = np.minimum(tokens / prompts, new_per_prompt)
    before = cached + (new_per_prompt - tokens_per_prompt) / 2
    return Batch(
        decoding=decode.decoding,
        context=decode.context,
        tokens_per_sequence=decode.tokens_per_sequence,
        prefill_tokens=tokens,
        prompts=prompts,
        prefill_keys=before + (tokens_per_prompt + 1) / 2,
        prefill_cached=before,
    )


def decode_line(
    inputs: ServingInputs,
    configurations: ServingConfigurations,
    sequences: FloatArray,
    cycle: Callable[[ServingInputs, Any, FloatArray], FloatArray] | None = None,
) -> tuple[FloatArray, FloatArray]:
    """Fit step seconds = fixed + slope B over B decoding sequences, B up to ``sequences``.

    ``cycle``: seconds between two steps of a sequence; None: those of pipeline stages.
    """
    c = configurations
    upper = np.maximum(sequences, 1.0)
    lower = np.maximum(upper / 2, 0.5)
    # Both are within the CUDA graphs, or beyond them: a step leaps between the two.
    captured = captured_sequences(inputs, c)
    lower = np.where(upper > captured, np.maximum(lower, (upper + captured) / 2), lower)
    sizes = two_sizes(inputs, c, upper, lower)
    times = (cycle or _pipeline_cycle)(inputs, c, sizes) * (1 + inputs.workload.draft_cost)
    times = times + drafting_time(inputs, c, decode_batch(inputs, sizes))
    # Where more sequences change the kernel, the line would cross zero: a step has a beginning.
    slope = np.minimum((times[0] - times[1]) / (upper - lower), 0.99 * times[0] / upper)
    return times[0] - slope * upper, slope


def captured_sequences(inputs: ServingInputs, configurations: ServingConfigurations) -> Numeric:
    """Return decoding sequences of a replica in the largest CUDA graph; infinite: no limit."""
    ranks = configurations.attention_data_parallel * configurations.pipeline_parallel
    return ranks * (inputs.engine.execution.captured_batch or np.inf)


def _pipeline_cycle(
    inputs: ServingInputs, c: ServingConfigurations, sequences: FloatArray
) -> FloatArray:
    p = c.pipeline_parallel
    step = step_time(inputs, c, decode_batch(inputs, sequences / p), decoding=True)
    return step.cycle(np.minimum(sequences, p))


def two_sizes(
    inputs: ServingInputs, configurations: ServingConfigurations, *two: FloatArray
) -> FloatArray:
    """Return two batch sizes on a new leading axis, to predict both in one call."""
    work = inputs.workload
    sizes = np.stack(np.broadcast_arrays(*two))
    others = (configurations.shape, np.shape(work.input_tokens), np.shape(work.output_tokens))
    more = max(map(len, others)) + 1 - sizes.ndim
    return sizes.reshape(2, *(1,) * more, *sizes.shape[1:])


def prompt_room(
    inputs: ServingInputs, configurations: ServingConfigurations, sequences: FloatArray
) -> FloatArray:
    """Return tokens of a full step that remain for prompts, next to decoding sequences.

    They do not all decode: of a step that is always full, prompts have the share that they have of
    all tokens.
    """
    tokens, steps = configurations.replica_step_tokens, decode_steps(inputs)
    decoding = np.minimum(sequences, tokens * steps / (steps + new_tokens(inputs)))
    return np.asarray(np.maximum(tokens - decoding, 1.0))


def phases(
    inputs: ServingInputs, configurations: ServingConfigurations, sequences: FloatArray
) -> Phases:
    """Return step costs (prefill and decode) with about ``sequences`` requests in the replica."""
    c = configurations
    p = c.pipeline_parallel
    running = np.maximum(sequences, 1.0)
    fixed, slope = decode_line(inputs, c, running)
    new_per_prompt = new_tokens(inputs)
    prompt_tokens = prompt_room(inputs, c, running)
    # At random times a second one may come, however few are there on average.
    present = running if inputs.workload.request_rate is None else np.maximum(running, 2.0)
    # A prompt is computed by one attention rank, a queue of them by all.
    ranks = c.attention_data_parallel
    per_step = np.maximum(c.replica_step_tokens / new_per_prompt, ranks)
    max_prompts = np.maximum(np.minimum(per_step, present), 1.0)
    first_part, filled = (
        np.minimum(new_per_prompt, prompt_tokens / ranks),
        np.minimum(max_prompts * new_per_prompt, prompt_tokens),
    )
    parts = np.maximum(new_per_prompt / first_part, 1.0)
    busy = np.maximum(filled / new_per_prompt, np.minimum(ranks, present))
    if inputs.engine.scheduler.chunked_prefill and not inputs.workload.embeds:
        drafting = drafting_time(inputs, c, decode_batch(inputs, running))
        verified = (fixed + slope * running - drafting) / (1.0 + inputs.workload.draft_cost)
        decoding, micro_batches, decode = running / p, np.minimum(running, p), verified
    else:
        decoding, micro_batches, decode = np.zeros(()), p, np.zeros(())
    prompts, tokens = (
        two_sizes(inputs, c, lower, upper)
        for lower, upper in ((np.ones(()), busy), (first_part, filled))
    )
    batch = prompt_batch(inputs, prompts, tokens, decoding)
    step, drafted = (
        step_time(inputs, c, batch, decoding=False),
        drafted_prompt_time(inputs, c, batch),
    )
    single, full = np.maximum(step.cycle(micro_batches) - decode, 0.0) + drafted
    images = encoder_time(inputs, c)
    loading = 0.0 if inputs.prefixes is None else inputs.prefixes.cache_load_time
    single = single * parts + images
    full = (
        full * np.maximum(max_prompts * new_per_prompt / prompt_tokens, 1.0) + max_prompts * images
    )
    is_sparse = present > running
    # Those that come while others take several steps of a rank each are computed with them.
    together = gathered_prompts(inputs, running) * np.where(ranks > 1, parts, 1.0)
    prompts = np.clip(together, 1.0, max_prompts)
    # Ranks compute prompts in parallel: a second prompt adds no time to a single one.
    more = np.maximum((full - single) / np.maximum(max_prompts - 1, 1e-9), full / max_prompts / 2)
    of_engine = Phases(
        fixed=fixed,
        slope=slope,
        prompt_time=(step.total + drafted)[0] * parts + images + loading,
        single=single / p,
        another=(full - single) / np.maximum(max_prompts - 1, 1.0) / p,
        gathered=prompts,
        most=max_prompts,
        queued=np.where(is_sparse, single, full / max_prompts) / p,
        together=np.where(is_sparse, 1.0, max_prompts),
        added=np.where((max_prompts > 1) & (ranks == 1), more, full / max_prompts) / p,
        parts=parts,
    )
    return _behind_front_end(inputs, c, of_engine, running)


def front_end_times(
    inputs: ServingInputs, configurations: ServingConfigurations
) -> tuple[Numeric, Numeric, Numeric]:
    """Return seconds of the processes before the engine: per token, per request, and its intake.

    They share the requests evenly, each on one core. A prompt is tokenized whole, cached or not,
    on another thread than the intake of the next requests.
    """
    front_end, work = inputs.engine.front_end, inputs.workload
    if front_end is None:
        return 0.0, 0.0, 0.0
    ranks = configurations.attention_data_parallel if front_end.per_rank else 1.0
    slower = inputs.slowdown / (front_end.processes or ranks)
    token = front_end.message_time / inputs.engine.scheduler.stream_interval + front_end.token_time
    intake_time = front_end.request_time + front_end.template_time * inputs.model.chat_template
    request = intake_time + front_end.prompt_token_time * work.input_tokens + token
    return slower * token, slower * request, slower * intake_time


def requests_sent(inputs: ServingInputs, configurations: ServingConfigurations) -> Numeric:
    """Return the number of requests that clients send to one replica; infinite if unlimited."""
    work = inputs.workload
    if work.num_requests is None or work.request_rate is not None:
        return np.inf
    return np.maximum(work.num_requests / configurations.data_parallel, 1.0)


def _behind_front_end(
    inputs: ServingInputs, c: ServingConfigurations, of_engine: Phases, running: FloatArray
) -> Phases:
    """Return steps at the pace of the slower of the engine and the processes before it.

    Both work at the same time: prompts keep the engine busy while tokens are passed on. In steady
    state as many requests come in a decode step as answers end.
    """
    if inputs.engine.front_end is None or inputs.workload.embeds:
        return of_engine
    token, request, _ = front_end_times(inputs, c)
    steps = np.maximum(decode_steps(inputs), 1.0)
    # Those of a simultaneous start are taken in before the first answer.
    request = request * (1 - np.minimum(c.concurrency / requests_sent(inputs, c), 1.0))

    def wait(sequences: FloatArray) -> FloatArray:
        busy = of_engine.decode_step(sequences) + sequences / steps * of_engine.prefill
        return np.maximum(sequences * (token + request / steps) - busy, 0.0)

    passed_on, longer = running * token / 2, wait(running)
    if not longer.any():
        return replace(of_engine, passed_on=passed_on)
    slope = of_engine.slope + (longer - wait(running / 2)) / (running / 2)
    step = of_engine.decode_step(running) + longer
    slope = np.minimum(slope, 0.99 * step / running)
    return replace(
        of_engine,
        fixed=step - slope * running,
        slope=slope,
        front_end_wait=longer,
        passed_on=passed_on,
    )


def wave_time(inputs: ServingInputs, configurations: ServingConfigurations) -> FloatArray:
    """Return seconds to answer ``concurrency`` requests that start at once.

    Their prompts fill the engine's steps one after the other, and so do those of the next
    wave, as equally long answers end one after the other.
    """
    size = configurations.concurrency
    return phases(inputs, configurations, size).wave(size, decode_steps(inputs))


def gathered_prompts(inputs: ServingInputs, sequences: FloatArray) -> FloatArray:
    """Prompts that arrive between two prompt steps, as many as answers end."""
    scheduler = inputs.engine.scheduler
    between = float(scheduler.poll_interval + scheduler.batch_wait)
    return np.asarray(between * sequences / np.maximum(decode_steps(inputs), 1.0))


def outside_engine(inputs: ServingInputs) -> float:
    """Seconds for which clients who wait have a request that is not in the engine."""
    return 0.0 if inputs.workload.request_rate is not None else request_overhead(inputs)


def request_overhead(inputs: ServingInputs) -> float:
    """Seconds of a request outside the engine: tokenization, transport."""
    return inputs.slowdown * inputs.engine.execution.request_overhead
