"""The steps of an engine, part by part, with their times."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from planner.base.arrays import first
from planner.configurations.configuration_tables import (
    ServingConfigurations,
)
from planner.estimators.inference.batch_share import ServingInputs
from planner.estimators.inference.continuous_batching import decode_batch, new_tokens, prompt_batch
from planner.estimators.inference.engine_step import InferenceStep, step_time
from planner.optimize.source import Candidates
from planner.workloads.serving.prefill_decode_pools import PrefillDecodeDeployments
from planner.workloads.serving.replicas import Replicas
from planner.workloads.serving.static_batches import Batches
from planner.workloads.timed_steps import ALL_MODULES, TimedPart, TimedStep, merge_parts

_OTHERS = ("pipeline", "launch_wait", "transfer_wait", "overhead", "untuned")


def serving_steps(candidates: Candidates) -> Mapping[str, TimedStep]:
    """The timed steps ``prefill`` and ``decode`` of candidates, by name."""
    return {name: timed_inference(step) for name, step in inference_steps(candidates).items()}


def decode_step(candidates: Candidates) -> InferenceStep:
    """The decode step of an engine with the sequences that are in flight at the load."""
    if isinstance(candidates, Replicas):
        estimate = candidates.at_load.estimate
        c, sequences = estimate.configurations, estimate.served.decoding
    elif isinstance(candidates, PrefillDecodeDeployments):
        c, sequences = candidates.decode.configurations, candidates.at_load.decoding
    else:
        raise TypeError(f"{candidates!r} does not serve streams.")
    inputs = candidates.inputs
    batch = decode_batch(inputs, sequences / c.pipeline_parallel)
    return step_time(inputs, c, batch, True)


def inference_steps(candidates: Candidates) -> dict[str, InferenceStep]:
    """The steps ``prefill`` and ``decode`` of candidates; only ``prefill`` for embeddings."""
    if isinstance(candidates, Batches):
        static = candidates.batch
        return {"prefill": static.prefill_step, "decode": static.decode_step}
    if isinstance(candidates, Replicas):
        prompt = _prompt_step(candidates.inputs, candidates.estimate.configurations)
    elif isinstance(candidates, PrefillDecodeDeployments):
        workers = candidates.prefill
        prompt = _prompt_step(workers.inputs, workers.configurations)
    else:
        raise TypeError(f"{candidates!r} does not serve.")
    if candidates.inputs.workload.embeds:
        return {"prefill": prompt}
    return {"prefill": prompt, "decode": decode_step(candidates)}


def _prompt_step(inputs: ServingInputs, c: ServingConfigurations) -> InferenceStep:
    """The step over one prompt per attention rank, cut at the token budget of a step."""
    new, ranks = new_tokens(inputs), c.attention_data_parallel
    tokens = np.minimum(new * ranks, np.maximum(c.replica_step_tokens, 1.0))
    batch = prompt_batch(inputs, np.asarray(ranks, np.float64), tokens, np.zeros(()))
    return step_time(inputs, c, batch, decoding=False)


def timed_inference(step: InferenceStep) -> TimedStep:
    """Split the time of an engine step into parts [s]: operators, and time of no operator."""
    others = {name: first(getattr(step, name)) for name in _OTHERS}  # of no operator
    of_none = (
        TimedPart.of(name, ALL_MODULES, {name: seconds}, step.works.get(name, ()), part=name)
        for name, seconds in others.items()
    )
    parts = merge_parts((*_operators(step), *of_none))
    return TimedStep(seconds=first(step.total), parts=parts)


def _operators(step: InferenceStep) -> Iterator[TimedPart]:
    """Yield the seconds of each operator of an engine step, over all layers."""
    for count, operators in (*step.layers, (1, step.ends)):
        for operator in operators:
            term = operator.module if operator.part == "compute" else operator.part
            yield TimedPart.of(
                operator.name,
                operator.module,
                {term: count * first(operator.forward)},
                operator.works,
                part=operator.part,
            )
