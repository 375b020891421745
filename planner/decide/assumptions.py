"""Assumptions that change predictions, and by how much."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Self

import numpy as np

from planner.base.csv_cells import Row, number_or_nan
from planner.base.read_files import UncheckedTable, require_entry
from planner.base.records import record
from planner.optimize.collector import value_or_none
from planner.optimize.result_columns import COLUMNS_BY_ERROR
from planner.optimize.source import Candidates
from planner.workloads.assumptions import Assumption, EvaluatedChoice
from planner.workloads.make_plan import Plan

MIN_RELATIVE_CHANGE = 0.1
"""Smallest relative change of a prediction that is reported."""

Ends = tuple[float, float]


@record(kw_only=True)
class SensitiveAssumption:
    """An assumption that changes predictions by more than `MIN_RELATIVE_CHANGE`.

    Parameters
    ----------
    name : question or parameter that is not specified
    assumed : assumed value in words
    tried : alternative values in words
    moved : least and greatest prediction over assumption and alternatives, by result column
    each : predictions by value and result column
    does_not_fit : alternatives that do not fit in memory
    of_release : whether the installed release of the software decides, not a choice
    """

    name: str
    assumed: str
    tried: tuple[str, ...]
    moved: Mapping[str, Ends]
    each: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    does_not_fit: tuple[str, ...] = ()
    of_release: bool = False

    def to_dict(self) -> dict[str, object]:
        """Return the assumption as a dictionary for JSON."""
        return {
            "fact": self.name,
            "assumed": self.assumed,
            "tried": list(self.tried),
            "does_not_fit": list(self.does_not_fit),
            "of_release": self.of_release,
            "predictions": {name: [*map(value_or_none, each)] for name, each in self.moved.items()},
            "each": {label: dict(values) for label, values in self.each.items()},
        }

    @classmethod
    def from_dict(cls, table: UncheckedTable) -> Self:
        """Read the assumption from a dictionary of `to_dict`; unknown ends are NaN.

        Raises SpecError, TypeError, ValueError or AttributeError if the table is invalid.

        Parameters
        ----------
        table : dictionary of `to_dict`
        """
        return cls(
            name=require_entry(table, "fact", str),
            assumed=require_entry(table, "assumed", str),
            tried=tuple(map(str, require_entry(table, "tried", list))),
            moved={
                n: _ends_from_json(ends)
                for n, ends in require_entry(table, "predictions", dict).items()
            },
            each={
                label: {name: float(value) for name, value in values.items()}
                for label, values in require_entry({"each": {}, **table}, "each", dict).items()
            },
            does_not_fit=tuple(map(str, require_entry(table, "does_not_fit", list))),
            of_release=require_entry({"of_release": False, **table}, "of_release", bool),
        )


def sensitive_assumptions(plan: Plan, candidates: Candidates) -> list[SensitiveAssumption]:
    """Return the assumptions that change the plan's predictions, tried one at a time.

    The configuration stays the same, with as many concurrent requests as have room for a KV cache.
    An alternative that is impossible on its GPUs is left out; one that does not fit in memory is
    only named. The alternatives of one plan are predicted once, at the first call.
    """
    saved = candidates.saved_assumptions
    if not saved or saved[0] is not plan:
        saved[:] = plan, _predict_assumptions(plan, candidates)
    return [*saved[1]]


def _predict_assumptions(plan: Plan, candidates: Candidates) -> list[SensitiveAssumption]:
    if _rejection_code(candidates):
        return []
    chosen = EvaluatedChoice(request=plan.request, space=plan.space, candidates=candidates)
    base_row = candidates.row
    facts = (
        _evaluate_assumption(plan, fact, candidates, base_row)
        for fact in plan.workload.open_facts(chosen)
    )
    return [fact for fact in facts if fact.moved or fact.does_not_fit]


def _evaluate_assumption(
    plan: Plan, fact: Assumption, candidates: Candidates, base_row: Row
) -> SensitiveAssumption:
    """Predict the plan with alternatives of an assumption and compare with ``base_row``."""
    first_memory = candidates.source.num_rules + 1
    possible = {
        label: judged for label, judged in fact.tried.items() if not _rejection_code(judged)
    }
    rows = [base_row, *(judged.row for judged in possible.values())]
    moved = {
        name: (min(values), max(values))
        for name in _reported_columns(plan, base_row)
        # An alternative without prefix-cache hits has no column of them.
        if all(name in row for row in rows)
        and _changes_prediction(values := [number_or_nan(row[name]) for row in rows])
    }
    return SensitiveAssumption(
        name=fact.name,
        assumed=fact.assumed,
        tried=tuple(possible),
        moved=moved,
        each={
            label: {name: number_or_nan(values[name]) for name in moved}
            for label, values in zip((fact.assumed, *possible), rows, strict=True)
        }
        if moved
        else {},
        does_not_fit=tuple(
            label for label, judged in fact.tried.items() if _rejection_code(judged) >= first_memory
        ),
        of_release=fact.of_release,
    )


def _rejection_code(candidates: Candidates) -> int:
    """Number of the rejection of the one configuration; 0: feasible."""
    return int(np.max(candidates.rejected_by))


def _ends_from_json(ends: Iterable[object]) -> Ends:
    low, high = map(number_or_nan, ends)
    return low, high


def _reported_columns(plan: Plan, row: Row) -> list[str]:
    """The predictions that an answer shows first, then all others with published errors."""
    followed = [name for same, inverse in COLUMNS_BY_ERROR.values() for name in (*same, *inverse)]
    shown = plan.workload.wording.shown_columns
    return [name for name in dict.fromkeys((*shown, *followed)) if name in row]


def _changes_prediction(values: list[float]) -> bool:
    base, *others = values
    if not all(map(math.isfinite, (base, *others))):
        return False
    return any(abs(other - base) > MIN_RELATIVE_CHANGE * abs(base) for other in others)
