"""How many requests an offline benchmark sends at once, and what its engine was built for.

``offline_benchmarks.csv`` holds what the documents of such benchmarks say beside their tables.
No measurement is read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from planner.validation.run_tables import SCHEDULED, Run
from published.setups import benchmark_model
from published.tables import read_table, source_text

_OFFLINE = "continuous_max_throughput"
_NUMBERS = ("tensor_parallel", "input_tokens", "output_tokens")
_STATED = ("num_requests", *SCHEDULED)


def offline_benchmark(run: Run) -> dict[str, str]:
    """What its document says of a run: ``num_requests`` and the scheduler's bounds, if it does."""
    found: dict[str, str] = {}
    if run.word("mode") != _OFFLINE:
        return found
    for row in read_table("offline_benchmarks.csv"):
        if _is_of(run, row):
            found = {name: row[name] for name in _STATED if row.get(name)} | found
    return found


def _is_of(run: Run, row: Mapping[str, str]) -> bool:
    return (
        re.search(row["source"], source_text(run)) is not None
        and row["model"] in ("", benchmark_model(run))
        and all(row[name] in ("", str(run.count(name))) for name in _NUMBERS)
    )
