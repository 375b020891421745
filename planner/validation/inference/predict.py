"""Predictions for a table of inference: one vectorized pass per setting."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from planner.units import GIB
from planner.validation.inference.cases import InferenceCase, Mode, inference_case
from planner.validation.inference.disaggregated import disaggregated_runs
from planner.validation.inference.intervals import inference_basis, inference_interval
from planner.validation.inference.online import max_throughput_runs, online_runs
from planner.validation.inference.outcome import RATES, Outcome
from planner.validation.inference.static import static_runs
from planner.validation.library import Library
from planner.validation.models import NotPredicted
from planner.validation.predict import Progress, Range
from planner.validation.runs import Run, Runs

Pass = Callable[[Sequence[InferenceCase]], Outcome]
_PASSES: Mapping[Mode, Pass] = {
    Mode.STATIC: static_runs,
    Mode.MAX_THROUGHPUT: max_throughput_runs,
    Mode.ONLINE: online_runs,
    Mode.DISAGGREGATED: disaggregated_runs,
}
TIMES = ("time_to_first_token_s", "time_per_output_token_s", "request_latency_s")
# The quantity whose published errors an interval is made of.
_JUDGED = {
    "time_to_first_token_s": "time_to_first_token",
    "time_per_output_token_s": "time_per_output_token",
    "request_latency_s": "throughput",
} | dict.fromkeys(RATES, "throughput")


@dataclass(frozen=True, kw_only=True)
class InferencePrediction:
    """What is predicted for one run, by quantity in the units of the tables.

    ``reason`` says why nothing is, else it is empty.
    """

    case: InferenceCase | None = None
    values: Mapping[str, float] = field(default_factory=dict)
    device_memory: float = float("nan")
    fits: bool = False
    basis: str = ""
    reason: str = ""


def predict_inference(
    runs: Runs, library: Library | None = None, progress: Progress | None = None
) -> list[InferencePrediction]:
    """A prediction for every row, in the order of the rows."""
    shelf = library or Library()
    found = [_placed(run, shelf) for run in runs.rows]
    groups: defaultdict[Hashable, list[int]] = defaultdict(list)
    for index, prediction in enumerate(found):
        if prediction.case is not None:
            groups[prediction.case.group].append(index)
    done = len(found) - sum(map(len, groups.values()))
    for indices in groups.values():
        cases = [case for index in indices if (case := found[index].case) is not None]
        for index, prediction in zip(indices, predict_inference_group(cases), strict=True):
            found[index] = prediction
        done += len(indices)
        if progress is not None:
            progress(done)
    return found


def predict_inference_group(cases: Sequence[InferenceCase]) -> list[InferencePrediction]:
    """Predictions for cases of one group, in their order."""
    with np.errstate(all="ignore"):
        outcome = _PASSES[cases[0].mode](cases)
    return [_prediction(case, outcome, index) for index, case in enumerate(cases)]


def inference_ranges(prediction: InferencePrediction) -> dict[str, Range]:
    """The predicted quantities by name, each with its 90 % interval."""
    case = prediction.case
    if case is None or prediction.reason:
        return {}
    found = {}
    for name, value in prediction.values.items():
        low, high = inference_interval(_JUDGED.get(name, "peak_memory"), case)
        if name in RATES:
            low, high = 1 / high, 1 / low if low else float("inf")
        found[name] = Range(value=value, low=value * low, high=value * high)
    found["out_of_memory"] = _out_of_memory(prediction, case)
    return found


def _out_of_memory(prediction: InferencePrediction, case: InferenceCase) -> Range:
    factors = inference_interval("peak_memory", case)
    out = [float(prediction.device_memory * f > case.gpu.allocatable_memory) for f in factors]
    value = float(not prediction.fits)
    return Range(value=value, low=min(out[0], value), high=max(out[1], value))


def _placed(run: Run, library: Library) -> InferencePrediction:
    try:
        return InferencePrediction(case=inference_case(run, library))
    except NotPredicted as reason:
        return InferencePrediction(reason=str(reason))


def _prediction(case: InferenceCase, outcome: Outcome, index: int) -> InferencePrediction:
    values = {name: float(column[index]) for name, column in outcome.quantities.items()}
    memory = float(outcome.memory[index])
    good = all(np.isfinite(value) and value > 0 for value in (*values.values(), memory))
    if not good:
        reason = "the numbers of the row are beyond what can be computed"
        return InferencePrediction(case=case, reason=reason)
    reported = memory - (float(outcome.reserved[index]) if case.tensors_only else 0.0)
    return InferencePrediction(
        case=case,
        values=values | {"peak_memory_gib": reported / GIB},
        device_memory=memory,
        fits=bool(outcome.fits[index]),
        basis=inference_basis(case),
    )
