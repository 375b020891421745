"""Errors of the fitted engine profiles on runs their parameters were not fitted to.

Repeats each fit of fit_engines.py without some of its runs, whole publishers where an engine was
fitted to several, else whole models, in five groups at most; of a publisher of nearly all runs and
of the serving benchmarks, which are one publisher, models. Each fit predicts all shipped runs of
what it did not see, whether they are marked for calibration or not. Changes no file:

    python scripts/cross_validate_engines.py [profile ...]
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
from cross_validate import FOLDS
from fit_engines import STEPS, EngineStep, fitted, measurements

from planner.arrays import FloatArray
from planner.calibration.inference import MeasuredInference, inference_log_ratios, thinned
from planner.validation.inference.residuals import COLLECTION

_NEARLY_ALL = 0.9
_MEASURED = {"time_to_first_token_s": "first token", "time_per_output_token_s": "each token"}


def main() -> None:
    """Print errors of the named steps, or of all, by kind of run and what it measured."""
    profiles = [step.profile for step in STEPS]
    named = sys.argv[1:] or profiles
    if unknown := sorted(set(named) - set(profiles)):
        sys.exit(f"Nothing is fitted of {', '.join(unknown)}, only of {', '.join(profiles)}.")
    print(f"{'profile':21} {'runs':25} {'of':12} {'rows':>5} {'in-sample':>10} {'MAPE':>7} median")
    for step in (step for step in STEPS if step.profile in named):
        known, asked = measurements(step), measurements(step, calibrating=False)
        inside, outside = _errors(step, known, asked), _left_out(step, known, asked)
        kinds = [(row.case.mode.value, _MEASURED.get(row.quantity, "rate")) for row in asked]
        for kind in sorted(set(kinds)):
            mine = [i for i, own in enumerate(kinds) if own == kind and not np.isnan(outside[i])]
            if not mine:
                continue
            print(
                f"{step.profile:21} {kind[0]:25} {kind[1]:12} {len(mine):5} "
                f"{np.median(inside[mine]):10.1%} {outside[mine].mean():7.1%} "
                f"{np.median(outside[mine]):6.1%}",
                flush=True,
            )


def _left_out(
    step: EngineStep, known: Sequence[MeasuredInference], asked: Sequence[MeasuredInference]
) -> FloatArray:
    """Absolute errors on ``asked``, each by a fit to the rows of ``known`` in other folds.

    NaN where there are none.
    """
    fold_of = folds(known, asked)
    errors = np.full(len(asked), np.nan)
    for fold in sorted({fold_of(row) for row in asked}):
        mine = [index for index, row in enumerate(asked) if fold_of(row) == fold]
        others = [row for row in known if fold_of(row) != fold]
        if others:
            errors[mine] = _errors(step, others, [asked[index] for index in mine])
    return errors


def folds(
    known: Sequence[MeasuredInference], asked: Sequence[MeasuredInference]
) -> Callable[[MeasuredInference], str]:
    """What names the fold of a row: its publisher, or one of five groups of models."""
    publishers = Counter(row.publisher for row in known)
    is_alone = max(publishers.values()) >= _NEARLY_ALL * len(known)
    seen = sorted({row.case.model.name for row in known})
    models = [*seen, *sorted({row.case.model.name for row in asked} - set(seen))]

    def name(row: MeasuredInference) -> str:
        if is_alone or row.publisher == COLLECTION:
            return str(models.index(row.case.model.name) % FOLDS)
        return row.publisher

    return name


def _errors(
    step: EngineStep, known: Sequence[MeasuredInference], asked: Sequence[MeasuredInference]
) -> FloatArray:
    """Absolute errors of time on ``asked`` of the step fitted to ``known``, as fractions."""
    values = fitted(step, thinned(known, step.most_settings))
    return np.abs(np.expm1(inference_log_ratios(asked, values)[0]))


if __name__ == "__main__":
    main()
