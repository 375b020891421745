"""Rollouts: time of all answers of a batch, or of a steady stream of answers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from planner.base.arrays import BoolArray, FloatArray
from planner.base.records import record
from planner.configurations.configuration_tables import ServingConfigurations
from planner.configurations.rl import RlConfigurations
from planner.estimators.inference.continuous_batching import decode_line, phases
from planner.estimators.inference.serving_memory import (
    ServingMemory,
    sequence_bytes,
    serving_memory,
)
from planner.estimators.rl.rl_inputs import RlInputs
from planner.formulas.rollout import (
    expected_longest,
    full_batch_steps,
    residual_lengths,
    steady_time,
    tail_time,
)


@record(kw_only=True)
class Rollout:
    """Seconds and bytes of the engine; arrays broadcast to the configurations' shape.

    ``batch``: seconds until the longest answer of a batch ends; ``steady``: seconds for as many
    answers by engines that never run empty. ``again``: seconds to compute the prefixes of answers
    that were cut off. ``lanes_idle``: share of the places of steps that hold no answer. ``needed``:
    bytes with which one answer of full length finds room.
    """

    configurations: ServingConfigurations
    memory: ServingMemory
    places: FloatArray
    batch: FloatArray
    steady: FloatArray
    again: FloatArray
    lanes_idle: FloatArray
    needed: FloatArray

    @property
    def fits(self) -> BoolArray:
        """Mask of configurations in which the longest answer fits."""
        return np.asarray(self.needed <= self.memory.usable)


def estimate_rollout(inputs: RlInputs, c: RlConfigurations) -> Rollout:
    """Predict the rollouts (answer generation) of every configuration."""
    work, serving, rollouts = inputs.workload, inputs.serving, inputs.rollouts
    default_share = np.where(c.colocated, rollouts.colocated_memory, rollouts.separate_memory)
    share = np.where(c.rollout_gpu_memory > 0, c.rollout_gpu_memory, default_share)
    scheduler = serving.engine.scheduler
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        each = work.samples / (1 - work.flat_groups) / np.maximum(c.replicas, 1e-9)
        max_running = np.clip(each * (1 + c.staleness), 1.0, scheduler.max_num_seqs)
        engine = c.engine(share, max_running, scheduler.max_num_batched_tokens)
        memory = serving_memory(serving, engine)
        places = np.clip(np.floor(memory.most_sequences), 1.0, max_running)
        engine = replace(engine, concurrency=places)
        running = np.minimum(places, np.maximum(each, 1.0))
        # The axis of sizes comes before the axes of the configurations.
        size_axes = (1,) * (len(c.shape) - running.ndim) + running.shape
        sizes = np.stack(np.broadcast_arrays(np.ones(()), np.sqrt(running), running))
        sizes = sizes.reshape(3, *size_axes)
        full = phases(serving, engine, running)
        fixed, slope = decode_line(serving, engine, sizes[:2])
        smaller, full_time = fixed + slope * sizes[:2], full.fixed + full.slope * running
        times = np.stack(np.broadcast_arrays(*smaller, full_time))
        hosts = rollouts.decode_layer_time * inputs.model.num_hidden_layers
        times = rollouts.decode_factor * times + hosts
    return _batches(inputs, c, engine, memory, each, running, sizes, times, full.queued)


def _batches(
    inputs: RlInputs,
    c: RlConfigurations,
    engine: ServingConfigurations,
    memory: ServingMemory,
    each: FloatArray,
    running: FloatArray,
    sizes: FloatArray,
    times: FloatArray,
    prompt: FloatArray,
) -> Rollout:
    """Return rollout times of a batch: ``each`` answers per replica, ``running`` at once."""
    work, (lengths, longer) = inputs.workload, inputs.lengths
    mean, step = float(work.output_tokens), times[-1]
    left = residual_lengths(lengths=lengths, longer=longer)
    waits = each > running
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        full = full_batch_steps(sequences=each, slots=running, mean=mean)
        shape = {"lengths": lengths, "sizes": sizes, "times": times}
        tails = [
            tail_time(longer=shares, sequences=running, replicas=c.replicas, **shape)
            for shares in (longer, left)
        ]
        prompts = prompt * each / work.samples_per_prompt
        batch = full * step + np.where(waits, tails[1], tails[0]) + prompts
        last = expected_longest(lengths=lengths, longer=left, number=running * c.replicas)
        longest_steps = expected_longest(lengths=lengths, longer=longer, number=each * c.replicas)
        steps = np.maximum(np.where(waits, full + last, longest_steps), longest_steps)
        steady = steady_time(
            sequences=each,
            slots=np.maximum(engine.concurrency, 1.0),
            mean=mean,
            step=step
            + (engine.concurrency - running)
            * (times[-1] - times[-2])
            / np.maximum(sizes[-1] - sizes[-2], 1e-9),
            prompt=prompt / work.samples_per_prompt,
        )
        half_way = work.input_tokens + float(np.sum(np.diff(lengths) * (left[1:] + left[:-1]) / 2))
        needed = memory.non_cache_bytes + sequence_bytes(inputs.serving, engine, work.longest)
    return Rollout(
        configurations=engine,
        memory=memory,
        places=engine.concurrency,
        batch=batch,
        steady=np.minimum(steady, batch),
        again=np.asarray(running * prompt * half_way / work.input_tokens),
        lanes_idle=np.clip(1 - each * mean / (steps * running), 0.0, 1.0),
        needed=needed,
    )
