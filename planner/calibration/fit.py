"""Fit parameters to measured step times: robust, with priors, refusing what is not told."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np
from scipy.optimize import least_squares

from planner.arrays import FloatArray
from planner.calibration.parameters import Parameter, with_values
from planner.errors import CalibrationError
from planner.validation.cases import Case
from planner.validation.predict import predict_group

NOISE = 0.08
"""Standard deviation of log(measured / predicted) that no parameter can explain: the same
configurations were published again with 3 to 10 % difference."""
_LEAST_DETERMINED = 0.15
_MOST_FOLDS = 10


Row = TypeVar("Row", bound="Weighted")


class Weighted(Protocol):
    """A measurement and how much it counts."""

    @property
    def weight(self) -> float:
        """Its share of the loss, beside 1 of others."""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A case and its measured step time [s]."""

    case: Case
    step_time: float
    weight: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Fitted:
    """A parameter after the fit.

    ``determined`` is the share of the prior's width that the data took away: 0 if they
    say nothing. ``refused`` parameters keep their shipped value.
    """

    parameter: Parameter
    value: float
    determined: float
    refused: bool


@dataclass(frozen=True, kw_only=True)
class Fit:
    """Fitted parameters, and mean absolute errors as fractions.

    ``error_left_out`` is that of rows the parameters were not fitted to, by leaving out
    one fold at a time.
    """

    fitted: tuple[Fitted, ...]
    rows: int
    folds: int
    error_before: float
    error_after: float
    error_left_out: float

    @property
    def values(self) -> dict[Parameter, float]:
        """The values of the parameters that were not refused."""
        return {one.parameter: one.value for one in self.fitted if not one.refused}


Ratios = Callable[[Sequence[Row], Mapping[Parameter, float]], FloatArray]


def fit(measured: Sequence[Row], parameters: Sequence[Parameter], ratios: Ratios[Row]) -> Fit:
    """Fit ``parameters``, leaving out what the data cannot tell.

    ``ratios`` gives the logarithms of predicted over measured under values of parameters.

    Raises
    ------
    CalibrationError
        There is no row to fit to, or the data tell nothing about any parameter.
    """
    if not measured:
        raise CalibrationError("No row has a measured time or throughput and can be predicted.")
    best, spread = best_point(measured, parameters, ratios)
    told = [
        p for p, width in zip(parameters, spread, strict=True) if 1 - width >= _LEAST_DETERMINED
    ]
    if not told:
        names = ", ".join(p.label for p in parameters)
        raise CalibrationError(f"These {len(measured)} rows tell nothing about {names}.")
    widths = dict(zip(parameters, spread, strict=True))
    if len(told) < len(parameters):
        best, spread = best_point(measured, told, ratios)
        widths |= dict(zip(told, spread, strict=True))
    values = {p: p.value(x) for p, x in zip(told, best, strict=True)}
    left_out, folds = _left_out(measured, told, ratios)
    return Fit(
        fitted=tuple(
            Fitted(
                parameter=p,
                value=values.get(p, p.shipped),
                determined=float(1 - widths[p]),
                refused=p not in values,
            )
            for p in parameters
        ),
        rows=len(measured),
        folds=folds,
        error_before=_error(ratios(measured, {})),
        error_after=_error(ratios(measured, values)),
        error_left_out=_error(left_out),
    )


def best_point(
    measured: Sequence[Row], parameters: Sequence[Parameter], ratios: Ratios[Row]
) -> tuple[FloatArray, FloatArray]:
    """The best point on the parameters' scales, and its standard deviations there.

    The prior's are 1: what is left of them is what the data do not tell.
    """
    low, high = np.array([p.bounds for p in parameters]).T
    start = np.clip(np.zeros(len(parameters)), low + 1e-6, high - 1e-6)
    weights = np.sqrt([row.weight for row in measured])

    def residuals(x: FloatArray) -> FloatArray:
        values = {p: p.value(point) for p, point in zip(parameters, x, strict=True)}
        return np.concatenate([_robust(ratios(measured, values) / NOISE) * weights, x])

    found = least_squares(residuals, start, bounds=(low, high), diff_step=1e-3, x_scale=1.0)
    covariance = np.linalg.inv(found.jac.T @ found.jac)
    return np.asarray(found.x), np.sqrt(np.diag(covariance))


def _robust(z: FloatArray) -> FloatArray:
    """Residuals whose square is the soft L1 loss: outliers pull like a constant force."""
    return np.asarray(np.sign(z) * np.sqrt(2 * (np.sqrt(1 + z**2) - 1)))


def log_ratios(measured: Sequence[Measured], values: Mapping[Parameter, float]) -> FloatArray:
    """Logarithm of predicted over measured step time, row by row."""
    groups: defaultdict[Hashable, list[int]] = defaultdict(list)
    for index, row in enumerate(measured):
        groups[row.case.group].append(index)
    ratios = np.zeros(len(measured))
    for indices in groups.values():
        cases = [with_values(measured[index].case, values) for index in indices]
        for index, prediction in zip(indices, predict_group(cases), strict=True):
            ratios[index] = np.log(prediction.step_time / measured[index].step_time)
    return ratios


def _left_out(
    measured: Sequence[Row], parameters: Sequence[Parameter], ratios: Ratios[Row]
) -> tuple[FloatArray, int]:
    """Log ratios of each row with parameters fitted to the other folds."""
    folds = min(len(measured), _MOST_FOLDS)
    if folds < 2:
        return np.full(1, np.nan), folds
    found = np.zeros(len(measured))
    for fold in range(folds):
        mine = list(range(fold, len(measured), folds))
        others = [row for index, row in enumerate(measured) if index % folds != fold]
        best, _ = best_point(others, parameters, ratios)
        values = {p: p.value(x) for p, x in zip(parameters, best, strict=True)}
        found[mine] = ratios([measured[index] for index in mine], values)
    return found, folds


def _error(log_ratios: FloatArray) -> float:
    return float(np.mean(np.abs(np.expm1(log_ratios))))
