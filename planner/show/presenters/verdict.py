"""The first sentence of an answer: whether a plan fits, starts and runs."""

from __future__ import annotations

import math

from planner.base import formatting
from planner.base.csv_cells import Row
from planner.base.units import GIB
from planner.decide.assumptions import sensitive_assumptions
from planner.optimize.result_columns import fit_probability
from planner.optimize.source import first_row
from planner.show.presenters.format_results import number_of
from planner.show.presenters.infeasible import misfit_verdict
from planner.workloads.make_plan import Plan
from planner.workloads.workload import Evaluation

_EVEN = 0.5


def format_verdict(plan: Plan, evaluation: Evaluation) -> str:
    """Return a sentence on whether a configuration fits, starts and runs, with its peak memory.

    What fits with one release of the software alone may not fit.
    """
    if evaluation.rejected_by:
        return misfit_verdict(plan, evaluation)
    row = first_row(evaluation.table())
    for assumption in sensitive_assumptions(plan, evaluation.candidates):
        if assumption.of_release and assumption.does_not_fit:
            other = " or ".join(assumption.does_not_fit)
            condition = f"with the {assumption.name} {assumption.assumed}"
            return f"May not fit: {format_peak(plan, row)} {condition}; does not fit with {other}."
    verb = "May not fit" if fit_probability(row) < _EVEN else "Fits"
    return f"{verb}: {format_peak(plan, row)}."


def format_peak(plan: Plan, row: Row) -> str:
    """Return the peak memory of a row, the usable memory of its GPU, and how likely it fits.

    The text is ``peak 61.2 of 79.1 GiB (97 % likely)``.
    """
    usable = plan.source_of(row).usable_memory(row) / GIB
    probability = fit_probability(row)
    chance = ""
    if math.isfinite(probability):
        chance = f" ({formatting.format_probability(probability)} likely)"
    return f"peak {number_of(row, 'peak_memory_gib'):,.1f} of {usable:,.1f} GiB{chance}"
