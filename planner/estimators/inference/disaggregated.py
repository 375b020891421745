"""Disaggregated prefill and decode: time and memory of the workers of each pool."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from planner.base.arrays import BoolArray, CodeArray, FloatArray
from planner.base.records import record
from planner.configurations.configuration_tables import (
    AttentionFfnConfigurations,
    ServingConfigurations,
)
from planner.estimators.inference.attention_ffn import (
    attention_ffn_cycle,
    broken_ffn_rules,
    side_memory,
)
from planner.estimators.inference.balance import together_share
from planner.estimators.inference.batch_share import PrefixHits, ServingInputs
from planner.estimators.inference.continuous_batching import (
    decode_line,
    decode_steps,
    new_tokens,
    outside_engine,
    prompt_batch,
    request_overhead,
    tokens_per_step,
    two_sizes,
)
from planner.estimators.inference.engine_step import step_time
from planner.estimators.inference.serving_estimate import (
    SERVING_REJECTIONS,
    serving_rejections,
)
from planner.estimators.inference.serving_memory import (
    SERVING_MEMORY_PARTS,
    ServingMemory,
    sequence_bytes,
    serving_memory,
)
from planner.estimators.inference.shared_predictions import shared
from planner.estimators.inference.speculative_decoding import drafted_prompt_time
from planner.estimators.towers import encoder_time
from planner.formulas.queueing import (
    disaggregated_closed_loop_rate,
    disaggregated_concurrency,
    loaded_decode_step_time,
)
from planner.specs.validated import replace_unvalidated

HIGHEST_PREFILL_LOAD = 0.9
_BEYOND_ANY_DOMAIN = 1e9


@record(kw_only=True)
class PrefillWorkers:
    """Workers that compute prompts alone; arrays of the configurations' shape.

    ``prompt_time``: seconds of a prompt when every attention rank has one; ``service_time``:
    seconds of a worker's work per prompt when its steps are full; ``transfer_time``: seconds
    until the prompt's cache has left its GPUs. ``prefixes``: what is found of the prompts where
    that is computed.
    """

    inputs: ServingInputs
    configurations: ServingConfigurations
    memory: ServingMemory
    prompt_time: FloatArray
    service_time: FloatArray
    transfer_time: FloatArray
    rejected_by: CodeArray
    prefixes: PrefixHits | None = None

    @property
    def request_rate(self) -> FloatArray:
        """Prompts per second of one worker at the highest load with a bounded queue."""
        return HIGHEST_PREFILL_LOAD / self.service_time


@record(kw_only=True)
class DecodeWorkers:
    """Workers that compute no prompts and hold at most ``places`` of their ``concurrency``.

    A step over B sequences lasts ``fixed + slope B`` seconds; ``step_time``,
    ``time_per_output_token`` and ``request_rate`` are those of a full worker: bounds that no
    deployment passes. ``ffn_memory``: of a GPU that has the FFN alone; None: none has.
    """

    inputs: ServingInputs
    configurations: ServingConfigurations
    memory: ServingMemory
    ffn_memory: ServingMemory | None
    places: FloatArray
    fixed: FloatArray
    slope: FloatArray
    step_time: FloatArray
    time_per_output_token: FloatArray
    request_rate: FloatArray
    transfer_time: FloatArray
    rejected_by: CodeArray

    @property
    def fullest(self) -> ServingMemory:
        """The memory with the parts of the fuller GPU, which has attention or the FFN."""
        attention, ffn = self.memory, self.ffn_memory
        if ffn is None:
            return attention
        fuller = ffn.total > attention.total
        return replace(
            attention,
            **{
                part: np.where(fuller, getattr(ffn, part), getattr(attention, part))
                for part in SERVING_MEMORY_PARTS
            },
        )


@shared
def prefill_workers(
    inputs: ServingInputs, configurations: ServingConfigurations, inside_fabric: bool | BoolArray
) -> PrefillWorkers:
    """Predict time and memory of prefill workers; ``inputs``: of both pools together."""
    prefill_only = replace(
        inputs, workload=replace_unvalidated(inputs.workload, output_tokens=1, draft_tokens=0)
    )
    prompt_tokens, limit = new_tokens(prefill_only), configurations.max_num_batched_tokens
    max_seqs = inputs.engine.scheduler.max_num_seqs
    ranks = configurations.attention_data_parallel
    together = np.clip(np.floor(limit / prompt_tokens), 1.0, max_seqs) * ranks
    c = replace(configurations, concurrency=together * configurations.pipeline_parallel)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        memory = serving_memory(prefill_only, c)
        prompt, service = prefill_times(prefill_only, c, np.asarray(float(max_seqs)))
        return PrefillWorkers(
            inputs=prefill_only,
            configurations=c,
            memory=memory,
            prompt_time=prompt,
            service_time=service,
            transfer_time=cache_transfer_time(prefill_only, c, inside_fabric),
            rejected_by=serving_rejections(prefill_only, c, memory, is_pool=True),
            prefixes=inputs.prefixes,
        )


def prefill_times(
    inputs: ServingInputs, configurations: ServingConfigurations, most_seqs: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return seconds of a prompt with one per rank, and engine seconds per prompt in a queue.

    A queue fills the steps with as many prompts as their tokens, and ``most_seqs`` sequences of
    a rank, allow.
    """
    c = configurations
    new_per_prompt, ranks = new_tokens(inputs), c.attention_data_parallel
    rounds = np.maximum(np.ceil(new_per_prompt * ranks / c.replica_step_tokens), 1.0)
    p = c.pipeline_parallel
    max_prompts = np.minimum(np.floor(c.replica_step_tokens / new_per_prompt), most_seqs * ranks)
    full = np.maximum(max_prompts, ranks / rounds)
    prompts = two_sizes(inputs, c, ranks, np.maximum(full, ranks))
    tokens = two_sizes(inputs, c, new_per_prompt * ranks / rounds, full * new_per_prompt)
    batch = prompt_batch(inputs, prompts, tokens, np.zeros(()))
    step = step_time(inputs, c, batch, decoding=False)
    drafted = drafted_prompt_time(inputs, c, batch)
    one_round, queued = step.cycle(p) + drafted
    service = np.minimum(one_round * rounds / ranks, queued / full)
    images = encoder_time(inputs, c)
    if inputs.prefixes is not None:
        images = images + inputs.prefixes.cache_load_time
    return (step.total + drafted)[0] * rounds + images, (service + images) / p


