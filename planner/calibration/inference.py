"""Measured runs of inference as what an engine profile is fitted to."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from planner.arrays import FloatArray
from planner.calibration.parameters import Parameter, chosen_parameters
from planner.errors import CalibrationError
from planner.specs.engine import EngineExecution, EngineProfile
from planner.validation.inference.cases import InferenceCase, Mode, inference_case
from planner.validation.inference.compare import THROUGHPUT
from planner.validation.inference.outcome import RATES
from planner.validation.inference.predict import predict_inference_group
from planner.validation.inference.residuals import publisher
from planner.validation.library import Library
from planner.validation.models import NotPredicted
from planner.validation.runs import Run, Runs

_TOKEN, _FIRST = "time_per_output_token_s", "time_to_first_token_s"
# Queues make the time to first token scatter: it counts less than what does not queue.
_FIRST_WEIGHT = 0.1
# What a row is predicted as without a number is taken to be off by this factor.
_WORST = 20.0


@dataclass(frozen=True, kw_only=True)
class MeasuredInference:
    """A case, one of its measured quantities, how much it counts, and who published it."""

    case: InferenceCase
    line: int
    publisher: str
    quantity: str
    value: float
    weight: float

    def tells(self, parameter: Parameter) -> bool:
        """Whether it measured what the parameter is about: a time."""
        return not parameter.is_of_memory


def measured_inference(
    runs: Runs, library: Library, profile: str | None, disaggregated: bool = False
) -> tuple[str, list[MeasuredInference]]:
    """What was measured with one engine profile, and the profile's name.

    Without a name it is the profile most rows belong to. Rows of disaggregated serving are
    left out unless they are asked for: two pools explain them.

    Raises
    ------
    CalibrationError
        No row can be used.
    """
    read = (one for run in runs.rows for one in _measured(run, library))
    found = [one for one in read if disaggregated or one.case.mode is not Mode.DISAGGREGATED]
    counts = Counter(one.case.rule.profile for one in found)
    if profile is None and counts:
        profile = counts.most_common(1)[0][0]
    mine = [one for one in found if one.case.rule.profile == profile]
    if not mine:
        raise CalibrationError(
            f"None of {len(runs.rows)} rows has a measured time or throughput and can be "
            f"predicted with {profile or 'any profile'}: `planner validate` says why, row by row."
        )
    return str(profile), mine


def inference_log_ratios(
    measured: Sequence[MeasuredInference], values: Mapping[Parameter, float]
) -> FloatArray:
    """Logarithms of predicted over measured time, and NaN for memory: shape ``(2, rows)``."""
    groups: defaultdict[Hashable, list[int]] = defaultdict(list)
    for index, one in enumerate(measured):
        groups[one.case.group].append(index)
    ratios = np.full((2, len(measured)), np.nan)
    for indices in groups.values():
        engine = _engine(measured[indices[0]].case, values)
        cases = [replace(measured[index].case, engine=engine) for index in indices]
        for index, prediction in zip(indices, predict_inference_group(cases), strict=True):
            one = measured[index]
            ratio = prediction.values.get(one.quantity, _WORST * one.value) / one.value
            ratios[0, index] = -np.log(ratio) if one.quantity in RATES else np.log(ratio)
    return ratios


def engine_parameters(engine: EngineProfile, names: Iterable[str] | None) -> list[Parameter]:
    """The named parameters of an engine profile, or all that can be fitted.

    Raises
    ------
    CalibrationError
        A name is unknown, or the parameter is zero and has no scale.
    """
    found = {p.label: p for p in _all_of(engine)}
    return chosen_parameters(found, engine.name, names)


def thinned(measured: Sequence[MeasuredInference], most: int) -> list[MeasuredInference]:
    """The measurements of at most so many setups, spread evenly over all in their order."""
    groups = list(dict.fromkeys(one.case.setup for one in measured))
    step = max(len(groups) / most, 1.0)
    kept = {groups[int(number * step)] for number in range(int(len(groups) / step))}
    return [one for one in measured if one.case.setup in kept]


def _measured(run: Run, library: Library) -> Iterator[MeasuredInference]:
    try:
        case = inference_case(run, library)
    except NotPredicted:
        return
    for quantity, weight in _quantities(run):
        value = run.number(f"measured_{quantity}")
        if value:
            yield MeasuredInference(
                case=case,
                line=run.line,
                publisher=publisher(run),
                quantity=quantity,
                value=value,
                weight=weight,
            )


def _quantities(run: Run) -> Iterator[tuple[str, float]]:
    """What a run tells: tokens or, without them, throughput; and the first token."""
    given = [name for name in (_TOKEN, *THROUGHPUT) if run.number(f"measured_{name}")]
    if given:
        yield given[0], 1.0
    yield _FIRST, _FIRST_WEIGHT if given else 1.0


def _engine(case: InferenceCase, values: Mapping[Parameter, float]) -> EngineProfile:
    """The engine of a case under other values; heavier weights keep reading slower."""
    tables: defaultdict[str, dict[str, float]] = defaultdict(dict)
    for parameter, value in values.items():
        is_scaled = parameter.name == "weight_bandwidth_fraction"
        set_to = min(value / case.weight_scale, 2.0) if is_scaled else value
        tables[parameter.owner][parameter.name] = set_to
    changed = {table: _changed(getattr(case.engine, table), own) for table, own in tables.items()}
    return replace(case.engine, **changed)


def _changed(table: Any, values: Mapping[str, float]) -> Any:
    """A table of a profile with other numbers: named ones, or one per architecture."""
    return {**table, **values} if isinstance(table, Mapping) else replace(table, **values)


def _all_of(engine: EngineProfile) -> Iterator[Parameter]:
    for field in fields(EngineExecution):
        value = getattr(engine.execution, field.name)
        if isinstance(value, float):
            yield Parameter(owner="execution", name=field.name, shipped=value)
