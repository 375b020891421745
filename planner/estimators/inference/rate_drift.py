"""Replicas that fill and empty as the request rate changes, along the windows of a trace."""

from __future__ import annotations

import numpy as np

from planner.base.arrays import FloatArray, Numeric
from planner.base.records import record
from planner.estimators.inference.continuous_batching import Phases
from planner.estimators.inference.queueing_delay import StepDemand
from planner.formulas.trace_queueing import simulate_fluid_queue
from planner.specs.arrivals import TracePaths, classes_of


@record(kw_only=True)
class DriftEffects:
    """Effects on requests of replicas that fill and empty along the windows of a trace.

    ``decoding``: sequences in `CLASSES` of the requests; ``waits`` for a place [s] in each window,
    which has a share of the requests of ``weights``; ``longer``: prompts over answers, each over
    its mean, of the requests that wait.
    """

    decoding: FloatArray
    waits: FloatArray
    weights: FloatArray
    longer: FloatArray


def drift_effects(
    paths: TracePaths,
    replicas: FloatArray,
    rate: FloatArray,
    costs: Phases,
    work: StepDemand,
    *,
    prompt: FloatArray,
    fullest: Numeric,
) -> DriftEffects:
    """The windows of the replicas that share the requests, of the nearest number of them."""
    mixes = np.all(np.isfinite(fullest))
    single, added = (costs.prefill, work.prompt) if mixes else (costs.single, costs.another)
    merged: DriftEffects | None = None
    for is_nearest, turns in paths.nearest(replicas):
        shape = (*turns.windows.shape, *[1] * np.ndim(rate))
        requests, prompts, answers = turns.windows.reshape(shape)
        running, waits = (
            array.reshape(-1, *array.shape[2:])
            for array in simulate_fluid_queue(
                requests=requests,
                prompts=prompts,
                answers=answers,
                seconds=paths.requests / replicas / len(prompts) / rate,
                rate=rate,
                fixed=costs.fixed,
                slope=costs.slope,
                steps=work.steps,
                places=work.places,
                prompt=prompt,
                lone=single,
                added=added,
                fullest=fullest,
            )
        )
        weights = requests.reshape(-1, *requests.shape[2:])
        late = (waits > 0) * weights
        ratio = (prompts / np.maximum(answers, 1e-9)).reshape(weights.shape)
        # Windows that do not share out evenly are left out.
        padding = [(0, paths.windows.shape[1] - len(waits)), *[(0, 0)] * (waits.ndim - 1)]
        effects = DriftEffects(
            decoding=classes_of(running, weights.ravel()),
            waits=np.pad(waits, padding),
            weights=np.pad(np.broadcast_to(weights / weights.sum(), waits.shape), padding),
            longer=(ratio * late).sum(axis=0) / np.maximum(late.sum(axis=0), 1e-9),
        )
        if merged is not None:
            earlier = vars(merged)
            effects = DriftEffects(
                **{
                    name: np.where(is_nearest, value, earlier[name])
                    for name, value in vars(effects).items()
                }
            )
        merged = effects
    assert merged is not None
    return merged
