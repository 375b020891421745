"""From a table of measured runs to what a profile is fitted to."""

from __future__ import annotations

from collections import Counter

from planner.calibration.fit import Measured
from planner.errors import CalibrationError
from planner.units import GIB
from planner.validation.cases import Case, case_of
from planner.validation.library import Library
from planner.validation.models import NotPredicted
from planner.validation.runs import Run, Runs


def measured_runs(runs: Runs, library: Library, profile: str | None) -> tuple[str, list[Measured]]:
    """The runs of one framework profile that measured something, and the profile's name.

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
            f"None of {len(runs.rows)} rows has a measured step time, throughput or peak "
            f"memory and can be predicted with {profile or 'any profile'}: `planner validate` "
            "says why, row by row."
        )
    return str(profile), mine


def _measured(run: Run, library: Library) -> Measured | None:
    try:
        case = case_of(run, library)
    except NotPredicted:
        return None
    step_time, memory = _step_time(run, case), run.number("measured_peak_memory_gib")
    if not step_time and not memory:
        return None
    return Measured(
        case=case, line=run.line, step_time=step_time, memory=memory * GIB if memory else None
    )


def _step_time(run: Run, case: Case) -> float | None:
    """Measured seconds of a step, from the throughput where only that is given."""
    if run.number("measured_step_time_s"):
        return run.number("measured_step_time_s")
    layout = case.layouts[0]
    batch = run.number("global_batch_size")
    per_gpu = run.number("measured_tokens_per_s_per_gpu")
    total = run.number("measured_tokens_per_s") or (per_gpu or 0.0) * layout.num_gpus
    return batch * case.sequence_length / total if batch and total else None
