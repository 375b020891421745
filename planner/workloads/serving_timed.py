"""The parts of an engine's steps, for explanations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from planner.base.arrays import first
from planner.configurations.serving import ServingConfigurations
from planner.estimators.inference.serving import decode_batch, new_tokens, prompt_batch
from planner.estimators.inference.setting import ServingSetting
from planner.estimators.inference.step import InferenceStep, step_time
from planner.optimize.source import Candidates
from planner.workloads.batches import Batches
from planner.workloads.pools import PoolDeployments
from planner.workloads.replicas import Replicas
from planner.workloads.timed import ALL_MODULES, TimedPart, TimedStep, merged

_OTHERS = ("pipeline", "launch_wait", "transfer_wait", "overhead")


def serving_steps(candidates: Candidates) -> Mapping[str, TimedStep]:
    """A step over a prompt alone and one over sequences that decode, as requests meet them."""
    return {name: _timed(step) for name, step in inference_steps(candidates).items()}


def decode_step(candidates: Candidates) -> InferenceStep:
    """The step that streams of requests decode in, at the requests that it holds."""
    if isinstance(candidates, Replicas):
        estimate = candidates.at_load.estimate
        c, sequences = estimate.configurations, estimate.served.decoding
    elif isinstance(candidates, PoolDeployments):
        c, sequences = candidates.decode.configurations, candidates.at_load.decoding
    else:
        raise TypeError(f"{candidates!r} does not serve streams.")
    setting = candidates.setting
    batch = decode_batch(setting, sequences / c.pipeline_parallel)
    return step_time(setting, c, batch, True)


def inference_steps(candidates: Candidates) -> dict[str, InferenceStep]:
    """A step over prompts and one over sequences that decode: of a static batch its own."""
    if isinstance(candidates, Batches):
        static = candidates.batch
        return {"prefill": static.prefill_step, "decode": static.decode_step}
    if isinstance(candidates, Replicas):
        prompt = _prompt_step(candidates.setting, candidates.estimate.configurations)
    elif isinstance(candidates, PoolDeployments):
        workers = candidates.prefill
        prompt = _prompt_step(workers.setting, workers.configurations)
    else:
        raise TypeError(f"{candidates!r} does not serve.")
    return {"prefill": prompt, "decode": decode_step(candidates)}


def _prompt_step(setting: ServingSetting, c: ServingConfigurations) -> InferenceStep:
    """A step over one prompt of each attention rank, or as much of it as a step takes."""
    new, ranks = new_tokens(setting), c.attention_data_parallel
    tokens = np.minimum(new * ranks, np.maximum(c.replica_step_tokens, 1.0))
    batch = prompt_batch(setting, np.asarray(ranks, np.float64), tokens, np.zeros(()))
    return step_time(setting, c, batch, decoding=False)


def _timed(step: InferenceStep) -> TimedStep:
    others = {name: first(getattr(step, name)) for name in _OTHERS}  # of no operator
    of_none = (
        TimedPart.of(name, ALL_MODULES, {name: seconds}, step.works.get(name, ()), part=name)
        for name, seconds in others.items()
    )
    parts = merged((*_operators(step), *of_none))
    return TimedStep(seconds=first(step.total), parts=parts)


def _operators(step: InferenceStep) -> Iterator[TimedPart]:
    for count, operators in (*step.layers, (1, step.ends)):
        for operator in operators:
            term = operator.module if operator.part == "compute" else operator.part
            yield TimedPart.of(
                operator.name,
                operator.module,
                {term: count * first(operator.time)},
                operator.works,
                part=operator.part,
            )
