"""The errors of published runs of inference, as what intervals are made of."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence, Set

from planner.validation.inference.cases import Mode
from planner.validation.inference.compare import MEMORY, THROUGHPUT, InferenceRow
from planner.validation.inference.intervals import inference_keys
from planner.validation.residuals import LARGEST, Residual, apart
from planner.validation.runs import Run

_QUANTITIES = {
    "time_to_first_token": ("time_to_first_token_s",),
    "time_per_output_token": ("time_per_output_token_s",),
    "throughput": THROUGHPUT,
    "peak_memory": (MEMORY,),
}
COLLECTION = "serving"
"""Publisher of the collections of one benchmark, whose files name none of their own."""


def inference_residuals(rows: Sequence[InferenceRow]) -> list[Residual]:
    """The residuals of every quantity of every row, absurd ones left out.

    Publishers are left out whole; one whose runs alone calibrate an engine, and the
    collections of serving runs, model by model.
    """
    alone = _alone(rows)
    return [residual for row in rows for residual in _residuals(row, alone)]


def publisher(run: Run) -> str:
    """Who published a run."""
    return run.text("publisher") or run.text("source")


def serving_layout_factor(rows: Iterable[InferenceRow]) -> tuple[float, int]:
    """How far the speeds of two layouts must be apart to be told apart, and from how many pairs.

    Of requests of the same lengths at the same concurrency on the same engine and GPU.
    """
    problems: defaultdict[Hashable, dict[Hashable, float]] = defaultdict(dict)
    for row in rows:
        case, ratio = row.prediction.case, row.time_ratio("time_per_output_token_s")
        if case is None or case.mode is not Mode.ONLINE or not ratio:
            continue
        version = row.run.text("framework_version")
        problem = (case.model.name, case.gpu.name, case.rule.profile, version, case.traffic)
        problems[problem][case.replica] = math.log(ratio)
    return apart(list(found.values()) for found in problems.values() if len(found) > 1)


def _residuals(row: InferenceRow, alone: Set[str]) -> Iterator[Residual]:
    case = row.prediction.case
    if case is None or row.prediction.reason:
        return
    source = publisher(row.run)
    fold = f"{source} {case.model.name}" if source in alone else source
    for quantity, names in _QUANTITIES.items():
        ratio = row.time_ratio(row.first_measured(names) or "")
        if ratio is not None and abs(math.log(ratio)) < LARGEST:
            yield Residual(
                quantity=quantity,
                keys=inference_keys(case),
                source=fold,
                fold=fold,
                shape=case.model.name,
                calibration=bool(row.run.flag("calibration")),
                value=-math.log(ratio),
            )


def _alone(rows: Iterable[InferenceRow]) -> set[str]:
    """Publishers whose runs alone calibrate an engine."""
    publishers: defaultdict[str, set[str]] = defaultdict(set)
    for row in rows:
        if row.prediction.case is not None and row.run.flag("calibration"):
            publishers[row.prediction.case.rule.profile].add(publisher(row.run))
    alone = {name for names in publishers.values() if len(names) == 1 for name in names}
    return alone | {COLLECTION}
