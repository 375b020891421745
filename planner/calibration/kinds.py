"""What the two kinds of tables register for fits of their profiles."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from planner.base.records import record
from planner.calibration.parameters import SECTIONS, Parameter
from planner.specs.engine import EngineExecution, EngineProfile
from planner.specs.framework import FrameworkProfile
from planner.specs.gpu import GpuSpec
from planner.specs.paths import SpecKind
from planner.validation.columns import TableKind
from planner.validation.inference.cases import InferenceCase, Mode
from planner.validation.inference.evaluate import predict_inference_group
from planner.validation.kinds import THROUGHPUT
from planner.validation.library import Library
from planner.validation.prediction import MEMORY, Case, Prediction
from planner.validation.runs import Run
from planner.validation.training.cases import TrainingCase
from planner.validation.training.evaluate import predict_training_group


def parameters_of(profile: FrameworkProfile | EngineProfile) -> Iterator[Parameter]:
    """The numbers of a profile that can be fitted."""
    is_engine = isinstance(profile, EngineProfile)
    sections = {"execution": EngineExecution} if is_engine else SECTIONS
    for owner, kind in sections.items():
        section = getattr(profile, owner)
        for field in fields(kind):
            value = getattr(section, field.name)
            if isinstance(value, float):
                yield Parameter(owner=owner, name=field.name, shipped=value)


def with_values(
    cases: Sequence[TrainingCase], values: Mapping[Parameter, float]
) -> list[TrainingCase]:
    """The cases under other values of parameters, but those that are not of its GPU or loss."""
    known: dict[tuple[int, bool], FrameworkProfile] = {}
    found = []
    for case in cases:
        key = (id(case.framework), case.own_loss)
        if key not in known:
            known[key] = _framework(case, values)
        found.append(replace(case, framework=known[key], gpu=_gpu(case, values)))
    return found


def _framework(case: TrainingCase, values: Mapping[Parameter, float]) -> FrameworkProfile:
    sections: defaultdict[str, dict[str, float]] = defaultdict(dict)
    for parameter, value in values.items():
        is_own = case.own_loss and parameter.label == "memory.per_logit"
        if parameter.owner in SECTIONS and not is_own:
            sections[parameter.owner][parameter.name] = value
    changed: dict[str, Any] = {
        owner: replace(getattr(case.framework, owner), **own) for owner, own in sections.items()
    }
    return replace(case.framework, **changed)


def _gpu(case: TrainingCase, values: Mapping[Parameter, float]) -> GpuSpec:
    own: dict[str, Any] = {
        parameter.name: value
        for parameter, value in values.items()
        if parameter.owner not in SECTIONS and parameter.owner == case.gpu_class
    }
    return replace(case.gpu, efficiency=replace(case.gpu.efficiency, **own)) if own else case.gpu


def step_and_memory(run: Run, case: TrainingCase) -> Iterator[tuple[str, float, float]]:
    """The measured step time [s], from the throughput where only that is given, and memory."""
    step_time, memory = _step_time(run, case), run.number(f"measured_{MEMORY}")
    if step_time:
        yield "step_time_s", step_time, 1.0
    if memory:
        yield MEMORY, memory, 1.0


def _step_time(run: Run, case: TrainingCase) -> float | None:
    if run.number("measured_step_time_s"):
        return run.number("measured_step_time_s")
    batch = run.number("global_batch_size")
    per_gpu = run.number("measured_tokens_per_s_per_gpu")
    total = run.number("measured_tokens_per_s") or (per_gpu or 0.0) * case.num_gpus
    return batch * case.sequence_length / total if batch and total else None


_TOKEN, _FIRST = "time_per_output_token_s", "time_to_first_token_s"
# Queues make the time to first token scatter: it counts less than what does not queue.
_FIRST_WEIGHT = 0.1


def with_engine_values(
    cases: Sequence[InferenceCase], values: Mapping[Parameter, float]
) -> list[InferenceCase]:
    """Cases of one group under other values of parameters."""
    engine = _engine(cases[0], values)
    return [replace(case, engine=engine) for case in cases]


def request_times(run: Run, case: InferenceCase) -> Iterator[tuple[str, float, float]]:
    """The time of a token or, without it, throughput; and that of the first token."""
    measured = {name: run.number(f"measured_{name}") for name in (_TOKEN, *THROUGHPUT, _FIRST)}
    given = [name for name in (_TOKEN, *THROUGHPUT) if measured[name]]
    for name, weight in (
        (given[0] if given else "", 1.0),
        (_FIRST, _FIRST_WEIGHT if given else 1.0),
    ):
        if value := measured.get(name):
            yield name, value, weight


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


Measurement = tuple[str, float, float]
"""A quantity, its value in the unit of the tables, and its weight beside 1 of others."""


@record(kw_only=True)
class Calibrated:
    """How profiles of a kind are fitted to tables of its runs.

    ``is_usable``: the profile alone explains a case. ``with_values``: cases of one group under
    other values of parameters. ``worst``: what a measurement without a prediction is taken to
    be off by. ``option`` takes the fitted profile on the command line, ``time`` names what it
    is fitted to.
    """

    profiles: SpecKind
    load: Callable[[Library, str], FrameworkProfile | EngineProfile]
    is_usable: Callable[[Case], bool]
    measurements: Callable[[Run, Any], Iterator[Measurement]]
    with_values: Callable[[Sequence[Any], Mapping[Parameter, float]], Sequence[Any]]
    predict_group: Callable[[Sequence[Any]], Iterable[Prediction]]
    worst: float
    option: str
    time: str


CALIBRATED = {
    TableKind.TRAINING: Calibrated(
        profiles=SpecKind.FRAMEWORKS,
        load=Library.framework,
        is_usable=lambda case: True,
        measurements=step_and_memory,
        with_values=with_values,
        predict_group=predict_training_group,
        worst=math.nan,
        option="--profile",
        time="step time",
    ),
    TableKind.INFERENCE: Calibrated(
        profiles=SpecKind.ENGINES,
        load=Library.engine,
        is_usable=lambda case: getattr(case, "mode", None) is not Mode.DISAGGREGATED,
        measurements=request_times,
        with_values=with_engine_values,
        predict_group=predict_inference_group,
        worst=20.0,
        option="--engine",
        time="times",
    ),
}
