"""Scaling efficiency: what each GPU still does among more of them.

References
----------
.. [1] L. Zhang et al., "Dissecting the runtime performance of the training, fine-tuning, and
   inference of large language models," 2023, arXiv:2311.03687, section III: throughput over that of
   one GPU times their number.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import TypeVar

import numpy as np

from planner.base.cells import Value, number_in
from planner.optimize.source import Columns

Item = TypeVar("Item")
COLUMN, BESIDE = "scaling_efficiency", "tokens_per_s_per_gpu"
ALIKE = ("model", "gpu", "adapter")
"""The axes that plans must have in common."""


def with_scaling(table: Columns, by_number: Columns) -> Columns:
    """Columns of trained plans with their throughput per GPU over that of the fewest GPUs [1]_.

    ``by_number`` are the columns of the plans that one would launch on each number of GPUs.
    """
    if BESIDE not in table or "step_time_s" not in table or not len(by_number["num_gpus"]):
        return table
    fewest = int(np.argmin(np.asarray(by_number["num_gpus"])))
    one = float(np.asarray(by_number[BESIDE])[fewest])
    return with_column(table, np.asarray(table[BESIDE], dtype=np.float64) / one)


def with_column(table: Mapping[str, Item], column: Item) -> dict[str, Item]:
    """The same with the efficiency behind the throughput per GPU."""
    found: dict[str, Item] = {}
    for name, values in table.items():
        found[name] = values
        if name == BESIDE:
            found[COLUMN] = column
    return found


class FewestGpus:
    """Throughput per GPU of the fewest GPUs, for each set of answers that else are the same."""

    def __init__(self, rows: Iterable[tuple[Hashable, Mapping[str, Value]]]) -> None:
        self._found: dict[Hashable, tuple[float, float]] = {}
        for key, row in rows:
            if not (row.get(BESIDE) and row.get("num_gpus") and "step_time_s" in row):
                continue
            rate, number = number_in(row, BESIDE), number_in(row, "num_gpus")
            known = self._found.get(key)
            if known is None or known[0] > number:
                self._found[key] = (number, rate)

    def scaled(self, key: Hashable, row: Mapping[str, Value]) -> Mapping[str, Value]:
        """The row with its efficiency, None where no fewest GPUs are known."""
        base, is_known = self._found.get(key), row.get(BESIDE) and "step_time_s" in row
        efficiency = number_in(row, BESIDE) / base[1] if base and is_known else None
        return {**row, COLUMN: efficiency}
