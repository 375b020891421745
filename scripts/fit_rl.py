"""Fit what a framework's rollouts cost to published steps, and judge it on models left out.

    python scripts/fit_rl.py

prints the values for `framework_profiles/nemo-rl.toml`, the errors of each model and of each source
that are left out, and writes the intervals of `planner/confidence/rl_intervals.csv` from the
former: sources of one framework share their models, so that these are the harder test.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np

import planner
from planner.confidence.evidence import EVIDENCE_COLUMNS, evidence_rows
from planner.confidence.intervals import LEVEL
from planner.confidence.rl import RL_TABLES
from planner.specs.catalogue import Catalogue
from planner.validation.rl import RlCase, predict_rl_group, rl_case, tuned
from planner.validation.run_tables import SHIPPED_RL, Run, read_runs
from planner.validation.spec_library import Library, NotPredicted

ROOT = Path(planner.__file__).parent
_GRID = {
    "decode_layer_time": (0.12e-3, 0.16e-3, 0.2e-3),
    "pass_factor": (1.0, 1.1, 1.2, 1.3),
    "expert_host_wait": (2.5e-3, 3.5e-3, 4.5e-3),
}
_OF_TRAINER = "expert_host_wait"
_PHASES = ("generate", "logprob", "update", "sync")
_HEAD = ("quantity", *RL_TABLES.keys, "level", "low", "high", "rows", "basis")


def cases() -> Iterator[tuple[Run, RlCase]]:
    """The rows with a step time that are predicted, in the layout that is fastest as shipped."""
    library = Library(catalogue=Catalogue(None))
    timed = (run for run in read_runs(SHIPPED_RL).rows if run.number("measured_step_time_s"))
    for run in timed:
        try:
            yield run, tuned(rl_case(run, library))
        except NotPredicted as error:
            print(f"{run.text('id')}: {error}")


def errors(known: Sequence[tuple[Run, RlCase]], values: Sequence[float]) -> np.ndarray:
    """Logarithms of predicted over measured step times."""
    changed = dict(zip(_GRID, values, strict=True))
    execution = {_OF_TRAINER: changed.pop(_OF_TRAINER)}
    found = []
    for run, case in known:
        framework = replace(
            case.framework,
            rollouts=replace(case.framework.rollouts, **changed),  # type: ignore[type-var]
            execution=replace(case.framework.execution, **execution),
        )
        (one,) = predict_rl_group([replace(case, framework=framework)])
        found.append(np.log(one.values["step_time_s"] / run.number("measured_step_time_s")))
    return np.array(found)


def left_out(table: np.ndarray, names: Sequence[str], fitted: np.ndarray) -> np.ndarray:
    """The errors of each name's rows where the other names' rows are fitted to."""
    found = np.zeros(len(names))
    for name in dict.fromkeys(names):
        mine = np.array([one == name for one in names])
        best = np.abs(table[:, fitted & ~mine]).mean(axis=1).argmin()
        found[mine] = table[best, mine]
        told = np.abs(np.expm1(found[mine])).mean()
        print(f"  {name}: {mine.sum()} rows, mean error {told:.0%}")
    return found


def intervals(out: np.ndarray, rows: Iterable[tuple[str, float, float, int]]) -> None:
    """Write the intervals: of step times by the errors of what was left out."""
    ends = np.exp(-np.quantile(out, [(1 + LEVEL) / 2, (1 - LEVEL) / 2]))
    path = ROOT / "confidence" / "rl_intervals.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(_HEAD)
        whole = [("step_time", *ends, len(out)), *rows]
        for name, low, high, number in whole:
            basis = "models" if name == "step_time" else "assumed"
            writer.writerow([name, "", "", "", LEVEL, f"{low:.4f}", f"{high:.4f}", number, basis])


def _evidence(known: Sequence[tuple[Run, RlCase]]) -> None:
    """Write which frameworks have steps on which GPUs."""
    rows = evidence_rows((case.rule, case.gpu.name, case.conditions) for _, case in known)
    path = ROOT / "confidence" / RL_TABLES.evidence
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([EVIDENCE_COLUMNS, *rows])


def main() -> None:
    """Fit, judge, write."""
    known = [*cases()]
    grid = [*product(*_GRID.values())]
    table = np.array([errors(known, values) for values in grid])
    fitted = np.array([bool(run.flag("calibration")) for run, _ in known])
    best = grid[int(np.abs(table[:, fitted]).mean(axis=1).argmin())]
    print(dict(zip(_GRID, best, strict=True)))
    for column in ("source", "model"):
        print(f"Left out by {column}:")
        out = left_out(table, [run.text(column) for run, _ in known], fitted)
        mean, log = np.abs(np.expm1(out)).mean(), np.abs(out).mean()
        print(f"  all: mean error {mean:.1%}, mean absolute logarithm {log:.3f}")
    _evidence(known)
    few = [(name, 0.4, 2.5, 8) for name in _PHASES[:-1]]
    intervals(out, [*few, ("sync", 0.2, 5.0, 8), ("peak_memory", 0.75, 1.4, 5)])


if __name__ == "__main__":
    main()
