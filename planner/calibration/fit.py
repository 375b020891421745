"""Fit parameters to measured runs: robust, with priors, refusing what is not told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import least_squares

from planner.arrays import FloatArray
from planner.calibration.measured import Measured, log_ratios
from planner.calibration.parameters import Parameter
from planner.errors import CalibrationError
from planner.validation.predict import Progress

NOISE = 0.08
"""Standard deviation of log(measured / predicted) that no parameter can explain: the same
configurations were published again with 3 to 10 % difference."""
MEMORY_NOISE = 0.05
"""The same of memory: sources round, and sample what the driver says."""
_LEAST_DETERMINED = 0.15
_MOST_FOLDS = 10


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
class Errors:
    """Mean absolute errors of one quantity as fractions, on its measurements.

    ``left_out`` is that of rows the parameters were not fitted to, by leaving out one fold
    at a time.
    """

    measurements: int
    before: float
    after: float
    left_out: float


@dataclass(frozen=True, kw_only=True)
class Fit:
    """Fitted parameters, and errors of the quantities that some row measured."""

    fitted: tuple[Fitted, ...]
    runs: int
    folds: int
    time: Errors | None
    memory: Errors | None

    @property
    def values(self) -> dict[Parameter, float]:
        """The values of the parameters that were not refused."""
        return {one.parameter: one.value for one in self.fitted if not one.refused}


def number_of_fits(measured: Sequence[Measured]) -> int:
    """Fits that `fit` tells the end of: one to all runs, and one without each fold of them."""
    return 1 + min(len({one.line for one in measured}), _MOST_FOLDS)


def fit(
    measured: Sequence[Measured],
    parameters: Sequence[Parameter],
    progress: Progress | None = None,
) -> Fit:
    """Fit ``parameters``, leaving out what the data cannot tell.

    ``progress`` is told how many of `number_of_fits` are done.

    Raises
    ------
    CalibrationError
        There is no row to fit to, or the data tell nothing about any parameter.
    """
    if not measured:
        raise CalibrationError("No row measured anything and can be predicted.")
    asked = [p for p in parameters if any(row.tells(p) for row in measured)]
    values, widths = _fitted(measured, asked)
    told = [p for p in asked if 1 - widths[p] >= _LEAST_DETERMINED]
    if not told:
        names = ", ".join(p.label for p in parameters)
        raise CalibrationError(f"These {len(measured)} measurements tell nothing about {names}.")
    if len(told) < len(asked):
        values, narrower = _fitted(measured, told)
        widths |= narrower
    tell = progress or _nobody
    tell(1)
    left_out, folds = _left_out(measured, list(values), tell)
    kinds = (log_ratios(measured, {}), log_ratios(measured, values), left_out)
    time, memory = (_errors(*(found[index] for found in kinds)) for index in (0, 1))
    return Fit(
        fitted=tuple(_outcome(p, values, widths) for p in parameters),
        runs=len({one.line for one in measured}),
        folds=folds,
        time=time,
        memory=memory,
    )


def _nobody(done: int) -> None:
    """Where nobody watches."""


def _outcome(
    p: Parameter, values: Mapping[Parameter, float], widths: Mapping[Parameter, float]
) -> Fitted:
    return Fitted(
        parameter=p,
        value=values.get(p, p.shipped),
        determined=float(1 - widths.get(p, 1.0)),
        refused=p not in values,
    )


def _fitted(
    measured: Sequence[Measured], parameters: Sequence[Parameter]
) -> tuple[dict[Parameter, float], dict[Parameter, float]]:
    """Values of the parameters, and what is left of the widths of their priors."""
    if not parameters:
        return {}, {}
    best, spread = best_point(measured, parameters)
    values = {p: p.value(x) for p, x in zip(parameters, best, strict=True)}
    return values, dict(zip(parameters, spread, strict=True))


def best_point(
    measured: Sequence[Measured],
    parameters: Sequence[Parameter],
    evaluations: int | None = None,
) -> tuple[FloatArray, FloatArray]:
    """The best point on the parameters' scales, and its standard deviations there.

    The prior's are 1: what is left of them is what the data do not tell. After so many
    ``evaluations``, beside those of the slopes, it stops.
    """
    low, high = np.array([p.bounds for p in parameters]).T
    start = np.clip(np.zeros(len(parameters)), low + 1e-6, high - 1e-6)
    noise = np.array([[NOISE], [MEMORY_NOISE]])
    weights = np.sqrt([row.weight for row in measured])

    def residuals(x: FloatArray) -> FloatArray:
        values = {p: p.value(point) for p, point in zip(parameters, x, strict=True)}
        found = log_ratios(measured, values)
        return np.concatenate([(_robust(found / noise) * weights)[~np.isnan(found)], x])

    found = least_squares(
        residuals, start, bounds=(low, high), diff_step=1e-3, x_scale=1.0, max_nfev=evaluations
    )
    covariance = np.linalg.inv(found.jac.T @ found.jac)
    return np.asarray(found.x), np.sqrt(np.diag(covariance))


def _robust(z: FloatArray) -> FloatArray:
    """Residuals whose square is the soft L1 loss: outliers pull like a constant force."""
    return np.asarray(np.sign(z) * np.sqrt(2 * (np.sqrt(1 + z**2) - 1)))


def _left_out(
    measured: Sequence[Measured], parameters: Sequence[Parameter], tell: Progress
) -> tuple[FloatArray, int]:
    """Log ratios of each measurement with parameters fitted to the other folds of runs."""
    runs = {line: number for number, line in enumerate(dict.fromkeys(m.line for m in measured))}
    folds = min(len(runs), _MOST_FOLDS)
    fold_of = [runs[m.line] % max(folds, 1) for m in measured]
    found = np.full((2, len(measured)), np.nan)
    if folds < 2 or not parameters:
        return found, folds
    for fold in range(folds):
        mine = [index for index, its in enumerate(fold_of) if its == fold]
        others = [row for row, its in zip(measured, fold_of, strict=True) if its != fold]
        best, _ = best_point(others, parameters)
        values = {p: p.value(x) for p, x in zip(parameters, best, strict=True)}
        found[:, mine] = log_ratios([measured[index] for index in mine], values)
        tell(fold + 2)
    return found, folds


def _errors(before: FloatArray, after: FloatArray, left_out: FloatArray) -> Errors | None:
    known = ~np.isnan(before)
    if not known.any():
        return None

    def mean(ratios: FloatArray) -> float:
        return float(np.mean(np.abs(np.expm1(ratios[known]))))

    return Errors(
        measurements=int(known.sum()),
        before=mean(before),
        after=mean(after),
        left_out=mean(left_out),
    )
