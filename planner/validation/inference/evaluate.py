"""What is predicted for cases of inference: one vectorized pass per mode."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from planner.base.units import GIB
from planner.confidence.fits import default_fit_confidence
from planner.confidence.intervals import INFERENCE_TABLES
from planner.validation.inference.cases import InferenceCase, Mode, setting_of
from planner.validation.inference.disaggregated import disaggregated_runs
from planner.validation.inference.online import max_throughput_runs, online_runs
from planner.validation.inference.outcome import Outcome
from planner.validation.inference.static import static_runs
from planner.validation.prediction import MEMORY, Prediction

Pass = Callable[[Sequence[InferenceCase]], Outcome]
_PASSES: Mapping[Mode, Pass] = {
    Mode.STATIC: static_runs,
    Mode.MAX_THROUGHPUT: max_throughput_runs,
    Mode.ONLINE: online_runs,
    Mode.DISAGGREGATED: disaggregated_runs,
}


def predict_inference_group(cases: Sequence[InferenceCase]) -> list[Prediction]:
    """Predictions for cases of one group, in their order."""
    with np.errstate(all="ignore"):
        outcome = _PASSES[cases[0].mode](cases)
    usable = setting_of(cases).usable_memory
    return [_prediction(case, outcome, index, usable) for index, case in enumerate(cases)]


def _prediction(case: InferenceCase, outcome: Outcome, index: int, usable: float) -> Prediction:
    values = {name: float(column[index]) for name, column in outcome.quantities.items()}
    memory = float(outcome.memory[index])
    good = all(np.isfinite(value) and value > 0 for value in (*values.values(), memory))
    if not good:
        reason = "the numbers of the row are beyond what can be computed"
        return Prediction(case=case, reason=reason)
    reported = memory - (float(outcome.reserved[index]) if case.tensors_only else 0.0)
    needed = float(outcome.needed[index])
    chance = float(case.memory_errors.chance(predicted=needed, usable=usable))
    return Prediction(
        case=case,
        values=values | {MEMORY: reported / GIB},
        device_memory=memory,
        needed_memory=needed,
        capacity=usable,
        fit_probability=chance,
        fits=chance >= default_fit_confidence(INFERENCE_TABLES),
    )