@shared
def decode_workers(
    inputs: ServingInputs, configurations: ServingConfigurations, inside_fabric: bool | BoolArray
) -> DecodeWorkers:
    """Predict time and capacity of workers that only decode."""
    c, ranks = decode_only(inputs, configurations), configurations.attention_data_parallel
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        places = np.minimum(c.concurrency, inputs.engine.scheduler.max_num_seqs * ranks)
        if isinstance(c, AttentionFfnConfigurations):
            memory, ffn_memory = side_memory(inputs, c)
            fixed, slope = decode_line(inputs, c, places, attention_ffn_cycle)
            rejected = _side_rejections(inputs, c, memory, ffn_memory)
        else:
            memory, ffn_memory = serving_memory(inputs, c), None
            fixed, slope = decode_line(inputs, c, places)
            rejected = serving_rejections(inputs, c, memory, is_pool=True)
        step = fixed + slope * places
        return DecodeWorkers(
            inputs=inputs,
            configurations=c,
            memory=memory,
            ffn_memory=ffn_memory,
            places=places,
            fixed=fixed,
            slope=slope,
            step_time=step,
            time_per_output_token=step / tokens_per_step(inputs),
            request_rate=places / ((decode_steps(inputs) + 1) * step),
            transfer_time=cache_transfer_time(inputs, c, inside_fabric),
            rejected_by=rejected,
        )


def _side_rejections(
    inputs: ServingInputs,
    c: AttentionFfnConfigurations,
    memory: ServingMemory,
    ffn_memory: ServingMemory,
) -> CodeArray:
    """Return the `serving_rejections` of the GPUs for attention, else of those for the FFN."""
    attention = serving_rejections(inputs, c.attention, memory, is_pool=True)
    ffn = np.minimum.reduce(np.broadcast_arrays(*broken_ffn_rules(inputs, c)))
    too_large = ffn_memory.total > memory.usable * inputs.sure_share
    ffn = np.where((ffn == 0) & too_large, np.int8(len(SERVING_REJECTIONS)), ffn)
    return np.where(attention > 0, attention, ffn)


def decode_only(
    inputs: ServingInputs, configurations: ServingConfigurations
) -> ServingConfigurations:
    """Return configurations whose step limit [tokens] equals what their sequences decode."""
    drafted = 1 + inputs.workload.draft_tokens
    tokens = configurations.concurrency * drafted / configurations.attention_data_parallel
    return replace(configurations, max_num_batched_tokens=tokens)


def cache_transfer_time(
    inputs: ServingInputs, configurations: ServingConfigurations, inside_fabric: bool | BoolArray
) -> FloatArray:
    """Return seconds to move the KV cache of one prompt between workers.

    Each GPU moves its share over its own link: the fabric if all workers are in one domain, else
    the network.
    """
    num_bytes = sequence_bytes(inputs, configurations, inputs.workload.input_tokens)
    distance = np.where(inside_fabric, 1.0, _BEYOND_ANY_DOMAIN)
    return inputs.machine.send_time(num_bytes, distance)


