"""Robust fit of parameters with priors to measured runs; undetermined parameters are refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from scipy.optimize import least_squares

from planner.base.arrays import FloatArray
from planner.base.records import record
from planner.errors import CalibrationError
from planner.validation.accuracy import Progress
from planner.validation.calibration import MeasuredQuantity, Parameter, log_ratios

NOISE = 0.08
"""Standard deviation of log(measured / predicted) that no parameter can explain: the same
configurations were published again with 3 to 10 % difference."""
MEMORY_NOISE = 0.05
"""The same for memory: sources round, and sample the numbers of the driver."""
_LEAST_DETERMINED = 0.15
_MOST_FOLDS = 10
# Tolerance of steps [standard deviations of the prior]: of the fit, whose values have four digits;
# of the fits that choose the parameters or leave a fold out, whose errors have three.
_TOLERANCE = 1e-5
_COARSE = 3e-3
# Of slopes, in the same unit.
_STEP = 1e-5
_INSIDE = 1e-6
_EXACT = 1e-12
_MOST_EVALUATIONS = 100


@record(kw_only=True)
class FittedParameter:
    """A parameter after the fit.

    ``determined`` is the share of the prior's width that the data removed: 0 if they do not
    depend on the parameter. ``refused`` parameters keep their shipped value.
    """

    parameter: Parameter
    value: float
    determined: float
    refused: bool


@record(kw_only=True)
class FitErrors:
    """Mean absolute errors of one quantity as fractions, on its measurements.

    ``left_out`` is the error of rows that the parameters were not fitted to, by leaving out one
    fold at a time.
    """

    measurements: int
    before: float
    after: float
    left_out: float


@record(kw_only=True)
class Fit:
    """Fitted parameters, and errors of the quantities that some row measured.

    ``spread``: root mean square of the logarithm of predicted over measured, of rows with full
    weight in the fold that was left out; at least the noise. None: too few rows to leave any out.
    """

    fitted: tuple[FittedParameter, ...]
    runs: int
    folds: int
    time: FitErrors | None
    memory: FitErrors | None
    spread: float | None = None

    @property
    def values(self) -> dict[Parameter, float]:
        """The values of the parameters that were not refused."""
        return {outcome.parameter: outcome.value for outcome in self.fitted if not outcome.refused}


def number_of_fits(measured: Sequence[MeasuredQuantity]) -> int:
    """Number of fits that `fit` reports: one to all runs, and one without each fold of them."""
    return 1 + min(len({quantity.line for quantity in measured}), _MOST_FOLDS)


def fit(
    measured: Sequence[MeasuredQuantity],
    parameters: Sequence[Parameter],
    progress: Progress | None = None,
) -> Fit:
    """Fit ``parameters`` to measurements, without those that the data do not determine.

    ``progress`` gets the number of finished fits, of `number_of_fits`.
    Raises CalibrationError if there is no row to fit to, or the data determine no parameter.
    """
    if not measured:
        raise CalibrationError("No row measured anything and can be predicted.")
    moving = _moving(measured, [p for p in parameters if any(row.measures(p) for row in measured)])
    start, widths = _fitted(measured, moving, tolerance=_COARSE)
    determined = [p for p in moving if 1 - widths[p] >= _LEAST_DETERMINED]
    if not determined:
        names = ", ".join(p.label for p in parameters)
        raise CalibrationError(f"These {len(measured)} measurements do not determine {names}.")
    points, narrower = _fitted(measured, determined, [start[p] for p in determined])
    widths |= narrower
    values = {p: p.value(x) for p, x in points.items()}
    report_progress = progress or _ignore_progress
    report_progress(1)
    after = log_ratios(measured, values)
    left_out, folds = _left_out(measured, points, after, report_progress)
    kinds = (log_ratios(measured, {}), after, left_out)
    time, memory = (_errors(*(kind[index] for kind in kinds)) for index in (0, 1))
    return Fit(
        fitted=tuple(_outcome(p, values, widths) for p in parameters),
        runs=len({quantity.line for quantity in measured}),
        folds=folds,
        time=time,
        memory=memory,
        spread=_spread(measured, left_out[0]),
    )


def _spread(measured: Sequence[MeasuredQuantity], left_out: FloatArray) -> float | None:
    is_full_weight = np.array([quantity.weight >= 1 for quantity in measured]) & ~np.isnan(left_out)
    if not is_full_weight.any():
        return None
    return max(float(np.sqrt(np.mean(left_out[is_full_weight] ** 2))), NOISE)


def _ignore_progress(done: int) -> None:
    """Do nothing: the caller wants no progress."""


def _outcome(
    p: Parameter, values: Mapping[Parameter, float], widths: Mapping[Parameter, float]
) -> FittedParameter:
    """Return the fitted value of a parameter and how far data determine it (0 to 1)."""
    return FittedParameter(
        parameter=p,
        value=values.get(p, p.shipped),
        determined=float(1 - widths.get(p, 1.0)),
        refused=p not in values,
    )


def _moving(
    measured: Sequence[MeasuredQuantity], parameters: Sequence[Parameter]
) -> list[Parameter]:
    """Return the parameters whose change alters a prediction near the built-in values."""
    shipped = {p: p.shipped for p in parameters}
    before = log_ratios(measured, shipped)
    return [
        p
        for p in parameters
        if not np.array_equal(
            log_ratios(measured, shipped | {p: p.value(_inside(p, _STEP))}), before, equal_nan=True
        )
    ]


def _inside(p: Parameter, step: float) -> float:
    """A point one step from the shipped value, on the side where the scale continues."""
    low, high = p.bounds
    return step if step < high else max(-step, low)


def _fitted(
    measured: Sequence[MeasuredQuantity],
    parameters: Sequence[Parameter],
    start: Sequence[float] | None = None,
    tolerance: float = _TOLERANCE,
) -> tuple[dict[Parameter, float], dict[Parameter, float]]:
    """Return best points on the parameters' scales, and standard deviations relative to priors."""
    if not parameters:
        return {}, {}
    best, spread = best_point(measured, parameters, start=start, tolerance=tolerance)
    points = dict(zip(parameters, map(float, best), strict=True))
    return points, dict(zip(parameters, spread, strict=True))


