"""Predictions for a table of runs: one vectorized pass per group of cases."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace

from planner.confidence.intervals import SUREST, basis_of, interval_of
from planner.logs.reading import OUT_OF_MEMORY
from planner.specs.cache import steady
from planner.validation.columns import MEASURED
from planner.validation.kinds import Kind, kind_of
from planner.validation.library import Library
from planner.validation.models import NotPredicted
from planner.validation.prediction import RATES, Case, Prediction, Range
from planner.validation.runs import Run, Runs

IMPOSSIBLE = "impossible"
"""In place of a basis where the columns of a run cannot be its layout."""

Progress = Callable[[int], None]


@steady()
def predict(
    runs: Runs, library: Library | None = None, progress: Progress | None = None
) -> list[Prediction]:
    """A prediction for every row, in the order of the rows."""
    shelf, kind = library or Library(), kind_of(runs)
    found = [_placed(run, shelf, kind) for run in runs.rows]
    groups: defaultdict[Hashable, list[tuple[int, Case]]] = defaultdict(list)
    for index, prediction in enumerate(found):
        if prediction.case is not None:
            groups[prediction.case.group].append((index, prediction.case))
    done = len(found) - sum(map(len, groups.values()))
    for members in groups.values():
        cases = [case for _, case in members]
        faults = why_impossible(kind, [runs.rows[index] for index, _ in members], cases)
        answers = zip(members, kind.predict_group(cases), faults, strict=True)
        for (index, case), prediction, fault in answers:
            if prediction.reason:
                found[index] = prediction
                continue
            near = basis_of(case.software, case.gpu_class, case.kind, kind.tables)
            near = IMPOSSIBLE if fault else near
            found[index] = replace(prediction, basis=near, impossible=fault)
        done += len(members)
        if progress is not None:
            progress(done)
    return found


def ranges(prediction: Prediction, kind: Kind) -> dict[str, Range]:
    """The predicted quantities by name, each with its 90 % interval."""
    case = prediction.case
    if case is None or prediction.reason:
        return {}
    found, near = {}, prediction.basis
    for name, value in prediction.values.items():
        asked = kind.interval_names[name], case.keys, kind.tables, near
        low, high = interval_of(*asked, case.software.profile, case.lacks)
        if name in RATES:
            low, high = 1 / high, 1 / low if low else float("inf")
        found[name] = Range(value=value, low=value * low, high=value * high)
    value, chance = float(not prediction.fits), 1 - prediction.fit_probability
    low, high = float(chance > SUREST), float(chance > 1 - SUREST)
    found[OUT_OF_MEMORY] = Range(value=value, low=min(low, value), high=max(high, value))
    return found


def _placed(run: Run, library: Library, kind: Kind) -> Prediction:
    try:
        return Prediction(case=kind.case_of(run, library))
    except NotPredicted as reason:
        return Prediction(reason=str(reason))


def why_impossible(kind: Kind, runs: Sequence[Run], cases: Sequence[Case]) -> list[str]:
    """Why the columns of each run of a group cannot be its layout; empty where they can.

    A prediction for such a run is about something else: it is listed, and left out of the tables
    of errors. A run that ran out of memory needs not fit.
    """
    return [
        "" if run.flag(f"{MEASURED}{OUT_OF_MEMORY}") else fault
        for run, fault in zip(runs, kind.impossible(runs, cases), strict=True)
    ]