@record(kw_only=True)
class Pools:
    """Workers that prefill and workers that decode; arrays that broadcast, times in seconds.

    ``prompt_time``: seconds of a prompt when every attention rank has one; ``service_time``: its
    share of a worker's time in a queue; ``transfer_time``: seconds to move its cache. If
    ``prefill_workers`` is 0, their number is unknown: as many as keep up with the decoding. A
    decode step over B sequences of a worker lasts ``fixed + slope B``; all of them have ``places``.
    ``stream_interval``: tokens that the decode workers collect before they send them.
    """

    prompt_time: FloatArray
    service_time: FloatArray
    transfer_time: FloatArray
    prefill_workers: FloatArray
    decode_workers: FloatArray
    fixed: FloatArray
    slope: FloatArray
    places: FloatArray
    stream_interval: FloatArray


@record(kw_only=True)
class DisaggregatedRun:
    """Means over the requests of the deployment; times in seconds.

    ``load``: share of the time in which the prefill workers compute prompts; ``prompt``: time of
    one; ``wait``: for a worker, and for a place among the sequences of another.
    """

    time_to_first_token: FloatArray
    time_per_output_token: FloatArray
    request_rate: FloatArray
    prefill_workers: FloatArray
    load: FloatArray
    prompt: FloatArray
    wait: FloatArray


def disaggregated_run(
    inputs: ServingInputs, pools: Pools, requests: FloatArray
) -> DisaggregatedRun:
    """Return mean latencies with ``requests`` always in flight in separate pools.

    Prompts queue at the prefill workers (`disaggregated_closed_loop_rate`), move their cache over
    the network, wait
    for a place among the sequences of a decode worker, and decode without prompts in between. A
    share of the requests starts together with all others, as at a replica, and queues for longer.
    """
    # The decode worker sends the first token, too.
    steps, outside = decode_steps(inputs) + 1, outside_engine(inputs)
    prompt_time, moved, service = pools.prompt_time, pools.transfer_time, pools.service_time
    rate, number, step = disaggregated_closed_loop_rate(
        requests=requests,
        unqueued_time=prompt_time + moved + outside,
        service_time=service,
        servers=pools.prefill_workers,
        steps=steps,
        fixed=pools.fixed,
        slope=pools.slope / pools.decode_workers,
        slots=pools.places,
        simultaneous=together_share(inputs, requests),
    )
    left = np.maximum(requests / rate - steps * step - moved - outside, prompt_time)
    per_token, collected = _token_times(inputs, pools, step)
    return DisaggregatedRun(
        time_to_first_token=left + moved + step + collected + request_overhead(inputs),
        time_per_output_token=per_token,
        request_rate=rate,
        prefill_workers=number,
        load=rate * service / number,
        prompt=prompt_time,
        wait=left - prompt_time,
    )


def requests_at_rate(inputs: ServingInputs, pools: Pools, rate: FloatArray) -> FloatArray:
    """Return the requests in flight in both pools at a ``rate`` [1/s].

    What `disaggregated_run` settles with the rate known, of known numbers of workers. Infinite
    where the rate is more than a pool can take.
    """
    steps = decode_steps(inputs) + 1
    step = _step_at_rate(pools, rate * steps)
    requests = disaggregated_concurrency(
        rate=rate,
        unqueued_time=pools.prompt_time + pools.transfer_time + outside_engine(inputs),
        service_time=pools.service_time / np.maximum(pools.prefill_workers, 1.0),
        decoding=steps * step,
    )
    return np.where(rate * steps * step <= pools.places, requests, np.inf)


def token_time_at_rate(inputs: ServingInputs, pools: Pools, rate: FloatArray) -> FloatArray:
    """Seconds per output token at a rate [1/s] that the workers carry."""
    step = _step_at_rate(pools, rate * (decode_steps(inputs) + 1))
    return _token_times(inputs, pools, step)[0]


def _step_at_rate(pools: Pools, steps: FloatArray) -> FloatArray:
    """Seconds of a decode step at a demand of ``steps`` sequence steps per second."""
    return loaded_decode_step_time(
        fixed=pools.fixed, slope=pools.slope / pools.decode_workers, steps=steps
    )


def _token_times(
    inputs: ServingInputs, pools: Pools, step: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return seconds per output token for a client, and until the first tokens are sent."""
    per_token = step / tokens_per_step(inputs)
    output = inputs.workload.output_tokens
    collected = (np.minimum(pools.stream_interval, output) - 1) * per_token
    return per_token - collected / np.maximum(output - 1, 1.0), collected
