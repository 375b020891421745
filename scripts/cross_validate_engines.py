"""Errors of the fitted engine profiles on runs their parameters were not fitted to.

Repeats each fit of fit_engines.py without some of its runs, whole publishers where an engine was
fitted to several, else whole models, in five groups at most; of a publisher of nearly all runs and
of the serving benchmarks, which are one publisher, models. Each fit predicts all shipped runs of
what it did not see, whether they are marked for calibration or not. Profiles that nothing is fitted
of count as they are. Without names the totals of the targets follow. Changes no file:

    python scripts/cross_validate_engines.py [profile ...]
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from compile_runs import COLLECTION
from cross_validate import FOLDS
from fit_engines import STEPS, EngineStep, fitted, measurements, profiles_with_runs

from planner.base.arrays import FloatArray
from planner.validation.calibration import MeasuredQuantity, log_ratios, thinned
from planner.validation.inference.cases import Mode

_NEARLY_ALL = 0.9
_MEASURED = {"time_to_first_token_s": "first token", "time_per_output_token_s": "each token"}
_FAMILIES = ("tensorrt-llm", "vllm")
# The kind of a run, what it measured, its error in sample and left out.
Error = tuple[str, str, float, float]


def main() -> None:
    """Print errors of the named profiles, or of all, by kind of run and what it measured."""
    steps = {name: EngineStep(profile=name, start={}) for name in profiles_with_runs()}
    steps |= {step.profile: step for step in STEPS}
    named = sys.argv[1:] or list(steps)
    if unknown := sorted(set(named) - set(steps)):
        sys.exit(f"No runs are of {', '.join(unknown)}, only of {', '.join(steps)}.")
    print(f"{'profile':21} {'runs':25} {'of':12} {'rows':>5} {'in-sample':>10} {'MAPE':>7} median")
    totals: defaultdict[str, list[Error]] = defaultdict(list)
    for name in named:
        asked = measurements(steps[name], calibrating=False, disaggregated=True)
        inside = _errors(steps[name], [], asked)
        outside = _left_out(steps[name], asked) if steps[name].start else inside
        errors = [
            (row.case.mode.value, _MEASURED.get(row.quantity, "rate"), known, left_out)
            for row, known, left_out in zip(asked, inside, outside, strict=True)
        ]
        _print(name, errors)
        for row, error in zip(asked, errors, strict=True):
            for total in _totals(name, row):
                totals[total].append((total, *error[1:]))
    if not sys.argv[1:]:
        for total in sorted(totals):
            _print("all", totals[total])


def _totals(profile: str, row: MeasuredQuantity) -> Iterable[str]:
    if row.publisher == COLLECTION:
        yield "serving"
    if row.case.mode is Mode.STATIC:
        yield from (f"static, {name}" for name in _FAMILIES if profile.startswith(name))


def _print(profile: str, errors: Sequence[Error]) -> None:
    for kind in sorted({error[:2] for error in errors}):
        mine = np.array([error[2:] for error in errors if error[:2] == kind])
        known, left_out = mine[~np.isnan(mine[:, 1])].T
        if len(known):
            print(
                f"{profile:21} {kind[0]:25} {kind[1]:12} {len(known):5} {np.median(known):10.1%} "
                f"{left_out.mean():7.1%} {np.median(left_out):6.1%}",
                flush=True,
            )


def _left_out(step: EngineStep, asked: Sequence[MeasuredQuantity]) -> FloatArray:
    """Absolute errors on ``asked``, each by a fit to calibration rows of other folds.

    NaN where there are none.
    """
    known = measurements(step)
    fold_of = folds(known, asked)
    errors = np.full(len(asked), np.nan)
    for fold in sorted({fold_of(row) for row in asked}):
        mine = [index for index, row in enumerate(asked) if fold_of(row) == fold]
        others = [row for row in known if fold_of(row) != fold]
        if others:
            errors[mine] = _errors(step, others, [asked[index] for index in mine])
    return errors


def folds(
    known: Sequence[MeasuredQuantity], asked: Sequence[MeasuredQuantity]
) -> Callable[[MeasuredQuantity], str]:
    """What names the fold of a row: its publisher, or one of five groups of models."""
    publishers = Counter(row.publisher for row in known)
    is_alone = max(publishers.values()) >= _NEARLY_ALL * len(known)
    seen = sorted({row.case.model.name for row in known})
    models = [*seen, *sorted({row.case.model.name for row in asked} - set(seen))]

    def name(row: MeasuredQuantity) -> str:
        if is_alone or row.publisher == COLLECTION:
            return str(models.index(row.case.model.name) % FOLDS)
        return row.publisher

    return name


def _errors(
    step: EngineStep, known: Sequence[MeasuredQuantity], asked: Sequence[MeasuredQuantity]
) -> FloatArray:
    """Absolute errors of time on ``asked``, as fractions: fitted to ``known``, else as shipped."""
    values = fitted(step, thinned(known, step.most_settings)) if known else {}
    return np.abs(np.expm1(log_ratios(asked, values)[0]))


if __name__ == "__main__":
    main()
