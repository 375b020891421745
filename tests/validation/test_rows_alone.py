"""What is predicted of a row depends on nothing but the row, whatever else is in its file."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from dataclasses import replace

import pytest
from draws import examples

from planner.validation.accuracy import kind_of, predict, ranges
from planner.validation.run_tables import SHIPPED, Prediction, Run, Runs, read_runs
from planner.validation.spec_library import Library

LOADS: tuple[dict[str, str], ...] = (
    {},
    {"concurrency": "", "num_requests": "", "request_rate": ""},
    {"concurrency": "", "num_requests": "300", "request_rate": ""},
    {"concurrency": "", "num_requests": "", "request_rate": "2.5"},
    {"concurrency": "", "num_requests": "300", "request_rate": "2.5"},
    {"concurrency": "24", "num_requests": "", "request_rate": ""},
    {"concurrency": "700", "num_requests": "900", "request_rate": ""},
)
"""How requests may come in rows that are else the same."""


def drawn(runs: Runs, chance: random.Random) -> Iterator[list[Run]]:
    """Of each kind rows that are next to each other, as those of a publisher, and variants."""
    kinds = {(run.word("mode"), run.word("workload")): None for run in runs.rows}
    for mode, workload in kinds:
        alike = [
            run for run in runs.rows if (run.word("mode"), run.word("workload")) == (mode, workload)
        ]
        for _ in range(examples(12, 1)):
            start = chance.randrange(len(alike))
            found = alike[start : start + 5]
            if mode in ("online", "agg", "continuous_max_throughput"):
                loads = chance.sample(LOADS[1:], 4)
                found += [
                    replace(run, cells={**run.cells, **load}) for run in found for load in loads
                ]
            yield found


def told(prediction: Prediction, runs: Runs) -> dict[str, object]:
    """All that a prediction says of a row."""
    found: dict[str, object] = {
        f"{name} {end}": getattr(one, end)
        for name, one in ranges(prediction, kind_of(runs)).items()
        for end in ("value", "low", "high")
    }
    return found | {"basis": prediction.basis, "reason": prediction.reason}


@pytest.mark.few(1)
@pytest.mark.parametrize("table", ["training", "inference", "serving", "rl"])
def test_each_row_alone_is_the_row_in_its_file(table: str) -> None:
    runs, library = read_runs(SHIPPED.with_name(f"{table}.csv")), Library()
    chance = random.Random(int(os.environ.get("PLANNER_SEED", 7)))
    for rows in drawn(runs, chance):
        together = replace(runs, rows=tuple(rows))
        for run, found in zip(together.rows, predict(together, library), strict=True):
            (alone,) = predict(replace(runs, rows=(run,)), library)
            expected, seen = told(alone, runs), told(found, runs)
            assert seen.keys() == expected.keys()
            for name, value in expected.items():
                near = pytest.approx(value, rel=1e-9) if isinstance(value, float) else value
                assert seen[name] == near, (run.cells.get("id"), name)
