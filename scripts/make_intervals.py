"""Make the intervals and the list of calibrated kinds from the runs that ship.

Writes intervals.csv and calibrated.csv of planner/validation, inference_intervals.csv and
engines_calibrated.csv for inference, and prints, per source, the share
of its runs that intervals made without it hold. Run it after a change of the model or of its
parameters:

    python scripts/make_intervals.py
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import planner.validation
from planner.validation.compare import Row, joined
from planner.validation.inference.compare import InferenceRow, joined_inference
from planner.validation.inference.intervals import CALIBRATED, INTERVALS, QUANTITIES
from planner.validation.inference.predict import predict_inference
from planner.validation.inference.residuals import inference_residuals, serving_layout_factor
from planner.validation.intervals import INFERENCE_KEYS, KEYS, LEVEL, keys_of
from planner.validation.predict import predict
from planner.validation.residuals import Cell, cells, held_when_left_out, layout_factor, residuals
from planner.validation.runs import SHIPPED_INFERENCE, read_runs

FOLDER = Path(planner.validation.__file__).parent


def main() -> None:
    """Write the files of training and of inference."""
    _training()
    _inference()


def _training() -> None:
    runs = read_runs()
    rows = joined(runs, predict(runs))
    found = residuals(rows)
    _write_intervals("intervals.csv", KEYS, cells(found), [_layout(*layout_factor(rows))])
    _write_calibrated(rows)
    for quantity in ("step_time", "peak_memory"):
        _print_held(quantity, held_when_left_out(found, quantity))


def _inference() -> None:
    tables = [read_runs(path) for path in SHIPPED_INFERENCE]
    rows = [row for runs in tables for row in joined_inference(runs, predict_inference(runs))]
    found = inference_residuals(rows)
    apart = _layout(*serving_layout_factor(rows))
    _write_intervals(INTERVALS, INFERENCE_KEYS, cells(found), [apart])
    _write_calibrated_engines(rows)
    for quantity in QUANTITIES:
        _print_held(quantity, held_when_left_out(found, quantity))


def _layout(factor: float, pairs: int) -> tuple[object, ...]:
    ends = (f"{1 / factor:.4f}", f"{factor:.4f}")
    return ("layout", *[""] * len(KEYS), LEVEL, *ends, pairs, "pairs")


def _print_held(quantity: str, held: dict[str, tuple[int, int]]) -> None:
    total = sum(runs for runs, _ in held.values())
    inside = sum(inside for _, inside in held.values())
    print(f"{quantity}: {inside / total:.1%} of {total} left-out runs held")
    for source, (runs, right) in sorted(held.items(), key=lambda item: -item[1][0]):
        print(f"  {source:50} {runs:5} runs, {right / runs:.0%}")


def _write_intervals(
    name: str, keys: Sequence[str], found: Iterable[Cell], more: Sequence[Sequence[object]]
) -> None:
    header = ("quantity", *keys, "level", "low", "high", "rows", "basis")
    lines = [
        (cell.quantity, *cell.keys, LEVEL, f"{cell.low:.4f}", f"{cell.high:.4f}", cell.rows,
         cell.basis)
        for cell in found
    ]  # fmt: skip
    _write(name, header, [*lines, *more])


def _write_calibrated_engines(rows: Iterable[InferenceRow]) -> None:
    kinds: Counter[tuple[str, str, str]] = Counter()
    for row in rows:
        case = row.prediction.case
        if case is not None and row.run.flag("calibration"):
            kinds[case.rule.profile, case.gpu_class, case.kind] += 1
    lines = [(*kind, number) for kind, number in sorted(kinds.items())]
    _write(CALIBRATED, ("profile", "gpu_class", "kind", "rows"), lines)


def _write_calibrated(rows: Iterable[Row]) -> None:
    kinds: Counter[tuple[str, str, str]] = Counter()
    for row in rows:
        case = row.prediction.case
        if case is not None and row.run.flag("calibration") and row.time_ratio is not None:
            _, silicon, _, kind = keys_of(case)
            kinds[case.rule.profile, silicon, kind] += 1
    lines = [(*kind, number) for kind, number in sorted(kinds.items())]
    _write("calibrated.csv", ("profile", "gpu_class", "kind", "rows"), lines)


def _write(name: str, header: Sequence[str], lines: Iterable[Sequence[object]]) -> None:
    with (FOLDER / name).open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerows([header, *lines])


if __name__ == "__main__":
    main()