def best_point(
    measured: Sequence[MeasuredQuantity],
    parameters: Sequence[Parameter],
    evaluations: int | None = None,
    start: Sequence[float] | None = None,
    tolerance: float = _TOLERANCE,
    slopes: FloatArray | None = None,
    ratios: FloatArray | None = None,
) -> tuple[FloatArray, FloatArray]:
    """Return the best point on the parameters' scales, and its standard deviations there.

    The prior has standard deviations of 1. The search begins at the built-in values or at
    ``start``, and moves to the best point of a linear model in each step. The search ends with a
    step shorter than ``tolerance``, or after this number of ``evaluations``, not counting those for
    slopes. ``slopes`` are fixed slopes of `log_ratios`, shape ``(2, measurements, parameters)``;
    None: computed. ``ratios`` are the `log_ratios` at the start, shape ``(2, measurements)``; None:
    computed.
    """
    low, high = np.array([p.bounds for p in parameters]).T
    noise = np.array([[NOISE], [MEMORY_NOISE]])
    weights = np.broadcast_to(np.sqrt([row.weight for row in measured]), (2, len(measured)))

    def ratios_at(x: FloatArray) -> FloatArray:
        return log_ratios(
            measured, {p: p.value(point) for p, point in zip(parameters, x, strict=True)}
        )

    first = np.zeros(len(parameters)) if start is None else np.asarray(start)
    x = np.clip(first, low + _INSIDE, high - _INSIDE)
    here = ratios_at(x) if ratios is None else ratios
    present = ~np.isnan(here)
    line = _Line(x=x, z=(here / noise)[present], slopes=np.zeros(()), weights=weights[present])
    evaluations_left = _MOST_EVALUATIONS if evaluations is None else evaluations - 1
    while True:
        new_slopes = (
            _slopes(measured, dict(zip(parameters, line.x, strict=True)), here)
            if slopes is None
            else slopes
        )
        line = replace(line, slopes=(new_slopes / noise[..., None])[present])
        step = line.best(low, high) - line.x
        candidate, there = line, here
        while evaluations_left > 0 and np.max(np.abs(step)) >= tolerance / 2:
            evaluations_left -= 1
            there = ratios_at(line.x + step)
            candidate = replace(line, x=line.x + step, z=(there / noise)[present])
            if candidate.loss <= line.loss:
                break
            candidate, there, step = line, here, step / 2
        size = np.max(np.abs(candidate.x - line.x))
        line, here = candidate, there
        if size < tolerance or evaluations_left <= 0:
            break
    jacobian = line.jacobian(line.x)
    return line.x, np.sqrt(np.diag(np.linalg.inv(jacobian.T @ jacobian)))


