"""The plans of a front as points of two results, for pictures and blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from planner.base.arrays import FloatArray
from planner.base.records import record
from planner.optimize.result import SearchResult, row_of
from planner.optimize.result_columns import ends_of, full_columns
from planner.plan.plan import Plan
from planner.report.front import of_objective, tied_with_first
from planner.report.short import short_plan
from planner.report.sure import told_ends

_MEMORY = "peak_memory_gib"


@record(kw_only=True)
class Points:
    """Values of a column for each plan, with the ends of their 90 % intervals.

    ``ends`` has shape ``(2, plans)``, NaN where there is no interval.
    """

    column: str
    values: FloatArray
    ends: FloatArray


@record(kw_only=True)
class FrontPoints:
    """The front, and in ``recommended`` the plan to launch, which may not be on it.

    ``first`` is what plans are chosen by before all else. ``ties``: published runs do not tell the
    plan from the first one. ``words`` tell the recommended plan, the first and the last of the
    front.
    """

    first: Points
    second: Points
    ties: Sequence[bool]
    recommended: tuple[Points, Points]
    words: tuple[str, str, str]


def front_points(plan: Plan, result: SearchResult) -> FrontPoints:
    """The front of a search that found something, by its first two objectives.

    With one objective the second column is the memory, or what the workload tells first.
    """
    if result.recommended is None:
        raise ValueError("The search found no plan.")
    table = full_columns(result.table, plan.problem.sources)
    one = row_of(result.recommended)
    first, second = _columns(plan, table)
    number = len(table["num_gpus"])
    rows = [{name: values[at] for name, values in table.items()} for at in (0, number - 1)]
    ends = told_ends(plan, result.recommended)
    mine, best, last = (short_plan(plan, row) for row in (one, *rows))
    return FrontPoints(
        first=_points(first, table),
        second=_points(second, table),
        ties=tied_with_first(plan, result.table)[0],
        recommended=(_point(first, one, ends), _point(second, one, ends)),
        words=(mine, best, last),
    )


def _columns(plan: Plan, table: Mapping[str, Any]) -> tuple[str, str]:
    goals = [of_objective(plan, goal.name, table) for goal in plan.problem.objectives]
    others = (_MEMORY, *plan.workload.wording.told)
    first, second = [*dict.fromkeys(name for name in (*goals, *others) if name in table)][:2]
    return first, second


def _points(column: str, table: Mapping[str, Any]) -> Points:
    values = np.asarray(table[column], dtype=np.float64)
    ends = [np.asarray(table[name], float) for name in ends_of(column) if name in table]
    known = ends if len(ends) == 2 else [np.full(values.shape, np.nan)] * 2
    return Points(column=column, values=values, ends=np.stack(known))


def _point(column: str, row: Mapping[str, Any], ends: Mapping[str, tuple[float, float]]) -> Points:
    known = np.asarray(ends.get(column, (np.nan, np.nan)), dtype=np.float64)
    return Points(column=column, values=np.array([float(row[column])]), ends=known[:, None])
