"""Errors of the fitted profiles on runs their parameters were not fitted to.

Repeats each fit of fit_profiles.py without some of its runs and predicts those: whole
sources where a fit has several publishers, else whole model shapes, in five folds. Changes
no file:

    python scripts/cross_validate.py
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from fit_profiles import STEPS, Step, calibration_runs, fitted, rows_of

from planner.base.arrays import FloatArray
from planner.validation.calibration import MeasuredQuantity, Parameter, log_ratios

FOLDS = 5


def main() -> None:
    """Print in-sample and left-out errors of every step, fitted in the order of the steps."""
    silicon: dict[Parameter, float] = {}
    print(f"{'profile':27} {'runs':>5} {'left out':>9} {'in-sample':>10} {'MAPE':>7} {'median':>7}")
    for step in STEPS:
        rows = rows_of(step, silicon)
        names = folds_of(step, rows)
        left_out = np.concatenate(
            [_left_out(step, rows, names, name) for name in sorted(set(names))]
        )
        values = fitted(step, rows)
        inside = np.abs(np.expm1(log_ratios(rows, values)[int(step.memory)]))
        outside = np.abs(np.expm1(left_out))
        what = "sources" if len({_publisher(source) for source in step.sources}) > 1 else "shapes"
        quantity = "memory" if step.memory else "time"
        print(
            f"{step.profile:20} {quantity:6} {len(rows):5} {what:>9} {inside.mean():10.1%} "
            f"{outside.mean():7.1%} {np.median(outside):7.1%}"
        )
        silicon |= {p: v for p, v in values.items() if p.is_of_silicon}


def folds_of(step: Step, rows: Sequence[MeasuredQuantity]) -> list[str]:
    """The fold of each row of a step: its publisher, or one of five groups of model shapes."""
    lines = {row.line for row in rows}
    runs = [run for run in calibration_runs(step) if run.line in lines]
    if len({_publisher(source) for source in step.sources}) > 1:
        return [_publisher(run.text("source")) for run in runs]
    shapes = [(run.text("num_hidden_layers"), run.text("hidden_size")) for run in runs]
    order = {shape: index for index, shape in enumerate(sorted(set(shapes)))}
    return [str(order[shape] % FOLDS) for shape in shapes]


def _publisher(source: str) -> str:
    return re.split(r"[\s/]", source)[0]


def _left_out(
    step: Step, rows: Sequence[MeasuredQuantity], names: list[str], fold: str
) -> FloatArray:
    mine = [row for row, name in zip(rows, names, strict=True) if name == fold]
    others = [row for row, name in zip(rows, names, strict=True) if name != fold]
    return log_ratios(mine, fitted(step, others))[int(step.memory)]


if __name__ == "__main__":
    main()
