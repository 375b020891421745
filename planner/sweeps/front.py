"""The front across scenarios: what nothing else beats in time, cost, GPUs and energy together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from planner.optimize.pareto import front_of_many
from planner.sweeps.plan import SweepPlan, work_columns
from planner.workloads.registry import workload_of

# Scenarios of one work and one model do the same; others cannot be weighed against each other.
_ALIKE = ("work", "model", "adapter")


def front_across(rows: Iterable[Mapping[str, Any]], plan: SweepPlan) -> set[int]:
    """The numbers of the scenarios that no other one that does the same is better than.

    Of each row a few numbers are kept. An unknown value loses against every known one.
    """
    alike = {work.name: (*_ALIKE, *work_columns(work)) for work in plan.works}
    groups: dict[tuple[Any, ...], tuple[list[int], list[tuple[float, ...]]]] = {}
    for row in rows:
        if row["feasible"]:
            key = tuple(row.get(name) for name in alike[row["work"]])
            numbers, values = groups.setdefault(key, ([], []))
            numbers.append(int(row["scenario"]))
            weighed = workload_of(row["workload"]).weighed
            values.append(tuple(_weight(row.get(name)) for name in weighed))
    return {
        numbers[at]
        for numbers, values in groups.values()
        for at in front_of_many(np.array(values)).tolist()
    }


def _weight(value: Any) -> float:
    return np.inf if value is None else float(value)
