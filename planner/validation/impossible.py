"""Whether the layout of a published run can be what ran."""

from __future__ import annotations

from planner.logs.reading import OUT_OF_MEMORY
from planner.validation.columns import MEASURED
from planner.validation.inference.cases import InferenceCase
from planner.validation.inference.impossible import impossible_layout
from planner.validation.prediction import Case
from planner.validation.runs import Run
from planner.validation.training.cases import TrainingCase
from planner.validation.training.impossible import impossible_training_layout


def why_impossible(run: Run, case: Case) -> str:
    """Why the columns of a run cannot be its layout; empty where they can.

    A prediction for such a run is about something else: it is listed, and left out of the tables
    of errors. A run that ran out of memory needs not fit.
    """
    if run.flag(f"{MEASURED}{OUT_OF_MEMORY}"):
        return ""
    if isinstance(case, InferenceCase):
        return impossible_layout(run, case)
    return impossible_training_layout(run, case) if isinstance(case, TrainingCase) else ""