@record(kw_only=True)
class _Line:
    """Linear model of the ratios over their noise around a point.

    ``z`` and ``weights`` have shape ``(measurements,)``, ``slopes`` ``(measurements, parameters)``.
    """

    x: FloatArray
    z: FloatArray
    slopes: FloatArray
    weights: FloatArray

    @property
    def loss(self) -> float:
        """The objective that the fit minimizes; NaN if a prediction is missing."""
        return float(np.sum((_robust(self.z) * self.weights) ** 2) + np.sum(self.x**2))

    def best(self, low: FloatArray, high: FloatArray) -> FloatArray:
        """Return the best point of the linear model within bounds, without new predictions."""
        solution = least_squares(
            lambda x: np.concatenate([_robust(self._at(x)) * self.weights, x]),
            np.clip(self.x, low + _INSIDE, high - _INSIDE),
            jac=self.jacobian,
            bounds=(low, high),
            ftol=_EXACT,
            xtol=_EXACT,
            gtol=_EXACT,
        )
        return np.asarray(solution.x)

    def jacobian(self, x: FloatArray) -> FloatArray:
        """Return the slopes of the residuals, and below them those of the priors."""
        root = np.sqrt(1 + self._at(x) ** 2)
        # The derivative of `_robust`.
        each = (np.sqrt((root + 1) / 2) / root * self.weights)[:, None] * self.slopes
        return np.concatenate([each, np.eye(len(x))])

    def _at(self, x: FloatArray) -> FloatArray:
        return np.asarray(self.z + self.slopes @ (x - self.x))


def _robust(z: FloatArray) -> FloatArray:
    """Residuals whose square is the soft L1 loss: outliers pull like a constant force."""
    return np.asarray(z * np.sqrt(2 / (np.sqrt(1 + z**2) + 1)))


def _slopes(
    measured: Sequence[MeasuredQuantity], points: Mapping[Parameter, float], here: FloatArray
) -> FloatArray:
    """Return slopes of `log_ratios` by parameter, shape ``(2, measurements, parameters)``."""
    values = {p: p.value(x) for p, x in points.items()}
    columns = []
    for p, x in points.items():
        step = _STEP if x + _STEP < p.bounds[1] else -_STEP
        columns.append((log_ratios(measured, values | {p: p.value(x + step)}) - here) / step)
    return np.stack(columns, axis=-1)


def _left_out(
    measured: Sequence[MeasuredQuantity],
    points: Mapping[Parameter, float],
    ratios: FloatArray,
    report_progress: Progress,
) -> tuple[FloatArray, int]:
    """Return the log ratios of each measurement, fitted to the other folds of runs.

    ``ratios`` are the log ratios at ``points``, the fit to all runs, from which each fit to the
    other folds starts.
    """
    parameters, start = list(points), list(points.values())
    runs = {line: number for number, line in enumerate(dict.fromkeys(m.line for m in measured))}
    folds = min(len(runs), _MOST_FOLDS)
    fold_of = [runs[m.line] % max(folds, 1) for m in measured]
    left_out_ratios = np.full((2, len(measured)), np.nan)
    if folds < 2 or not parameters:
        return left_out_ratios, folds
    slopes = _slopes(measured, points, ratios)
    for fold in range(folds):
        held_out = [index for index, its in enumerate(fold_of) if its == fold]
        rest = [index for index, its in enumerate(fold_of) if its != fold]
        best, _ = best_point(
            [measured[index] for index in rest],
            parameters,
            start=start,
            tolerance=_COARSE,
            slopes=slopes[:, rest],
            ratios=ratios[:, rest],
        )
        values = {p: p.value(x) for p, x in zip(parameters, best, strict=True)}
        left_out_ratios[:, held_out] = log_ratios([measured[index] for index in held_out], values)
        report_progress(fold + 2)
    return left_out_ratios, folds


def _errors(before: FloatArray, after: FloatArray, left_out: FloatArray) -> FitErrors | None:
    """Return mean relative errors before, after and in cross-validation; None: no prediction."""
    is_predicted = ~np.isnan(before)
    if not is_predicted.any():
        return None

    def mean(ratios: FloatArray) -> float:
        return float(np.mean(np.abs(np.expm1(ratios[is_predicted]))))

    return FitErrors(
        measurements=int(is_predicted.sum()),
        before=mean(before),
        after=mean(after),
        left_out=mean(left_out),
    )
