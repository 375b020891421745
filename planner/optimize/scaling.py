"""Scaling efficiency: what each GPU still does among more of them.

References
----------
.. [1] L. Zhang et al., "Dissecting the runtime performance of the training, fine-tuning, and
   inference of large language models," 2023, arXiv:2311.03687, section III: throughput over that of
   one GPU times their number.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from planner.optimize.result import Comparison

COLUMN, BESIDE = "scaling_efficiency", "tokens_per_s_per_gpu"
_ALIKE = ("model", "gpu", "adapter")


def with_scaling(
    table: Mapping[str, Any], comparisons: Mapping[str, Comparison]
) -> Mapping[str, Any]:
    """Columns of trained plans with their throughput per GPU over that of the fewest GPUs [1]_.

    That is of the plan which one would launch on these. The column is there where a search has
    several numbers of GPUs, of one kind and one model.
    """
    compared = comparisons.get("num_gpus")
    if compared is None or BESIDE not in table or "step_time_s" not in table:
        return table
    if any(name in comparisons for name in _ALIKE) or not len(compared.table["num_gpus"]):
        return table
    fewest = int(np.argmin(compared.table["num_gpus"]))
    one = float(compared.table[BESIDE][fewest])
    return with_column(table, np.asarray(table[BESIDE], dtype=np.float64) / one)


def with_column(table: Mapping[str, Any], column: Any) -> dict[str, Any]:
    """The same with the efficiency behind the throughput per GPU."""
    found: dict[str, Any] = {}
    for name, values in table.items():
        found[name] = values
        if name == BESIDE:
            found[COLUMN] = column
    return found


class FewestGpus:
    """Throughput per GPU of the fewest GPUs, for each set of answers that else are the same."""

    def __init__(self, rows: Iterable[tuple[Hashable, Mapping[str, Any]]]) -> None:
        self._found: dict[Hashable, tuple[float, float]] = {}
        for key, row in rows:
            rate, number = row.get(BESIDE), row.get("num_gpus")
            known = self._found.get(key)
            if rate and number and "step_time_s" in row and not (known and known[0] <= number):
                self._found[key] = (number, rate)

    def scaled(self, key: Hashable, row: Mapping[str, Any]) -> Mapping[str, Any]:
        """The row with its efficiency, None where no fewest GPUs are known."""
        base, rate = self._found.get(key), row.get(BESIDE)
        efficiency = rate / base[1] if base and rate and "step_time_s" in row else None
        return {**row, COLUMN: efficiency}
