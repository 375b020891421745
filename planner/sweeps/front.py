"""The front across scenarios: what nothing else beats in time, cost, GPUs and energy together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from planner.arrays import IndexArray
from planner.optimize.pareto import front_of_many

# By workload what is weighed against each other, all the less the better; an unknown value loses
# against every known one.
WEIGHED: Mapping[str, tuple[str, ...]] = {
    "train": ("calendar_time_days", "cost_usd", "num_gpus", "energy_kwh"),
    "serve": ("request_latency_s", "cost_per_million_tokens_usd", "num_gpus", "cost_per_hour_usd"),
    "inference": ("request_latency_s", "cost_per_million_tokens_usd", "num_gpus"),
}
# Scenarios of one work and one model do the same; others cannot be weighed against each other.
_ALIKE = ("work", "model", "adapter")
_MOST_AT_ONCE = 4096


def front_across(rows: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """The rows that no other of the same work and model is better than, in their order."""
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    most: dict[tuple[Any, ...], int] = {}
    for row in rows:
        if row["feasible"]:
            key = tuple(row.get(name) for name in _ALIKE)
            group = groups.setdefault(key, [])
            group.append(row)
            if len(group) >= most.get(key, 2 * _MOST_AT_ONCE):
                group[:] = _front(group)
                most[key] = 2 * max(_MOST_AT_ONCE, len(group))  # a front may be long itself
    found = [row for group in groups.values() for row in _front(group)]
    yield from sorted(found, key=lambda row: int(row["scenario"]))


def _front(group: list[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    columns = WEIGHED[group[0]["workload"]]
    values = np.array([[_weight(row.get(name)) for name in columns] for row in group])
    kept: IndexArray = np.sort(front_of_many(values))
    return [group[at] for at in kept]


def _weight(value: Any) -> float:
    return np.inf if value is None else float(value)
