"""From a table of measured runs to what a profile is fitted to."""

from __future__ import annotations

from collections import Counter

from planner.calibration.fit import Measured
from planner.errors import CalibrationError
from planner.validation.cases import Case, case_of
from planner.validation.library import Library
from planner.validation.models import NotPredicted
from planner.validation.runs import Run, Runs


def measured_runs(runs: Runs, library: Library, profile: str | None) -> tuple[str, list[Measured]]:
    """The runs of one framework profile that have a step time, and the profile's name.

    Without a name it is the profile most rows belong to.

    Raises
    ------
    CalibrationError
        No row can be used.
    """
    found = [row for run in runs.rows if (row := _measured(run, library)) is not None]
    counts = Counter(row.case.rule.profile for row in found)
    if profile is None and counts:
        profile = counts.most_common(1)[0][0]
    mine = [row for row in found if row.case.rule.profile == profile]
    if not mine:
        raise CalibrationError(
            f"None of {len(runs.rows)} rows has a measured step time or throughput and can be "
            f"predicted with {profile or 'any profile'}: `planner validate` says why, row by row."
        )
    return str(profile), mine


def _measured(run: Run, library: Library) -> Measured | None:
    try:
        case = case_of(run, library)
    except NotPredicted:
        return None
    step_time = _step_time(run, case)
    return None if step_time is None else Measured(case=case, step_time=step_time)


def _step_time(run: Run, case: Case) -> float | None:
    """Measured seconds of a step, from the throughput where only that is given."""
    if run.number("measured_step_time_s"):
        return run.number("measured_step_time_s")
    layout = case.layouts[0]
    batch = run.number("global_batch_size")
    per_gpu = run.number("measured_tokens_per_s_per_gpu")
    total = run.number("measured_tokens_per_s") or (per_gpu or 0.0) * layout.num_gpus
    return batch * case.sequence_length / total if batch and total else None
