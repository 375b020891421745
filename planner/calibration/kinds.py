"""What the two kinds of tables register for fits of their profiles."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from planner.base.records import record
from planner.calibration.inference import engine_parameters, request_times, with_engine_values
from planner.calibration.parameters import Parameter
from planner.calibration.training import framework_parameters, step_and_memory, with_values
from planner.specs.paths import SpecKind
from planner.validation.columns import TableKind
from planner.validation.inference.cases import Mode
from planner.validation.inference.evaluate import predict_inference_group
from planner.validation.library import Library
from planner.validation.prediction import Prediction
from planner.validation.runs import Run
from planner.validation.training.evaluate import predict_training_group

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
    load: Callable[[Library, str], Any]
    parameters: Callable[[Any], Iterable[Parameter]]
    is_usable: Callable[[Any], bool]
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
        parameters=framework_parameters,
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
        parameters=engine_parameters,
        is_usable=lambda case: case.mode is not Mode.DISAGGREGATED,
        measurements=request_times,
        with_values=with_engine_values,
        predict_group=predict_inference_group,
        worst=20.0,
        option="--engine",
        time="times",
    ),
}
